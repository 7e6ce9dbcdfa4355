/* The window: memory of the same size and alignment on every rank. */
#include <stdio.h>

#include <berth/version.h>

#include "inside.h"

berth_status mpi_check(int code, const char *what)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return BERTH_OK;
    if (MPI_Error_string(code, words, &length) != MPI_SUCCESS)
        snprintf(words, sizeof words, "error %d", code);
    return berth_fail_driver(BERTH_DEVICE_ERROR, code, words, "MPI could not %s: %s", what, words);
}

/* ---- One status for all ----------------------------------------------------------------------------- */

enum { FAILURE_WORDS = 400, VERSION_ROOM = 32 };

typedef struct failure {
    int32_t status;
    char version[VERSION_ROOM];
    char words[FAILURE_WORDS];
} failure;

berth_status mpi_share_failure(const berth_mpi *job, berth_status status, int failed)
{
    failure f = {.status = (int32_t)status};
    if (failed == job->rank) {
        const berth_error *last = berth_last_error();
        snprintf(f.version, sizeof f.version, "%s", berth_version());
        snprintf(f.words, sizeof f.words, "%.*s", FAILURE_WORDS - 1,
                 last->status == status && last->message[0] ? last->message : berth_status_words(status));
    }
    berth_status sent =
        mpi_check(MPI_Bcast(&f, (int)sizeof f, MPI_BYTE, failed, job->comm), "send a failure's words");
    if (sent)
        return sent;
    return berth_fail((berth_status)f.status, "rank %d (berth %.*s): %.*s", failed, VERSION_ROOM, f.version,
                      FAILURE_WORDS, f.words);
}

berth_status mpi_agree_status(const berth_mpi *job, berth_status status)
{
    int mine = status ? job->rank : job->ranks, first = 0;
    berth_status sent = mpi_check(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, job->comm),
                                  "compare the ranks' statuses");
    if (sent)
        return sent;
    return first == job->ranks ? BERTH_OK : mpi_share_failure(job, status, first);
}

/* ---- Making and freeing ----------------------------------------------------------------------------- */

/* What the job knows of a window that is no more. */
static void window_reset(berth_mpi *job)
{
    job->place->base = NULL;
    job->place->bytes = 0;
    job->window = MPI_WIN_NULL;
    job->base = job->block = NULL;
    job->window_bytes = job->shift = 0;
}

berth_status mpi_window_free(berth_mpi *job)
{
    if (job->window == MPI_WIN_NULL)
        return BERTH_OK; /* on every rank */
    /* a window's own handler ends the job as a rule, which is for the program's puts and gets to have */
    MPI_Win_set_errhandler(job->window, MPI_ERRORS_RETURN);
    berth_status status = mpi_check(MPI_Win_free(&job->window), "free the window");
    if (job->block)
        berth_deallocate(job->options.memory, job->block, job->window_bytes, NULL);
    window_reset(job);
    return mpi_agree_status(job, status);
}

/* Where not every rank has got a window. Those that have cannot free it: that is collective, and they would wait for the others for
 * ever. It stays MPI's, with the block under it, until MPI is finalized. */
static void window_abandon(berth_mpi *job)
{
    if (job->block && job->window == MPI_WIN_NULL)
        berth_deallocate(job->options.memory, job->block, job->window_bytes, NULL);
    window_reset(job);
}

/* By MPI, which promises no more than a C type's alignment: there is room for a shift, which must be the same on every rank, since
 * it is part of all offsets. `suits`: it is. */
static berth_status window_allocate(berth_mpi *job, size_t bytes, size_t alignment, bool *suits)
{
    const size_t room = bytes + alignment - 1;
    char what[64];
    snprintf(what, sizeof what, "allocate a window of %zu bytes", room);
    berth_status status = mpi_agree_status(
        job,
        mpi_check(MPI_Win_allocate((MPI_Aint)room, 1, MPI_INFO_NULL, job->comm, &job->base, &job->window),
                  what));
    if (status)
        return status;
    job->shift = (size_t)(-(uintptr_t)job->base & (alignment - 1));
    uint64_t mine[2] = {job->shift, ~(uint64_t)job->shift}, all[2] = {0, 0};
    status = mpi_check(MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_MIN, job->comm), "compare alignments");
    *suits = all[0] == ~all[1];
    return status;
}

/* Over a block of Berth's. */
static berth_status window_over(berth_mpi *job, berth_allocator *memory, size_t bytes, size_t alignment)
{
    berth_status status = mpi_agree_status(job, berth_allocate(memory, bytes, alignment, NULL, &job->block));
    if (status)
        return status;
    job->base = job->block;
    char what[64];
    snprintf(what, sizeof what, "create a window of %zu bytes", bytes);
    return mpi_agree_status(
        job, mpi_check(MPI_Win_create(job->base, (MPI_Aint)bytes, 1, MPI_INFO_NULL, job->comm, &job->window),
                       what));
}

berth_status mpi_window_make(berth_mpi *job, size_t bytes, size_t alignment)
{
    bool suits = false;
    bytes = bytes ? bytes : 1;
    if (job->window != MPI_WIN_NULL && job->window_bytes >= bytes && job->window_alignment >= alignment)
        return BERTH_OK;
    berth_status status = mpi_window_free(job);
    job->window_bytes = bytes;
    if (!status && !job->options.memory)
        status = window_allocate(job, bytes, alignment, &suits);
    if (!status && !suits && !job->options.memory) {
        status = mpi_window_free(job);
        job->window_bytes = bytes;
        /* from now on the window lies in the host's memory, at any alignment */
        job->options.memory = berth_allocator_retain(job->options.host);
    }
    if (!status && !suits)
        status = window_over(job, job->options.memory, bytes, alignment);
    if (status) { /* on every rank */
        const berth_error why = *berth_last_error();
        window_abandon(job);
        return berth_fail(why.status, "%s", why.message);
    }
    job->window_alignment = alignment;
    job->place->base = (char *)job->base + job->shift;
    job->place->bytes = bytes;
    return BERTH_OK;
}
