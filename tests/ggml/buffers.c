/* Buffer types over Berth in the real ggml: figures, words when memory runs out, bytes in and out on host and device
 * memory, and ggml's scheduler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* setjmp, stdarg and stddef stand before it, as it asks. */
#include <cmocka.h>

#include <berth/decorators.h>
#include <berth/device_ops.h>
#include <berth/pool.h>
#include <berth/source.h>

#include "device/device.h"
#include "kit.h"
#include <berth_ggml.h>

enum { COUNT = 100000 }; /* more than is filled in one piece */

static void *backend;

static void must(berth_status status)
{
    if (status != BERTH_OK)
        fail_msg("%s", berth_last_error()->message);
}

static berth_ggml_buffer_figures figures_of(struct ggml_backend_buffer_type *type)
{
    berth_ggml_buffer_figures figures = BERTH_GGML_BUFFER_FIGURES_INIT;
    must(berth_ggml_buffer_type_figures(type, &figures));
    return figures;
}

/* ---- A card: the processor's memory behind a table that calls it out of reach ----------------------------- */

static bool card_is_lost;

static berth_status card_describe(void *self, berth_device device, berth_device_info *info)
{
    berth_status status = berth__cpu_device_ops.describe(self, device, info);
    info->host_accessible = false;
    return status;
}

static berth_status card_copy(void *self, berth_device device, void *dst, const void *src, size_t size,
                              berth_copy_kind kind, berth_stream *stream)
{
    return card_is_lost ? berth_fail(BERTH_DEVICE_LOST, "the card is gone")
                        : berth__cpu_device_ops.copy(self, device, dst, src, size, kind, stream);
}

static berth_device card_make(void)
{
    berth_device_ops ops = berth__cpu_device_ops;
    berth_device_kind kind;
    ops.name = "card";
    ops.describe = card_describe;
    ops.copy = card_copy;
    must(berth_device_register(&ops, NULL, &kind));
    return (berth_device){.kind = (int32_t)kind, .ordinal = 0};
}

/* ---- Tests ------------------------------------------------------------------------------------------------ */

static void exercise_bytes(struct ggml_backend_buffer_type *type, struct ggml_backend_buffer_type *other)
{
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    kit_context c = kit.ggml_init(params), d = kit.ggml_init(params);
    kit_tensor x = kit.ggml_new_tensor_1d(c, GGML_TYPE_F32, COUNT),
               y = kit.ggml_new_tensor_1d(c, GGML_TYPE_F32, COUNT);
    kit_tensor z = kit.ggml_new_tensor_1d(d, GGML_TYPE_F32, COUNT);
    struct ggml_backend_buffer *buffer = kit.ggml_backend_alloc_ctx_tensors_from_buft(c, type);
    struct ggml_backend_buffer *elsewhere = kit.ggml_backend_alloc_ctx_tensors_from_buft(d, other);
    float *values = malloc(COUNT * sizeof *values), *got = calloc(COUNT, sizeof *got);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    kit.ggml_backend_tensor_set(x, values, 0, COUNT * sizeof *values);
    kit.ggml_backend_tensor_copy(x, y); /* within the type */
    kit.ggml_backend_tensor_copy(y, z); /* to another */
    kit.ggml_backend_tensor_memset(y, 0, 0, COUNT * sizeof *values);
    kit.ggml_backend_tensor_copy(z, y); /* and back */
    kit.ggml_backend_tensor_get(y, got, 0, COUNT * sizeof *values);
    assert_memory_equal(values, got, COUNT * sizeof *values);
    kit.ggml_backend_tensor_memset(y, 0x41, 4, (COUNT - 2) * sizeof *values);
    kit.ggml_backend_tensor_get(y, got, 0, COUNT * sizeof *values);
    assert_true(got[0] == 0.0f && got[COUNT - 1] == (float)(COUNT - 1));
    for (size_t i = 4; i < (COUNT - 1) * sizeof *values; i++)
        assert_int_equal(((unsigned char *)got)[i], 0x41);
    kit.ggml_backend_buffer_clear(buffer, 0);
    kit.ggml_backend_tensor_get(x, got, COUNT * 2, COUNT * 2);
    for (int i = 0; i < COUNT / 2; i++)
        assert_true(got[i] == 0.0f);
    free(values);
    free(got);
    kit.ggml_backend_buffer_free(buffer);
    kit.ggml_backend_buffer_free(elsewhere);
    kit.ggml_free(c);
    kit.ggml_free(d);
}

