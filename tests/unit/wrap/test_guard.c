/* The guard finds overflow, underflow, double free and writes after the free, says whose they are, and costs
 * the program nothing else. The faults are made through volatile pointers; under AddressSanitizer the library
 * marks its red zones, so there the writes themselves are not made (tests/annotate does that). */
#include "unit/wrap/wrap_test.h"

#include "base/annotate.h"
#include "berth/virtual.h"
#include "gate.h"

struct found {
    int count;
    berth_guard_report last;
    char text[4096];
    void *allocated_by[32], *freed_by[32];
};

static void note_report(void *context, const berth_guard_report *report)
{
    struct found *f = context;
    f->count++;
    f->last = *report;
    snprintf(f->text, sizeof f->text, "%s", report->text);
    if (report->allocated_depth)
        memcpy(f->allocated_by, report->allocated_by, report->allocated_depth * sizeof(void *));
    if (report->freed_depth)
        memcpy(f->freed_by, report->freed_by, report->freed_depth * sizeof(void *));
}

static berth_allocator *new_guard(struct found *f, size_t quarantine_bytes, bool zero_on_free)
{
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.quarantine_bytes = quarantine_bytes;
    options.zero_on_free = zero_on_free;
    options.report = note_report;
    options.context = f;
    memset(f, 0, sizeof *f);
    berth_allocator *system = new_system(), *a = NULL;
    assert_int_equal(berth_guard_create(system, &options, &a), BERTH_OK);
    berth_allocator_release(system);
    return a;
}

#if defined(__SANITIZE_ADDRESS__)
#define CAN_POKE 0
#else
#define CAN_POKE 1
#endif

/* Writes one byte where it does not belong. */
static void poke(void *p, ptrdiff_t offset)
{
    volatile unsigned char *at = (volatile unsigned char *)p + offset;
    *at = (unsigned char)(*at ^ 0x55);
}

__attribute__((noinline)) static void *allocate_here(berth_allocator *a, size_t size, const char *label)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.label = label;
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size, BERTH_ALIGNMENT, &request, &p), BERTH_OK);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump: it must be on the stack */
    return p;
}

/* In a section of its own: no other function is within reach of is_among. */
__attribute__((noinline, section("text_of_free_here"))) static berth_status free_here(berth_allocator *a,
                                                                                      void *p)
{
    berth_status status = berth_deallocate(a, p, 0, NULL);
    __asm__ volatile("" ::: "memory");
    return status;
}

/* Whether one of the frames lies in the first bytes of `function`. */
static bool is_among(void *const *frames, uint32_t depth, uintptr_t function)
{
    for (uint32_t i = 0; i < depth; i++)
        if ((uintptr_t)frames[i] - function < 1024)
            return true;
    return false;
}

static void overflow_and_underflow_are_found_at_the_free(void **state)
{
    (void)state;
    if (!CAN_POKE)
        return;
    struct found f;
    berth_allocator *a = new_guard(&f, 1 << 16, false);
    static const size_t sizes[] = {1, 7, 64, 100, 4096, 100000};
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes); i++) {
        ptrdiff_t size = (ptrdiff_t)sizes[i];
        const ptrdiff_t offsets[] = {size, size + 63, -1, -64};
        for (size_t k = 0; k < BERTH_COUNT_OF(offsets); k++) {
            void *p = allocate_here(a, sizes[i], "tensor");
            memset(p, 0xfb, sizes[i]); /* the zones' own pattern inside the block is nobody's fault */
            poke(p, offsets[k]);
            f.count = 0;
            assert_int_equal(free_here(a, p), BERTH_CORRUPT);
            assert_int_equal(f.count, 1);
            assert_int_equal(f.last.fault, offsets[k] < 0 ? BERTH_GUARD_UNDERFLOW : BERTH_GUARD_OVERFLOW);
            assert_int_equal(f.last.offset_bytes, offsets[k]);
            assert_ptr_equal(f.last.address, p);
            assert_int_equal(f.last.size_bytes, sizes[i]);
            assert_string_equal(f.last.label, "tensor");
            assert_non_null(strstr(f.text, "label tensor"));
            assert_non_null(strstr(berth_last_error()->message, "tensor"));
        }
    }
    f.count = 0;
    berth_allocator_release(a);
    assert_int_equal(f.count, 0); /* told once */
}

