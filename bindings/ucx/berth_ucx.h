/* Memory that the network can reach: libberth_ucx.so over UCX (libucp, loaded at run time).
 *
 * Large slabs are registered with UCX once; a pool cuts its blocks from them. So a block costs what a block of a pool costs,
 * and any number of blocks share one registration. For every pointer inside there is the slab's packed key, its base and
 * the offset, which is what ucp_put_nbx and ucp_get_nbx of a peer need.
 *
 * A UCX key covers a whole slab. Tickets tell tensors apart: a ticket is of one block, and is void from the moment the
 * block is freed; a peer asks whether it still holds. README.md says what is guaranteed on which transport. */
#ifndef BERTH_UCX_H
#define BERTH_UCX_H

#include <berth/allocator.h>
#include <berth/pool.h>
#include <ucp/api/ucp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A ucp_context, its slabs and its tickets. */
typedef struct berth_ucx berth_ucx;

typedef struct berth_ucx_options {
    size_t struct_size;
    /* The program's own context, which must have UCP_FEATURE_RMA and stay until berth_ucx_destroy. If it was made without
     * mt_workers_shared, nobody may use it or its workers while another thread is in a call of Berth. NULL: one is made,
     * for several threads, with the settings of the environment (UCX_TLS and the like). */
    ucp_context_h context;
    uint64_t features; /* of a context that is made; 0: RMA, AMO64, TAG and AM */
    size_t slab_bytes; /* what a pool registers at a time, at least; 0: BERTH_UCX_SLAB_BYTES */
    /* Where memory comes from: a device's memory, huge pages, a region. Retained. It must be memory that UCX can
     * register: the host's, or CUDA's or HIP's where this UCX knows them. NULL: UCX allocates it, which is what peers of
     * the same machine reach fastest. */
    berth_allocator *memory;
} berth_ucx_options;

#define BERTH_UCX_SLAB_BYTES ((size_t)64 << 20)
#define BERTH_UCX_OPTIONS_INIT                      \
    {                                               \
        sizeof(berth_ucx_options), NULL, 0, 0, NULL \
    }

/* Loads libucp.so.0, or what BERTH_UCX_LIBRARY names, on first use. `options` may be NULL. The caller owns the result.
 * Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (no libucp, one of another version, or UCX cannot
 * register this memory), BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_ERROR with UCX's words. */
BERTH_API berth_status berth_ucx_create(const berth_ucx_options *options, berth_ucx **out);

/* Gives everything back, and the context if it was made here: workers of it must be gone before. NULL is a no-op. In the
 * child of a fork it only forgets. Any thread. BERTH_OK, BERTH_BUSY while slabs or pools live. */
BERTH_API berth_status berth_ucx_destroy(berth_ucx *ucx);

/* The context, for workers and endpoints of the program. Stays its owner's. Any thread. */
BERTH_API ucp_context_h berth_ucx_context(berth_ucx *ucx);

/* The source: each of its blocks is a slab, registered with UCX when it is allocated and no longer once it is freed. For pools
 * of the program's own (berth_pool_options.upstream). Borrowed: it lives as long as `ucx`, or as long as who retained it,
 * and then refuses. Any thread. */
BERTH_API berth_allocator *berth_ucx_source(berth_ucx *ucx);

/* A pool over the source whose frees void tickets and which the child of a fork cannot use by mistake. `options` may be NULL;
 * its upstream must be NULL, segment_bytes 0 means slabs. The caller owns one reference, and gives blocks back before the
 * last: those that are left keep `ucx` busy for ever. Any thread. Answers as
 * berth_pool_create; allocations in the child of a fork answer BERTH_DEVICE_LOST. */
BERTH_API berth_status berth_ucx_pool_create(berth_ucx *ucx, const berth_pool_options *options,
                                             berth_allocator **out);

/* What the registry finds for BERTH_NIC_COMPATIBLE, and the pool that stands behind it: made on first use with the default
 * options, never destroyed. Any thread. Answers as berth_ucx_create. */