static void test_bytes_go_in_and_out(void **state)
{
    struct ggml_backend_buffer_type *plain = kit.ggml_backend_get_default_buffer_type(backend), *host, *card;
    berth_device device = card_make();
    berth_allocator *allocator;
    (void)state;
    must(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &allocator));
    must(berth_ggml_buffer_type_create(berth_cpu_allocator(), NULL, &host));
    must(berth_ggml_buffer_type_create(allocator, NULL, &card));
    assert_true(kit.ggml_backend_buft_is_host(host));
    assert_false(kit.ggml_backend_buft_is_host(card));
    exercise_bytes(host, plain);
    exercise_bytes(host, host);
    exercise_bytes(card, plain);
    exercise_bytes(card, host);
    exercise_bytes(card, card);
    exercise_bytes(plain, card);
    assert_int_equal(figures_of(card).failed_copies, 0);
    assert_int_equal(figures_of(card).buffers, 0);
    berth_ggml_buffer_type_release(host);
    berth_ggml_buffer_type_release(card);
    berth_allocator_release(allocator);
    must(berth_device_unregister((berth_device_kind)device.kind));
}

static void test_failed_copies_are_counted(void **state)
{
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    kit_context c = kit.ggml_init(params);
    kit_tensor x = kit.ggml_new_tensor_1d(c, GGML_TYPE_F32, 8);
    berth_device device = card_make();
    berth_allocator *allocator;
    struct ggml_backend_buffer_type *card;
    float value = 1;
    (void)state;
    must(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &allocator));
    must(berth_ggml_buffer_type_create(allocator, NULL, &card));
    struct ggml_backend_buffer *buffer = kit.ggml_backend_alloc_ctx_tensors_from_buft(c, card);
    card_is_lost = true;
    kit.ggml_backend_tensor_set(x, &value, 0, sizeof value);
    kit.ggml_backend_tensor_get(x, &value, 0, sizeof value);
    kit.ggml_backend_tensor_memset(x, 3, 0, sizeof value);
    card_is_lost = false;
    assert_int_equal(figures_of(card).failed_copies, 3);
    assert_non_null(strstr(berth_last_error()->message, "the card is gone"));
    kit.ggml_backend_buffer_free(buffer);
    berth_ggml_buffer_type_release(card);
    berth_allocator_release(allocator);
    must(berth_device_unregister((berth_device_kind)device.kind));
    kit.ggml_free(c);
}

static void test_figures_and_options(void **state)
{
    berth_ggml_buffer_type_options options = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    struct ggml_backend_buffer_type *type;
    (void)state;
    options.name = "pool of ours";
    options.alignment = 256;
    options.max_bytes = 4096;
    must(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &type));
    assert_string_equal(kit.ggml_backend_buft_name(type), "pool of ours");
    assert_int_equal(kit.ggml_backend_buft_get_alignment(type), 256);
    assert_int_equal(kit.ggml_backend_buft_get_max_size(type), 4096);
    struct ggml_backend_buffer *a = kit.ggml_backend_buft_alloc_buffer(type, 1000);
    struct ggml_backend_buffer *b = kit.ggml_backend_buft_alloc_buffer(type, 4096);
    assert_int_equal((uintptr_t)kit.ggml_backend_buffer_get_base(a) % 256, 0);
    assert_int_equal(kit.ggml_backend_buffer_get_size(a), 1000);
    assert_null(kit.ggml_backend_buft_alloc_buffer(type, 4097));
    assert_non_null(
        strstr(berth_last_error()->message, "4097 bytes of pool of ours, whose buffers have at most 4096"));
    kit.ggml_backend_buffer_free(a);
    berth_ggml_buffer_figures figures = figures_of(type);
    assert_int_equal(figures.buffers, 1);
    assert_int_equal(figures.bytes, 4096);
    assert_int_equal(figures.max_bytes, 5096);
    assert_int_equal(figures.total_buffers, 2);
    assert_int_equal(figures.refused, 1);
    berth_ggml_buffer_type_release(type); /* goes with b */
    kit.ggml_backend_buffer_free(b);

    options.alignment = 48;
    assert_int_equal(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &type),
                     BERTH_INVALID_ARGUMENT);
    options.struct_size = 3;
    assert_int_equal(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &type),
                     BERTH_INVALID_ARGUMENT);
    assert_int_equal(
        berth_ggml_buffer_type_figures(kit.ggml_backend_get_default_buffer_type(backend), &figures),
        BERTH_NOT_FOUND);
    assert_int_equal(berth_ggml_buffer_type_figures(NULL, &figures), BERTH_INVALID_ARGUMENT);
}

