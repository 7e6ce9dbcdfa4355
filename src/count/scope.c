/* Named scopes: the thread's innermost label, and the peaks of scopes, labels and threads. */
#include "count/scope.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

_Thread_local berth__holder *berth__holder_mine;
_Thread_local berth_scope *berth__scope_innermost;
_Thread_local berth__late_counter berth__counts_late;
const char berth__label_uncounted[] = "planned block";
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
static uint32_t label_places[PLACES];                  /* guard: records_lock. Hashed by text: a number + 1 */
berth__account berth__accounts[BERTH__ACCOUNTS_MAX];   /* pages are touched when used */
static uint32_t account_count = BERTH__LABELS_MAX + 1; /* guard: records_lock. 0 and the labels' own */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_key_works; /* written by `once` */

static void leave_holder(void *holder)
{
    BERTH_DCHECK(!atomic_load(&((berth__holder *)holder)->ended), "[M9] a thread's record is left once");
    berth__holder_mine = NULL;
    berth__scope_forget();
    atomic_store_explicit(&((berth__holder *)holder)->ended, true, memory_order_release);
}

static void set_up(void)
{
    exit_key_works = pthread_key_create(&exit_key, leave_holder) == 0;
}

/* One by one, since visitors read them without the lock; only those that were used, so that no page is touched anew. */
static void clear_counts(berth__holder *holder)
{
    for (uint32_t i = 0; i < LOAD(label_count); i++) {
        STORE(holder->counts[i].num_scopes, 0);
        STORE(holder->counts[i].max_scope_bytes, 0);
    }
}

/* With the lock held: one whose thread is gone with all that it held, else a new one. */
static berth__holder *find_holder(void)
{
    BERTH_DCHECK(berth__spin_is_mine(&records_lock, BERTH__RANK_THREADS),
                 "[B1] records are found with their lock");
    for (berth__holder *holder = atomic_load(&holders); holder; holder = holder->next) {
        if (!atomic_load_explicit(&holder->ended, memory_order_acquire) || berth__holder_held(holder) != 0)
            continue;
        STORE(holder->room_bytes, 0);
        STORE(holder->peak_bytes, 0);
        STORE(holder->top_bytes, 0);
        STORE(holder->clear_bytes, -1);
        STORE(holder->elsewhere_seen_bytes, LOAD(holder->freed_elsewhere_bytes));
        clear_counts(holder);
        atomic_store(&holder->ended, false);
        return holder;
    }
    berth__holder *holder = map_memory(sizeof *holder);
    if (holder) {
        STORE(holder->clear_bytes, -1);
        holder->next = atomic_load(&holders);
        atomic_store(&holders, holder);
    }
    return holder;
}