static void both_stacks_are_told(void **state)
{
    (void)state;
    if (!CAN_POKE)
        return;
    struct found f;
    berth_allocator *a = new_guard(&f, 1 << 16, false);
    void *p = allocate_here(a, 100, "late");
    assert_int_equal(free_here(a, p), BERTH_OK);
    poke(p, 42);
    size_t faults = 0;
    assert_int_equal(berth_guard_check(a, &faults), BERTH_CORRUPT);
    assert_int_equal(faults, 1);
    assert_int_equal(f.last.fault, BERTH_GUARD_WRITE_AFTER_FREE);
    assert_int_equal(f.last.offset_bytes, 42);
    assert_true(is_among(f.allocated_by, f.last.allocated_depth, (uintptr_t)allocate_here));
    assert_true(is_among(f.freed_by, f.last.freed_depth, (uintptr_t)free_here));
    assert_false(is_among(f.allocated_by, f.last.allocated_depth, (uintptr_t)free_here));
    assert_int_equal(berth_guard_check(a, &faults), BERTH_OK);
    berth_allocator_release(a);
}

static void a_late_write_is_found_when_the_quarantine_ends(void **state)
{
    (void)state;
    if (!CAN_POKE)
        return;
    struct found f;
    berth_allocator *a = new_guard(&f, 4096, false);
    void *p = allocate_here(a, 100, "old");
    assert_int_equal(free_here(a, p), BERTH_OK);
    poke(p, 99);
    for (int i = 0; i < 100; i++) /* pushes it out */
        give(a, take(a, 100));
    assert_int_equal(f.count, 1);
    assert_int_equal(f.last.fault, BERTH_GUARD_WRITE_AFTER_FREE);
    assert_string_equal(f.last.label, "old");
    berth_allocator_release(a);
}

static void double_and_foreign_frees_are_refused(void **state)
{
    (void)state;
    struct found f;
    berth_allocator *a = new_guard(&f, 1 << 16, false);
    void *p = allocate_here(a, 100, "twice");
    assert_int_equal(free_here(a, p), BERTH_OK);
    assert_int_equal(free_here(a, p), BERTH_BAD_FREE);
    assert_int_equal(f.last.fault, BERTH_GUARD_DOUBLE_FREE);
    assert_string_equal(f.last.label, "twice");
    assert_true(is_among(f.freed_by, f.last.freed_depth, (uintptr_t)free_here));
    int local = 0;
    void *q = take(a, 100);
    void *const strange[] = {&local, (void *)8, (char *)q + 16, (void *)(uintptr_t)free_here};
    for (size_t i = 0; i < BERTH_COUNT_OF(strange); i++) {
        assert_int_equal(free_here(a, strange[i]), BERTH_BAD_FREE);
        assert_int_equal(f.last.fault, BERTH_GUARD_BAD_FREE);
    }
    give(a, q);
    berth_allocator_release(a);
}

static void secrets_are_wiped(void **state)
{
    (void)state;
    struct found f;
    static _Alignas(64) unsigned char region[1 << 14];
    berth_allocator *fixed = NULL, *a = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.zero_on_free = true;
    options.report = note_report;
    options.context = &f;
    assert_int_equal(berth_guard_create(fixed, &options, &a), BERTH_OK);
    void *p = take(a, 256);
    memset(p, 0x5e, 256);
    give(a, p);
    size_t at = (size_t)((unsigned char *)p - region);
    berth__annotate_defined(p, 256);
    for (size_t i = 0; i < 256; i++)
        assert_int_equal(region[at + i], 0);
    berth__annotate_noaccess(p, 256);
    berth_allocator_release(a);
    berth_allocator_release(fixed);
}

static void the_quarantine_gives_way_before_memory_runs_out(void **state)
{
    (void)state;
    struct found f;
    berth_budget *budget = NULL;
    berth_allocator *system = new_system(), *limit = NULL, *a = NULL;
    assert_int_equal(berth_budget_create(20000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, budget, &limit), BERTH_OK);
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.report = note_report;
    options.context = &f;
    assert_int_equal(berth_guard_create(limit, &options, &a), BERTH_OK);
    for (int i = 0; i < 50; i++)
        give(a, take(a, 10000)); /* each one finds the former in the quarantine */
    assert_int_equal(berth_trim(a, 0, NULL), BERTH_OK);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_allocator_release(a);
    berth_allocator_release(limit);
    berth_allocator_release(system);
    berth_budget_release(budget);
}

static bool count_block(void *context, const berth_block *block)
{
    int *counts = context;
    counts[block->state]++;
    return true;
}

