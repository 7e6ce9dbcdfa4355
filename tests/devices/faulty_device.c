/* threaded_device.c with one promise broken, which FAULT names; for the test that berth-device-check tells each from a
 * device that keeps all of them (check_faults.sh). Without FAULT it is the good one. */
#define berth_device_entry good_entry
#include "threaded_device.c"
#undef berth_device_entry
#include <stdatomic.h>

/* ---- What it says of itself ------------------------------------------------------------------------ */

static berth_status says_nothing(void *self, berth_device device, berth_device_info *told)
{
    (void)self, (void)device, (void)told;
    return BERTH_OK;
}

static berth_status says_every_kind(void *self, berth_device device, berth_device_info *told)
{
    berth_status status = describe(self, device, told);
    told->memory_kinds = ~(uint64_t)0; /* those of its table, then */
    return status;
}

static berth_status says_ordered(void *self, berth_device device, berth_device_info *told)
{
    berth_status status = describe(self, device, told);
    told->stream_ordered = true;
    return status;
}

/* Every other time it is not there. */
static berth_status count_wavers(void *self, int32_t *out)
{
    static _Atomic unsigned asked;
    (void)self;
    *out = atomic_fetch_add(&asked, 1) % 8 != 7;
    return BERTH_OK;
}

static berth_status too_much_is_free(void *self, berth_device device, uint64_t *free_bytes,
                                     uint64_t *total_bytes)
{
    (void)self, (void)device;
    *free_bytes = 2000;
    *total_bytes = 1000;
    return BERTH_OK;
}

static berth_status nothing_is_largest(void *self, berth_device device, berth_memory_kind kind, size_t *out)
{
    (void)self, (void)device, (void)kind;
    *out = 0;
    return BERTH_OK;
}

static berth_status registers_anything(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self, (void)device, (void)p, (void)size_bytes;
    return BERTH_OK;
}

static berth_status unregisters_anything(void *self, berth_device device, void *p)
{
    (void)self, (void)device, (void)p;
    return BERTH_OK;
}

static berth_status count_two(void *self, int32_t *out)
{
    (void)self;
    *out = 2;
    return BERTH_OK;
}

static berth_status copies_nothing_between(void *self, berth_device to, void *dst, berth_device from,
                                           const void *src, size_t size_bytes, berth_stream *on)
{
    (void)self, (void)to, (void)dst, (void)from, (void)src, (void)size_bytes, (void)on;
    return BERTH_OK;
}

static berth_status locates_the_start(void *self, berth_device device, const void *p, berth_device_place *out)
{
    (void)self, (void)device;
    *out = (berth_device_place){sizeof *out, 1 + (uintptr_t)p / 4096, 0, 8192};
    return BERTH_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------- */

static berth_status allocate_without_words(void *self, berth_device device, berth_memory_kind kind,
                                           size_t size_bytes, size_t alignment, berth_stream *on, void **out)
{
    if (size_bytes > (size_t)1 << 40)
        return BERTH_OUT_OF_DEVICE_MEMORY;
    return allocate(self, device, kind, size_bytes, alignment, on, out);
}

static berth_status allocate_two_kinds(void *self, berth_device device, berth_memory_kind kind,
                                       size_t size_bytes, size_t alignment, berth_stream *on, void **out)
{
    if (kind > BERTH_MEMORY_PINNED)
        return berth_fail(BERTH_UNSUPPORTED, "only device and pinned memory are here");
    return allocate(self, device, kind, size_bytes, alignment, on, out);
}

/* Device memory is somewhere else than pinned memory, and holds something else than the host wrote: fine, unless it says
 * that the host may look into it. */
static char arena[1 << 23];

static berth_status allocate_in_arena(void *self, berth_device device, berth_memory_kind kind,
                                      size_t size_bytes, size_t alignment, berth_stream *on, void **out)
{
    static _Atomic size_t taken;
    if (kind != BERTH_MEMORY_DEVICE || size_bytes + alignment > sizeof arena / 2)
        return allocate(self, device, kind, size_bytes, alignment, on, out);
    size_t at = atomic_fetch_add(&taken, size_bytes + alignment);
    if (at + size_bytes + alignment > sizeof arena)
        return berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "all is used up");
    *out = (char *)(((uintptr_t)arena + at + alignment) & ~(uintptr_t)(alignment - 1));
    return BERTH_OK;
}