berth__holder *berth__holder_take(void)
{
    BERTH_DCHECK(!berth__holder_mine, "[M9] a thread has one record");
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

/* With the lock held: the label of `text`, made if need be. The last one stands for all that came too late. */
static berth__label *scope_intern(const char *text)
{
    BERTH_DCHECK(berth__spin_is_mine(&records_lock, BERTH__RANK_THREADS),
                 "[B1] labels are made with the lock");
    uint32_t count = LOAD(label_count);
    size_t place = hash_text(text) % PLACES;
    for (; label_places[place]; place = (place + 1) % PLACES)
        if (strcmp(labels[label_places[place] - 1].text, text) == 0)
            return &labels[label_places[place] - 1];
    if (count == BERTH__LABELS_MAX)
        return &labels[count - 1];
    labels[count].text = count == BERTH__LABELS_MAX - 1 ? "(further labels)" : text;
    labels[count].number = count;
    labels[count].quota.rises = true;
    BERTH_DCHECK(!berth__accounts[count + 1].label, "[M10] an account is written once");
    berth__accounts[count + 1].label = &labels[count];
    label_places[place] = count + 1;
    atomic_store_explicit(&label_count, count + 1, memory_order_release);
    return &labels[count];
}

berth__label *berth__label_find(berth__holder *holder, const char *text)
{
    berth__fork_lock(&records_lock, BERTH__RANK_THREADS);
    berth__label *label = scope_intern(text ? text : "");
    berth__fork_unlock(&records_lock, BERTH__RANK_THREADS);
    size_t place = berth__label_place(text);
    if (holder) {
        holder->cache[place].text = text;
        holder->cache[place].label = label;
        holder->cache[place].tag = 0;
    }
    return label;
}

/* ---- Accounts ------------------------------------------------------------------------------------ */

/* A thread's tag for a label. When all are gone the label is counted for and the thread is not. */
static uint64_t tag_of(berth__holder *mine, berth__label *label)
{
    if (mine->tags[label->number])
        return mine->tags[label->number];
    berth__fork_lock(&records_lock, BERTH__RANK_THREADS);
    uint32_t tag = account_count < BERTH__ACCOUNTS_MAX ? account_count++ : label->number + 1;
    berth__fork_unlock(&records_lock, BERTH__RANK_THREADS);
    BERTH_DCHECK(!berth__accounts[tag].label || tag <= BERTH__LABELS_MAX, "[M10] an account is written once");
    if (tag > BERTH__LABELS_MAX)
        berth__accounts[tag] = (berth__account){mine, label};
    mine->tags[label->number] = (uint16_t)tag;
    BERTH_DCHECK(tag != 0 && berth__accounts[tag].label == label,
                 "[M10] an account stands before a block bears its tag");
    return tag;
}

uint64_t berth__account_find(const berth_request *request)
{
    const char *text = berth__label_text(request);
    if (text == berth__label_uncounted)
        return 0;
    berth__holder *mine = berth__holder_here();
    if (!mine)
        return berth__label_find(NULL, text)->number + 1;
    berth__label *label = berth__label_of(mine, text);
    uint64_t tag = tag_of(mine, label);
    if (tag <= BERTH__LABELS_MAX) /* the thread is not counted for: nothing short about it */
        return tag;
    mine->cache[berth__label_place(text)].tag = tag;
    BERTH_DCHECK(berth__accounts[tag].holder == mine, "[M10] the tag is the thread's own");
    berth__slot *slot = berth__slot_of(&label->quota.slots, berth__thread());
    if (!request->label && slot)
        berth__thread_memos.scope = (berth__memo){tag << BERTH__TAG_SHIFT, slot, mine};
    return tag;
}

/* What others freed is room again. */
static void see_elsewhere(berth__holder *mine)
{
    int64_t freed = atomic_load_explicit(&mine->freed_elsewhere_bytes, memory_order_acquire);
    BERTH_DCHECK(freed >= LOAD(mine->elsewhere_seen_bytes), "[M9] what others freed only rises");
    STORE(mine->room_bytes, LOAD(mine->room_bytes) + freed - LOAD(mine->elsewhere_seen_bytes));
    STORE(mine->elsewhere_seen_bytes, freed);
}

/* Gives the peak another value, not below what is held. */
static void set_peak(berth__holder *mine, int64_t peak_bytes)
{
    STORE(mine->room_bytes, LOAD(mine->room_bytes) + peak_bytes - LOAD(mine->peak_bytes));
    BERTH_DCHECK(LOAD(mine->room_bytes) >= 0, "[M9] a thread holds no more than its peak");
    STORE(mine->peak_bytes, peak_bytes);
}

/* The thread's own record with all that others did to it. */
static berth__holder *look_at_mine(void)
{
    berth__holder *mine = berth__holder_mine;
    if (!mine)
        return NULL;
    see_elsewhere(mine);
    if (LOAD(mine->clear_bytes) >= 0) {
        int64_t held = LOAD(mine->peak_bytes) - LOAD(mine->room_bytes), peak = LOAD(mine->clear_bytes);
        set_peak(mine, peak > held ? peak : held);
        STORE(mine->top_bytes, 0);
        STORE(mine->clear_bytes, -1);
    }
    return mine;
}

void berth__holder_add_slow(berth__holder *mine, uint64_t size_bytes)
{
    BERTH_DCHECK(mine == berth__holder_mine, "[M9] a record is written by its thread");
    see_elsewhere(mine);
    BERTH_DCHECK(LOAD(mine->room_bytes) >= 0, "[M9] a thread holds no more than its peak");
    int64_t room = LOAD(mine->room_bytes) - (int64_t)size_bytes;
    if (room < 0)
        STORE(mine->peak_bytes, LOAD(mine->peak_bytes) - room);
    STORE(mine->room_bytes, room < 0 ? 0 : room);
}

void berth__account_add(uint64_t tag, uint64_t size_bytes)
{
    BERTH_DCHECK(tag < BERTH__ACCOUNTS_MAX, "[M10] a block bears the tag of an account");
    const berth__account *account = &berth__accounts[tag];
    BERTH_DCHECK(!account->holder || account->holder == berth__holder_mine,
                 "[M9] a thread counts its own allocations");
    if (account->label)
        (void)berth__quota_take(&account->label->quota, size_bytes);
    if (account->holder)
        berth__holder_add(look_at_mine(), size_bytes);
}

void berth__account_sub(uint64_t tag, uint64_t size_bytes)
{
    BERTH_DCHECK(tag < BERTH__ACCOUNTS_MAX, "[M10] a block bears the tag of an account");
    const berth__account *account = &berth__accounts[tag];
    BERTH_DCHECK(!account->holder || account->label, "[M10] a thread's account is one of a label");
    if (account->label)
        berth__quota_give(&account->label->quota, size_bytes);
    if (account->holder)
        berth__holder_sub(account->holder, size_bytes);
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
    if (!scope) {
        berth__log(BERTH_LOG_WARNING, "scope %s is not begun: there is no place for it",
                   label ? label : "without a label");
        return;
    }
    berth__count_now();
    berth__holder *mine = look_at_mine();
    scope->label = label;
    scope->outer = innermost;
    scope->entry_bytes = mine ? LOAD(mine->peak_bytes) - LOAD(mine->room_bytes) : 0;
    scope->outer_peak_bytes = mine ? LOAD(mine->peak_bytes) : 0;
    scope->peak_bytes = 0;
    if (mine) {
        raise_own(&mine->top_bytes, LOAD(mine->peak_bytes));
        set_peak(mine, scope->entry_bytes);
    }
    innermost = scope;
    berth__scope_forget();
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
    BERTH_DCHECK(scope != NULL, "[M9] a scope that ends was begun");
    berth__count_now();
    berth__holder *mine = look_at_mine();
    innermost = scope->outer;
    berth__scope_forget();
    if (!mine)
        return;
    int64_t peak = LOAD(mine->peak_bytes);
    scope->peak_bytes = peak > scope->entry_bytes ? (uint64_t)(peak - scope->entry_bytes) : 0;
    set_peak(mine, peak > scope->outer_peak_bytes ? peak : scope->outer_peak_bytes);
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
    berth__count_now();
    berth__holder *mine = look_at_mine();
    if (!mine)
        return 0;
    /* The peak since `scope` began: the present one, and what the scopes inside it have put aside. */
    int64_t peak = LOAD(mine->peak_bytes);
    for (const berth_scope *s = innermost; s != scope; s = s->outer)
        if (s->outer_peak_bytes > peak)
            peak = s->outer_peak_bytes;
    return peak > scope->entry_bytes ? (uint64_t)(peak - scope->entry_bytes) : 0;
}

int64_t berth_scope_held_bytes(const berth_scope *scope)
{
    berth__count_now();
    return scope && berth__holder_mine ? berth__holder_held(berth__holder_mine) - scope->entry_bytes : 0;
}

/* ---- Figures ------------------------------------------------------------------------------------- */

berth_status berth_scope_visit(berth_scope_fn visit, void *context)
{
    if (!visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no function to show the labels to");
    berth__count_now();
    uint32_t count = atomic_load_explicit(&label_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t in_use = berth__quota_in_use(&labels[i].quota), peak = berth__quota_peak(&labels[i].quota);
        berth_scope_figures figures = {
            .struct_size = sizeof figures,
            .label = labels[i].text,
            .thread = BERTH_ALL_THREADS,
            .bytes_in_use = in_use,
            .max_bytes_in_use = peak > in_use ? peak : in_use,
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
    berth__count_now();
    berth__holder *mine = look_at_mine();
    int64_t held = mine ? berth__holder_held(mine) : 0, peak = mine ? LOAD(mine->peak_bytes) : 0;
    if (mine && LOAD(mine->top_bytes) > peak)
        peak = LOAD(mine->top_bytes);
    if (held_bytes)
        *held_bytes = held > 0 ? (uint64_t)held : 0;
    if (peak_bytes)
        *peak_bytes = peak > 0 ? (uint64_t)peak : 0;
}

/* First what each thread is to go by, then its slots are closed: before its next allocation it comes by. */
void berth_scope_clear(void)
{
    uint32_t count = atomic_load_explicit(&label_count, memory_order_acquire);
    for (berth__holder *holder = atomic_load(&holders); holder; holder = holder->next) {
        int64_t held = berth__holder_held(holder);
        STORE(holder->clear_bytes, held > 0 ? held : 0);
        for (uint32_t i = 0; i < count; i++) {
            STORE(holder->counts[i].num_scopes, 0);
            STORE(holder->counts[i].max_scope_bytes, 0);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        berth__quota_clear(&labels[i].quota);
        STORE(labels[i].num_scopes, 0);
        STORE(labels[i].max_scope_bytes, 0);
    }
}
