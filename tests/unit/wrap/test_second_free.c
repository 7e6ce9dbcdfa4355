/* Second frees and pointers of others: answered at every size, alone and through every decorator, without a
 * read where memory may be gone. */
#include <sys/mman.h>
#include <unistd.h>

#include "wrap_test.h"

static const size_t sizes[] = {1,
                               64,
                               4000,
                               4096,
                               (64 << 10) - 64,
                               (96 << 10) - 1,
                               96 << 10,
                               128 << 10,
                               (128 << 10) - 64,
                               (size_t)1 << 20,
                               (size_t)64 << 20};
static const size_t alignments[] = {1, 64, 4096, 65536};

/* ---- The stacks -------------------------------------------------------------------------------------- */

static berth_allocator *new_adapter(void)
{
    berth_malloc_family family = {.struct_size = sizeof family,
                                  .name = "libc",
                                  .malloc = malloc,
                                  .free = free,
                                  .calloc = calloc,
                                  .usable_size = NULL};
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    return a;
}

static berth_allocator *new_mapped(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_mapped_allocator_create(NULL, &a), BERTH_OK);
    return a;
}

/* A user's table over mappings: what is freed is unmapped. */
static berth_status mapping_allocate(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out)
{
    (void)self, (void)request;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), slack = alignment > page ? alignment : 0;
    char *raw = mmap(NULL, size_bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return BERTH_OUT_OF_HOST_MEMORY;
    *out = slack ? (char *)(((uintptr_t)raw + slack - 1) & ~(uintptr_t)(slack - 1)) : raw;
    return BERTH_OK;
}

static berth_status mapping_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)stream;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(size_bytes > 0);
    return munmap((void *)((uintptr_t)p & ~(uintptr_t)(page - 1)), size_bytes) == 0 ? BERTH_OK
                                                                                    : BERTH_BAD_FREE;
}

static void mapping_destroy(void *self)
{
    (void)self;
}

static berth_allocator *new_mapping(void)
{
    berth_allocator_ops ops = {.struct_size = sizeof ops,
                               .allocate = mapping_allocate,
                               .deallocate = mapping_deallocate,
                               .destroy = mapping_destroy};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    return a;
}

static berth_status add_limit(berth_allocator *inner, berth_allocator **out)
{
    berth_budget *budget = NULL;
    berth_status status = berth_budget_create((uint64_t)1 << 40, &budget);
    if (status == BERTH_OK)
        status = berth_limit_create(inner, budget, out);
    berth_budget_release(budget);
    return status;
}

static berth_status add_retry(berth_allocator *inner, berth_allocator **out)
{
    return berth_retry_create(inner, NULL, out);
}

static void no_line(void *context, const char *line, size_t length)
{
    (void)context, (void)line, (void)length;
}

static berth_status add_log(berth_allocator *inner, berth_allocator **out)
{
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = no_line;
    return berth_event_log_create(inner, &options, out);
}

static berth_status add_totals(berth_allocator *inner, berth_allocator **out)
{
    return berth_tracking_create(inner, NULL, out);
}

static berth_status add_tracker(berth_allocator *inner, berth_allocator **out)
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    return berth_tracking_create(inner, &options, out);
}

static void no_report(void *context, const berth_guard_report *report)
{
    (void)context, (void)report;
}

static berth_status add_guard(berth_allocator *inner, berth_allocator **out)
{
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.report = no_report;
    options.quarantine_bytes = 1 << 20;
    return berth_guard_create(inner, &options, out);
}

typedef berth_allocator *(*source_fn)(void);
typedef berth_status (*layer_fn)(berth_allocator *inner, berth_allocator **out);

static const struct stack {
    const char *name;
    source_fn source;
    layer_fn layers[3];
    size_t from_bytes; /* smaller blocks of a user's own mappings are beyond what is promised */
} stacks[] = {
#define STACK(name_, source_, from_, ...)                                              \
    {                                                                                  \
        .name = name_, .source = source_, .layers = {__VA_ARGS__}, .from_bytes = from_ \
    }
    STACK("system", new_system, 0, NULL),
    STACK("adapter", new_adapter, 0, NULL),
    STACK("mapped", new_mapped, 0, NULL),
    STACK("limit over system", new_system, 0, add_limit),
    STACK("limit over adapter", new_adapter, 0, add_limit),
    STACK("limit over a user's table", new_plain, 0, add_limit),
    STACK("limit over a user's mappings", new_mapping, 96 << 10, add_limit),
    STACK("scopes over system", new_system, 0, berth_scope_meter_create),
    STACK("scopes over a user's mappings", new_mapping, 96 << 10, berth_scope_meter_create),
    STACK("limit over scopes over system", new_system, 0, berth_scope_meter_create, add_limit),
    STACK("scopes over scopes over system", new_system, 0, berth_scope_meter_create,
          berth_scope_meter_create),
    STACK("log, retry and explain over system", new_system, 0, berth_explain_create, add_retry, add_log),
    STACK("totals over system", new_system, 0, add_totals),
    STACK("limit over totals over system", new_system, 0, add_totals, add_limit),
    STACK("tracker over system", new_system, 0, add_tracker),
    STACK("guard over system", new_system, 0, add_guard),
    STACK("limit over guard over system", new_system, 0, add_guard, add_limit),
#undef STACK
};

