/* The event log: its columns, its quoting, its failures, and lines that stay whole. */
#include "unit/wrap/wrap_test.h"

#include <unistd.h>

struct lines {
    char text[8192];
    size_t length;
};

static void collect(void *context, const char *line, size_t length)
{
    struct lines *l = context;
    assert_true(l->length + length < sizeof l->text);
    memcpy(l->text + l->length, line, length);
    l->length += length;
    l->text[l->length] = 0;
}

/* The line number `n` (0 is the header) from its second comma on: without the time and the thread. */
static void line_without_time(const struct lines *l, int n, char *out, size_t capacity)
{
    const char *line = l->text;
    while (n-- > 0)
        line = strchr(line, '\n') + 1;
    line = strchr(strchr(line, ',') + 1, ',') + 1;
    snprintf(out, capacity, "%.*s", (int)strcspn(line, "\n"), line);
}

static void writes_a_line_an_event(void **state)
{
    (void)state;
    struct lines l = {.length = 0};
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = collect;
    options.context = &l;
    berth_allocator *system = new_system(), *a = NULL;
    assert_int_equal(berth_event_log_create(system, &options, &a), BERTH_OK);
    assert_int_equal(strncmp(l.text, BERTH_EVENT_LOG_HEADER, strlen(BERTH_EVENT_LOG_HEADER)), 0);
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "a \"quoted\", label";
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_allocate(a, 100, 64, &request, &p), BERTH_OK);
    request.flags = BERTH_WILL_BE_LOGGED;
    assert_int_equal(berth_allocate(a, 101, 64, &request, &q), BERTH_OK); /* its caller writes that one */
    assert_int_equal(berth_deallocate(a, p, 100, NULL), BERTH_OK);
    give(a, q);
    char line[256], expected[256];
    line_without_time(&l, 1, line, sizeof line);
    snprintf(expected, sizeof expected, "allocate,%p,100,64,\"a \"\"quoted\"\", label\",,OK", p);
    assert_string_equal(line, expected);
    line_without_time(&l, 2, line, sizeof line);
    snprintf(expected, sizeof expected, "free,%p,100,0,,,OK", p);
    assert_string_equal(line, expected);
    berth_allocator_release(a);
    berth_allocator_release(system);
}

static void failures_are_events_too(void **state)
{
    (void)state;
    struct lines l = {.length = 0};
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = collect;
    options.context = &l;
    berth_budget *budget = NULL;
    berth_allocator *system = new_system(), *limit = NULL, *a = NULL;
    assert_int_equal(berth_budget_create(10, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, budget, &limit), BERTH_OK);
    assert_int_equal(berth_event_log_create(limit, &options, &a), BERTH_OK);
    void *p = NULL;
    berth_scope scope;
    berth_scope_begin(&scope, "layer");
    assert_int_equal(berth_allocate(a, 11, 64, NULL, &p), BERTH_OVER_BUDGET);
    berth_scope_end(&scope);
    char line[256];
    line_without_time(&l, 1, line, sizeof line);
    assert_string_equal(line, "allocate,,11,64,layer,,OVER_BUDGET");
    assert_non_null(strstr(berth_last_error()->message, "budget")); /* still the limit's words */
    berth_allocator_release(a);
    berth_allocator_release(limit);
    berth_allocator_release(system);
    berth_budget_release(budget);
}

/* In a region of its own, which resizes; the log sees at each line where the region stands. */
struct watched {
    struct lines lines;
    berth_allocator *fixed;
    const void *old;
    bool old_was_there; /* when reallocate_from came */
};

static void look_at_old(void *context, const char *line, size_t length)
{
    struct watched *w = context;
    collect(&w->lines, line, length);
    if (memmem(line, length, "reallocate_from", strlen("reallocate_from")))
        w->old_was_there = berth_allocator_owns(w->fixed, w->old) == BERTH_OK;
}

static void expect_line(const struct lines *l, int n, const char *expected)
{
    char line[256];
    line_without_time(l, n, line, sizeof line);
    assert_string_equal(line, expected);
}

