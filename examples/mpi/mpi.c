/* Tensors at the same place on every rank: mpirun -n 4 mpi [--check] [PLAN.csv [ALLOCATIONS]].
 *
 * Every rank runs a layered network whose batch differs by rank. They record it once, agree on one plan, and replay it; the activations of a
 * layer go to the next rank by MPI_Put, without an exchange of addresses. Then it measures: what a tensor costs when each one is registered by
 * itself (a window each) and from the plan, what a replayed pair of allocation and free costs in the window and locally, and
 * what agreeing on many allocations takes. With a name, rank 0 writes the plan there (berth show draws it). With
 * --check it fails unless the window costs at most 1.05 x, and agreeing on the most allocations at most 100 ms and what messages of
 * those sizes take by themselves: on a busy machine that is all waiting. */
#include <berth/berth.h>
#include <berth_mpi.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 24,
    SENT = 4096,
    WINDOWS = 16,
    RUNS = 100,
    ROUNDS = 51,
    AGREEMENTS = 7,
    MANY = 100000,
    ALIVE = 64
};

#define WINDOW_AT_MOST 1.05
#define AGREE_AT_MOST_MS 100.0

static int rank, ranks;
static bool missed; /* a figure, on rank 0 */

static void must(berth_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, berth_last_error()->message);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static size_t layer_bytes(int layer)
{
    return (size_t)(8192 + 1024 * ((layer * 7) % 11)) * (size_t)(1 + rank % 2);
}

/* ---- The network: a layer's output lives until the next one has read it ------------------------------ */

/* With a window the output of each layer is put into the next rank's. */
static void run_network(berth_allocator *a, const berth_mpi *job)
{
    unsigned char *before = NULL;
    for (int layer = 0; layer < LAYERS; layer++) {
        unsigned char *output = NULL;
        must(berth_allocate(a, layer_bytes(layer), 64, NULL, (void **)&output), "a layer");
        if (job) {
            MPI_Win window = berth_mpi_window(job);
            unsigned char sent[SENT];
            uint64_t place = 0;
            must(berth_mpi_offset(job, output, &place), "its place");
            memset(sent, rank + layer, sizeof sent);
            MPI_Win_fence(0, window);
            MPI_Put(sent, SENT, MPI_BYTE, (rank + 1) % ranks, (MPI_Aint)place, SENT, MPI_BYTE, window);
            MPI_Win_fence(0, window);
            const int from = (rank + ranks - 1) % ranks;
            if (output[0] != (unsigned char)(from + layer) || output[SENT - 1] != output[0])
                must(berth_fail(BERTH_CORRUPT, "layer %d is not rank %d's", layer, from), "the data");
        }
        must(berth_deallocate(a, before, 0, NULL), "free");
        before = output;
    }
    must(berth_deallocate(a, before, 0, NULL), "free");
}

static void show(const berth_mpi_info *info)
{
    printf("%d ranks agreed on %zu allocations: %" PRIu64 " bytes each (bound %" PRIu64
           "), checksum %016" PRIx64 "\n",
           info->ranks, info->allocations, info->peak_bytes, info->lower_bound_bytes, info->checksum);
    printf("rank %d has most live by itself: %" PRIu64 " bytes, rank 0 has %" PRIu64 "\n", info->driver,
           info->driver_max_live_bytes, info->own_max_live_bytes);
    printf("%d layers went round the ring by MPI_Put, at their own offsets, and the data is right\n\n",
           LAYERS);
}

static void network(const char *path)
{
    berth_mpi *job = NULL;
    berth_mpi_info info = BERTH_MPI_INFO_INIT;
    must(berth_mpi_create(MPI_COMM_WORLD, NULL, &job), "create");
    must(berth_mpi_record_begin(job), "record");
    run_network(berth_mpi_allocator(job), NULL);
    must(berth_mpi_record_end(job), "record");
    must(berth_mpi_agree(job), "agree");
    must(berth_mpi_info_get(job, &info), "info");
    must(berth_mpi_replay_begin(job), "replay");
    run_network(berth_mpi_allocator(job), job);
    must(berth_mpi_replay_end(job, NULL), "replay");
    berth_plan *plan = berth_planned_plan(berth_mpi_allocator(job));
    if (rank == 0 && path && *path)
        must(berth_plan_save(plan, path), "save");
    berth_plan_release(plan);
    if (rank == 0)
        show(&info);
    must(berth_mpi_destroy(job), "destroy");
}