static berth_allocator *build(const struct stack *stack)
{
    berth_allocator *a = stack->source();
    for (size_t i = 0; i < BERTH_COUNT_OF(stack->layers) && stack->layers[i]; i++) {
        berth_allocator *outer = NULL;
        assert_int_equal(stack->layers[i](a, &outer), BERTH_OK);
        berth_allocator_release(a);
        a = outer;
    }
    return a;
}

static void expect_refused(const struct stack *stack, berth_allocator *a, void *p, size_t size)
{
    void *moved = NULL;
    size_t answer = 0;
    if (berth_deallocate(a, p, size, NULL) != BERTH_BAD_FREE)
        fail_msg("%s: a bad free at %p, %zu bytes, is not refused", stack->name, p, size);
    assert_int_not_equal(berth_reallocate(a, p, size, 100, 64, NULL, &moved), BERTH_OK);
    assert_int_not_equal(berth_requested_size(a, p, &answer), BERTH_OK);
    assert_int_not_equal(berth_allocated_size_slow(a, p, &answer), BERTH_OK);
}

static void second_frees_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < BERTH_COUNT_OF(stacks); i++) {
        berth_allocator *a = build(&stacks[i]);
        for (size_t j = 0; j < BERTH_COUNT_OF(sizes); j++)
            for (size_t k = 0; k < BERTH_COUNT_OF(alignments); k++) {
                void *p = NULL, *behind = NULL; /* the heap's end stays where it is */
                if (sizes[j] < stacks[i].from_bytes)
                    continue;
                assert_int_equal(berth_allocate(a, sizes[j], alignments[k], NULL, &p), BERTH_OK);
                assert_int_equal((uintptr_t)p % alignments[k], 0);
                ((volatile char *)p)[0] = ((volatile char *)p)[sizes[j] - 1] = 1;
                assert_int_equal(berth_allocate(a, 1, 1, NULL, &behind), BERTH_OK);
                assert_int_equal(berth_deallocate(a, p, sizes[j], NULL), BERTH_OK);
                expect_refused(&stacks[i], a, p, sizes[j]);
                assert_int_equal(berth_deallocate(a, behind, 1, NULL), BERTH_OK);
            }
        berth_stats stats = {.struct_size = sizeof stats};
        if (berth_stats_get(a, &stats) == BERTH_OK)
            assert_int_equal(stats.bytes_in_use, 0);
        berth_allocator_release(a);
    }
}

/* The page in front belongs to nobody: what reads there dies. */
static void a_page_of_others_is_refused(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    for (size_t i = 0; i < BERTH_COUNT_OF(stacks); i++) {
        berth_allocator *a = build(&stacks[i]);
        for (size_t offset = 0; offset < 48; offset += 16)
            expect_refused(&stacks[i], a, pages + page + offset, 100);
        expect_refused(&stacks[i], a, pages + page + 1, 100);
        berth_allocator_release(a);
    }
    munmap(pages, 2 * page);
}

/* Large blocks grow and shrink with their contents, across the size from which they start at pages. */
static void large_blocks_move_with_their_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < BERTH_COUNT_OF(stacks); i++) {
        berth_allocator *a = build(&stacks[i]);
        static const size_t steps[] = {100, 200 << 10, 1 << 20, 97 << 10, 95 << 10, 3 << 20, 10};
        unsigned char *p = take(a, 10);
        size_t held = 10;
        memset(p, 7, held);
        for (size_t j = 0; j < BERTH_COUNT_OF(steps); j++) {
            void *moved = NULL;
            assert_int_equal(berth_reallocate(a, p, held, steps[j], 64, NULL, &moved), BERTH_OK);
            p = moved;
            size_t kept = held < steps[j] ? held : steps[j];
            assert_true(p[0] == 7 && p[kept - 1] == 7);
            memset(p, 7, steps[j]);
            held = steps[j];
        }
        assert_int_equal(berth_deallocate(a, p, held, NULL), BERTH_OK);
        berth_allocator_release(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_frees_are_refused),
        cmocka_unit_test(a_page_of_others_is_refused),
        cmocka_unit_test(large_blocks_move_with_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
