/* The registry: order of merit, attributes, factories, both places of a clash, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/registry.h"
#include "berth/source.h"

static _Atomic int factory_runs;

static berth_status make_system(void *context, berth_allocator **out)
{
    (void)context;
    atomic_fetch_add(&factory_runs, 1);
    return berth_cpu_allocator_create(NULL, out);
}

static berth_status make_nothing(void *context, berth_allocator **out)
{
    (void)context, (void)out;
    atomic_fetch_add(&factory_runs, 1);
    return berth__fail(BERTH_DEVICE_LOST, "the machine is gone");
}

static berth_status make_itself(void *context, berth_allocator **out)
{
    return berth_registry_get(context, 5, out);
}

BERTH_REGISTER(at_start_up, "at start-up", 0, BERTH_ON_HOST | BERTH_NIC_COMPATIBLE, make_system)

static berth_status add(const char *name, int32_t priority, berth_attributes attributes,
                        berth_factory_fn factory, int32_t line)
{
    berth_registration r = {.struct_size = sizeof r,
                            .name = name,
                            .priority = priority,
                            .attributes = attributes,
                            .factory = factory,
                            .context = (void *)(uintptr_t)name,
                            .file = "here.c",
                            .line = line};
    return berth_registry_add(&r);
}

static void system_and_the_macros_are_there(void **state)
{
    (void)state;
    berth_allocator *a = NULL, *b = NULL;
    assert_int_equal(berth_registry_get("system", 0, &a), BERTH_OK);
    assert_ptr_equal(a, berth_cpu_allocator());
    assert_int_equal(berth_registry_best(&b), BERTH_OK);
    assert_ptr_equal(a, b); /* a tie goes to the first registered */
    assert_int_equal(berth_registry_get("at start-up", 0, &b), BERTH_OK);
    assert_ptr_not_equal(a, b);
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &a), BERTH_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(atomic_load(&factory_runs), 1);
}

static void the_highest_priority_is_the_best(void **state)
{
    (void)state;
    berth_allocator *best = NULL, *second = NULL;
    assert_int_equal(add("first", 7, BERTH_ON_HOST, make_system, 1), BERTH_OK);
    assert_int_equal(add("second", 7, BERTH_ON_HOST, make_system, 2), BERTH_OK);
    assert_int_equal(berth_registry_best(&best), BERTH_OK);
    assert_ptr_equal(best, berth_cpu_allocator());
    assert_int_equal(berth_registry_get("second", 7, &second), BERTH_OK);
    assert_ptr_not_equal(best, second);
    assert_int_equal(berth_registry_remove("first", 7), BERTH_OK);
    assert_int_equal(berth_registry_best(&best), BERTH_OK);
    assert_ptr_equal(best, second);
    assert_int_equal(berth_registry_remove("second", 7), BERTH_OK);
    assert_string_equal(berth_allocator_name(berth_cpu_allocator()), "system");
    assert_int_equal(berth_registry_remove("second", 7), BERTH_NOT_FOUND);
}

static void an_allocator_is_held_while_registered(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_allocator *mine = NULL, *got = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &mine), BERTH_OK);
    berth_registration r = {.struct_size = sizeof r,
                            .name = "mine",
                            .priority = 3,
                            .attributes = BERTH_TRACK_SIZES,
                            .allocator = mine};
    assert_int_equal(berth_registry_add(&r), BERTH_OK);
    berth_allocator_release(mine);
    assert_int_equal(berth_registry_best_for(BERTH_TRACK_SIZES, &got), BERTH_OK);
    assert_ptr_equal(got, mine);
    assert_ptr_not_equal(berth_cpu_allocator(), mine); /* it does not say that it is on the host */
    assert_int_equal(berth_registry_remove("mine", 3), BERTH_OK);
    assert_int_equal(berth__heap_live(), live);
}

static void nobody_satisfies_is_said(void **state)
{
    (void)state;
    berth_allocator *a = (berth_allocator *)(uintptr_t)1;
    assert_int_equal(berth_registry_best_for(BERTH_ON_HOST | BERTH_GPU_COMPATIBLE, &a), BERTH_UNSUPPORTED);
    assert_null(a);
    assert_int_equal(berth_registry_get("nobody", 0, &a), BERTH_NOT_FOUND);
    assert_non_null(strstr(berth_last_error()->message, "nobody"));
    assert_int_equal(berth_registry_get("system", 1, &a), BERTH_NOT_FOUND);
}

