/* Tickets, on the side of the peer: keys unpacked once for each slab, the question whether a ticket still holds, and gets and puts
 * between two such questions. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

typedef struct peer_key {
    struct peer_key *next;
    uint64_t of; /* number of a slab or a table; those are never used twice */
    ucp_rkey_h rkey;
} peer_key;

struct berth_ucx_peer {
    ucp_worker_h worker;
    ucp_ep_h endpoint;
    peer_key *keys;  /* few: one a slab, the last used first */
    void *under_way; /* a request that outlived its call; NULL: none */
    uint64_t seen;
};

berth_status berth_ucx_peer_create(ucp_worker_h worker, ucp_ep_h endpoint, berth_ucx_peer **out)
{
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no place for the peer: out is NULL");
    *out = NULL;
    if (!worker || !endpoint)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a peer needs a worker and an endpoint");
    berth_status status = bucx_load();
    if (status)
        return status;
    berth_ucx_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a peer");
    peer->worker = worker;
    peer->endpoint = endpoint;
    *out = peer;
    return BERTH_OK;
}

/* Keys may be what a request under way needs. */
static berth_status check_idle(berth_ucx_peer *peer)
{
    if (!peer->under_way)
        return BERTH_OK;
    if (bucx_call.ucp_request_check_status(peer->under_way) == UCS_INPROGRESS)
        return berth_fail(
            BERTH_BUSY, "a call is under way: progress the worker until it has come, or its endpoint failed");
    bucx_call.ucp_request_free(peer->under_way);
    peer->under_way = NULL;
    return BERTH_OK;
}

static void key_free(peer_key *key)
{
    bucx_call.ucp_rkey_destroy(key->rkey);
    free(key);
}

berth_status berth_ucx_peer_destroy(berth_ucx_peer *peer)
{
    berth_status status = peer ? check_idle(peer) : BERTH_OK;
    if (!peer || status)
        return status;
    for (peer_key *key = peer->keys, *next; key; key = next) {
        next = key->next;
        key_free(key);
    }
    free(peer);
    return BERTH_OK;
}

/* ---- Keys --------------------------------------------------------------------------------------------- */

/* Takes it out of the list; NULL: there is none. */
static peer_key *take_key(berth_ucx_peer *peer, uint64_t of)
{
    peer_key **link = &peer->keys;
    while (*link && (*link)->of != of)
        link = &(*link)->next;
    peer_key *key = *link;
    if (key)
        *link = key->next;
    return key;
}

berth_status berth_ucx_peer_forget(berth_ucx_peer *peer, uint64_t slab)
{
    if (!peer)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no peer to forget a slab for");
    berth_status status = check_idle(peer);
    if (status)
        return status;
    peer_key *key = take_key(peer, slab);
    if (!key)
        return berth_fail(BERTH_NOT_FOUND, "no ticket of slab %llu was opened", (unsigned long long)slab);
    key_free(key);
    return BERTH_OK;
}

/* The last used goes to the front: tickets come slab by slab. */
static berth_status find_key(berth_ucx_peer *peer, uint64_t of, const void *packed, ucp_rkey_h *out)
{
    peer_key *key = take_key(peer, of);
    if (!key) {
        key = malloc(sizeof *key);
        if (!key)
            return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a peer's key");
        ucs_status_t code = bucx_call.ucp_ep_rkey_unpack(peer->endpoint, packed, &key->rkey);
        if (code != UCS_OK) {
            free(key);
            return bucx_fail(code, "unpacking a remote key");
        }
        key->of = of;
    }
    key->next = peer->keys;
    peer->keys = key;
    *out = key->rkey;
    return BERTH_OK;
}

/* ---- Reading a ticket --------------------------------------------------------------------------------- */

