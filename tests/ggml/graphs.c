/* Graphs placed by the planner against the same graphs placed by ggml_gallocr, in the real ggml: never larger, and outputs
 * equal bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* setjmp, stdarg and stddef stand before it, as it asks. */
#include <cmocka.h>

#include <berth/problem_file.h>
#include <berth/source.h>

#include "kit.h"
#include <berth_ggml.h>

enum { SEEDS = 60, RUN_SEEDS = 4, INPUT_SEED = 7 }; /* sizes are compared for all, outputs for the first */

static void *backend;
static struct ggml_backend_buffer_type *plain_type, *our_type;

static void must(berth_status status)
{
    if (status != BERTH_OK)
        fail_msg("%s", berth_last_error()->message);
}

static berth_ggml_graph_figures figures_of(const berth_ggml_graph *graph, size_t type)
{
    berth_ggml_graph_figures figures = BERTH_GGML_GRAPH_FIGURES_INIT;
    must(berth_ggml_graph_figures_get(graph, type, &figures));
    return figures;
}

/* Sets the inputs, runs, and gives the outputs' bytes. */
static void *run_model(kit_model *model, uint64_t seed, size_t *size)
{
    kit_model_set(model, seed);
    assert_int_equal(kit.ggml_backend_graph_compute(backend, model->graph), GGML_STATUS_SUCCESS);
    return kit_model_get(model, size);
}

static void expect_equal(kit_model *a, kit_model *b, uint64_t seed)
{
    size_t a_size, b_size;
    void *a_bytes = run_model(a, seed, &a_size), *b_bytes = run_model(b, seed, &b_size);
    assert_true(a_size > 0);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a_bytes, b_bytes, a_size);
    free(a_bytes);
    free(b_bytes);
}

/* A model placed by gallocr; returns its buffer's size. */
static size_t place_plainly(kit_model *model, kit_family build, uint64_t seed, void **galloc)
{
    kit_model_init(model, build, seed, plain_type);
    *galloc = kit.ggml_gallocr_new_n(&plain_type, 1);
    assert_true(kit.ggml_gallocr_reserve_n(*galloc, model->graph, NULL, NULL));
    assert_true(kit.ggml_gallocr_alloc_graph(*galloc, model->graph));
    return kit.ggml_gallocr_get_buffer_size(*galloc, 0);
}

static void compare_family(const kit_named_family *family, uint64_t seed)
{
    kit_model a, b, c;
    void *galloc;
    berth_ggml_graph *graph;
    size_t bytes = place_plainly(&a, family->build, seed, &galloc);
    kit_model_init(&b, family->build, seed, our_type);
    must(berth_ggml_graph_create(&our_type, 1, NULL, &graph));
    must(berth_ggml_graph_allocate(graph, b.graph));
    berth_ggml_graph_figures figures = figures_of(graph, 0);
    if (figures.planned_bytes > bytes)
        fail_msg("%s %d: %llu bytes, gallocr %zu", family->name, (int)seed,
                 (unsigned long long)figures.planned_bytes, bytes);
    assert_true(figures.planned_bytes >= figures.lower_bound_bytes || figures.proven_optimal);
    if (seed < RUN_SEEDS) {
        expect_equal(&a, &b, INPUT_SEED);
        expect_equal(&a, &b, INPUT_SEED + 1); /* a second run, in the same places */
    }

    /* The same graph again, and one built anew: the plan there is. */
    must(berth_ggml_graph_allocate(graph, b.graph));
    kit_model_init(&c, family->build, seed, our_type);
    must(berth_ggml_graph_allocate(graph, c.graph));
    figures = figures_of(graph, 0);
    assert_int_equal(figures.plans, 1);
    assert_int_equal(figures.reuses, 2);
    if (seed < RUN_SEEDS)
        expect_equal(&a, &c, INPUT_SEED + 2);

    berth_ggml_graph_destroy(graph);
    kit.ggml_gallocr_free(galloc);
    kit_model_finish(&a);
    kit_model_finish(&b);
    kit_model_finish(&c);
}