BERTH_API berth_status berth_ucx_default(berth_ucx **out);

/* Registers "ucx" with priority 0 and the attributes BERTH_ON_HOST, BERTH_NIC_COMPATIBLE and BERTH_TRACK_SIZES. Done by itself when the library is
 * loaded; a linker drops a library that nothing is called of, so a program that only asks the registry calls this.
 * Registered already: BERTH_OK. Any thread. Answers as berth_registry_add. */
BERTH_API berth_status berth_ucx_register(void);

/* ---- Where a pointer lies ------------------------------------------------------------------------------ */

typedef struct berth_ucx_place {
    size_t struct_size;
    berth_ucx *ucx;
    void *base;            /* of the slab */
    uint64_t size_bytes;   /* of the slab */
    uint64_t offset_bytes; /* of the pointer in the slab */
    uint64_t slab;         /* its number, never used again, nor by another process */
    ucp_mem_h memory;      /* for operations of this process */
    const void *key;       /* packed: a peer hands it to ucp_ep_rkey_unpack, once a slab */
    size_t key_bytes;
} berth_ucx_place;

#define BERTH_UCX_PLACE_INIT                                        \
    {                                                               \
        sizeof(berth_ucx_place), NULL, NULL, 0, 0, 0, NULL, NULL, 0 \
    }

/* The slab of any pointer into any live slab of the process. What `out` points to is valid while the block of `p` lives. Any
 * thread. BERTH_OK, BERTH_NOT_FOUND (not memory of a slab), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_ucx_locate(const void *p, berth_ucx_place *out);

typedef struct berth_ucx_figures {
    size_t struct_size;
    uint64_t registrations; /* slabs registered so far */
    uint64_t slabs;         /* registered now */
    uint64_t slab_bytes;    /* likewise */
    uint64_t tickets;       /* that hold */
    uint64_t retired_bytes; /* address space kept back: see README.md */
    uint64_t lost_bytes;    /* address space that somebody else had taken before it could be kept back */
} berth_ucx_figures;

#define BERTH_UCX_FIGURES_INIT                      \
    {                                               \
        sizeof(berth_ucx_figures), 0, 0, 0, 0, 0, 0 \
    }

/* The caller sets out->struct_size. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_ucx_figures_get(berth_ucx *ucx, berth_ucx_figures *out);

/* ---- Tickets: the owner's side ------------------------------------------------------------------------- */

/* Writes a ticket for `size_bytes` at `offset_bytes` of a live block of a pool of berth_ucx_pool_create: bytes that a peer is
 * sent by whatever way the program has. It holds until the block is freed, reallocated or withdrawn: not where a free or
 * berth_reallocate is refused, but for the time that this takes.
 * `*ticket_bytes` is the room at `ticket` and becomes what was written, or what is needed (BERTH_OVERFLOW). One block may
 * have any number of tickets. Any thread, but not while another frees the block. BERTH_OK, BERTH_NOT_FOUND (not a live
 * block of the pool), BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_UNSUPPORTED (another kind of pool),
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_LOST (child of a fork), BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_ucx_publish(berth_allocator *pool, const void *block, size_t offset_bytes,
                                         size_t size_bytes, void *ticket, size_t *ticket_bytes);

/* Voids every ticket of a block that stays. Any thread. BERTH_OK, BERTH_NOT_FOUND. */
BERTH_API berth_status berth_ucx_withdraw(const void *block);

/* ---- Tickets: the peer's side -------------------------------------------------------------------------- */

/* An endpoint and the keys that came by it, each unpacked once. Used by one thread at a time. */
typedef struct berth_ucx_peer berth_ucx_peer;

/* For berth_ucx_peer_get and _put; rkey and address for what of UCX's is asked for past them, such as atomics. A plain value; copies are
 * as good. */
typedef struct berth_ucx_remote {
    size_t struct_size;
    uint64_t address;
    uint64_t size_bytes;
    ucp_rkey_h
        rkey;      /* the peer's; valid until berth_ucx_peer_destroy, or berth_ucx_peer_forget of its slab */
    uint64_t slab; /* these four are what berth_ucx_peer_check looks at */
    uint64_t number;
    uint64_t number_address;
    ucp_rkey_h number_rkey;
} berth_ucx_remote;

