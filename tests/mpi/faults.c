/* MPI that fails on one rank alone: this program's calls for windows stand before MPI's own, do the whole work, so that the other
 * ranks get on, and then say no. No rank may wait for one that has left, and what was told is told on all. */
#include <berth/berth.h>
#include <stdio.h>
#include <string.h>

#include <berth_mpi.h>

enum { SMALL = 5000, LARGE = 50000 };

/* Which call fails next, on the last rank. */
static enum { NONE, ALLOCATE, CREATE, FREE } fails;
static int rank, ranks;
static MPI_Win kept = MPI_WIN_NULL; /* of which some ranks were told that they have none */

#define CHECK(truth)                                                                               \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, rank, #truth, \
                    berth_last_error()->message);                                                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

static int spoil_window(int code, MPI_Win *window)
{
    kept = *window;
    if (rank != ranks - 1)
        return code;
    *window = MPI_WIN_NULL;
    return MPI_ERR_NO_MEM;
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window)
{
    const int code = PMPI_Win_allocate(size, unit, info, comm, base, window);
    return fails == ALLOCATE ? spoil_window(code, window) : code;
}

int MPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *window)
{
    const int code = PMPI_Win_create(base, size, unit, info, comm, window);
    return fails == CREATE ? spoil_window(code, window) : code;
}

int MPI_Win_free(MPI_Win *window)
{
    CHECK(*window != kept); /* the last rank would not take part */
    const int code = PMPI_Win_free(window);
    return fails == FREE && rank == ranks - 1 ? MPI_ERR_OTHER : code;
}

/* The window that the job has given up, by all. */
static void free_kept(void)
{
    fails = NONE;
    CHECK(kept != MPI_WIN_NULL && PMPI_Win_free(&kept) == MPI_SUCCESS);
    kept = MPI_WIN_NULL;
}

static void set_program(berth_mpi *job, size_t size_bytes)
{
    berth_plan *plan = NULL;
    berth_plan_allocation one = BERTH_PLAN_ALLOCATION_INIT;
    one.size_bytes = size_bytes;
    one.alignment = 64;
    one.freed_at = 1;
    CHECK(berth_plan_create(&plan) == BERTH_OK && berth_plan_set(plan, &one, 1, NULL) == BERTH_OK);
    CHECK(berth_mpi_set_plan(job, plan) == BERTH_OK);
    berth_plan_release(plan);
}

static void replay(berth_mpi *job, size_t size_bytes)
{
    uint64_t offset = 0;
    void *p = NULL;
    CHECK(berth_mpi_replay_begin(job) == BERTH_OK);
    CHECK(berth_allocate(berth_mpi_allocator(job), size_bytes, 64, NULL, &p) == BERTH_OK);
    CHECK(berth_mpi_offset(job, p, &offset) == BERTH_OK);
    CHECK(berth_deallocate(berth_mpi_allocator(job), p, size_bytes, NULL) == BERTH_OK);
    CHECK(berth_mpi_replay_end(job, NULL) == BERTH_OK);
}

/* The last rank's failure, on every rank; afterwards nothing is agreed, and there is no window. */
static void expect_failure(berth_mpi *job, const char *part)
{
    char who[32];
    snprintf(who, sizeof who, "rank %d (berth ", ranks - 1);
    CHECK(berth_mpi_agree(job) == BERTH_DEVICE_ERROR);
    CHECK(strstr(berth_last_error()->message, who) && strstr(berth_last_error()->message, part));
    CHECK(berth_mpi_replay_begin(job) == BERTH_NOT_READY);
    CHECK(berth_mpi_window(job) == MPI_WIN_NULL);
}

static void run(berth_allocator *memory)
{
    berth_mpi *job = NULL;
    berth_mpi_options options = BERTH_MPI_OPTIONS_INIT;
    options.memory = memory;
    CHECK(berth_mpi_create(MPI_COMM_WORLD, &options, &job) == BERTH_OK);
    set_program(job, SMALL);
    fails = memory ? CREATE : ALLOCATE;
    expect_failure(job, memory ? "create a window" : "allocate a window");
    free_kept();
    CHECK(berth_mpi_agree(job) == BERTH_OK);
    set_program(job, LARGE); /* the window must go for a larger one */
    fails = FREE;
    expect_failure(job, "free the window");
    fails = NONE;
    CHECK(berth_mpi_agree(job) == BERTH_OK && berth_mpi_window(job) != MPI_WIN_NULL);
    replay(job, LARGE);
    fails = FREE;
    CHECK(berth_mpi_destroy(job) == BERTH_DEVICE_ERROR);
    fails = NONE;
}

int main(int argc, char **argv)
{
    berth_allocator *mapped = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(berth_mapped_allocator_create(NULL, &mapped) == BERTH_OK);
    run(NULL);
    run(mapped);
    berth_allocator_release(mapped);
    MPI_Finalize();
    return 0;
}