/* ---- Figures ----------------------------------------------------------------------------------------- */

/* A window a tensor, as without a plan: what registering one by one takes. Seconds a tensor. */
static double by_itself(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int k = 0; k < WINDOWS; k++) {
        MPI_Win window;
        void *p;
        MPI_Win_allocate((MPI_Aint)layer_bytes(k), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p, &window);
        MPI_Win_free(&window);
    }
    return (MPI_Wtime() - began) / WINDOWS;
}

static void judge(const char *what, double value, double at_most, const char *unit)
{
    const bool holds = value <= at_most;
    missed |= !holds;
    printf("%-58s %10.2f %s, at most %.2f: %s\n", what, value, unit, at_most, holds ? "holds" : "MISSED");
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* Seconds for a pair of allocation and free. */
static double replay_local(berth_allocator *planned)
{
    double began = MPI_Wtime();
    for (int run = 0; run < RUNS; run++) {
        berth_run_options options = BERTH_RUN_OPTIONS_INIT;
        options.strict = true;
        must(berth_replay_begin(planned, &options), "replay");
        run_network(planned, NULL);
        must(berth_replay_end(planned, NULL), "replay");
    }
    return (MPI_Wtime() - began) / RUNS / LAYERS;
}

static double replay_window(berth_mpi *job)
{
    double began = MPI_Wtime();
    for (int run = 0; run < RUNS; run++) {
        must(berth_mpi_replay_begin(job), "replay");
        run_network(berth_mpi_allocator(job), NULL);
        must(berth_mpi_replay_end(job, NULL), "replay");
    }
    return (MPI_Wtime() - began) / RUNS / LAYERS;
}

/* Rank by rank, so that the machine is one rank's at a time: what is compared is the work, not the machine's load. */
static void figures_of_replay(void)
{
    berth_mpi *job = NULL;
    berth_plan *plan = NULL;
    berth_allocator *planned = NULL;
    double ratio[ROUNDS], local[ROUNDS], window[ROUNDS];
    must(berth_mpi_create(MPI_COMM_WORLD, NULL, &job), "create");
    must(berth_mpi_record_begin(job), "record");
    run_network(berth_mpi_allocator(job), NULL);
    must(berth_mpi_record_end(job), "record");
    must(berth_mpi_agree(job), "agree");
    must(berth_plan_create(&plan), "plan");
    must(berth_planned_create(berth_cpu_allocator(), plan, &planned), "plan");
    BERTH_RECORD(planned)
    {
        run_network(planned, NULL);
    }
    for (int turn = 0; turn < ranks; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
        for (int round = 0; turn == rank && round < ROUNDS; round++) {
            local[round] = replay_local(planned);
            window[round] = replay_window(job);
            ratio[round] = window[round] / local[round];
        }
    }
    const double alone = by_itself();
    if (rank == 0) {
        printf("%-58s %10.1f us\n", "a tensor in a window of its own, made and freed", alone * 1e6);
        printf("%-58s %10.1f ns\n", "a tensor from the plan, in the window", median(window, ROUNDS) * 1e9);
        printf("%-58s %10.1f ns\n", "a tensor from a plan of this rank alone", median(local, ROUNDS) * 1e9);
        judge("window against local, median of pairs", median(ratio, ROUNDS), WINDOW_AT_MOST, "x");
    }
    berth_allocator_release(planned);
    berth_plan_release(plan);
    must(berth_mpi_destroy(job), "destroy");
}

/* Many allocations of ALIVE live at a time, with sizes of this rank's own. */
static berth_plan *many(size_t count)
{
    berth_plan *plan = NULL;
    berth_solve_options quick = BERTH_SOLVE_OPTIONS_INIT;
    berth_plan_allocation *all = malloc(count * sizeof *all);
    if (!all)
        must(BERTH_OUT_OF_HOST_MEMORY, "allocations");
    for (size_t i = 0; i < count; i++) {
        all[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        all[i].size_bytes = 64 * (1 + (i * 2654435761u + (size_t)rank * 40503u) % 1000);
        all[i].alignment = 64;
        all[i].freed_at = i + 1 + i * 40503u % ALIVE < count ? i + 1 + i * 40503u % ALIVE : count;
        all[i].label = i % 2 ? "activation" : "gradient";
    }
    quick.solver = "greedy";
    must(berth_plan_create(&plan), "plan");
    must(berth_plan_set(plan, all, count, &quick), "plan");
    free(all);
    return plan;
}

/* Messages as large as those of an agreement, and nothing between them. Milliseconds of the slowest rank. */
static double bare_messages(size_t count)
{
    uint64_t small[18] = {0}, small_too[18];
    uint64_t *mine = calloc(2 * count + 8, sizeof *mine), *all = calloc(2 * count + 8, sizeof *all);
    if (!mine || !all)
        must(BERTH_OUT_OF_HOST_MEMORY, "messages");
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    MPI_Allreduce(small, small_too, 18, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Reduce(mine, all, (int)(2 * count), MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Bcast(mine, (int)(8 + count), MPI_UINT64_T, 0, MPI_COMM_WORLD);
    MPI_Allreduce(small, small_too, 5, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    double took = (MPI_Wtime() - began) * 1e3, most = 0;
    MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    free(mine);
    free(all);
    return most;
}

typedef struct agreeing {
    double best_ms, bare_ms; /* other work only ever adds time to the first; the second is a median */
} agreeing;

static agreeing figures_of_agreeing(size_t count)
{
    berth_mpi *job = NULL;
    berth_mpi_info info = BERTH_MPI_INFO_INIT;
    berth_mpi_options options = BERTH_MPI_OPTIONS_INIT;
    berth_solve_options quick = BERTH_SOLVE_OPTIONS_INIT;
    double agree[AGREEMENTS], take[AGREEMENTS], bare[AGREEMENTS];
    quick.solver = "greedy";
    options.solve = &quick;
    must(berth_mpi_create(MPI_COMM_WORLD, &options, &job), "create");
    berth_plan *plan = many(count);
    for (int round = 0; round < AGREEMENTS; round++) {
        bare[round] = bare_messages(count);
        must(berth_mpi_set_plan(job, plan), "set");
        MPI_Barrier(MPI_COMM_WORLD);
        must(berth_mpi_agree(job), "agree");
        must(berth_mpi_info_get(job, &info), "info");
        double own[2] = {(double)info.agree_ns * 1e-6, (double)info.slowest_take_ns * 1e-6}, most[2];
        MPI_Allreduce(own, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        agree[round] = most[0];
        take[round] = most[1];
    }
    berth_plan_release(plan);
    const double typical = median(agree, AGREEMENTS), typical_take = median(take, AGREEMENTS);
    if (rank == 0)
        printf("%8zu allocations: agree %8.1f ms (best %.1f), take %8.1f ms (best %.1f), %.1f MB of arrays; "
               "solving took %.0f ms\n",
               count, typical, agree[0], typical_take, take[0], (double)info.sent_bytes * 1e-6,
               (double)info.solve_ns * 1e-6);
    must(berth_mpi_destroy(job), "destroy");
    return (agreeing){agree[0], median(bare, AGREEMENTS)};
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    const bool checks = argc > 1 && strcmp(argv[1], "--check") == 0;
    argc -= checks, argv += checks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    network(argc > 1 ? argv[1] : NULL);
    figures_of_replay();
    if (rank == 0)
        printf("\nagreeing, the slowest rank, without solving (take: what each then does by itself):\n");
    const size_t most = argc > 2 ? strtoul(argv[2], NULL, 10) : MANY;
    agreeing last = {0, 0};
    for (size_t count = most / 100; count && count <= most; count *= 10)
        last = figures_of_agreeing(count);
    if (rank == 0) {
        printf("%-58s %10.2f ms\n", "messages of those sizes by themselves, median", last.bare_ms);
        judge("agreeing on the most allocations, best", last.best_ms, AGREE_AT_MOST_MS + last.bare_ms, "ms");
    }
    MPI_Finalize();
    return checks && missed ? 1 : 0;
}