static bool is_in_arena(const void *p)
{
    return (const char *)p >= arena && (const char *)p < arena + sizeof arena;
}

static berth_status release_unless_arena(void *self, berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *on)
{
    return is_in_arena(p) ? BERTH_OK : release(self, device, kind, p, size_bytes, on);
}

static berth_status copy_scrambled(void *self, berth_device device, void *dst, const void *src,
                                   size_t size_bytes, berth_copy_kind kind, berth_stream *on)
{
    (void)self, (void)device, (void)kind, (void)on;
    memmove(dst, src, size_bytes);
    for (size_t i = 0; is_in_arena(dst) != is_in_arena(src) && i < size_bytes; i++)
        ((unsigned char *)dst)[i] ^= 0x55;
    return BERTH_OK;
}

static berth_status zero_scrambled(void *self, berth_device device, void *dst, size_t size_bytes,
                                   berth_stream *on)
{
    (void)self, (void)device, (void)on;
    memset(dst, is_in_arena(dst) ? 0x55 : 0, size_bytes);
    return BERTH_OK;
}

static berth_status copy_at_once(void *self, berth_device device, void *dst, const void *src,
                                 size_t size_bytes, berth_copy_kind kind, berth_stream *on)
{
    (void)on;
    return copy(self, device, dst, src, size_bytes, kind, NULL);
}

static berth_status zero_at_once(void *self, berth_device device, void *dst, size_t size_bytes,
                                 berth_stream *on)
{
    (void)on;
    return zero(self, device, dst, size_bytes, NULL);
}

/* Every copy through one place in memory, whoever else is there. */
static berth_status copy_through_one_place(void *self, berth_device device, void *dst, const void *src,
                                           size_t size_bytes, berth_copy_kind kind, berth_stream *on)
{
    static volatile char place[512];
    if (size_bytes != sizeof place)
        return copy(self, device, dst, src, size_bytes, kind, on);
    for (size_t i = 0; i < size_bytes; i++)
        place[i] = ((const volatile char *)src)[i];
    for (int i = 0; i < 2000; i++)
        (void)place[i % (int)sizeof place];
    for (size_t i = 0; i < size_bytes; i++)
        ((volatile char *)dst)[i] = place[i];
    return BERTH_OK;
}

static stream *only_other; /* the stream made last but one, for faults that take one for all */
static stream *newest;

static berth_status stream_create_noted(void *self, berth_device device, berth_stream **out)
{
    berth_status status = stream_create(self, device, out);
    if (status == BERTH_OK) {
        if (newest)
            keep(newest);
        only_other = newest;
        newest = (stream *)*out;
        keep(newest);
    }
    return status;
}

/* Without a stream it waits for all of them. */
static berth_status copy_after_everything(void *self, berth_device device, void *dst, const void *src,
                                          size_t size_bytes, berth_copy_kind kind, berth_stream *on)
{
    if (!on && only_other)
        (void)stream_synchronize(self, (berth_stream *)only_other);
    return copy(self, device, dst, src, size_bytes, kind, on);
}

/* ---- Streams and events ---------------------------------------------------------------------------- */

static berth_status stream_done(void *self, berth_stream *on)
{
    (void)self, (void)on;
    return BERTH_OK;
}

static berth_status stream_busy(void *self, berth_stream *on)
{
    (void)self, (void)on;
    return BERTH_NOT_READY;
}

/* Waits in a forked child too, for a thread that is not there. */
static berth_status stream_synchronize_in_child(void *self, berth_stream *on)
{
    stream *s = (stream *)on;
    (void)self;
    while (__atomic_load_n(&s->done, __ATOMIC_ACQUIRE) < __atomic_load_n(&s->enqueued, __ATOMIC_ACQUIRE))
        usleep(1000);
    return BERTH_OK;
}

static berth_status event_done(void *self, berth_event *given)
{
    (void)self, (void)given;
    return BERTH_OK;
}

static berth_status event_not_recorded_is_pending(void *self, berth_event *given)
{
    return ((event *)given)->stream ? event_query(self, given) : BERTH_NOT_READY;
}