/* A budget that the plan exceeds: ggml gets NULL, the graph says how much for which type and why, and can be used again. */
static void test_memory_that_runs_out_is_told(void **state)
{
    berth_budget *budget;
    berth_allocator *limited;
    struct ggml_backend_buffer_type *type, *plain = kit.ggml_backend_get_default_buffer_type(backend);
    berth_ggml_graph *graph;
    kit_model model;
    (void)state;
    must(berth_budget_create(1024, &budget));
    must(berth_limit_create(berth_cpu_allocator(), budget, &limited));
    must(berth_ggml_buffer_type_create(limited, NULL, &type));
    must(berth_ggml_graph_create(&type, 1, NULL, &graph));
    kit_model_init(&model, kit_families[0].build, 1, plain);
    assert_int_equal(berth_ggml_graph_allocate(graph, model.graph), BERTH_OVER_BUDGET);
    assert_non_null(strstr(berth_last_error()->message, "the plan needs a buffer of"));
    assert_int_equal(figures_of(type).refused, 1);
    assert_int_equal(figures_of(type).buffers, 0);
    assert_int_equal(berth_ggml_graph_allocate(graph, model.graph), BERTH_OVER_BUDGET);
    must(berth_budget_set_limit(budget, 1 << 30));
    must(berth_ggml_graph_allocate(graph, model.graph));
    berth_ggml_graph_destroy(graph);
    kit_model_finish(&model);
    berth_ggml_buffer_type_release(type);
    berth_allocator_release(limited);
    berth_budget_release(budget);
}

static void *outputs_of(kit_model *model, void *sched, size_t *size)
{
    kit_model_set(model, 7);
    if (sched)
        assert_int_equal(kit.ggml_backend_sched_graph_compute(sched, model->graph), GGML_STATUS_SUCCESS);
    else
        assert_int_equal(kit.ggml_backend_graph_compute(backend, model->graph), GGML_STATUS_SUCCESS);
    return kit_model_get(model, size);
}

/* The scheduler takes a type over Berth for its own buffer, and leaves a graph alone that Berth has placed. */
static void test_the_scheduler_takes_both(void **state)
{
    struct ggml_backend_buffer_type *type, *plain = kit.ggml_backend_get_default_buffer_type(backend);
    (void)state;
    must(berth_ggml_buffer_type_create(berth_cpu_allocator(), NULL, &type));
    for (int i = 0; i < kit_family_count; i++) {
        kit_model a, b, c;
        berth_ggml_graph *graph, *expected;
        size_t size;
        void *by_type = kit.ggml_backend_sched_new(&backend, &type, 1, KIT_NODES_MAX, false, false);
        void *by_plan = kit.ggml_backend_sched_new(&backend, &plain, 1, KIT_NODES_MAX, false, false);
        kit_model_init(&a, kit_families[i].build, 2, plain);
        kit_model_init(&b, kit_families[i].build, 2, type);
        kit_model_init(&c, kit_families[i].build, 2, type);
        must(berth_ggml_graph_create(&plain, 1, NULL, &expected));
        must(berth_ggml_graph_allocate(expected, a.graph));
        assert_true(kit.ggml_backend_sched_alloc_graph(by_type, b.graph));
        must(berth_ggml_graph_create(&type, 1, NULL, &graph));
        must(berth_ggml_graph_allocate(graph, c.graph));
        assert_true(kit.ggml_backend_sched_alloc_graph(by_plan, c.graph));
        assert_true(kit.ggml_backend_sched_get_buffer_size(by_type, backend) > 0);
        assert_int_equal(kit.ggml_backend_sched_get_buffer_size(by_plan, backend), 0);
        void *x = outputs_of(&a, NULL, &size), *y = outputs_of(&b, by_type, &size),
             *z = outputs_of(&c, by_plan, &size);
        assert_memory_equal(x, y, size);
        assert_memory_equal(x, z, size);
        free(x);
        free(y);
        free(z);
        kit.ggml_backend_sched_free(by_type);
        kit.ggml_backend_sched_free(by_plan);
        berth_ggml_graph_destroy(graph);
        berth_ggml_graph_destroy(expected);
        kit_model_finish(&a);
        kit_model_finish(&b);
        kit_model_finish(&c);
    }
    assert_int_equal(figures_of(type).buffers, 0);
    berth_ggml_buffer_type_release(type);
}