static void test_every_family_is_equal_and_never_larger(void **state)
{
    (void)state;
    for (int i = 0; i < kit_family_count; i++)
        for (uint64_t seed = 0; seed < SEEDS; seed++)
            compare_family(&kit_families[i], seed);
}

static void test_unets_are_smaller(void **state)
{
    const kit_unet style = {
        .levels = 3, .blocks = 1, .size = 32, .channels = 8, .direct = true, .plain = true};
    struct ggml_init_params params = {.mem_size = 4 << 20, .no_alloc = true};
    kit_model model = {.random = 1, .nodes = kit.ggml_init(params), .weights = kit.ggml_init(params)};
    void *galloc = kit.ggml_gallocr_new_n(&plain_type, 1);
    berth_ggml_graph *graph;
    (void)state;
    model.graph = kit.ggml_new_graph_custom(model.nodes, KIT_NODES_MAX, false);
    kit_build_unet(&model, &style);
    model.weight_buffer = kit.ggml_backend_alloc_ctx_tensors_from_buft(model.weights, plain_type);
    assert_true(kit.ggml_gallocr_reserve_n(galloc, model.graph, NULL, NULL));
    must(berth_ggml_graph_create(&plain_type, 1, NULL, &graph));
    must(berth_ggml_graph_reserve(graph, model.graph, NULL, NULL));
    berth_ggml_graph_figures figures = figures_of(graph, 0);
    assert_true(figures.proven_optimal);
    assert_true((double)kit.ggml_gallocr_get_buffer_size(galloc, 0) >= 1.15 * (double)figures.planned_bytes);
    berth_ggml_graph_destroy(graph);
    kit.ggml_gallocr_free(galloc);
    kit_model_finish(&model);
}

/* One graph object, one model after the other: each is planned anew and right, in ggml's own buffers as well as ours. */
static void test_another_graph_is_planned_anew(void **state)
{
    struct ggml_backend_buffer_type *types[] = {plain_type, our_type};
    (void)state;
    for (int t = 0; t < 2; t++) {
        berth_ggml_graph *graph;
        must(berth_ggml_graph_create(&types[t], 1, NULL, &graph));
        for (int i = 0; i < kit_family_count; i++)
            for (uint64_t seed = 3; seed < 6; seed++) {
                kit_model a, b;
                void *galloc;
                (void)place_plainly(&a, kit_families[i].build, seed, &galloc);
                kit_model_init(&b, kit_families[i].build, seed, plain_type);
                must(berth_ggml_graph_allocate(graph, b.graph));
                expect_equal(&a, &b, seed);
                kit.ggml_gallocr_free(galloc);
                kit_model_finish(&a);
                kit_model_finish(&b);
            }
        berth_ggml_graph_figures figures = figures_of(graph, 0);
        assert_true(figures.plans > (uint64_t)kit_family_count);
        assert_true(figures.buffer_bytes >= figures.planned_bytes);
        berth_ggml_graph_destroy(graph);
    }
}

/* ---- Small graphs, looked at one by one ------------------------------------------------------------------ */

typedef struct small {
    kit_context c;
    struct ggml_cgraph *graph;
    berth_ggml_graph *places;
} small;

static small small_begin(void)
{
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    small s = {.c = kit.ggml_init(params)};
    s.graph = kit.ggml_new_graph_custom(s.c, 64, false);
    must(berth_ggml_graph_create(&our_type, 1, NULL, &s.places));
    return s;
}

static void small_end(small *s)
{
    berth_ggml_graph_destroy(s->places);
    kit.ggml_free(s->c);
}

static kit_tensor row(const small *s, int64_t count)
{
    kit_tensor tensor = kit.ggml_new_tensor_1d(s->c, GGML_TYPE_F32, count);
    kit.ggml_set_input(tensor);
    return tensor;
}

static bool overlap(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    const char *x = a->data, *y = b->data;
    return x < y + kit.ggml_nbytes(b) && y < x + kit.ggml_nbytes(a);
}