static berth_status record_once(void *self, berth_event *given, berth_stream *on)
{
    return ((event *)given)->stream ? BERTH_OK : event_record(self, given, on);
}

static berth_status record_too_early(void *self, berth_event *given, berth_stream *on)
{
    berth_status status = event_record(self, given, on);
    event *e = (event *)given;
    e->number -= e->number > 0;
    return status;
}

static berth_status wait_for_nothing(void *self, berth_stream *on, berth_event *given)
{
    (void)self, (void)on, (void)given;
    return BERTH_OK;
}

static void wait_for_the_mark_now(void *context)
{
    (void)event_wait(NULL, context);
}

/* Looks at the mark when its turn has come, not when it is told. */
static berth_status wait_for_a_later_mark(void *self, berth_stream *on, berth_event *given)
{
    return stream_call(self, on, wait_for_the_mark_now, given);
}

static void event_stays(void *self, berth_event *given)
{
    (void)self, (void)given;
}

static void event_destroy_waits(void *self, berth_event *given)
{
    (void)event_wait(self, given);
    event_destroy(self, given);
}

static void stream_destroy_waits(void *self, berth_stream *on)
{
    (void)stream_synchronize(self, on);
    stream_destroy(self, on);
}

static void stream_destroy_drops(void *self, berth_stream *on)
{
    stream *s = (stream *)on;
    pthread_mutex_lock(&s->lock);
    s->done = s->enqueued; /* events hold; the jobs are gone */
    s->first = NULL;
    s->last = &s->first;
    pthread_mutex_unlock(&s->lock);
    stream_destroy(self, on);
}

static berth_status call_at_once(void *self, berth_stream *on, void (*fn)(void *context), void *context)
{
    (void)self;
    berth_stream_run(on, fn, context);
    return BERTH_OK;
}

static berth_status call_twice(void *self, berth_stream *on, void (*fn)(void *context), void *context)
{
    berth_status status = stream_call(self, on, fn, context);
    return status == BERTH_OK ? stream_call(self, on, fn, context) : status;
}

/* Runs the function, but not as the stream's. */
typedef struct bare_call {
    void (*fn)(void *context);
    void *context;
} bare_call;

static void *run_bare(void *context)
{
    bare_call *call = context;
    call->fn(call->context);
    free(call);
    return NULL;
}

static void run_elsewhere(void *context)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_bare, context) == 0)
        pthread_join(thread, NULL);
}

static berth_status call_unmarked(void *self, berth_stream *on, void (*fn)(void *context), void *context)
{
    bare_call *call = malloc(sizeof *call);
    if (!call)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a call");
    *call = (bare_call){fn, context};
    return stream_call(self, on, run_elsewhere, call);
}

/* Functions of streams may use the device, it says; but while one runs, it cannot. */
static _Thread_local bool calling;

static void run_calling(void *context)
{
    calling = true;
    run_bare(context);
    calling = false;
}

static berth_status call_that_locks_out(void *self, berth_stream *on, void (*fn)(void *context),
                                        void *context)
{
    bare_call *call = malloc(sizeof *call);
    if (!call)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a call");
    *call = (bare_call){fn, context};
    return stream_call(self, on, run_calling, call);
}

static berth_status copy_not_in_calls(void *self, berth_device device, void *dst, const void *src,
                                      size_t size_bytes, berth_copy_kind kind, berth_stream *on)
{
    if (calling)
        return berth_fail(BERTH_DEVICE_ERROR, "not from a function of a stream");
    return copy(self, device, dst, src, size_bytes, kind, on);
}

/* Says that blocks are released in a stream's order, and gives the next who asks one that a stream still uses. */
enum { ORDERED_BYTES = 10000 };
static void *let_go;

static berth_status release_at_once(void *self, berth_device device, berth_memory_kind kind, void *p,
                                    size_t size_bytes, berth_stream *on)
{
    if (!on || size_bytes != ORDERED_BYTES || let_go)
        return release(self, device, kind, p, size_bytes, on);
    let_go = p;
    return BERTH_OK;
}

static berth_status allocate_let_go(void *self, berth_device device, berth_memory_kind kind,
                                    size_t size_bytes, size_t alignment, berth_stream *on, void **out)
{
    if (!let_go || on || size_bytes != ORDERED_BYTES || (uintptr_t)let_go % alignment != 0)
        return allocate(self, device, kind, size_bytes, alignment, on, out);
    *out = let_go;
    let_go = NULL;
    return BERTH_OK;
}