/* Every second node that is no view is the second backend's. */
static void deal_nodes(void *sched, const struct ggml_cgraph *graph, void *const *backends)
{
    for (int i = 0, k = 0; i < graph->n_nodes; i++)
        if (!graph->nodes[i]->view_src)
            kit.ggml_backend_sched_set_tensor_backend(sched, graph->nodes[i], backends[k++ % 2]);
}

/* Two backends, each with a type over Berth: the graph goes to and fro between them, with the outputs of one. */
static void test_the_scheduler_takes_two_backends(void **state)
{
    struct ggml_backend_buffer_type *types[2], *plain = kit.ggml_backend_get_default_buffer_type(backend);
    void *backends[2] = {backend, kit_backend(1)};
    (void)state;
    for (int t = 0; t < 2; t++)
        must(berth_ggml_buffer_type_create(berth_cpu_allocator(), NULL, &types[t]));
    for (int i = 0; i < kit_family_count; i++) {
        kit_model a, b;
        berth_ggml_graph *expected;
        size_t size;
        void *sched = kit.ggml_backend_sched_new(backends, types, 2, KIT_NODES_MAX, false, false);
        kit_model_init(&a, kit_families[i].build, 2, plain);
        kit_model_init(&b, kit_families[i].build, 2, types[0]);
        must(berth_ggml_graph_create(&plain, 1, NULL, &expected));
        must(berth_ggml_graph_allocate(expected, a.graph));
        deal_nodes(sched, b.graph, backends);
        assert_true(kit.ggml_backend_sched_alloc_graph(sched, b.graph));
        assert_true(kit.ggml_backend_sched_get_n_splits(sched) > 2);
        for (int t = 0; t < 2; t++)
            assert_true(kit.ggml_backend_sched_get_buffer_size(sched, backends[t]) > 0);
        void *x = outputs_of(&a, NULL, &size), *y = outputs_of(&b, sched, &size);
        assert_memory_equal(x, y, size);
        free(x);
        free(y);
        kit.ggml_backend_sched_free(sched);
        berth_ggml_graph_destroy(expected);
        kit_model_finish(&a);
        kit_model_finish(&b);
    }
    for (int t = 0; t < 2; t++) {
        assert_true(figures_of(types[t]).max_bytes > 0);
        assert_int_equal(figures_of(types[t]).buffers, 0);
        berth_ggml_buffer_type_release(types[t]);
    }
    kit.ggml_backend_free(backends[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_in_and_out),
        cmocka_unit_test(test_failed_copies_are_counted),
        cmocka_unit_test(test_figures_and_options),
        cmocka_unit_test(test_memory_that_runs_out_is_told),
        cmocka_unit_test(test_the_scheduler_takes_both),
        cmocka_unit_test(test_the_scheduler_takes_two_backends),
    };
    if (!kit_open(kit_folder(argc, argv)))
        return 77;
    backend = kit_backend(1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kit.ggml_backend_free(backend);
    return failed;
}
