/* U-Nets in ggml, their tensors placed by ggml_gallocr and by Berth's planner: what each needs, whether the outputs are
 * equal, and the map of one plan. `./dev demo ggml` fetches ggml and runs this. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <berth/berth.h>
#include <berth_ggml.h>

#include "unet.h"

static void must(berth_status status)
{
    if (!status)
        return;
    (void)fprintf(stderr, "%s\n", berth_last_error()->message);
    exit(1);
}

/* One line of the table; the plan goes to `path` if that is not NULL. */
static void compare(void *backend, type_t plain, type_t type, int levels, const char *path)
{
    unet a, b;
    size_t bytes, size = (size_t)16 << levels;
    unet_init(&a, levels, (int)size, 8, plain);
    void *galloc = ggml.ggml_gallocr_new(plain);
    if (!ggml.ggml_gallocr_alloc_graph(galloc, a.graph))
        exit(1);
    float *expected = unet_run(&a, backend, &bytes);

    /* The same with Berth: weights and tensors in buffers of a type over its allocator, places by its planner. */
    berth_ggml_graph *graph;
    berth_ggml_graph_figures figures = BERTH_GGML_GRAPH_FIGURES_INIT;
    unet_init(&b, levels, (int)size, 8, type);
    must(berth_ggml_graph_create(&type, 1, NULL, &graph));
    must(berth_ggml_graph_allocate(graph, b.graph));
    float *got = unet_run(&b, backend, &bytes);
    must(berth_ggml_graph_figures_get(graph, 0, &figures));
    if (path)
        must(berth_ggml_graph_write(graph, 0, path));

    size_t gallocr_bytes = ggml.ggml_gallocr_get_buffer_size(galloc, 0);
    bool equal = memcmp(expected, got, bytes) == 0;
    printf("%6d  %4zu x %-4zu %11.2f %11.2f %8.3f %9s %9s\n", levels, size, size,
           (double)gallocr_bytes / 1048576.0, (double)figures.planned_bytes / 1048576.0,
           (double)gallocr_bytes / (double)figures.planned_bytes, figures.proven_optimal ? "proven" : "",
           equal ? "equal" : "DIFFERENT");
    free(expected);
    free(got);
    berth_ggml_graph_destroy(graph);
    ggml.ggml_gallocr_free(galloc);
    unet_finish(&a);
    unet_finish(&b);
    if (!equal)
        exit(1);
}

/* The command lies beside the folder of the examples; where it does not, the file is left for it. */
static int show_map(const char *program, const char *plan)
{
    char command[4096];
    const char *slash = strrchr(program, '/');
    (void)snprintf(command, sizeof command, "%.*s/../berth", slash ? (int)(slash - program) : 1,
                   slash ? program : ".");
    printf("\nthe plan of three levels (%s), time across, addresses upward:\n", plan);
    (void)fflush(stdout);
    (void)execl(command, "berth", "show", plan, (char *)NULL);
    printf("`berth show` draws it\n");
    return 0;
}

int main(int argc, char **argv)
{
    void *backend = argc > 1 ? unet_backend(argv[1]) : NULL;
    char plan[4096];
    berth_ggml_buffer_type_options options = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    berth_ggml_buffer_figures held = BERTH_GGML_BUFFER_FIGURES_INIT;
    type_t type;
    if (!backend) {
        (void)fprintf(stderr, "usage: demo_ggml FOLDER, where tools/runtimes ggml prints the folder\n");
        return 77;
    }
    (void)snprintf(plan, sizeof plan, "%s/demo.plan.csv", argv[1]);
    type_t plain = ggml.ggml_backend_get_default_buffer_type(backend);
    options.alignment =
        ggml.ggml_backend_buft_get_alignment(plain); /* as ggml's own, so that sizes compare */
    must(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &type));

    printf("ggml %s\n\n", berth_ggml_version());
    printf("levels  %11s %11s %11s %8s %9s %9s\n", "pixels", "gallocr/MiB", "Berth/MiB", "ratio", "smallest",
           "outputs");
    for (int levels = 1; levels <= 3; levels++)
        compare(backend, plain, type, levels, levels == 3 ? plan : NULL);
    must(berth_ggml_buffer_type_figures(type, &held));
    printf("\nbuffers over Berth's allocator: %llu, at most %.2f MiB at once, %llu left\n",
           (unsigned long long)held.total_buffers, (double)held.max_bytes / 1048576.0,
           (unsigned long long)held.buffers);
    berth_ggml_buffer_type_release(type);
    ggml.ggml_backend_free(backend);
    return show_map(argv[0], plan);
}