/* Another thread may have the address, and tell of it, as soon as it is free. */
static void a_resize_is_told_of_before_the_block_goes(void **state)
{
    (void)state;
    static _Alignas(64) char region[4096];
    struct watched w = {.lines.length = 0};
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = look_at_old;
    options.context = &w;
    berth_allocator *a = NULL;
    char expected[256];
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &w.fixed), BERTH_OK);
    assert_int_equal(berth_event_log_create(w.fixed, &options, &a), BERTH_OK);
    void *p = NULL, *behind = NULL, *moved = NULL, *none = NULL;
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &behind), BERTH_OK); /* it cannot grow where it is */
    w.old = p;
    assert_int_equal(berth_reallocate(a, p, 100, 900, 64, NULL, &moved), BERTH_OK);
    assert_ptr_not_equal(p, moved);
    assert_true(w.old_was_there);
    snprintf(expected, sizeof expected, "reallocate_from,%p,100,0,,,OK", p);
    expect_line(&w.lines, 3, expected);
    snprintf(expected, sizeof expected, "reallocate,%p,900,64,,,OK", moved);
    expect_line(&w.lines, 4, expected);
    assert_int_equal(berth_reallocate(a, moved, 900, 5000, 64, NULL, &none), BERTH_OUT_OF_HOST_MEMORY);
    snprintf(expected, sizeof expected, "reallocate_from,%p,900,0,,,OK", moved);
    expect_line(&w.lines, 5, expected);
    snprintf(expected, sizeof expected, "free_failed,%p,900,0,,,OUT_OF_HOST_MEMORY", moved);
    expect_line(&w.lines, 6, expected);
    expect_line(&w.lines, 7, "reallocate,,5000,64,,,OUT_OF_HOST_MEMORY");
    give(a, moved);
    give(a, behind);
    berth_allocator_release(a);
    berth_allocator_release(w.fixed);
}

/* What never resizes is moved by the front: two lines, and none that is taken back. */
static void a_move_is_an_allocation_and_a_free(void **state)
{
    (void)state;
    struct lines l = {.length = 0};
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = collect;
    options.context = &l;
    berth_allocator *plain = new_plain(), *a = NULL;
    assert_int_equal(berth_event_log_create(plain, &options, &a), BERTH_OK);
    void *p = take(a, 100), *moved = NULL;
    assert_int_equal(berth_reallocate(a, p, 100, 900, 64, NULL, &moved), BERTH_OK);
    char expected[256];
    snprintf(expected, sizeof expected, "allocate,%p,900,64,,,OK", moved);
    expect_line(&l, 2, expected);
    snprintf(expected, sizeof expected, "free,%p,100,0,,,OK", p);
    expect_line(&l, 3, expected);
    give(a, moved);
    berth_allocator_release(a);
    berth_allocator_release(plain);
}

enum { THREADS = 3, PAIRS = 200 };

static void *many_pairs(void *a)
{
    for (int i = 0; i < PAIRS; i++)
        give(a, take(a, 64));
    return NULL;
}

static void lines_of_threads_stay_whole(void **state)
{
    (void)state;
    char path[] = "/tmp/berth-event-log-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.path = path;
    berth_allocator *system = new_system(), *a = NULL, *again = NULL;
    assert_int_equal(berth_event_log_create(system, &options, &a), BERTH_OK);
    assert_int_equal(berth_event_log_create(system, &options, &again), BERTH_OK); /* no second header */
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_pairs, i ? a : again), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    berth_allocator_release(a);
    berth_allocator_release(again);
    berth_allocator_release(system);
    FILE *in = fdopen(file, "r");
    char line[512];
    int lines = 0;
    while (fgets(line, sizeof line, in)) {
        int commas = 0;
        for (const char *c = line; *c; c++)
            commas += *c == ',';
        assert_int_equal(commas, 8);
        assert_int_equal(strcmp(line, BERTH_EVENT_LOG_HEADER) == 0, lines == 0);
        lines++;
    }
    assert_int_equal(lines, 1 + THREADS * PAIRS * 2);
    fclose(in);
    unlink(path);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    berth_allocator *a = (void *)1;
    assert_int_equal(berth_event_log_create(berth_cpu_allocator(), &options, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_int_equal(berth_event_log_create(berth_cpu_allocator(), NULL, &a), BERTH_INVALID_ARGUMENT);
    options.path = "/nonexistent/folder/log.csv";
    uint64_t live = berth__heap_live();
    assert_int_equal(berth_event_log_create(berth_cpu_allocator(), &options, &a), BERTH_IO);
    assert_non_null(strstr(berth_last_error()->message, options.path));
    assert_int_equal(berth__heap_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_line_an_event),
        cmocka_unit_test(failures_are_events_too),
        cmocka_unit_test(a_resize_is_told_of_before_the_block_goes),
        cmocka_unit_test(a_move_is_an_allocation_and_a_free),
        cmocka_unit_test(lines_of_threads_stay_whole),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