#define BERTH_UCX_REMOTE_INIT                               \
    {                                                       \
        sizeof(berth_ucx_remote), 0, 0, NULL, 0, 0, 0, NULL \
    }

/* Worker and endpoint stay the program's, and must stay until berth_ucx_peer_destroy. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_UNSUPPORTED as berth_ucx_create, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_ucx_peer_create(ucp_worker_h worker, ucp_ep_h endpoint, berth_ucx_peer **out);
/* Destroys the keys. NULL is a no-op. BERTH_OK, BERTH_BUSY while a call that timed out is still under way. */
BERTH_API berth_status berth_ucx_peer_destroy(berth_ucx_peer *peer);

/* Reads a ticket that came from the process at the endpoint. The first of a slab asks the owner whether it still holds, as
 * berth_ucx_peer_check does, before the slab's key is unpacked: UCX may crash on the key of a slab that is gone. So tickets are opened
 * soon, while the block is theirs; those of a process that has ended are not opened at all. BERTH_OK, BERTH_NOT_FOUND (void already),
 * BERTH_TIMED_OUT (open it again), BERTH_BAD_DATA (damaged, cut off, or of another version), BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_ERROR with UCX's words. */
BERTH_API berth_status berth_ucx_peer_open(berth_ucx_peer *peer, const void *ticket, size_t ticket_bytes,
                                           uint64_t timeout_ns, berth_ucx_remote *out);

/* Gets or puts `size_bytes` at `offset_bytes` of what the ticket is of, and tells whether that met the ticket's block: asks as
 * berth_ucx_peer_check does, moves the bytes, a put until the owner's memory has them, and asks again. `timeout_ns` is for the whole;
 * the worker is progressed meanwhile. BERTH_OK: it held throughout. BERTH_NOT_FOUND: the ticket was void before, and nothing was moved;
 * or, as the words then say, it became so meanwhile: what was got is worth nothing, and what was put may have met the
 * block's successor, which is for owner and peers to keep from happening. BERTH_TIMED_OUT: the bytes may still be under way, and `to` or `from` is
 * UCX's until a later get, put or check for this peer has asked and not timed out. BERTH_INVALID_ARGUMENT (also: not within the ticket), BERTH_DEVICE_ERROR
 * with UCX's words. */
BERTH_API berth_status berth_ucx_peer_get(berth_ucx_peer *peer, const berth_ucx_remote *remote,
                                          uint64_t offset_bytes, void *to, size_t size_bytes,
                                          uint64_t timeout_ns);
BERTH_API berth_status berth_ucx_peer_put(berth_ucx_peer *peer, const berth_ucx_remote *remote,
                                          uint64_t offset_bytes, const void *from, size_t size_bytes,
                                          uint64_t timeout_ns);

/* Destroys the key of one slab (berth_ucx_remote.slab), for peers that outlive many: keys are kept for the peer's life otherwise. What was
 * opened of that slab is not to be used any more; a later ticket of it is opened as a first one. BERTH_OK, BERTH_NOT_FOUND (no key of
 * it), BERTH_BUSY (as berth_ucx_peer_destroy), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_ucx_peer_forget(berth_ucx_peer *peer, uint64_t slab);

/* Asks the owner's memory whether the ticket still holds: one get of 8 bytes; the worker is progressed meanwhile, for
 * at most `timeout_ns`. Before a put it tells that the block is the ticket's; behind a get, and behind a put that was flushed, it
 * tells that they met the block. BERTH_OK, BERTH_NOT_FOUND (the block was freed or the ticket withdrawn),
 * BERTH_TIMED_OUT (ask again), BERTH_DEVICE_ERROR with UCX's words. */
BERTH_API berth_status berth_ucx_peer_check(berth_ucx_peer *peer, const berth_ucx_remote *remote,
                                            uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
