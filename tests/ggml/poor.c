/* Host memory that runs out at the first request, then at the second, until all is well: each time a status, nothing lost,
 * and the same objects work afterwards. This program's calloc and realloc stand before the C library's for everything in
 * it; only requests between arm and disarm are counted. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* setjmp, stdarg and stddef stand before it, as it asks. */
#include <cmocka.h>

#include <berth/source.h>
#include <berth_ggml.h>

#include "kit.h"

void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);

static _Thread_local int left = -1; /* requests until one fails; negative: none does */

static bool is_refused(void)
{
    return left >= 0 && left-- == 0;
}

void *calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
    return is_refused() ? NULL : __libc_realloc(p, size);
}

static struct ggml_backend_buffer_type *our_type;

typedef berth_status (*attempt)(void *context);

/* How many requests `run` makes; each has been refused once. */
static int refuse_each(attempt run, void *context)
{
    for (int n = 0;; n++) {
        left = n;
        berth_status status = run(context);
        bool is_done = left >= 0;
        left = -1;
        if (is_done) {
            assert_int_equal(status, BERTH_OK);
            return n;
        }
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_true(n < 1000);
    }
}

static berth_status create_type(void *context)
{
    struct ggml_backend_buffer_type *type;
    berth_status status = berth_ggml_buffer_type_create(berth_cpu_allocator(), NULL, &type);
    (void)context;
    assert_true((status == BERTH_OK) == (type != NULL));
    berth_ggml_buffer_type_release(type);
    return status;
}

static berth_status create_graph(void *context)
{
    berth_ggml_graph *graph;
    berth_status status = berth_ggml_graph_create(&our_type, 1, NULL, &graph);
    (void)context;
    assert_true((status == BERTH_OK) == (graph != NULL));
    berth_ggml_graph_destroy(graph);
    return status;
}

typedef struct trial {
    berth_ggml_graph *graph;
    struct ggml_cgraph *cgraph;
} trial;

static berth_status allocate_graph(void *context)
{
    const trial *t = context;
    return berth_ggml_graph_allocate(t->graph, t->cgraph);
}

static berth_status write_graph(void *context)
{
    return berth_ggml_graph_write(((const trial *)context)->graph, 0, "/dev/null");
}

/* From nothing to nothing. */
static berth_status live_once(void *context)
{
    trial t = *(const trial *)context;
    berth_status status = berth_ggml_graph_create(&our_type, 1, NULL, &t.graph);
    if (status == BERTH_OK)
        status = berth_ggml_graph_allocate(t.graph, t.cgraph);
    if (status == BERTH_OK)
        status = berth_ggml_graph_write(t.graph, 0, "/dev/null");
    int kept = left; /* what tears down makes no requests, but ggml's tensors are read again below */
    left = -1;
    berth_ggml_graph_destroy(t.graph);
    for (int i = 0; i < t.cgraph->n_nodes; i++)
        t.cgraph->nodes[i]->data = NULL, t.cgraph->nodes[i]->buffer = NULL;
    for (int i = 0; i < t.cgraph->n_leafs; i++)
        if (t.cgraph->leafs[i]->op == GGML_OP_NONE && t.cgraph->leafs[i]->flags & GGML_TENSOR_FLAG_INPUT)
            t.cgraph->leafs[i]->data = NULL, t.cgraph->leafs[i]->buffer = NULL;
    left = kept;
    return status;
}

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void test_failures_lose_nothing(void **state)
{
    kit_model model;
    (void)state;
    /* The C library counts what it keeps for the thread as in use: CMakeLists.txt switches that off. */
    if (!getenv("GLIBC_TUNABLES"))
        skip();
    kit_model_init(&model, kit_families[0].build, 1, our_type);
    trial t = {.cgraph = model.graph};
    for (int i = 0; i < 2; i++) { /* what is made once and kept is there after the first round */
        size_t before = heap_bytes();
        assert_true(refuse_each(live_once, &t) >= 10);
        assert_true(refuse_each(create_type, NULL) >= 1);
        assert_true(i == 0 || heap_bytes() == before);
    }
    kit_model_finish(&model);
}

static void test_each_request_may_fail(void **state)
{
    kit_model model, other;
    trial t;
    (void)state;
    assert_true(refuse_each(create_type, NULL) >= 1);
    assert_true(refuse_each(create_graph, NULL) >= 3);
    kit_model_init(&model, kit_families[0].build, 1, our_type);
    kit_model_init(&other, kit_families[0].build, 2, our_type);
    assert_int_equal(berth_ggml_graph_create(&our_type, 1, NULL, &t.graph), BERTH_OK);
    t.cgraph = model.graph;
    assert_true(refuse_each(allocate_graph, &t) >= 10);
    t.cgraph = other.graph; /* and with a plan and buffers there already */
    assert_true(refuse_each(allocate_graph, &t) >= 8);
    assert_true(refuse_each(write_graph, &t) >= 3);
    berth_ggml_graph_figures figures = BERTH_GGML_GRAPH_FIGURES_INIT;
    assert_int_equal(berth_ggml_graph_figures_get(t.graph, 0, &figures), BERTH_OK);
    assert_true(figures.planned_bytes > 0 && figures.plans == 2);
    berth_ggml_graph_destroy(t.graph);
    kit_model_finish(&model);
    kit_model_finish(&other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_request_may_fail),
                                       cmocka_unit_test(test_failures_lose_nothing)};
    if (!kit_open(kit_folder(argc, argv)) ||
        berth_ggml_buffer_type_create(berth_cpu_allocator(), NULL, &our_type))
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    berth_ggml_buffer_figures figures = BERTH_GGML_BUFFER_FIGURES_INIT;
    failed += berth_ggml_buffer_type_figures(our_type, &figures) != BERTH_OK || figures.buffers != 0;
    berth_ggml_buffer_type_release(our_type);
    return failed;
}
