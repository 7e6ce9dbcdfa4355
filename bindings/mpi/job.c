/* A job's life, its recordings and replays, and questions about places. */
#include <stdlib.h>
#include <string.h>

#include <berth/source.h>

#include "inside.h"

static berth_status no_job(void)
{
    return berth_fail(BERTH_INVALID_ARGUMENT, "there is no job");
}

/* ---- Life ------------------------------------------------------------------------------------------- */

/* What is the host's. */
static void job_release(berth_mpi *job)
{
    berth_allocator_release(job->planned);
    berth_plan_release(job->plan);
    berth_allocator_release(job->options.memory);
    berth_allocator_release(job->options.host);
    free(job);
}

static berth_status job_init(berth_mpi *job, const berth_mpi_options *options)
{
    berth_allocator *inner = NULL;
    if (options) {
        if (options->struct_size < sizeof options->struct_size)
            return berth_fail(BERTH_INVALID_ARGUMENT,
                              "options need their struct_size; begin with BERTH_MPI_OPTIONS_INIT");
        memcpy(&job->options, options,
               options->struct_size < sizeof job->options ? options->struct_size : sizeof job->options);
    }
    job->options.host = berth_allocator_retain(job->options.host ? job->options.host : berth_cpu_allocator());
    if (job->options.memory)
        berth_allocator_retain(job->options.memory);
    berth_status status = mpi_place_create(job->options.host, &job->place, &inner);
    if (!status)
        status = berth_plan_create(&job->plan);
    if (!status)
        status = berth_planned_create(inner, job->plan, &job->planned);
    berth_allocator_release(inner);
    return status;
}

static berth_status duplicate(MPI_Comm comm, berth_mpi *job)
{
    berth_status status = mpi_check(MPI_Comm_dup(comm, &job->comm), "duplicate the communicator");
    if (!status)
        status = mpi_check(MPI_Comm_set_errhandler(job->comm, MPI_ERRORS_RETURN), "set an error handler");
    if (!status)
        status = mpi_check(MPI_Comm_rank(job->comm, &job->rank), "tell the rank");
    return status ? status : mpi_check(MPI_Comm_size(job->comm, &job->ranks), "tell the number of ranks");
}

/* Between two groups a reduction answers with the other's numbers: agreeing would go wrong or never end. */
static berth_status check_communicator(MPI_Comm comm)
{
    int between_groups = 0;
    berth_status status = mpi_check(MPI_Comm_test_inter(comm, &between_groups), "look at the communicator");
    return !status && between_groups
               ? berth_fail(BERTH_INVALID_ARGUMENT, "a job needs an intracommunicator, and this one is "
                                                    "between two groups: MPI_Intercomm_merge")
               : status;
}

static bool mpi_runs(void)
{
    int initialized = 0, finalized = 0;
    return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized &&
           MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized;
}

berth_status berth_mpi_create(MPI_Comm comm, const berth_mpi_options *options, berth_mpi **out)
{
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a job needs a place to be put into");
    *out = NULL;
    if (!mpi_runs() || comm == MPI_COMM_NULL)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "a job needs MPI between MPI_Init and MPI_Finalize, and a communicator");
    /* without even this there is no way to tell the others: the job ends as MPI ends jobs */
    berth_mpi local = {.comm = MPI_COMM_NULL, .window = MPI_WIN_NULL};
    berth_status status = check_communicator(comm);
    if (!status)
        status = duplicate(comm, &local);
    if (status)
        return status;
    berth_mpi *job = malloc(sizeof *job);
    status = job ? BERTH_OK : berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a job");
    if (job) {
        *job = local;
        status = job_init(job, options);
    }
    status = mpi_agree_status(&local, status);
    if (!status) {
        *out = job;
        return BERTH_OK;
    }
    if (job)
        job_release(job);
    MPI_Comm_free(&local.comm);
    return status;
}

