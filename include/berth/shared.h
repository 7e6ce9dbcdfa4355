/* Shared arenas: the block of a plan in memory that several processes of one host map.
 *
 * One process makes the arena, fills it and publishes; others attach by a descriptor, which travels over a Unix socket
 * or through fork. Every buffer has the plan's offset in every process; addresses differ. Memory is there once, whoever
 * maps it, and goes with the last process that does: it has no name in any file system, so that nothing is left behind,
 * however a process ends.
 *
 *     berth_plan *plan = NULL; berth_shared *weights = NULL; void *data = NULL;
 *     berth_plan_create(&plan), berth_plan_load(plan, "weights.plan.csv"); // or berth_plan_set
 *     if (berth_shared_create(plan, NULL, &weights) == BERTH_OK) { // the caller owns it, and may write
 *         berth_shared_get(weights, 0, &data, NULL);               // allocation 0 of the plan
 *         berth_shared_publish(weights, NULL);                     // generation 1: readers may read
 *         berth_shared_seal(weights, BERTH_SHARED_SEAL_CONTENT);   // for ever
 *     }
 *     berth_shared_release(weights), berth_plan_release(plan);
 *
 * At most one handle owns an arena, and only it writes. Ownership, holds of readers and the memory itself are the
 * kernel's to keep, not words in the memory: a process that is killed at any point has let go of all of them, and
 * another one takes over. What is read from a descriptor is checked and copied before it is used; a damaged or hostile one
 * is an error, never a fault.
 *
 * In the child of a fork handles go on for reading: ownership and holds stay with the parent. A child that was not made
 * by fork() but by a bare system call keeps the parent's ownership alive as long as it has not executed another program.
 *
 * Linux only, with /proc mounted: BERTH_UNSUPPORTED elsewhere. A call on a handle may come from any thread. */
#ifndef BERTH_SHARED_H
#define BERTH_SHARED_H

#include "berth/allocator.h"
#include "berth/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_shared berth_shared;

/* What a handle may do: one for reading has a map that nothing in its process can make writable. */
typedef enum berth_shared_access {
    BERTH_SHARED_READ = 0,
    BERTH_SHARED_WRITE = 1, /* may become the owner; its map is read-only until then */
} berth_shared_access;

/* What nobody can do any more, each including those before. Every arena has a fixed size from its beginning. */
typedef enum berth_shared_seals {
    BERTH_SHARED_SEAL_SIZE = 0,
    BERTH_SHARED_SEAL_WRITERS = 1, /* no process can map it for writing that has not already */
    BERTH_SHARED_SEAL_CONTENT = 2, /* nobody can write: what is there stays */
} berth_shared_seals;

/* ---- Making one, attaching, letting go --------------------------------------------------------------- */

typedef struct berth_shared_options {
    size_t struct_size;
    const char *name; /* as "memfd:NAME" in /proc/PID/maps, at most 200 bytes; NULL: "berth" */
    /* All memory is taken now, so that want of it is an error here and not a kill later: what the system and the control groups of the
     * process say that they have left is looked at first. */
    bool reserve;
} berth_shared_options;

#define BERTH_SHARED_OPTIONS_INIT                 \
    {                                             \
        sizeof(berth_shared_options), NULL, false \
    }

/* An arena with the plan's buffers at the plan's offsets, all zero. The plan is copied. The caller owns one reference to
 * the handle, and the handle owns the arena, which is being written from here to the first berth_shared_publish.
 * `options` may be NULL. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT (also a plan without any place), BERTH_BUSY (the plan
 * is being recorded or changed), BERTH_OVERFLOW, BERTH_OVER_BUDGET (RLIMIT_FSIZE), BERTH_OUT_OF_HOST_MEMORY, BERTH_UNSUPPORTED, BERTH_IO. */
BERTH_API berth_status berth_shared_create(berth_plan *plan, const berth_shared_options *options,
                                           berth_shared **out);

typedef struct berth_shared_attach_options {
    size_t struct_size;
    berth_shared_access access;
    berth_shared_seals seals; /* what the caller insists on */
    uint64_t fingerprint;     /* of the plan that the caller knows; 0: any */
    uint64_t generation;      /* the oldest that is of use; 0: any, also none yet */
} berth_shared_attach_options;

#define BERTH_SHARED_ATTACH_OPTIONS_INIT                                                               \
    {                                                                                                  \
        sizeof(berth_shared_attach_options), BERTH_SHARED_READ, BERTH_SHARED_SEAL_SIZE, (uint64_t)0, 0 \
    }