/* UCX trusts a packed key, so as much as can be seen from outside is looked at here. */
static berth_status read_head(const void *ticket, size_t ticket_bytes, bucx_ticket_head *head)
{
    if (ticket_bytes < sizeof *head)
        return berth_fail(BERTH_BAD_DATA, "%zu bytes are no ticket: they are cut off", ticket_bytes);
    memcpy(head, ticket, sizeof *head);
    if (head->magic != BUCX_MAGIC)
        return berth_fail(BERTH_BAD_DATA, "this is no ticket, or one of another version of Berth or machine");
    if (!head->key_bytes || !head->table_key_bytes || !head->number ||
        ticket_bytes - sizeof *head != (uint64_t)head->key_bytes + head->table_key_bytes)
        return berth_fail(BERTH_BAD_DATA, "a ticket of %zu bytes is damaged or cut off", ticket_bytes);
    return BERTH_OK;
}

/* ---- Does it hold? ------------------------------------------------------------------------------------ */

static uint64_t clock_ns(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Until the request is done: UCS_INPROGRESS when time is up, and it stays. */
static ucs_status_t wait_for(berth_ucx_peer *peer, uint64_t end_ns)
{
    ucs_status_t code = bucx_call.ucp_request_check_status(peer->under_way);
    while (code == UCS_INPROGRESS) {
        const bool is_idle = bucx_call.ucp_worker_progress(peer->worker) == 0;
        code = bucx_call.ucp_request_check_status(peer->under_way);
        if (code != UCS_INPROGRESS)
            break;
        if (clock_ns() >= end_ns) /* however busy the worker is: that may be all with others */
            return UCS_INPROGRESS;
        if (is_idle)
            sched_yield(); /* the other side may need this processor */
    }
    bucx_call.ucp_request_free(peer->under_way);
    peer->under_way = NULL;
    return code;
}

static uint64_t end_of(uint64_t timeout_ns)
{
    const uint64_t now = clock_ns();
    return timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
}

/* What a call of UCX has started; one at a time is under way. */
static ucs_status_t finish_request(berth_ucx_peer *peer, void *request, uint64_t end_ns)
{
    if (!request)
        return UCS_OK;
    if (UCS_PTR_IS_ERR(request))
        return UCS_PTR_RAW_STATUS(request);
    peer->under_way = request;
    return wait_for(peer, end_ns);
}

static berth_status tell(ucs_status_t code, const char *what)
{
    if (code == UCS_OK)
        return BERTH_OK;
    if (code != UCS_INPROGRESS)
        return bucx_fail(code, what);
    return berth_fail(BERTH_TIMED_OUT,
                      "%s: the owner of the memory did not answer in time; does it progress its worker?",
                      what);
}

static ucs_status_t read_number(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t end_ns)
{
    const ucp_request_param_t params = {.op_attr_mask = 0};
    if (peer->under_way) { /* of an older call; its answer may be of another ticket */
        ucs_status_t code = wait_for(peer, end_ns);
        if (code != UCS_OK)
            return code;
    }
    return finish_request(peer,
                          bucx_call.ucp_get_nbx(peer->endpoint, &peer->seen, sizeof peer->seen,
                                                remote->number_address, remote->number_rkey, &params),
                          end_ns);
}

static berth_status ask(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t end_ns)
{
    berth_status status = tell(read_number(peer, remote, end_ns), "asking whether a ticket holds");
    if (!status && peer->seen != remote->number)
        status = berth_fail(BERTH_NOT_FOUND, "the ticket is void: its block was freed, moved or withdrawn");
    return status;
}

static berth_status check_remote(const berth_ucx_peer *peer, const berth_ucx_remote *remote)
{
    return peer && remote && remote->struct_size >= sizeof *remote && remote->number_rkey && remote->rkey
               ? BERTH_OK
               : berth_fail(BERTH_INVALID_ARGUMENT,
                            "there must be a peer, and what berth_ucx_peer_open gave");
}

berth_status berth_ucx_peer_check(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t timeout_ns)
{
    berth_status status = check_remote(peer, remote);
    return status ? status : ask(peer, remote, end_of(timeout_ns));
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

static bool has_key(const berth_ucx_peer *peer, uint64_t of)
{
    const peer_key *key = peer->keys;
    while (key && key->of != of)
        key = key->next;
    return key != NULL;
}

/* The table's key first, and by it the question: of a slab that is gone UCX 1.13 does not only refuse the key over shared memory, it
 * crashes while it cleans up. Tables stay as long as their owner. */
static berth_status open_keys(berth_ucx_peer *peer, const bucx_ticket_head *head, const char *keys,
                              uint64_t timeout_ns, berth_ucx_remote *remote)
{
    berth_status status = find_key(peer, head->table, keys + head->key_bytes, &remote->number_rkey);
    if (!status && !has_key(peer, head->slab))
        status = ask(peer, remote, end_of(timeout_ns));
    return status ? status : find_key(peer, head->slab, keys, &remote->rkey);
}

berth_status berth_ucx_peer_open(berth_ucx_peer *peer, const void *ticket, size_t ticket_bytes,
                                 uint64_t timeout_ns, berth_ucx_remote *out)
{
    bucx_ticket_head head;
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    if (!peer || !ticket || !out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "opening a ticket needs a peer, the ticket and a remote's struct_size");
    berth_status status = read_head(ticket, ticket_bytes, &head);
    if (status)
        return status;
    remote.address = head.address;
    remote.size_bytes = head.size_bytes;
    remote.slab = head.slab;
    remote.number = head.number;
    remote.number_address = head.number_address;
    status = open_keys(peer, &head, (const char *)ticket + sizeof head, timeout_ns, &remote);
    if (!status)
        *out = remote;
    return status;
}

/* ---- Getting and putting ------------------------------------------------------------------------------ */

static berth_status check_move(const berth_ucx_peer *peer, const berth_ucx_remote *remote,
                               uint64_t offset_bytes, const void *local, size_t size_bytes)
{
    berth_status status = check_remote(peer, remote);
    if (status)
        return status;
    if (!local && size_bytes)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "there is no memory to move %zu bytes from or to: it is NULL", size_bytes);
    if (offset_bytes > remote->size_bytes || size_bytes > remote->size_bytes - offset_bytes)
        return berth_fail(BERTH_INVALID_ARGUMENT, "%zu bytes at %llu are not in a ticket of %llu bytes",
                          size_bytes, (unsigned long long)offset_bytes,
                          (unsigned long long)remote->size_bytes);
    return BERTH_OK;
}

/* The number goes before the block does: what still stands there afterwards stood there all the time. */
static berth_status ask_again(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t end_ns)
{
    berth_status status = ask(peer, remote, end_ns);
    return status == BERTH_NOT_FOUND
               ? berth_fail(BERTH_NOT_FOUND,
                            "the ticket became void while bytes were moved: they may be another block's")
               : status;
}

berth_status berth_ucx_peer_get(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t offset_bytes,
                                void *to, size_t size_bytes, uint64_t timeout_ns)
{
    const ucp_request_param_t params = {.op_attr_mask = 0};
    const uint64_t end_ns = end_of(timeout_ns);
    berth_status status = check_move(peer, remote, offset_bytes, to, size_bytes);
    if (!status)
        status = ask(peer, remote, end_ns);
    if (status || size_bytes == 0)
        return status;
    void *request = bucx_call.ucp_get_nbx(peer->endpoint, to, size_bytes, remote->address + offset_bytes,
                                          remote->rkey, &params);
    status = tell(finish_request(peer, request, end_ns), "getting bytes");
    return status ? status : ask_again(peer, remote, end_ns);
}

berth_status berth_ucx_peer_put(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t offset_bytes,
                                const void *from, size_t size_bytes, uint64_t timeout_ns)
{
    const ucp_request_param_t params = {.op_attr_mask = 0};
    const uint64_t end_ns = end_of(timeout_ns);
    berth_status status = check_move(peer, remote, offset_bytes, from, size_bytes);
    if (!status)
        status = ask(peer, remote, end_ns);
    if (status || size_bytes == 0)
        return status;
    void *request = bucx_call.ucp_put_nbx(peer->endpoint, from, size_bytes, remote->address + offset_bytes,
                                          remote->rkey, &params);
    status = tell(finish_request(peer, request, end_ns), "putting bytes");
    if (!status) /* done here is not done there */
        status = tell(finish_request(peer, bucx_call.ucp_ep_flush_nbx(peer->endpoint, &params), end_ns),
                      "flushing a put");
    return status ? status : ask_again(peer, remote, end_ns);
}