static void test_operations_work_in_place(void **state)
{
    small s = small_begin();
    kit_tensor x = row(&s, 256), y = kit.ggml_scale(s.c, x, 2), z = kit.ggml_relu(s.c, y),
               w = kit.ggml_sqr(s.c, z);
    (void)state;
    kit.ggml_build_forward_expand(s.graph, w);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    assert_ptr_equal(y->data, x->data);
    assert_ptr_equal(w->data, x->data);
    berth_ggml_graph_figures figures = figures_of(s.places, 0);
    assert_int_equal(figures.in_place, 3);
    assert_int_equal(figures.tensors, 4);
    assert_int_equal(figures.planned_bytes, 1024);
    small_end(&s);
}

/* A source that is an output, used again, used twice at once, seen by a view, or of another shape, keeps its place. */
static void test_a_source_that_is_needed_stays(void **state)
{
    small s = small_begin();
    kit_tensor x = row(&s, 256), out = kit.ggml_scale(s.c, x, 2), a = kit.ggml_relu(s.c, out);
    kit_tensor twice = kit.ggml_add(s.c, a, a), view = kit.ggml_view_1d(s.c, twice, 128, 512);
    kit_tensor b = kit.ggml_relu(s.c, twice), later = kit.ggml_sqr(s.c, view),
               d = kit.ggml_mul(s.c, b, later);
    (void)state;
    kit.ggml_set_output(out);
    kit.ggml_build_forward_expand(s.graph, view);
    kit.ggml_build_forward_expand(s.graph, b);
    kit.ggml_build_forward_expand(s.graph, later);
    kit.ggml_build_forward_expand(s.graph, d);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    assert_false(overlap(a, out));
    assert_false(overlap(twice, a));
    assert_false(overlap(b, twice));
    assert_false(overlap(later, view)); /* only a part of its source */
    assert_false(overlap(later, b));
    assert_ptr_equal(view->data, (char *)twice->data + 512);
    assert_ptr_equal(view->buffer, twice->buffer);
    assert_ptr_equal(d->data, b->data);
    small_end(&s);
}

/* gallocr frees a source of which only a view is an output: two of these nodes would lie on it. */
static void test_an_output_view_keeps_its_source(void **state)
{
    small s = small_begin();
    kit_tensor x = row(&s, 256), y = kit.ggml_dup(s.c, x), view = kit.ggml_view_1d(s.c, y, 16, 0), z = x;
    (void)state;
    kit.ggml_set_output(view);
    kit.ggml_build_forward_expand(s.graph, kit.ggml_relu(s.c, view));
    for (int i = 0; i < 4; i++)
        z = kit.ggml_dup(s.c, z);
    kit.ggml_build_forward_expand(s.graph, z);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    for (int i = 0; i < s.graph->n_nodes; i++)
        if (s.graph->nodes[i] != y && s.graph->nodes[i] != view)
            assert_false(overlap(view, s.graph->nodes[i]));
    small_end(&s);
}

static void fill_row(kit_tensor tensor, float first)
{
    float values[256];
    for (int i = 0; i < 256; i++)
        values[i] = first + (float)(i % 7) * 0.125f;
    kit.ggml_backend_tensor_set(tensor, values, 0, kit.ggml_nbytes(tensor));
}

/* Operations that ggml takes for fit to work in place, and that read one of their sources again after they have written: their outputs
 * are what they are where nothing is shared. gallocr takes that source, and they are not. */
