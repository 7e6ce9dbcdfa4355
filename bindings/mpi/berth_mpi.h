/* One plan across the ranks of an MPI job: libberth_mpi.so.
 *
 *     berth_mpi *job = NULL;
 *     berth_mpi_create(MPI_COMM_WORLD, NULL, &job);
 *     berth_mpi_record_begin(job), work(berth_mpi_allocator(job)), berth_mpi_record_end(job);
 *     berth_mpi_agree(job);                        // one envelope, one window, the same places everywhere
 *     for (int i = 0; i < 100; i++) {
 *         berth_mpi_replay_begin(job), work(berth_mpi_allocator(job)), berth_mpi_replay_end(job, NULL);
 *     }
 *     berth_mpi_destroy(job);                      // before MPI_Finalize
 *
 * The program of every rank must make the same allocations in the same order; sizes, alignments and lives may differ. In a
 * replay allocation number n then lies at the same offset of the window on every rank, so that its own offset
 * (berth_mpi_offset) is also the displacement of the peer's in MPI_Put and MPI_Get: no addresses are exchanged.
 *
 * What Berth does not do is synchronise: a place belongs to one allocation after the other, and who puts into a peer's must
 * know that the peer has it, by the epochs of MPI (fence, post and start, lock and flush, a barrier), as in every one-sided program.
 *
 * Calls marked collective are made by all ranks of the communicator in the same order. They answer on every rank alike: what
 * fails on one is told on all, with the rank, its Berth version and its words. All calls of one job by one thread at a time;
 * collective ones where the program may call MPI. */
#ifndef BERTH_MPI_H
#define BERTH_MPI_H

#include <berth/replay.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_mpi berth_mpi;

typedef struct berth_mpi_options {
    size_t struct_size;
    /* The window lies in a block of this allocator (MPI_Win_create), such as huge pages; retained. NULL: in memory that MPI
     * chooses (MPI_Win_allocate), which it can share between the ranks of a host. On all ranks or on none. */
    berth_allocator *memory;
    berth_allocator
        *host; /* serves what is not planned, and recordings; retained. NULL: berth_cpu_allocator() */
    const berth_solve_options
        *solve; /* how rank 0 solves the envelope; NULL: the defaults. Read while agreeing */
    bool exact; /* sizes, alignments and lives must be the same everywhere too */
} berth_mpi_options;

#define BERTH_MPI_OPTIONS_INIT                             \
    {                                                      \
        sizeof(berth_mpi_options), NULL, NULL, NULL, false \
    }

/* A job on a duplicate of `comm`, which must be an intracommunicator. `options` may be NULL and is copied. The caller owns the
 * result. Collective. BERTH_OK, BERTH_INVALID_ARGUMENT (NULL; options that differ by rank; MPI is not initialized: then without
 * the others), BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_ERROR (MPI failed). */
BERTH_API berth_status berth_mpi_create(MPI_Comm comm, const berth_mpi_options *options, berth_mpi **out);

/* Frees window and communicator; `job` is gone unless the answer is BERTH_BUSY. Every planned pointer must have been freed before, and MPI
 * must not be finalized. NULL is a no-op, on all ranks. Collective. BERTH_OK, BERTH_BUSY (on some rank a
 * planned pointer is live or a scope open: nothing was done), BERTH_INVALID_ARGUMENT (after MPI_Finalize: what is the host's is
 * freed), BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_mpi_destroy(berth_mpi *job);

/* The planned allocator (berth/replay.h), which belongs to the job: all of the program's requests go to it. NULL for no job. Any
 * thread. */
BERTH_API berth_allocator *berth_mpi_allocator(berth_mpi *job);

/* Record the calling thread's run, as berth_record_begin and berth_record_end. Local. What was agreed before ends when recording
 * has begun. */
BERTH_API berth_status berth_mpi_record_begin(berth_mpi *job);
BERTH_API berth_status berth_mpi_record_end(berth_mpi *job);