/* ---- The faults ------------------------------------------------------------------------------------ */

enum {
    USUAL = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED,
    MANAGED = USUAL | 1u << BERTH_MEMORY_MANAGED,
    COMBINED = USUAL | 1u << BERTH_MEMORY_WRITE_COMBINED,
};

/* What is not 0 stands in the place of the good device's. One that is mute calls no functions: fewer checks apply. */
static const struct fault {
    const char *name;
    berth_device_ops over;
} faults[] = {
    {"nameless", {.describe = says_nothing}},
    {"managed", {.memory_kinds = MANAGED, .describe = says_every_kind, .allocate = allocate_two_kinds}},
    {"combined", {.memory_kinds = COMBINED, .describe = says_every_kind, .allocate = allocate_two_kinds}},
    {"wordless", {.allocate = allocate_without_words}},
    {"wavers", {.count = count_wavers}},
    {"rich", {.memory = too_much_is_free}},
    {"largest", {.most_bytes = nothing_is_largest}},
    {"located", {.locate = locates_the_start}},
    {"registered", {.register_host = registers_anything, .unregister_host = unregisters_anything}},
    {"between", {.count = count_two, .copy_between = copies_nothing_between}},
    {"scrambled",
     {.allocate = allocate_in_arena,
      .release = release_unless_arena,
      .copy = copy_scrambled,
      .zero = zero_scrambled}},
    {"eager", {.copy = copy_at_once}},
    {"eager_zero", {.zero = zero_at_once}},
    {"shared_place", {.copy = copy_through_one_place}},
    {"everybody", {.stream_create = stream_create_noted, .copy = copy_after_everything}},
    {"query_done", {.stream_query = stream_done}},
    {"query_busy", {.stream_query = stream_busy}},
    {"synchronize", {.stream_synchronize = stream_done}},
    {"forked", {.stream_synchronize = stream_synchronize_in_child}},
    {"event_done", {.event_query = event_done}},
    {"event_wait", {.event_wait = event_done}},
    {"event_fresh", {.event_query = event_not_recorded_is_pending}},
    {"record_once", {.event_record = record_once}},
    {"record_early", {.event_record = record_too_early}},
    {"deaf", {.stream_wait_event = wait_for_nothing}},
    {"deaf_and_mute", {.stream_wait_event = wait_for_nothing}},
    {"mute", {.stream_wait_event = stream_wait_event}}, /* no fault */
    {"later_mark", {.stream_wait_event = wait_for_a_later_mark, .event_destroy = event_stays}},
    {"event_destroy", {.event_destroy = event_destroy_waits}},
    {"stream_destroy", {.stream_destroy = stream_destroy_waits}},
    {"drops", {.stream_destroy = stream_destroy_drops}},
    {"call_at_once", {.stream_call = call_at_once}},
    {"call_twice", {.stream_call = call_twice}},
    {"call_unmarked", {.stream_call = call_unmarked}},
    {"call_locks_out", {.stream_call = call_that_locks_out, .copy = copy_not_in_calls}},
    {"ordered", {.describe = says_ordered, .allocate = allocate_let_go, .release = release_at_once}},
};

static void put_over(berth_device_ops *ops, const berth_device_ops *over)
{
    uintptr_t *to = (uintptr_t *)(void *)ops;
    const uintptr_t *from = (const uintptr_t *)(const void *)over;
    for (size_t i = 0; i < sizeof *ops / sizeof *to; i++)
        if (from[i])
            to[i] = from[i];
}

BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self);
BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self)
{
    static berth_device_ops faulty;
    const char *fault = getenv("FAULT");
    berth_status status = good_entry(ops, self);
    faulty = **ops;
    *ops = &faulty;
    for (size_t i = 0; fault && i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i].name, fault) == 0) {
            put_over(&faulty, &faults[i].over);
            if (strstr(fault, "mute"))
                faulty.stream_call = NULL;
            return status;
        }
    return fault ? berth_fail(BERTH_NOT_FOUND, "there is no fault '%s'", fault) : status;
}