static void test_a_source_that_is_read_again_stays(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        float outputs[2][256];
        for (int apart = 0; apart < 2; apart++) {
            small s = small_begin();
            kit_tensor x = row(&s, 256), y = row(&s, 256),
                       ids = kit.ggml_new_tensor_2d(s.c, KIT_TYPE_I32, 4, 1);
            kit_tensor a = kit.ggml_dup(s.c, x), b = kit.ggml_dup(s.c, y), out;
            const int32_t order[] = {3, 2, 1, 0};
            kit.ggml_set_input(ids);
            if (which == 2)
                out = kit.ggml_add_id(s.c, kit.ggml_reshape_3d(s.c, a, 64, 4, 1),
                                      kit.ggml_reshape_2d(s.c, b, 64, 4), ids);
            else
                out = which ? kit.ggml_soft_max_ext_back(s.c, a, b, 1, 0)
                            : kit.ggml_rms_norm_back(s.c, a, b, 1e-5f);
            kit.ggml_build_forward_expand(s.graph, out);
            /* the other source is needed later, so that it cannot be the one that is taken */
            kit.ggml_build_forward_expand(s.graph, kit.ggml_relu(s.c, which ? a : b));
            struct ggml_backend_buffer *all =
                apart ? kit.ggml_backend_alloc_ctx_tensors_from_buft(s.c, our_type) : NULL;
            must(berth_ggml_graph_allocate(s.places, s.graph));
            fill_row(x, 0.5f), fill_row(y, 2.0f);
            if (which == 2)
                kit.ggml_backend_tensor_set(ids, order, 0, sizeof order);
            assert_int_equal(kit.ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
            kit.ggml_backend_tensor_get(out, outputs[apart], 0, sizeof outputs[apart]);
            if (all)
                kit.ggml_backend_buffer_free(all);
            small_end(&s);
        }
        assert_memory_equal(outputs[0], outputs[1], sizeof outputs[0]);
    }
}

static void test_reshapes_let_their_source_go(void **state)
{
    small s = small_begin();
    kit_tensor x = row(&s, 256), y = kit.ggml_sqr(s.c, kit.ggml_reshape_2d(s.c, x, 16, 16));
    (void)state;
    kit.ggml_build_forward_expand(s.graph, y);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    assert_ptr_equal(y->data, x->data);
    small_end(&s);
}

/* Tensors that have memory stay there, and views of them follow. */
static void test_what_has_memory_stays(void **state)
{
    small s = small_begin();
    static _Alignas(64) float own[256];
    struct ggml_backend_buffer *buffer = kit.ggml_backend_buft_alloc_buffer(our_type, 1024);
    kit_tensor x = row(&s, 256), bare = row(&s, 256), y = kit.ggml_add(s.c, x, bare);
    kit_tensor view = kit.ggml_view_1d(s.c, x, 128, 512), z = kit.ggml_sqr(s.c, view);
    (void)state;
    bare->data = own;
    assert_int_equal(kit.ggml_backend_tensor_alloc(buffer, x, kit.ggml_backend_buffer_get_base(buffer)),
                     GGML_STATUS_SUCCESS);
    kit.ggml_build_forward_expand(s.graph, y);
    kit.ggml_build_forward_expand(s.graph, z);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    assert_ptr_equal(x->data, kit.ggml_backend_buffer_get_base(buffer));
    assert_ptr_equal(bare->data, own);
    assert_ptr_equal(view->data, (char *)x->data + 512);
    assert_false(overlap(y, x));
    assert_false(overlap(z, view));
    assert_int_equal(figures_of(s.places, 0).tensors, 2);
    kit.ggml_backend_buffer_free(buffer);
    small_end(&s);
}

/* A graph that grew, with tensors that already have places in our buffers: all of them are placed anew. */
static void test_a_graph_that_grew_is_placed_anew(void **state)
{
    small s = small_begin();
    kit_tensor x = row(&s, 256), y = kit.ggml_sum_rows(s.c, x), z;
    (void)state;
    kit.ggml_build_forward_expand(s.graph, y);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    z = kit.ggml_concat(s.c, x, kit.ggml_concat(s.c, x, x, 0), 0);
    kit.ggml_build_forward_expand(s.graph, z);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    assert_int_equal(figures_of(s.places, 0).plans, 2);
    assert_int_equal(figures_of(s.places, 0).tensors, 4);
    assert_false(overlap(x, z));
    assert_false(overlap(y, z));
    assert_ptr_equal(x->buffer, z->buffer);
    small_end(&s);
}

