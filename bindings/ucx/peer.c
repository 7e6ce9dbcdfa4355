/* Tickets, on the side of the peer: keys unpacked once for each slab, and the question whether a ticket still holds. */
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
    peer_key *keys;  /* few: one a slab */
    void *under_way; /* a get into `seen` that outlived its check; NULL: none */
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

berth_status berth_ucx_peer_destroy(berth_ucx_peer *peer)
{
    if (!peer)
        return BERTH_OK;
    if (peer->under_way && bucx_call.ucp_request_check_status(peer->under_way) == UCS_INPROGRESS)
        return berth_fail(
            BERTH_BUSY,
            "a check is under way: progress the worker until it has come, or its endpoint failed");
    if (peer->under_way)
        bucx_call.ucp_request_free(peer->under_way);
    for (peer_key *key = peer->keys, *next; key; key = next) {
        next = key->next;
        bucx_call.ucp_rkey_destroy(key->rkey);
        free(key);
    }
    free(peer);
    return BERTH_OK;
}

/* ---- Reading a ticket --------------------------------------------------------------------------------- */

static berth_status find_key(berth_ucx_peer *peer, uint64_t of, const void *packed, ucp_rkey_h *out)
{
    peer_key *key = peer->keys;
    while (key && key->of != of)
        key = key->next;
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
        key->next = peer->keys;
        peer->keys = key;
    }
    *out = key->rkey;
    return BERTH_OK;
}

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

berth_status berth_ucx_peer_open(berth_ucx_peer *peer, const void *ticket, size_t ticket_bytes,
                                 berth_ucx_remote *out)
{
    bucx_ticket_head head;
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    if (!peer || !ticket || !out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "opening a ticket needs a peer, the ticket and a remote's struct_size");
    berth_status status = read_head(ticket, ticket_bytes, &head);
    const char *keys = (const char *)ticket + sizeof head;
    if (!status)
        status = find_key(peer, head.slab, keys, &remote.rkey);
    if (!status)
        status = find_key(peer, head.table, keys + head.key_bytes, &remote.number_rkey);
    if (status)
        return status;
    remote.address = head.address;
    remote.size_bytes = head.size_bytes;
    remote.slab = head.slab;
    remote.number = head.number;
    remote.number_address = head.number_address;
    *out = remote;
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

static ucs_status_t read_number(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t end_ns)
{
    ucp_request_param_t params = {.op_attr_mask = 0};
    if (peer->under_way) { /* an older question; its answer may be of another ticket */
        ucs_status_t code = wait_for(peer, end_ns);
        if (code != UCS_OK)
            return code;
    }
    void *request = bucx_call.ucp_get_nbx(peer->endpoint, &peer->seen, sizeof peer->seen,
                                          remote->number_address, remote->number_rkey, &params);
    if (!request)
        return UCS_OK;
    if (UCS_PTR_IS_ERR(request))
        return UCS_PTR_RAW_STATUS(request);
    peer->under_way = request;
    return wait_for(peer, end_ns);
}

berth_status berth_ucx_peer_check(berth_ucx_peer *peer, const berth_ucx_remote *remote, uint64_t timeout_ns)
{
    if (!peer || !remote || remote->struct_size < sizeof *remote || !remote->number_rkey)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a check needs a peer and what berth_ucx_peer_open gave");
    uint64_t now = clock_ns();
    ucs_status_t code =
        read_number(peer, remote, timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX);
    if (code == UCS_INPROGRESS)
        return berth_fail(BERTH_TIMED_OUT,
                          "the owner of the memory did not answer in time; does it progress its worker?");
    if (code != UCS_OK)
        return bucx_fail(code, "asking whether a ticket holds");
    if (peer->seen != remote->number)
        return berth_fail(BERTH_NOT_FOUND, "the ticket is void: its block was freed, moved or withdrawn");
    return BERTH_OK;
}
