/* Call stacks as numbers: each distinct one is defined once, as a tree of frames from the outermost inward.
 *
 * Unwinding is slow; most allocations come from few places. A thread remembers stacks by the call's stack pointer and return
 * address, with the places in the stack where the return addresses of all frames stood, and the frame pointers by which some of
 * them were found. If each still holds what it held, the stack is the same (x86-64, where a return address stands right below its frame's canonical address), unless a library has
 * been unloaded since: another one may stand at its addresses. */
#include <link.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include "preload/recorder.h"
#include "preload/unwind.h"
#include "trace/definitions.h"

enum {
    DEPTH_MOST = RECORDER_DEPTH_MOST,
    SKIPPED = 2, /* recorder_stack and the hook that called it */
    CACHE = 512, /* two for each key of 8 bits */
    NODES_FIRST = 1 << 14,
    MODULES_MOST = 2048,
    BUILD_ID_MOST = 64,
    PATH_KEPT = 512,
};

/* ---- Modules ------------------------------------------------------------------------------------------ */

struct module {
    uint64_t start, end, base;
    uint64_t identity; /* hash of path and build id */
    uint32_t number;   /* 0: not defined yet */
    char build_id[2 * BUILD_ID_MOST + 1];
    char path[PATH_KEPT];
};

/* Those that are mapped. */
struct modules {
    struct module items[MODULES_MOST];
    uint32_t count;
    unsigned long long adds, subs; /* how many had come and gone when the list was made */
};

static const uint8_t *find_build_id(const struct dl_phdr_info *info, uint32_t *length)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_NOTE)
            continue;
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const char *name = at + sizeof *note;
            const char *body = name + ((note->n_namesz + 3) & ~3U);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                *length = note->n_descsz;
                return (const uint8_t *)body;
            }
            at = body + ((note->n_descsz + 3) & ~3U);
        }
    }
    return NULL;
}

static void take_build_id(const struct dl_phdr_info *info, struct module *m)
{
    uint32_t length = 0;
    const uint8_t *id = find_build_id(info, &length);
    for (uint32_t i = 0; id && i < length && i < BUILD_ID_MOST; i++) {
        m->build_id[2 * i] = "0123456789abcdef"[id[i] >> 4];
        m->build_id[2 * i + 1] = "0123456789abcdef"[id[i] & 15];
    }
}

/* The program itself has no name in the list. */
static void take_path(const struct dl_phdr_info *info, struct module *m, bool is_first)
{
    if (info->dlpi_name && *info->dlpi_name) {
        strncpy(m->path, info->dlpi_name, sizeof m->path - 1);
    } else if (is_first) {
        ssize_t length = readlink("/proc/self/exe", m->path, sizeof m->path - 1);
        m->path[length > 0 ? length : 0] = 0;
    }
}

/* Called with the loader's lock held, so with none of ours: a thread that loads a library may be waiting for those. */
static int take_module(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    struct modules *list = out;
    list->adds = info->dlpi_adds;
    list->subs = info->dlpi_subs;
    if (list->count == MODULES_MOST)
        return 1;
    struct module *m = &list->items[list->count];
    *m = (struct module){.start = UINT64_MAX, .base = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uint64_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            m->start = at < m->start ? at : m->start;
            m->end = at + info->dlpi_phdr[i].p_memsz > m->end ? at + info->dlpi_phdr[i].p_memsz : m->end;
        }
    if (m->start >= m->end)
        return 0;
    take_build_id(info, m);
    take_path(info, m, list->count == 0);
    m->identity = berth__trace_checksum(m->path, strlen(m->path)) ^
                  berth__trace_checksum(m->build_id, strlen(m->build_id));
    list->count++;
    return 0;
}

static int ask_changes(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    unsigned long long *changes = out;
    changes[0] = info->dlpi_adds;
    changes[1] = info->dlpi_subs;
    return 1;
}

static uint32_t define_text(const char *text)
{
    uint64_t values[] = {0, strlen(text)};
    return values[1] ? recorder_define(BERTH__TRACE_TEXT, &recorder_header()->texts, values, text) : 0;
}

static uint32_t define_module(const struct module *m)
{
    uint64_t values[] = {
        0, recorder_process(), define_text(m->path), define_text(m->build_id), m->base, m->start, m->end};
    return recorder_define(BERTH__TRACE_MODULE, &recorder_header()->modules, values, NULL);
}

static uint32_t find_module(const struct modules *list, uint64_t address)
{
    for (uint32_t i = 0; list && i < list->count; i++)
        if (address >= list->items[i].start && address < list->items[i].end)
            return list->items[i].number;
    return 0;
}