/* A handle on the arena of `descriptor`, which stays the caller's and may be closed afterwards. `options` may be NULL: for
 * reading. The caller owns one reference. Any thread. BERTH_OK; BERTH_INVALID_ARGUMENT (no open descriptor);
 * BERTH_BAD_DATA (not an arena, damaged, or one that could be cut short); BERTH_MISMATCH (another plan, fewer seals, or stale: an
 * older generation than asked for); BERTH_CANCELLED (retired); BERTH_UNSUPPORTED (another version of the format; for writing
 * where the descriptor, a seal, or another user's ownership of the memory does not let it); BERTH_OUT_OF_HOST_MEMORY, BERTH_IO. */
BERTH_API berth_status berth_shared_attach(int descriptor, const berth_shared_attach_options *options,
                                           berth_shared **out);

/* Counted references to a handle; the last release unmaps it and lets go of ownership and holds. The allocator of
 * berth_shared_allocator_create has one. Release accepts NULL. Any thread. */
BERTH_API berth_shared *berth_shared_retain(berth_shared *shared);
BERTH_API void berth_shared_release(berth_shared *shared);

/* A new descriptor of the arena, to be handed on by other means; the caller closes it. It is closed on exec, and has nothing to
 * do with the handle's ownership. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (for writing, of a handle for reading), BERTH_IO. */
BERTH_API berth_status berth_shared_descriptor(berth_shared *shared, berth_shared_access access, int *out);

/* Sends a descriptor over a Unix socket, with `access` at most; receiving attaches as berth_shared_attach does, and closes
 * what came. Both wait if the socket does, else BERTH_NOT_READY. Any thread; one at a time for each direction of a stream socket. Both
 * also BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO (also when the other side has gone, or this one has no room for the descriptor), receiving BERTH_BAD_DATA (something else was sent). */
BERTH_API berth_status berth_shared_send(berth_shared *shared, int socket, berth_shared_access access);
BERTH_API berth_status berth_shared_receive(int socket, const berth_shared_attach_options *options,
                                            berth_shared **out);

/* ---- What is in it ----------------------------------------------------------------------------------- */

/* How many allocations the plan has; 0 for NULL. */
BERTH_API size_t berth_shared_count(const berth_shared *shared);
/* Where allocation `id` of the plan lies in this process, and its size; `size_bytes` may be NULL. The address holds as long as
 * the handle, and may be written through while the handle owns the arena. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND
 * (no such allocation, or one that is never freed and so outside the plan). */
BERTH_API berth_status berth_shared_get(const berth_shared *shared, size_t id, void **data,
                                        size_t *size_bytes);
/* The first allocation with this label. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND. */
BERTH_API berth_status berth_shared_find(const berth_shared *shared, const char *label, size_t *id);
/* A new plan with the arena's allocations and offsets, proven by the checker; the caller owns one reference. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_BAD_DATA (it is not the plan whose fingerprint the arena has), BERTH_MISMATCH (buffers
 * overlap), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_shared_plan(const berth_shared *shared, berth_plan **out);

typedef struct berth_shared_info {
    size_t struct_size;
    size_t count;         /* allocations of the plan */
    uint64_t total_bytes; /* of the plan's block */
    uint64_t fingerprint; /* of the plan */
    uint64_t generation;  /* the last one that was published; 0: none */
    bool writing;         /* being written, or left half written by an owner that has gone */
    bool retired;
    bool owned; /* a handle somewhere owns it: its process lives */
    bool mine;  /* this one */
    berth_shared_access access;
    berth_shared_seals seals;
} berth_shared_info;

#define BERTH_SHARED_INFO_INIT                                                                \
    {                                                                                         \
        sizeof(berth_shared_info), 0, 0, 0, 0, false, false, false, false, BERTH_SHARED_READ, \
            BERTH_SHARED_SEAL_SIZE                                                            \
    }

/* The caller sets out->struct_size. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_shared_info_get(berth_shared *shared, berth_shared_info *out);

/* ---- Who writes -------------------------------------------------------------------------------------- */

/* Makes the handle the owner: the others' attempts are BERTH_BUSY until it gives up, is released, or its process ends in any
 * way. An owner that went while it wrote leaves the arena `writing`: write everything anew and publish. BERTH_OK (also for the
 * owner), BERTH_BUSY (another one owns it), BERTH_UNSUPPORTED (a handle for reading), BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, BERTH_IO. */