static void registering_twice_names_both_places(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    assert_int_equal(add("twice", 4, 0, make_system, 111), BERTH_OK);
    assert_int_equal(add("twice", 4, 0, make_system, 222), BERTH_ALREADY_EXISTS);
    assert_non_null(strstr(berth_last_error()->message, "here.c:111"));
    assert_non_null(strstr(berth_last_error()->message, "here.c:222"));
    assert_int_equal(add("twice", 5, 0, make_system, 333), BERTH_OK);
    assert_int_equal(berth_registry_remove("twice", 4), BERTH_OK);
    assert_int_equal(berth_registry_remove("twice", 5), BERTH_OK);
    assert_int_equal(add("system", 0, 0, make_system, 9), BERTH_ALREADY_EXISTS);
    assert_int_equal(berth__heap_live(), live);
}

static void bad_registrations_change_nothing(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    assert_int_equal(add("", 1, 0, make_system, 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(add(NULL, 1, 0, make_system, 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(add("x", -1, 0, make_system, 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(add("x", 1, 0, NULL, 1), BERTH_INVALID_ARGUMENT);
    berth_registration both = {
        .struct_size = sizeof both, .name = "x", .factory = make_system, .allocator = berth_cpu_allocator()};
    assert_int_equal(berth_registry_add(&both), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_registry_add(NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_registry_get(NULL, 0, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_registry_best(NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth__heap_live(), live);
}

static int lines;

static void count_lines(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
    lines++;
}

static void a_factory_that_fails_is_asked_again_and_not_for_the_host(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    atomic_store(&factory_runs, 0);
    assert_int_equal(add("broken", 9, BERTH_ON_HOST, make_nothing, 1), BERTH_OK);
    assert_int_equal(berth_registry_get("broken", 9, &a), BERTH_DEVICE_LOST);
    assert_int_equal(berth_registry_best(&a), BERTH_DEVICE_LOST);
    assert_null(a);
    assert_int_equal(atomic_load(&factory_runs), 2);
    berth_log_set(count_lines, NULL, BERTH_LOG_WARNING);
    for (int i = 0; i < 10; i++)
        assert_string_equal(berth_allocator_name(berth_cpu_allocator()), "system");
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(lines, 1);
    assert_int_equal(berth_registry_remove("broken", 9), BERTH_OK);
}

/* Modules that are unloaded take themselves out, at any moment. */
static berth_status leave_and_fail(void *context, berth_allocator **out)
{
    assert_int_equal(berth_registry_remove(context, 9), BERTH_OK);
    return make_nothing(context, out);
}

static berth_status leave_and_give(void *context, berth_allocator **out)
{
    assert_int_equal(berth_registry_remove(context, 9), BERTH_OK);
    return make_system(context, out);
}

static berth_status come_and_fail(void *context, berth_allocator **out)
{
    assert_int_equal(add("better", 10, BERTH_ON_HOST, make_system, 1), BERTH_OK);
    return make_nothing(context, out);
}

static void the_best_is_right_when_entries_go_meanwhile(void **state)
{
    (void)state;
    berth_allocator *next = NULL, *a = NULL;
    assert_int_equal(add("next", 8, BERTH_ON_HOST, make_system, 1), BERTH_OK);
    assert_int_equal(berth_registry_get("next", 8, &next), BERTH_OK);
    berth_log_set(count_lines, NULL, BERTH_LOG_WARNING);
    assert_int_equal(add("broken", 9, BERTH_ON_HOST, leave_and_fail, 1), BERTH_OK);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(berth_cpu_allocator(), next);
    assert_int_equal(add("gone", 9, BERTH_ON_HOST, leave_and_give, 1), BERTH_OK);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(berth_cpu_allocator(), next);
    assert_int_equal(add("gone", 9, BERTH_ON_HOST, leave_and_give, 1), BERTH_OK);
    assert_int_equal(berth_registry_best(&a), BERTH_OK);
    assert_ptr_equal(a, next);
    assert_int_equal(add("broken", 9, BERTH_ON_HOST, come_and_fail, 1), BERTH_OK);
    assert_ptr_equal(berth_cpu_allocator(), next); /* of those that were there when it was asked */
    assert_int_equal(berth_registry_get("better", 10, &a), BERTH_OK);
    assert_ptr_equal(berth_cpu_allocator(), a);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(berth_registry_remove("better", 10), BERTH_OK);
    assert_int_equal(berth_registry_remove("broken", 9), BERTH_OK);
    assert_int_equal(berth_registry_remove("next", 8), BERTH_OK);
}

static void a_factory_that_asks_for_itself_is_told(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(add("itself", 5, 0, make_itself, 1), BERTH_OK);
    assert_int_equal(berth_registry_get("itself", 5, &a), BERTH_BUSY);
    assert_int_equal(berth_registry_remove("itself", 5), BERTH_OK);
}

struct list {
    int count;
    int32_t last_priority;
    bool has_system;
};

static bool look(void *context, const berth_registration *r)
{
    struct list *list = context;
    assert_true(list->count == 0 || r->priority <= list->last_priority);
    list->last_priority = r->priority;
    list->count++;
    list->has_system = list->has_system || strcmp(r->name, "system") == 0;
    berth_allocator *a = NULL;
    assert_int_equal(berth_registry_get("system", 0, &a), BERTH_OK); /* no lock is held */
    return true;
}

static void a_visit_sees_all_in_order(void **state)
{
    (void)state;
    char name[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(add(name, (i * 7) % 11 + 1, 0, make_system, i), BERTH_OK);
    }
    struct list list = {0};
    assert_int_equal(berth_registry_visit(look, &list), BERTH_OK);
    assert_int_equal(list.count, 42);
    assert_true(list.has_system);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(berth_registry_remove(name, (i * 7) % 11 + 1), BERTH_OK);
    }
}

static void *come_and_go(void *context)
{
    for (int i = 0; i < 300; i++) {
        berth_allocator *a = NULL;
        char name[16];
        snprintf(name, sizeof name, "t%d-%d", (int)(uintptr_t)context, i % 3);
        if (add(name, 1, 0, make_system, i) != BERTH_OK || berth_registry_get(name, 1, &a) != BERTH_OK ||
            berth_registry_remove(name, 1) != BERTH_OK || berth_cpu_allocator() == NULL)
            return name[0] ? (void *)1 : NULL;
        if (berth_registry_get("shared", 2, &a) != BERTH_OK)
            return (void *)1;
    }
    return NULL;
}

static void threads_come_and_go(void **state)
{
    (void)state;
    pthread_t ids[4];
    atomic_store(&factory_runs, 0);
    assert_int_equal(add("shared", 2, 0, make_system, 1), BERTH_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, come_and_go, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < 4; i++) {
        void *trouble = NULL;
        pthread_join(ids[i], &trouble);
        assert_null(trouble);
    }
    assert_int_equal(atomic_load(&factory_runs), 4 * 300 + 1);
    assert_int_equal(berth_registry_remove("shared", 2), BERTH_OK);
}

/* These tests are about the registry, which begins with "system" alone: the pool, which is there too, goes.
 */
static int without_the_pool(void **state)
{
    (void)state;
    return berth_registry_remove("pool", 100) == BERTH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_and_the_macros_are_there),
        cmocka_unit_test(the_highest_priority_is_the_best),
        cmocka_unit_test(an_allocator_is_held_while_registered),
        cmocka_unit_test(nobody_satisfies_is_said),
        cmocka_unit_test(registering_twice_names_both_places),
        cmocka_unit_test(bad_registrations_change_nothing),
        cmocka_unit_test(a_factory_that_fails_is_asked_again_and_not_for_the_host),
        cmocka_unit_test(the_best_is_right_when_entries_go_meanwhile),
        cmocka_unit_test(a_factory_that_asks_for_itself_is_told),
        cmocka_unit_test(a_visit_sees_all_in_order),
        cmocka_unit_test(threads_come_and_go),
    };
    return cmocka_run_group_tests(tests, without_the_pool, NULL);
}