/* ---- The tree ----------------------------------------------------------------------------------------- */

struct node {
    uint64_t address;
    uint32_t caller, module, number; /* number 0: empty */
};

static struct {
    recorder_lock lock;
    struct node *nodes; /* open addressing; guard: lock */
    uint32_t mask, count;
    struct modules *modules, *spare; /* guard: lock. Spare: taken by who makes a new list */
    _Atomic unsigned long long adds, subs;
    _Atomic bool has_modules;
} stacks;

/* What was mapped before keeps its number. Guard: lock. */
static void number_modules(struct modules *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct module *m = &list->items[i];
        for (uint32_t j = 0; stacks.modules && j < stacks.modules->count && !m->number; j++) {
            const struct module *old = &stacks.modules->items[j];
            if (old->start == m->start && old->end == m->end && old->identity == m->identity)
                m->number = old->number;
        }
        if (!m->number)
            m->number = define_module(m);
    }
}

/* How many libraries had gone when somebody looked last: stacks that were remembered before are not looked at. */
static _Atomic unsigned long long unloads;

/* It never goes back: two threads may have looked at once. What is known of frames goes first, before anybody who sees that
 * nothing is new walks through a library that has come in place of another. */
static void note_unloads(unsigned long long subs)
{
    unsigned long long seen = atomic_load(&unloads);
    if (seen < subs)
        recorder_unwind_forget();
    while (seen < subs && !atomic_compare_exchange_weak(&unloads, &seen, subs))
        ;
}

void recorder_stacks_unloaded(void)
{
    unsigned long long changes[2] = {0, 0};
    dl_iterate_phdr(ask_changes, changes);
    note_unloads(changes[1]);
}

/* Libraries come and go: frames of one that has left keep its module. */
static void refresh_modules(void)
{
    unsigned long long changes[2] = {0, 0};
    dl_iterate_phdr(ask_changes, changes);
    note_unloads(changes[1]); /* the C library also unloads what it loaded for itself, without our dlclose */
    if (atomic_load(&stacks.has_modules) && changes[0] == atomic_load(&stacks.adds) &&
        changes[1] == atomic_load(&stacks.subs))
        return;
    recorder_lock_take(&stacks.lock);
    struct modules *list = stacks.spare;
    stacks.spare = NULL;
    recorder_lock_give(&stacks.lock);
    if (!list && !(list = recorder_pages(sizeof *list)))
        return;
    list->count = 0;
    dl_iterate_phdr(take_module, list);
    recorder_lock_take(&stacks.lock);
    number_modules(list);
    stacks.spare = stacks.modules;
    stacks.modules = list;
    atomic_store(&stacks.adds, list->adds);
    atomic_store(&stacks.subs, list->subs);
    atomic_store(&stacks.has_modules, true);
    recorder_lock_give(&stacks.lock);
}