/* Inputs are written and outputs read through the buffers that the tensors name. */
static void expect_usable(const struct ggml_cgraph *graph, kit_tensor x, kit_tensor y, float value)
{
    float out = 0;
    for (int64_t i = 0; i < kit.ggml_nelements(x); i++)
        kit.ggml_backend_tensor_set(x, &value, (size_t)i * sizeof value, sizeof value);
    assert_int_equal(kit.ggml_backend_graph_compute(backend, (struct ggml_cgraph *)graph),
                     GGML_STATUS_SUCCESS);
    kit.ggml_backend_tensor_get(y, &out, 0, sizeof out);
    assert_true(out == value * value * (float)kit.ggml_nelements(x));
}

/* A graph whose buffer went meanwhile, because a larger one came or none was needed: its tensors name what is gone, also where
 * somebody else's buffer has that address now, and are placed anew. */
static void test_a_graph_comes_back_after_its_buffer_went(void **state)
{
    const int64_t sizes[] = {256, 65536};
    small s = small_begin();
    struct ggml_cgraph *graphs[2], *empty = kit.ggml_new_graph_custom(s.c, 8, false);
    kit_tensor x[2], y[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        x[i] = row(&s, sizes[i]);
        y[i] = kit.ggml_sum_rows(s.c, kit.ggml_sqr(s.c, x[i]));
        graphs[i] = kit.ggml_new_graph_custom(s.c, 8, false);
        kit.ggml_build_forward_expand(graphs[i], y[i]);
    }
    for (int i = 0; i < 3; i++) { /* the first, the larger one, the first again */
        must(berth_ggml_graph_allocate(s.places, graphs[i % 2]));
        expect_usable(graphs[i % 2], x[i % 2], y[i % 2], 2);
    }
    assert_ptr_equal(x[0]->buffer, x[1]->buffer);
    must(berth_ggml_graph_allocate(s.places, empty));
    assert_int_equal(figures_of(s.places, 0).buffers, 0);
    struct ggml_backend_buffer *strangers[4];
    for (int i = 0; i < 4; i++)
        strangers[i] = kit.ggml_backend_buft_alloc_buffer(our_type, 4096);
    must(berth_ggml_graph_allocate(s.places, graphs[0]));
    assert_int_equal(figures_of(s.places, 0).tensors, 3);
    expect_usable(graphs[0], x[0], y[0], 3);
    for (int i = 0; i < 4; i++) {
        assert_ptr_not_equal(x[0]->buffer, strangers[i]);
        kit.ggml_backend_buffer_free(strangers[i]);
    }
    small_end(&s);
}

/* Reserved at its largest, taken by a smaller graph of the same shape; a larger one is planned anew. */
static void test_smaller_graphs_take_the_plan(void **state)
{
    const int64_t sizes[] = {512, 256, 1024, 512};
    const uint64_t plans[] = {1, 1, 2, 2};
    berth_ggml_graph *places;
    (void)state;
    must(berth_ggml_graph_create(&our_type, 1, NULL, &places));
    for (int i = 0; i < 4; i++) {
        small s = small_begin();
        kit_tensor x = row(&s, sizes[i]), y = kit.ggml_concat(s.c, x, kit.ggml_sqr(s.c, x), 0);
        kit.ggml_build_forward_expand(s.graph, y);
        must(i == 0 ? berth_ggml_graph_reserve(places, s.graph, NULL, NULL) : BERTH_OK);
        assert_true(i > 0 || (!x->data && !y->data)); /* reserving touches no tensor */
        must(berth_ggml_graph_allocate(places, s.graph));
        assert_int_equal(figures_of(places, 0).plans, plans[i]);
        assert_false(overlap(x, y));
        small_end(&s);
    }
    berth_ggml_graph_destroy(places);
}

/* gallocr compares counts and sizes only: in the second graph it leaves d on top of a, which is used again. */
static void test_other_edges_are_another_graph(void **state)
{
    berth_ggml_graph *places;
    (void)state;
    must(berth_ggml_graph_create(&our_type, 1, NULL, &places));
    for (int i = 0; i < 2; i++) {
        small s = small_begin();
        kit_tensor x = row(&s, 256), a = kit.ggml_dup(s.c, x), b = kit.ggml_dup(s.c, a);
        kit_tensor d = kit.ggml_dup(s.c, b), e = kit.ggml_add(s.c, d, i ? a : d);
        kit.ggml_build_forward_expand(s.graph, e);
        must(berth_ggml_graph_allocate(places, s.graph));
        assert_int_equal(figures_of(places, 0).plans, i + 1);
        assert_true(i == 0 || !overlap(a, d));
        small_end(&s);
    }
    berth_ggml_graph_destroy(places);
}