static void it_tracks_sizes_and_ids(void **state)
{
    (void)state;
    struct found f;
    berth_allocator *a = new_guard(&f, 1 << 16, false);
    void *p = take(a, 100), *q = take(a, 10);
    size_t size = 0;
    uint64_t id = 0;
    assert_true(berth_allocator_tracks_sizes(a));
    assert_int_equal(berth_requested_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, 100);
    assert_int_equal(berth_allocation_id(a, q, &id), BERTH_OK);
    assert_int_equal(id, 2);
    assert_int_equal(berth_allocator_owns(a, (char *)p + 99), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, (char *)p + 100), BERTH_NOT_FOUND);
    give(a, q);
    int counts[3] = {0};
    assert_int_equal(berth_snapshot(a, count_block, counts), BERTH_OK);
    assert_int_equal(counts[BERTH_BLOCK_LIVE], 1);
    assert_int_equal(counts[BERTH_BLOCK_IDLE], 1);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 100);
    assert_int_equal(stats.max_bytes_in_use, 110);
    assert_true(stats.bytes_reserved >= 110 + 4 * 64);
    give(a, p);
    berth_allocator_release(a);
}

static void a_live_block_keeps_it(void **state)
{
    (void)state;
    struct found f;
    uint64_t live = berth__heap_live();
    berth_allocator *a = new_guard(&f, 1 << 16, false);
    void *p = take(a, 100), *q = take(a, 100);
    give(a, q);
    berth_allocator_release(a);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth__heap_live(), live);
}

/* A block that a stream still uses is neither filled nor kept: its bytes are what the stream made of them. */
static void work_under_way_is_left_alone(void **state)
{
    (void)state;
    struct found f;
    gate g = GATE_INIT;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    static _Alignas(64) unsigned char region[1 << 14];
    berth_allocator *fixed = NULL, *a = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.report = note_report;
    options.context = &f;
    memset(&f, 0, sizeof f);
    assert_int_equal(berth_guard_create(fixed, &options, &a), BERTH_OK);
    unsigned char *p = take(a, 64);
    memset(p, 0x11, 64);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_deallocate(a, p, 0, stream), BERTH_OK);
    size_t at = (size_t)(p - region);
    berth__annotate_defined(region + at, 64);
    assert_int_equal(region[at], 0x11);
    assert_int_equal(region[at + 63], 0x11);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    assert_int_equal(f.count, 0);
    berth_allocator_release(a);
    berth_allocator_release(fixed);
}

static berth_status accept_use(void *self, const void *p, berth_stream *stream)
{
    (void)self, (void)p, (void)stream;
    return BERTH_OK;
}

/* The same for one that was recorded, and is freed without naming the stream. */
static void a_recorded_block_is_left_alone(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char region[1 << 14];
    static const berth_allocator_ops ops = {.struct_size = sizeof ops, .record_use = accept_use};
    berth_stream *stream = NULL;
    berth_allocator *fixed = NULL, *inner = NULL, *a = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    assert_int_equal(berth_wrapper_create(fixed, &ops, NULL, &inner), BERTH_OK);
    assert_int_equal(berth_guard_create(inner, NULL, &a), BERTH_OK);
    unsigned char *p = take(a, 64);
    memset(p, 0x11, 64);
    assert_int_equal(berth_record_use(a, p + 10, stream), BERTH_OK);
    give(a, p);
    size_t at = (size_t)(p - region);
    berth__annotate_defined(region + at, 64);
    assert_int_equal(region[at + 20], 0x11);
    assert_int_equal(region[at + 63], 0x11);
    berth_stream_destroy(stream);
    berth_allocator_release(a);
    berth_allocator_release(inner);
    berth_allocator_release(fixed);
}

enum { THREADS = 4, ROUNDS = 3000 };

/* It keeps its red zones and its place among the live ones, and can be freed later. */
static void a_block_that_is_not_taken_back_stays(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    struct keeper keeper = {.behind = new_system()};
    berth_allocator *inner = new_keeper(&keeper), *a = NULL;
    assert_int_equal(berth_guard_create(inner, NULL, &a), BERTH_OK);
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    char *p = take(a, 100);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(berth_deallocate(a, p, 0, stream), BERTH_BUSY);
        memset(p, 1, 100);
        assert_int_equal(berth_allocator_owns(a, p + 50), BERTH_OK);
    }
    keeper.open = true;
    assert_int_equal(berth_deallocate(a, p, 0, stream), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, p), BERTH_NOT_FOUND);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    berth_stream_destroy(stream);
    berth_allocator_release(a);
    berth_allocator_release(inner);
    berth_allocator_release(keeper.behind);
    assert_int_equal(berth__heap_live(), live);
}