/* The rank's program, from a recording kept earlier (berth_plan_load) or made without running (berth_plan_set), in place of recording; its
 * offsets do not matter. Retained, and given new offsets by berth_mpi_agree. Local. As berth_planned_set_plan. */
BERTH_API berth_status berth_mpi_set_plan(berth_mpi *job, berth_plan *plan);

/* Agrees on one plan: the ranks compare their programs, reduce them to an envelope, rank 0 solves it and sends the offsets, every rank
 * proves them for its own program and takes its part of a new window (one that is there and large enough is kept). Nothing but the
 * allocations' names and number must agree, and which of them outlive the run, since those have no place. Collective. BERTH_OK on every rank,
 * or on every rank the same: BERTH_MISMATCH (the words name the rank, its Berth version and the first difference),
 * BERTH_BUSY (a planned pointer is live or a scope open), BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_ERROR (MPI failed), BERTH_INTERNAL
 * (checksums differ), and what berth_solve answers. After a failure nothing is agreed. */
BERTH_API berth_status berth_mpi_agree(berth_mpi *job);

/* Replays the agreed plan on the calling thread. Strict: a request or free that is not the recorded run's is BERTH_MISMATCH, since it would have another
 * place than on other ranks. Local: no message is sent. Allocations that outlive the run come from `host`. As
 * berth_replay_begin and berth_replay_end; also BERTH_NOT_READY (nothing is agreed), BERTH_BUSY (another thread replays). */
BERTH_API berth_status berth_mpi_replay_begin(berth_mpi *job);
BERTH_API berth_status berth_mpi_replay_end(berth_mpi *job, berth_report *report);

/* The offset of a pointer in the window, also of one inside an allocation: the displacement (of unit 1) of the same byte on every other
 * rank. Local, any thread. BERTH_OK, BERTH_NOT_FOUND (not in the window), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_mpi_offset(const berth_mpi *job, const void *p, uint64_t *out);

/* The window, for MPI_Put, MPI_Get and epochs; it belongs to the job and lives until it is destroyed or agrees on a larger plan. MPI_WIN_NULL
 * before berth_mpi_agree. Local, any thread. */
BERTH_API MPI_Win berth_mpi_window(const berth_mpi *job);

/* What was agreed, and what it cost. */
typedef struct berth_mpi_info {
    size_t struct_size;
    int rank, ranks;
    size_t allocations;          /* of the plan, the same everywhere */
    uint64_t window_bytes;       /* of each rank */
    uint64_t peak_bytes;         /* of the envelope's plan */
    uint64_t lower_bound_bytes;  /* of the envelope */
    uint64_t own_max_live_bytes; /* of this rank's program alone */
    /* The largest of these of all ranks, and the first rank that has it. `berth plan` on the ranks' recordings tells another thing,
     * without whom the envelope would shrink: that needs all recordings in one place. */
    uint64_t driver_max_live_bytes;
    int driver;
    uint64_t checksum;        /* of count, offsets and peak: the same everywhere */
    bool reduced;             /* programs differed in sizes, alignments or lives */
    uint64_t solve_ns;        /* on rank 0 */
    uint64_t agree_ns;        /* on this rank, without solve_ns and slowest_take_ns */
    uint64_t take_ns;         /* on this rank: proving the offsets for its program and laying out the plan */
    uint64_t sent_bytes;      /* of arrays that were reduced and broadcast, each once */
    uint64_t slowest_take_ns; /* the largest take_ns of all ranks, for which the others wait */
} berth_mpi_info;

#define BERTH_MPI_INFO_INIT                                                        \
    {                                                                              \
        sizeof(berth_mpi_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, 0 \
    }

/* Describes the job; the caller sets out->struct_size. Local. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_NOT_READY (nothing is agreed; rank and ranks are
 * told). */
BERTH_API berth_status berth_mpi_info_get(const berth_mpi *job, berth_mpi_info *out);

#ifdef __cplusplus
}
#endif
#endif