/* ---- Buffer types --------------------------------------------------------------------------------------- */

static void test_each_type_has_its_tensors(void **state)
{
    small s = small_begin();
    struct ggml_backend_buffer_type *types[] = {our_type, plain_type, our_type};
    const int node_types[] = {0, 1, 2, 0}, leaf_types[] = {1}, bad[] = {0, 1, 3, 0};
    berth_ggml_graph *places;
    kit_tensor x = row(&s, 256), a = kit.ggml_sqr(s.c, x), b = kit.ggml_sqr(s.c, a), d = kit.ggml_sqr(s.c, b);
    kit_tensor e = kit.ggml_sqr(s.c, d);
    (void)state;
    kit.ggml_build_forward_expand(s.graph, e);
    must(berth_ggml_graph_create(types, 3, NULL, &places));
    assert_int_equal(berth_ggml_graph_reserve(places, s.graph, bad, leaf_types), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "node 2 has buffer type 3, and there are 3"));
    assert_int_equal(berth_ggml_graph_allocate(places, s.graph), BERTH_MISMATCH);
    must(berth_ggml_graph_reserve(places, s.graph, node_types, leaf_types));
    must(berth_ggml_graph_allocate(places, s.graph));
    assert_ptr_equal(x->buffer->buft, plain_type);
    assert_ptr_equal(a->buffer->buft, our_type);
    assert_ptr_equal(b->buffer->buft, plain_type);
    assert_ptr_equal(d->buffer->buft, our_type);
    assert_ptr_equal(d->buffer, a->buffer); /* one type given twice has one buffer */
    assert_ptr_equal(e->data, d->data);
    assert_int_equal(figures_of(places, 0).planned_bytes, 1024);
    assert_int_equal(figures_of(places, 2).planned_bytes, 1024);
    berth_ggml_graph_destroy(places);
    small_end(&s);
}

/* A type whose buffers are small gets several. */
static void test_large_plans_are_split(void **state)
{
    berth_ggml_buffer_type_options options = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    struct ggml_backend_buffer_type *small_type;
    (void)state;
    options.max_bytes = 150000;
    must(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &small_type));
    for (uint64_t seed = 0; seed < 3; seed++) {
        kit_model a, b;
        void *galloc;
        berth_ggml_graph *graph;
        size_t bytes = place_plainly(&a, kit_families[2].build, seed, &galloc);
        kit_model_init(&b, kit_families[2].build, seed, plain_type);
        must(berth_ggml_graph_create(&small_type, 1, NULL, &graph));
        berth_status status = berth_ggml_graph_allocate(graph, b.graph);
        if (status == BERTH_INVALID_ARGUMENT)
            assert_non_null(strstr(berth_last_error()->message, "at most 150000"));
        else {
            must(status);
            assert_true(figures_of(graph, 0).buffers > (bytes > 2 * options.max_bytes));
            expect_equal(&a, &b, seed);
        }
        berth_ggml_graph_destroy(graph);
        kit.ggml_gallocr_free(galloc);
        kit_model_finish(&a);
        kit_model_finish(&b);
    }
    berth_ggml_buffer_type_release(small_type);
}

static void test_plans_are_written(void **state)
{
    char path[] = "/tmp/berth_ggml_XXXXXX";
    int file = mkstemp(path);
    kit_model model;
    berth_ggml_graph *graph;
    berth_problem_file *read;
    berth_verdict verdict = BERTH_VERDICT_INIT;
    (void)state;
    assert_true(file >= 0);
    (void)close(file);
    kit_model_init(&model, kit_families[0].build, 1, plain_type);
    must(berth_ggml_graph_create(&plain_type, 1, NULL, &graph));
    assert_int_equal(berth_ggml_graph_write(graph, 0, path), BERTH_NOT_FOUND);
    must(berth_ggml_graph_allocate(graph, model.graph));
    must(berth_ggml_graph_write(graph, 0, path));
    must(berth_problem_file_read(path, &read));
    must(berth_problem_check(berth_problem_file_problem(read), berth_problem_file_offsets(read), &verdict));
    assert_int_equal(verdict.peak_bytes, figures_of(graph, 0).planned_bytes);
    berth_problem_file_destroy(read);
    berth_ggml_graph_destroy(graph);
    kit_model_finish(&model);
    (void)unlink(path);
}