BERTH_API berth_status berth_shared_own(berth_shared *shared);
/* Gives ownership up; the map is read-only from here on. BERTH_OK, BERTH_NOT_FOUND (not the owner), BERTH_BUSY (publish first;
 * or an allocator has the arena as its block), BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, BERTH_IO. */
BERTH_API berth_status berth_shared_disown(berth_shared *shared);

/* By the owner, before it writes: from now on readers are told that nothing is ready. BERTH_OK (also when it is writing
 * already), BERTH_BUSY (a reader holds the content, or the handle is not the owner), BERTH_CANCELLED (retired), BERTH_INVALID_ARGUMENT, BERTH_IO. */
BERTH_API berth_status berth_shared_write_begin(berth_shared *shared);
/* By the owner, when all is written: the content is the next generation, which may be NULL, and waiting readers wake.
 * BERTH_OK, BERTH_BUSY (not the owner, or not writing), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_shared_publish(berth_shared *shared, uint64_t *generation);
/* By the owner, when another arena takes this one's place: nothing is published here any more. Readers may go on with what
 * is there; waits and new attaches are BERTH_CANCELLED. BERTH_OK, BERTH_BUSY (not the owner), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_shared_retire(berth_shared *shared);

/* By the owner, for good. With BERTH_SHARED_SEAL_CONTENT, which comes after publishing, the handle becomes one for reading and owns
 * nothing; addresses stay. BERTH_OK (also for what is sealed so already), BERTH_BUSY (not the owner, writing or never published,
 * another handle is attached for writing, or an allocator has the arena as its block), BERTH_UNSUPPORTED (the kernel is older than the seal), BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, BERTH_IO. */
BERTH_API berth_status berth_shared_seal(berth_shared *shared, berth_shared_seals seals);

/* ---- Reading ----------------------------------------------------------------------------------------- */

/* The generation that is there; one load. BERTH_OK, BERTH_NOT_READY (none yet, or being written; keeps no words),
 * BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_shared_generation(const berth_shared *shared, uint64_t *generation);
/* Whether everything read since berth_shared_generation answered `generation` belongs to it. For readers that copy, and start over
 * if not. BERTH_OK, BERTH_MISMATCH (the owner has begun to write; keeps no words), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_shared_check(const berth_shared *shared, uint64_t generation);

/* Holds the content as it is: the owner cannot begin to write before berth_shared_read_end, or before this process ends. Holds of a
 * handle are counted. A system call each, none if the content is sealed. `generation` may be NULL. BERTH_OK, BERTH_NOT_READY (none
 * yet, or being written), BERTH_INVALID_ARGUMENT, BERTH_IO. */
BERTH_API berth_status berth_shared_read_begin(berth_shared *shared, uint64_t *generation);
/* BERTH_OK, BERTH_NOT_FOUND (no hold; in the child of a fork: it was the parent's), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_shared_read_end(berth_shared *shared);

#define BERTH_SHARED_FOREVER UINT64_MAX

/* Waits for a generation after `after`. `generation` may be NULL. The death of the owner is noticed within 20 ms. BERTH_OK,
 * BERTH_TIMED_OUT, BERTH_NOT_FOUND (nobody owns the arena: take over, or wait again), BERTH_CANCELLED (retired, or the content is sealed), BERTH_INVALID_ARGUMENT,
 * BERTH_IO (a fork without room for descriptors: who owns it cannot be seen). */
BERTH_API berth_status berth_shared_wait(berth_shared *shared, uint64_t after, uint64_t timeout_ns,
                                         uint64_t *generation);

/* ---- Replaying into it ------------------------------------------------------------------------------- */

/* An allocator that has the arena as the block of a planned allocator (berth/replay.h) above it, so that a replay of the arena's plan
 * puts every allocation at its offset there. The block is refused with BERTH_OUT_OF_HOST_MEMORY while it is handed out, by any allocator
 * of the handle, and with BERTH_BUSY while the handle does not own the arena; what is not such a block, of whatever size, is `inner`'s.
 * While it is handed out the handle stays the owner; a planned allocator gives its block back by berth_trim. Figures are `inner`'s with
 * the arena: reserved always, in use while this allocator has handed it out; a peak is at most what both had together. Retains both; `inner` NULL: berth_cpu_allocator. The caller owns one reference. Any
 * thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_shared_allocator_create(berth_shared *shared, berth_allocator *inner,
                                                     berth_allocator **out);

#ifdef __cplusplus
}
#endif
#endif
