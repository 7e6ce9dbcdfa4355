/* The inside of a job. */
#ifndef BERTH_MPI_INSIDE_H
#define BERTH_MPI_INSIDE_H

#include <stdatomic.h>

#include "berth_mpi.h"

/* What ranks say to each other has this version. Another one is refused, whatever the versions of Berth. */
#ifndef BERTH_MPI_PROTOCOL
#define BERTH_MPI_PROTOCOL 2
#endif

/* The memory of a window as an allocator's: the planned allocator's one block, taken when a replay begins and given back by a
 * trim. Belongs to the wrapper around the host's allocator, which may outlive the job. */
typedef struct mpi_place {
    void *base; /* NULL: no window. Changed only while `taken` is not set */
    size_t bytes;
    atomic_bool taken;
} mpi_place;

struct berth_mpi {
    MPI_Comm comm; /* a duplicate: our messages meet nobody else's */
    int rank, ranks;
    berth_mpi_options options;
    mpi_place *place;
    berth_allocator *planned;
    berth_plan *plan;
    bool agreed;
    /* the window, and the block under it where `options.memory` gave it */
    MPI_Win window;
    void *base, *block;
    size_t window_bytes, window_alignment;
    size_t shift; /* from the window's beginning to the plan's, the same on every rank */
    berth_mpi_info info;
};

/* BERTH_OK, or words about what MPI could not do. */
berth_status mpi_check(int code, const char *what);

/* Every rank brings its own status; all leave with that of the first rank that failed, and its words. Collective. */
berth_status mpi_agree_status(const berth_mpi *job, berth_status status);
/* The second half: rank `failed` (below `ranks`) is known to all already. */
berth_status mpi_share_failure(const berth_mpi *job, berth_status status, int failed);

/* The wrapper over `host` that gives the window's memory to the thread between begin and end. */
berth_status mpi_place_create(berth_allocator *host, mpi_place **place, berth_allocator **out);
void mpi_place_begin(mpi_place *place);
void mpi_place_end(void);

/* A window of at least `bytes` at this alignment on every rank. Collective, and so is the status. */
berth_status mpi_window_make(berth_mpi *job, size_t bytes, size_t alignment);
berth_status mpi_window_free(berth_mpi *job); /* likewise */

/* Gives an idle block back to the place; BERTH_BUSY, with words, if it is in use. Local. */
berth_status mpi_vacate(berth_mpi *job);

/* One allocation, as it is reduced. */
typedef struct mpi_allocation {
    uint64_t size_bytes;
    uint32_t end;       /* freed at; UINT32_MAX: outlives the run */
    uint32_t alignment; /* as a power of two */
} mpi_allocation;

/* Numbers about a plan that travel before its offsets. */
enum { MPI_PROGRAM_HEAD = 8 };

typedef struct mpi_program {
    size_t count;
    mpi_allocation *all;
    uint64_t *head;    /* MPI_PROGRAM_HEAD numbers, and then */
    uint64_t *offsets; /* by allocation */
} mpi_program;

berth_status mpi_program_read(const berth_plan *plan, mpi_program *out);
void mpi_program_finish(mpi_program *program);
/* Numbers that tell allocations apart: by name and whether it outlives the run; and by everything. */
uint64_t mpi_print_name(const berth_plan *plan, const mpi_program *program, size_t id);
uint64_t mpi_print_all(const mpi_program *program, size_t id, uint64_t name);
uint64_t mpi_mix(uint64_t print, uint64_t value);
/* The most bytes of it that are live at one time, without those that outlive the run. */
uint64_t mpi_max_live(const mpi_program *program);

/* Tells all ranks where the first of them differs from rank 0; `exact`: in anything. Collective; never BERTH_OK. */
berth_status mpi_tell_difference(const berth_mpi *job, const mpi_program *program, uint64_t protocol_low,
                                 bool exact);

#endif
