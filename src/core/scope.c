/* Named scopes: the thread's innermost label, and the peaks of scopes, labels and threads. */
#include "core/scope.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define LOAD BERTH__METER_LOAD
#define STORE BERTH__METER_STORE

_Thread_local berth__holder *berth__holder_mine;
_Thread_local berth_scope *berth__scope_innermost;
#define innermost berth__scope_innermost

/* ---- Records that live as long as the process ---------------------------------------------------- */

/* Mapped, not from our heap: nothing gives them back, and no operation fails for want of them. */
static void *map_memory(size_t size_bytes)
{
    void *p =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static berth__spin records_lock;
static _Atomic(berth__holder *) holders;       /* grown under records_lock, read freely */
static berth__label labels[BERTH__LABELS_MAX]; /* pages are touched when used */
static _Atomic uint32_t label_count;           /* grown under records_lock, read freely */
enum { PLACES = 2 * BERTH__LABELS_MAX };
static uint32_t label_places[PLACES]; /* guard: records_lock. Hashed by text: a number + 1 */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_key_works; /* written by `once` */

static void leave_holder(void *holder)
{
    berth__holder_mine = NULL;
    atomic_store_explicit(&((berth__holder *)holder)->ended, true, memory_order_release);
}

static void set_up(void)
{
    exit_key_works = pthread_key_create(&exit_key, leave_holder) == 0;
}

/* With the lock held: one whose thread is gone with all that it held, else a new one. */
static berth__holder *find_holder(void)
{
    for (berth__holder *holder = atomic_load(&holders); holder; holder = holder->next) {
        if (!atomic_load_explicit(&holder->ended, memory_order_acquire) || berth__holder_held(holder) != 0)
            continue;
        STORE(holder->net_bytes, 0);
        STORE(holder->peak_bytes, 0);
        STORE(holder->top_bytes, 0);
        atomic_store(&holder->freed_elsewhere_bytes, 0);
        memset(holder->counts, 0, sizeof holder->counts);
        atomic_store(&holder->ended, false);
        return holder;
    }
    berth__holder *holder = map_memory(sizeof *holder);
    if (holder) {
        holder->next = atomic_load(&holders);
        atomic_store(&holders, holder);
    }
    return holder;
}

berth__holder *berth__holder_take(void)
{
    pthread_once(&once, set_up);
    berth__fork_lock(&records_lock, BERTH__RANK_THREADS);
    berth__holder *holder = exit_key_works ? find_holder() : NULL;
    berth__fork_unlock(&records_lock, BERTH__RANK_THREADS);
    if (!holder)
        return NULL;
    STORE(holder->thread, berth__thread());
    berth__holder_mine = holder;
    if (pthread_setspecific(exit_key, holder) != 0) {
        leave_holder(holder);
        return NULL;
    }
    return holder;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 1469598103934665603u;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        hash = (hash ^ *c) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* With the lock held: the label of `text`, made if need be. The last one stands for all that came too late.
 */
static berth__label *intern(const char *text)
{
    uint32_t count = LOAD(label_count);
    size_t place = hash_text(text) % PLACES;
    for (; label_places[place]; place = (place + 1) % PLACES)
        if (strcmp(labels[label_places[place] - 1].text, text) == 0)
            return &labels[label_places[place] - 1];
    if (count == BERTH__LABELS_MAX)
        return &labels[count - 1];
    labels[count].text = count == BERTH__LABELS_MAX - 1 ? "(further labels)" : text;
    labels[count].number = count;
    atomic_store(&labels[count].meter.pieces[0], labels[count].slots);
    label_places[place] = count + 1;
    atomic_store_explicit(&label_count, count + 1, memory_order_release);
    return &labels[count];
}

berth__label *berth__label_find(berth__holder *holder, const char *text)
{
    berth__fork_lock(&records_lock, BERTH__RANK_THREADS);
    berth__label *label = intern(text ? text : "");
    berth__fork_unlock(&records_lock, BERTH__RANK_THREADS);
    size_t place = berth__label_place(text);
    holder->cache[place].text = text;
    holder->cache[place].label = label;
    return label;
}

/* ---- Scopes -------------------------------------------------------------------------------------- */

static void raise_own(_Atomic int64_t *figure, int64_t to)
{
    if (to > LOAD(*figure))
        STORE(*figure, to);
}

static void raise_shared(_Atomic uint64_t *figure, uint64_t to)
{
    uint64_t now = LOAD(*figure);
    while (now < to && !atomic_compare_exchange_weak(figure, &now, to))
        ;
}

void berth_scope_begin(berth_scope *scope, const char *label)
{
    berth__holder *mine = berth__holder_mine;
    scope->label = label;
    scope->outer = innermost;
    scope->entry_bytes = mine ? berth__holder_held(mine) : 0;
    scope->outer_peak_bytes = mine ? LOAD(mine->peak_bytes) : 0;
    scope->peak_bytes = 0;
    if (mine) {
        raise_own(&mine->top_bytes, LOAD(mine->peak_bytes));
        STORE(mine->peak_bytes, scope->entry_bytes);
    }
    innermost = scope;
}

static void count_scope(berth__holder *mine, const berth_scope *scope)
{
    berth__label *label = berth__label_of(mine, scope->label);
    if (!label)
        return;
    berth__scope_count *count = &mine->counts[label->number];
    STORE(count->num_scopes, LOAD(count->num_scopes) + 1);
    if (scope->peak_bytes > LOAD(count->max_scope_bytes))
        STORE(count->max_scope_bytes, scope->peak_bytes);
    atomic_fetch_add_explicit(&label->num_scopes, 1, memory_order_relaxed);
    raise_shared(&label->max_scope_bytes, scope->peak_bytes);
}

/* The innermost one ends: its peak becomes part of the one around it. */
static void end_innermost(void)
{
    berth_scope *scope = innermost;
    berth__holder *mine = berth__holder_mine;
    innermost = scope->outer;
    if (!mine)
        return;
    int64_t peak = LOAD(mine->peak_bytes);
    scope->peak_bytes = peak > scope->entry_bytes ? (uint64_t)(peak - scope->entry_bytes) : 0;
    STORE(mine->peak_bytes, peak > scope->outer_peak_bytes ? peak : scope->outer_peak_bytes);
    raise_own(&mine->top_bytes, peak);
    count_scope(mine, scope);
}

static bool is_open(const berth_scope *scope)
{
    for (const berth_scope *s = innermost; s; s = s->outer)
        if (s == scope)
            return true;
    return false;
}

void berth_scope_end(berth_scope *scope)
{
    if (!scope)
        return;
    if (innermost != scope) {
        bool open = is_open(scope);
        berth__log(BERTH_LOG_WARNING, "scope %s ends %s", scope->label ? scope->label : "without a label",
                   open ? "before the scopes inside it" : "on a thread that it did not begin on, or twice");
        if (!open)
            return;
    }
    while (innermost != scope)
        end_innermost();
    end_innermost();
}

const char *berth_scope_label(void)
{
    return innermost ? innermost->label : NULL;
}

uint64_t berth_scope_peak_bytes(const berth_scope *scope)
{
    if (!scope || !is_open(scope))
        return scope ? scope->peak_bytes : 0;
    if (!berth__holder_mine)
        return 0;
    /* The peak since `scope` began: the present one, and what the scopes inside it have put aside. */
    int64_t peak = LOAD(berth__holder_mine->peak_bytes);
    for (const berth_scope *s = innermost; s != scope; s = s->outer)
        if (s->outer_peak_bytes > peak)
            peak = s->outer_peak_bytes;
    return peak > scope->entry_bytes ? (uint64_t)(peak - scope->entry_bytes) : 0;
}

int64_t berth_scope_held_bytes(const berth_scope *scope)
{
    return scope && berth__holder_mine ? berth__holder_held(berth__holder_mine) - scope->entry_bytes : 0;
}

/* ---- Figures ------------------------------------------------------------------------------------- */

berth_status berth_scope_visit(berth_scope_fn visit, void *context)
{
    if (!visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no function to show the labels to");
    uint32_t count = atomic_load_explicit(&label_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        berth_stats stats = {.struct_size = sizeof stats};
        berth__meter_read(&labels[i].meter, &stats);
        berth_scope_figures figures = {
            .struct_size = sizeof figures,
            .label = labels[i].text,
            .thread = BERTH_ALL_THREADS,
            .bytes_in_use = stats.bytes_in_use,
            .max_bytes_in_use = stats.max_bytes_in_use,
            .num_scopes = LOAD(labels[i].num_scopes),
            .max_scope_bytes = LOAD(labels[i].max_scope_bytes),
        };
        if (!visit(context, &figures))
            break;
    }
    return BERTH_OK;
}

static bool visit_holder(berth__holder *holder, berth_scope_fn visit, void *context)
{
    uint32_t count = atomic_load_explicit(&label_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        berth_scope_figures figures = {
            .struct_size = sizeof figures,
            .label = labels[i].text,
            .thread = LOAD(holder->thread),
            .num_scopes = LOAD(holder->counts[i].num_scopes),
            .max_scope_bytes = LOAD(holder->counts[i].max_scope_bytes),
        };
        if (figures.num_scopes && !visit(context, &figures))
            return false;
    }
    return true;
}

berth_status berth_scope_visit_threads(berth_scope_fn visit, void *context)
{
    if (!visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no function to show the threads to");
    for (berth__holder *holder = atomic_load(&holders); holder; holder = holder->next)
        if (!visit_holder(holder, visit, context))
            break;
    return BERTH_OK;
}

void berth_scope_thread_bytes(uint64_t *held_bytes, uint64_t *peak_bytes)
{
    berth__holder *mine = berth__holder_mine;
    int64_t held = mine ? berth__holder_held(mine) : 0, peak = mine ? LOAD(mine->peak_bytes) : 0;
    if (mine && LOAD(mine->top_bytes) > peak)
        peak = LOAD(mine->top_bytes);
    if (held_bytes)
        *held_bytes = held > 0 ? (uint64_t)held : 0;
    if (peak_bytes)
        *peak_bytes = peak > 0 ? (uint64_t)peak : 0;
}

void berth_scope_clear(void)
{
    uint32_t count = atomic_load_explicit(&label_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        berth__meter_clear(&labels[i].meter);
        STORE(labels[i].num_scopes, 0);
        STORE(labels[i].max_scope_bytes, 0);
    }
    for (berth__holder *holder = atomic_load(&holders); holder; holder = holder->next) {
        STORE(holder->top_bytes, 0);
        STORE(holder->peak_bytes, berth__holder_held(holder));
        for (uint32_t i = 0; i < count; i++) {
            STORE(holder->counts[i].num_scopes, 0);
            STORE(holder->counts[i].max_scope_bytes, 0);
        }
    }
}