static void *churn(void *a)
{
    void *held[16] = {0};
    unsigned seed = (unsigned)(uintptr_t)&held;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1664525u + 1013904223u;
        unsigned at = seed >> 28;
        if (held[at])
            give(a, held[at]);
        size_t size = 1 + (seed >> 8) % 500;
        held[at] = take(a, size);
        memset(held[at], i, size);
    }
    for (int i = 0; i < 16; i++)
        if (held[i])
            give(a, held[i]);
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    struct found f;
    berth_allocator *a = new_guard(&f, 1 << 16, false);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, a), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(f.count, 0);
    assert_int_equal(berth_guard_check(a, NULL), BERTH_OK);
    berth_allocator_release(a);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    berth_allocator *a = (void *)1;
    options.redzone_bytes = 0;
    assert_int_equal(berth_guard_create(berth_cpu_allocator(), &options, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_int_equal(berth_guard_check(berth_cpu_allocator(), NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_guard_check(NULL, NULL), BERTH_INVALID_ARGUMENT);
}

/* ---- Uses by streams, from two threads --------------------------------------------------------------- */

static berth_status use_is_fine(void *self, const void *p, berth_stream *stream)
{
    (void)self, (void)p, (void)stream;
    return BERTH_OK;
}

struct used {
    berth_allocator *guard;
    void *p;
    berth_stream *stream;
    _Atomic bool over;
    _Atomic unsigned missed;
};

static void *note_uses(void *argument)
{
    struct used *used = argument;
    while (!atomic_load(&used->over))
        atomic_fetch_add(&used->missed, berth_record_use(used->guard, used->p, used->stream) != BERTH_OK);
    return NULL;
}

static void a_block_is_there_while_its_use_is_noted(void **state)
{
    (void)state;
    berth_allocator *system = new_system(), *inner = NULL;
    berth_allocator_ops ops = {.struct_size = sizeof ops, .record_use = use_is_fine};
    struct used used = {0};
    pthread_t threads[2];
    assert_int_equal(berth_wrapper_create(system, &ops, NULL, &inner), BERTH_OK);
    assert_int_equal(berth_guard_create(inner, NULL, &used.guard), BERTH_OK);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &used.stream), BERTH_OK);
    used.p = take(used.guard, 1000);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, note_uses, &used), 0);
    for (int i = 0; i < 100000; i++) {
        size_t size = 0;
        if (berth_requested_size(used.guard, used.p, &size) != BERTH_OK)
            atomic_fetch_add(&used.missed, 1);
    }
    atomic_store(&used.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&used.missed), 0);
    assert_int_equal(berth_deallocate(used.guard, used.p, 1000, used.stream), BERTH_OK);
    berth_stream_destroy(used.stream);
    berth_allocator_release(used.guard);
    berth_allocator_release(inner);
    berth_allocator_release(system);
}

/* A block of secrets that cannot be wiped just now is not given away: it stays live, and the next free takes it. */
static void what_cannot_be_wiped_stays_live(void **state)
{
    (void)state;
    struct found f = {0};
    berth_device device;
    berth_allocator *pinned = NULL, *a = NULL;
    berth_stream *stream = NULL;
    size_t size = 0;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_PINNED, &pinned), BERTH_OK);
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.zero_on_free = true;
    options.report = note_report;
    options.context = &f;
    assert_int_equal(berth_guard_create(pinned, &options, &a), BERTH_OK);
    static const berth_status refusals[] = {BERTH_DEVICE_ERROR, BERTH_OUT_OF_HOST_MEMORY};
    for (size_t k = 0; k < 2; k++) {
        void *p = take(a, 256);
        memset(p, 0x5e, 256);
        berth_virtual_fail(device, BERTH_VIRTUAL_ZERO, 1, refusals[k], false);
        assert_int_equal(berth_deallocate(a, p, 256, stream), refusals[k]);
        assert_int_equal(berth_requested_size(a, p, &size), BERTH_OK);
        assert_int_equal(berth_deallocate(a, p, 256, stream), BERTH_OK);
        assert_int_equal(berth_deallocate(a, p, 256, stream), BERTH_BAD_FREE);
    }
    berth_allocator_release(a);
    berth_allocator_release(pinned);
    assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    berth_stream_destroy(stream);
    berth_virtual_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_and_underflow_are_found_at_the_free),
        cmocka_unit_test(both_stacks_are_told),
        cmocka_unit_test(a_late_write_is_found_when_the_quarantine_ends),
        cmocka_unit_test(double_and_foreign_frees_are_refused),
        cmocka_unit_test(secrets_are_wiped),
        cmocka_unit_test(what_cannot_be_wiped_stays_live),
        cmocka_unit_test(the_quarantine_gives_way_before_memory_runs_out),
        cmocka_unit_test(it_tracks_sizes_and_ids),
        cmocka_unit_test(a_live_block_keeps_it),
        cmocka_unit_test(work_under_way_is_left_alone),
        cmocka_unit_test(a_recorded_block_is_left_alone),
        cmocka_unit_test(a_block_that_is_not_taken_back_stays),
        cmocka_unit_test(threads_share_it),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(a_block_is_there_while_its_use_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