berth_status mpi_vacate(berth_mpi *job)
{
    berth_run *run = berth_run_current();
    if (run && run->allocator == job->planned)
        return berth_fail(BERTH_BUSY, "a scope of the job is open on this thread; end it first");
    berth_status status = berth_trim(job->planned, 0, NULL);
    if (!status && atomic_load(&job->place->taken))
        status =
            berth_fail(BERTH_BUSY, "planned pointers are live, or another thread replays; free them first");
    return status;
}

berth_status berth_mpi_destroy(berth_mpi *job)
{
    if (!job)
        return BERTH_OK;
    if (!mpi_runs()) {
        job_release(job);
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "a job is destroyed before MPI_Finalize; its window is MPI's now");
    }
    berth_status status = mpi_agree_status(job, mpi_vacate(job));
    if (status == BERTH_BUSY)
        return status;
    berth_status freed = mpi_window_free(job);
    MPI_Comm_free(&job->comm);
    job_release(job);
    return status ? status : freed;
}

/* ---- Runs ------------------------------------------------------------------------------------------- */

berth_allocator *berth_mpi_allocator(berth_mpi *job)
{
    return job ? job->planned : NULL;
}

berth_status berth_mpi_record_begin(berth_mpi *job)
{
    /* the places will be the envelope's: the recording's own plan need not be good */
    static const berth_solve_options quick = {
        .struct_size = sizeof quick, .solver = "greedy", .effort = BERTH_EFFORT_FAST};
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    if (!job)
        return no_job();
    options.solve = &quick;
    berth_status status = berth_record_begin(job->planned, &options);
    if (!status)
        job->agreed = false;
    return status;
}

berth_status berth_mpi_record_end(berth_mpi *job)
{
    return job ? berth_record_end(job->planned) : no_job();
}

berth_status berth_mpi_set_plan(berth_mpi *job, berth_plan *plan)
{
    if (!job)
        return no_job();
    berth_status status = berth_planned_set_plan(job->planned, plan);
    if (status)
        return status;
    berth_plan_retain(plan);
    berth_plan_release(job->plan);
    job->plan = plan;
    job->agreed = false;
    return BERTH_OK;
}

berth_status berth_mpi_replay_begin(berth_mpi *job)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    if (!job)
        return no_job();
    if (!job->agreed)
        return berth_fail(BERTH_NOT_READY,
                          "the ranks have not agreed on a plan: record, then berth_mpi_agree on all of them");
    options.strict = true;
    /* A replay that was begun past the job (berth_replay_begin) has left a block of the host's, which this one would take. */
    if (!atomic_load(&job->place->taken))
        (void)berth_trim(job->planned, 0, NULL);
    mpi_place_begin(job->place);
    berth_status status = berth_replay_begin(job->planned, &options);
    mpi_place_end();
    return status;
}

berth_status berth_mpi_replay_end(berth_mpi *job, berth_report *report)
{
    return job ? berth_replay_end(job->planned, report) : no_job();
}

/* ---- Questions -------------------------------------------------------------------------------------- */

berth_status berth_mpi_offset(const berth_mpi *job, const void *p, uint64_t *out)
{
    if (!job || !out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "an offset needs a job and a place to be put into");
    const uintptr_t at = (uintptr_t)p, base = (uintptr_t)job->base;
    if (!job->base || at < base + job->shift || at - base - job->shift >= job->window_bytes)
        return berth_fail(BERTH_NOT_FOUND, "%p is not in the window: it is not planned, or not of a replay",
                          p);
    *out = at - base;
    return BERTH_OK;
}

MPI_Win berth_mpi_window(const berth_mpi *job)
{
    return job ? job->window : MPI_WIN_NULL;
}

berth_status berth_mpi_info_get(const berth_mpi *job, berth_mpi_info *out)
{
    if (!job || !out || out->struct_size < sizeof out->struct_size)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "a job's description needs a job and a result whose struct_size is set");
    berth_mpi_info full = job->agreed ? job->info : (berth_mpi_info){0};
    full.struct_size = out->struct_size;
    full.rank = job->rank;
    full.ranks = job->ranks;
    memcpy(out, &full, out->struct_size < sizeof full ? out->struct_size : sizeof full);
    return job->agreed ? BERTH_OK : berth_fail(BERTH_NOT_READY, "nothing is agreed yet");
}