static void test_mistakes_are_told(void **state)
{
    berth_ggml_graph *graph;
    berth_solve_options options = BERTH_SOLVE_OPTIONS_INIT;
    struct ggml_backend_buffer_type *none = NULL;
    berth_ggml_graph_figures figures = {.struct_size = 1};
    (void)state;
    assert_int_equal(berth_ggml_graph_create(NULL, 1, NULL, &graph), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ggml_graph_create(&our_type, 0, NULL, &graph), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ggml_graph_create(&none, 1, NULL, &graph), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ggml_graph_create(&our_type, 1, NULL, NULL), BERTH_INVALID_ARGUMENT);
    options.struct_size = 0;
    assert_int_equal(berth_ggml_graph_create(&our_type, 1, &options, &graph), BERTH_INVALID_ARGUMENT);
    assert_null(graph);
    must(berth_ggml_graph_create(&our_type, 1, NULL, &graph));
    assert_int_equal(berth_ggml_graph_allocate(graph, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ggml_graph_reserve(NULL, NULL, NULL, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ggml_graph_figures_get(graph, 0, &figures), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ggml_graph_write(graph, 1, "-"), BERTH_INVALID_ARGUMENT);
    berth_ggml_graph_destroy(graph);
    berth_ggml_graph_destroy(NULL);
}

/* A graph of nothing but leaves, and tensors without elements. */
static void test_empty_graphs_are_placed(void **state)
{
    small s = small_begin();
    kit_tensor x = row(&s, 0), y = row(&s, 8);
    (void)state;
    must(berth_ggml_graph_allocate(s.places, s.graph));
    kit.ggml_build_forward_expand(s.graph, x);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    kit.ggml_build_forward_expand(s.graph, y);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    assert_non_null(y->buffer);
    must(berth_ggml_graph_allocate(s.places, s.graph));
    small_end(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_is_equal_and_never_larger),
        cmocka_unit_test(test_unets_are_smaller),
        cmocka_unit_test(test_another_graph_is_planned_anew),
        cmocka_unit_test(test_operations_work_in_place),
        cmocka_unit_test(test_a_source_that_is_needed_stays),
        cmocka_unit_test(test_an_output_view_keeps_its_source),
        cmocka_unit_test(test_a_source_that_is_read_again_stays),
        cmocka_unit_test(test_reshapes_let_their_source_go),
        cmocka_unit_test(test_what_has_memory_stays),
        cmocka_unit_test(test_a_graph_that_grew_is_placed_anew),
        cmocka_unit_test(test_a_graph_comes_back_after_its_buffer_went),
        cmocka_unit_test(test_smaller_graphs_take_the_plan),
        cmocka_unit_test(test_other_edges_are_another_graph),
        cmocka_unit_test(test_each_type_has_its_tensors),
        cmocka_unit_test(test_large_plans_are_split),
        cmocka_unit_test(test_plans_are_written),
        cmocka_unit_test(test_mistakes_are_told),
        cmocka_unit_test(test_empty_graphs_are_placed),
    };
    berth_ggml_buffer_type_options options = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    if (!kit_open(kit_folder(argc, argv)))
        return 77;
    backend = kit_backend(1);
    plain_type = kit.ggml_backend_get_default_buffer_type(backend);
    options.alignment = kit.ggml_backend_buft_get_alignment(plain_type); /* sizes are compared */
    if (berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &our_type) != BERTH_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    berth_ggml_buffer_type_release(our_type);
    kit.ggml_backend_free(backend);
    return failed;
}