/* Twice, since a node's place comes from the low bits, and callers of one address are numbers in a row. */
static uint64_t hash_node(const struct node *n)
{
    uint64_t h = (n->address ^ (uint64_t)n->module << 48) * UINT64_C(0x9e3779b97f4a7c15);
    h = ((h ^ h >> 32) + n->caller) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

static struct node *find_node(struct node *nodes, uint32_t mask, const struct node *wanted)
{
    for (uint32_t i = (uint32_t)hash_node(wanted) & mask;; i = (i + 1) & mask) {
        struct node *n = &nodes[i];
        if (!n->number ||
            (n->address == wanted->address && n->caller == wanted->caller && n->module == wanted->module))
            return n;
    }
}

static bool grow_nodes(void)
{
    uint32_t size = stacks.nodes ? (stacks.mask + 1) * 2 : NODES_FIRST;
    struct node *grown = recorder_pages(size * sizeof *grown);
    if (!grown)
        return false;
    if (stacks.nodes) /* large, and read at random: small pages would cost as much as the reading */
        (void)madvise(grown, size * sizeof *grown, MADV_HUGEPAGE);
    for (uint32_t i = 0; stacks.nodes && i <= stacks.mask; i++)
        if (stacks.nodes[i].number)
            *find_node(grown, size - 1, &stacks.nodes[i]) = stacks.nodes[i];
    stacks.nodes = grown; /* the old table stays mapped: half as large, and growing is rare */
    stacks.mask = size - 1;
    return true;
}

static uint32_t intern_frame(uint64_t address, uint32_t caller)
{
    if ((!stacks.nodes || stacks.count > stacks.mask / 2) && !grow_nodes())
        return 0;
    struct node wanted = {address, caller, find_module(stacks.modules, address), 0};
    struct node *n = find_node(stacks.nodes, stacks.mask, &wanted);
    if (n->number)
        return n->number;
    uint64_t values[] = {0, caller, wanted.module, address, 0, 0, 0, 0};
    wanted.number = recorder_define(BERTH__TRACE_FRAME, &recorder_header()->frames, values, NULL);
    if (!wanted.number)
        return 0;
    *n = wanted;
    stacks.count++;
    return wanted.number;
}

/* The stack that a thread told last, with the number of each frame: outer frames of the next one are often the same. */
struct told {
    unsigned long long unloads;
    uint32_t depth;
    uint32_t numbers[DEPTH_MOST];
    uint64_t frames[DEPTH_MOST];
};

static uint32_t intern_stack(const recorder_walk *w, unsigned long long gone, struct told *last)
{
    uint32_t depth = w->depth, same = 0, number = 0;
    uint32_t both = last->unloads != gone ? 0 : last->depth < depth ? last->depth : depth;
    while (same < both && last->frames[last->depth - 1 - same] == w->frames[depth - 1 - same])
        same++;
    memmove(last->numbers + depth - same, last->numbers + last->depth - same, same * sizeof last->numbers[0]);
    if (same)
        number = last->numbers[depth - same];
    recorder_lock_take(&stacks.lock);
    for (uint32_t i = depth - same; i-- > 0;)
        last->numbers[i] = number = intern_frame(w->frames[i], number);
    recorder_lock_give(&stacks.lock);
    memcpy(last->frames, w->frames, depth * sizeof w->frames[0]);
    last->depth = number ? depth : 0; /* what could not be told is tried again */
    last->unloads = gone;
    return number;
}

/* ---- Forks -------------------------------------------------------------------------------------------- */

/* Who walks takes the loader's lock (dl_iterate_phdr). A child has it as it was: if another thread had it, for ever. So a fork waits
 * until nobody walks, and meanwhile nobody begins to but who forks. Both give up in the end: one handler of a fork may wait for a
 * thread that would wait for the fork. */
#define WALK_WAIT_NS UINT64_C(10000000)
#define FORK_WAIT_NS UINT64_C(1000000000)
static _Atomic uint32_t walkers, forks;

static bool is_over(uint64_t *until, uint64_t wait_ns)
{
    uint64_t now = berth__trace_clock_ns();
    if (!*until)
        *until = now + wait_ns;
    sched_yield();
    return now >= *until;
}

static bool walk_begin(void)
{
    uint64_t until = 0;
    atomic_fetch_add(&walkers, 1);
    while (BERTH_UNLIKELY(atomic_load(&forks) != 0) && !recorder_here.is_forking) {
        atomic_fetch_sub(&walkers, 1);
        if (is_over(&until, WALK_WAIT_NS))
            return false;
        atomic_fetch_add(&walkers, 1);
    }
    return true;
}
static void walk_end(void)
{
    atomic_fetch_sub(&walkers, 1);
}

void recorder_stacks_before_fork(void)
{
    uint64_t until = 0;
    atomic_fetch_add(&forks, 1);
    recorder_here.is_forking = true;
    /* Not for ourselves: a signal's handler may fork. */
    while (!recorder_here.inside && atomic_load(&walkers) && !is_over(&until, FORK_WAIT_NS))
        ;
}
void recorder_stacks_after_fork(void)
{
    recorder_here.is_forking = false;
    atomic_fetch_sub(&forks, 1);
}

void recorder_stacks_in_child(void)
{
    recorder_here.is_forking = false;
    atomic_store(&walkers, 0);
    atomic_store(&forks, 0);
    if (!atomic_load(&stacks.lock.word))
        return;
    /* Another thread was changing the tree: it begins anew. */
    stacks.nodes = NULL;
    stacks.mask = stacks.count = 0;
    stacks.modules = stacks.spare = NULL;
    atomic_store(&stacks.has_modules, false);
    recorder_lock_give(&stacks.lock);
}

/* ---- Unwinding ---------------------------------------------------------------------------------------- */

static _Unwind_Reason_Code walk_frame(struct _Unwind_Context *context, void *argument)
{
    recorder_walk *w = argument;
    if (w->skipped < SKIPPED) {
        w->skipped++;
        return _URC_NO_REASON;
    }
    uint64_t address = _Unwind_GetIP(context);
    if (!address)
        return _URC_END_OF_STACK;
#if defined(__x86_64__)
    /* The canonical address of the frame that this one called: its return address stands right below. Not so for a frame that
     * a signal interrupted; then the stack is not remembered. */
    const uint64_t *slot = (const uint64_t *)_Unwind_GetCFA(context) - 1;
    w->has_slots = w->has_slots && *slot == address;
    w->slots[w->depth] = slot;
#endif
    w->frames[w->depth++] = address;
    return w->depth == w->most ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Inline, as if it were the caller's. */
BERTH__INLINE void walk_slowly(recorder_walk *w)
{
    w->depth = w->skipped = w->pointer_count = 0;
#if defined(__x86_64__)
    w->has_slots = true;
#else
    w->has_slots = false;
#endif
    _Unwind_Backtrace(walk_frame, w);
}

/* The loader binds the compiler's unwinder at its first call, and takes kilobytes of stack for that, which a signal's stack may not
 * have: so there is one early. */
void __attribute__((noinline)) recorder_stacks_begin(void)
{
    recorder_walk w;
    w.most = DEPTH_MOST;
    walk_slowly(&w);
}

/* A stack that was seen from here. */
struct remembered {
    const void *sp;
    unsigned long long unloads;
    uint32_t number, depth, pointer_count; /* number 0: empty */
    const uint64_t *slots[DEPTH_MOST];
    uint64_t frames[DEPTH_MOST];
    const uint64_t *pointers[DEPTH_MOST + 2];
    uint64_t pointed[DEPTH_MOST + 2];
};

/* Of a thread: where a stack may be is one of two places side by side. */
struct stack_cache {
    struct remembered items[CACHE];
    uint32_t next; /* which of two is given up; grows */
    struct told last;
};
static _Thread_local struct stack_cache *cache; /* NULL: none yet */

void recorder_stacks_thread_ended(void)
{
    struct stack_cache *gone = cache;
    cache = NULL;
    if (gone)
        recorder_pages_give(gone, sizeof *gone);
}

/* Outer frames are at higher addresses: what is read is above `sp`, in this thread's stack. */
static bool holds(const struct remembered *r)
{
    for (uint32_t i = 0; i < r->depth; i++)
        if (*r->slots[i] != r->frames[i])
            return false;
    for (uint32_t i = 0; i < r->pointer_count; i++)
        if (*r->pointers[i] != r->pointed[i])
            return false;
    return true;
}

static void remember(struct remembered *r, const void *sp, unsigned long long gone, uint32_t number,
                     const recorder_walk *w)
{
    r->sp = sp;
    r->unloads = gone;
    r->number = w->has_slots ? number : 0;
    r->depth = w->depth;
    memcpy(r->slots, w->slots, w->depth * sizeof w->slots[0]);
    memcpy(r->frames, w->frames, w->depth * sizeof w->frames[0]);
    r->pointer_count = w->pointer_count;
    for (uint32_t i = 0; i < w->pointer_count; i++) {
        r->pointers[i] = w->pointers[i];
        r->pointed[i] = *w->pointers[i];
    }
}

static bool is_it(const struct remembered *r, const void *sp, const void *site)
{
    return r->number && r->sp == sp && r->frames[0] == (uintptr_t)site &&
           r->unloads == atomic_load_explicit(&unloads, memory_order_relaxed) && holds(r);
}

uint32_t __attribute__((noinline)) recorder_stack(const void *site)
{
    const void *sp = __builtin_frame_address(0);
    if (!cache && !(cache = recorder_pages(sizeof *cache)))
        return 0;
    uint64_t key = ((uintptr_t)sp ^ (uintptr_t)site << 13) * UINT64_C(0x9e3779b97f4a7c15);
    struct remembered *r = &cache->items[key >> 56 << 1];
    if (is_it(r, sp, site))
        return r->number;
    if (is_it(r + 1, sp, site))
        return r[1].number;
    if (!walk_begin())
        return 0;
    refresh_modules();
    unsigned long long gone = atomic_load_explicit(&unloads, memory_order_relaxed);
    recorder_walk w;
    w.most = recorder_options.stack_depth < DEPTH_MOST ? recorder_options.stack_depth : DEPTH_MOST;
    if (!recorder_unwind(&w, SKIPPED))
        walk_slowly(&w);
    walk_end();
    uint32_t number = intern_stack(&w, gone, &cache->last);
    remember(r->number ? r + (cache->next++ & 1) : r, sp, gone, number, &w);
    return number;
}
