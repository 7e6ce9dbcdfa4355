/* Two processes on real UCX, over the transports that UCX_TLS names: put and get through Berth's pointers, data compared; what
 * a peer with an old ticket meets after a free, a withdrawal, a trim and a growth. */
#include "wire.h"

#include <berth/berth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TENSORS = 40, LARGEST = 3 << 20, TICKET_ROOM = 1024, SLAB = 8 << 20 };
static const uint64_t minute_ns = UINT64_C(60000000000);

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    berth_last_error()->message);                               \
            _exit(1);                                                           \
        }                                                                       \
    } while (0)

static size_t size_of(int i)
{
    return i == TENSORS - 1 ? LARGEST : (size_t)1 + (size_t)i * 7919 % 200000;
}

static void fill(unsigned char *p, size_t size_bytes, unsigned seed)
{
    for (size_t i = 0; i < size_bytes; i++)
        p[i] = (unsigned char)(i * 31 + seed + (i >> 8));
}

static bool is_filled(const unsigned char *p, size_t size_bytes, unsigned seed)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (p[i] != (unsigned char)(i * 31 + seed + (i >> 8)))
            return false;
    return true;
}

static void publish(wire *w, berth_allocator *pool, const void *block, size_t size_bytes)
{
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    CHECK(berth_ucx_publish(pool, block, 0, size_bytes, ticket, &bytes) == BERTH_OK);
    wire_send(w, ticket, bytes);
}

/* Says that it is done, and waits until the other side says so too. */
static void meet(wire *w)
{
    char word = 'x';
    wire_send(w, &word, 1);
    CHECK(wire_receive(w, &word, 1) == 1);
}

static berth_ucx *make_ucx(void)
{
    berth_ucx_options options = BERTH_UCX_OPTIONS_INIT;
    berth_ucx *ucx = NULL;
    options.slab_bytes = SLAB;
    CHECK(berth_ucx_create(&options, &ucx) == BERTH_OK);
    return ucx;
}

/* ---- The owner of the memory ---------------------------------------------------------------------------- */

static void own_data(wire *w, berth_allocator *pool)
{
    unsigned char *tensors[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        CHECK(berth_allocate(pool, size_of(i), 64, NULL, (void **)&tensors[i]) == BERTH_OK);
        fill(tensors[i], size_of(i), (unsigned)i);
        publish(w, pool, tensors[i], size_of(i));
    }
    meet(w); /* the peer has got all, then put others */
    for (int i = 0; i < TENSORS; i++) {
        CHECK(is_filled(tensors[i], size_of(i), 1000u + (unsigned)i));
        CHECK(berth_deallocate(pool, tensors[i], size_of(i), NULL) == BERTH_OK);
    }
    meet(w);
}

/* A freed block's place goes to another tensor of the same slab: the old ticket is void, the new one holds. */
static void own_reuse(wire *w, berth_allocator *pool)
{
    void *first = NULL, *second = NULL;
    CHECK(berth_allocate(pool, LARGEST, 64, NULL, &first) == BERTH_OK);
    publish(w, pool, first, LARGEST);
    meet(w);
    CHECK(berth_deallocate(pool, first, LARGEST, NULL) == BERTH_OK);
    CHECK(berth_allocate(pool, LARGEST, 64, NULL, &second) == BERTH_OK);
    memset(second, 7, LARGEST);
    publish(w, pool, second, LARGEST);
    meet(w);
    CHECK(berth_ucx_withdraw(second) == BERTH_OK);
    meet(w);
    CHECK(berth_deallocate(pool, second, LARGEST, NULL) == BERTH_OK);
}

/* A slab that has gone back, with the tensor's key at the peer, and then growth: whatever the peer writes by the old key, no
 * tensor of the new slabs is touched. */
static void own_trim(wire *w, berth_ucx *ucx, berth_allocator *pool)
{
    enum { NEW_SLABS = 6 };
    berth_ucx_figures figures = BERTH_UCX_FIGURES_INIT;
    void *old = NULL, *fresh[NEW_SLABS];
    CHECK(berth_allocate(pool, SLAB, 64, NULL, &old) == BERTH_OK);
    memset(old, 5, SLAB);
    publish(w, pool, old, SLAB);
    meet(w);
    CHECK(berth_deallocate(pool, old, SLAB, NULL) == BERTH_OK);
    CHECK(berth_trim(pool, 0, NULL) == BERTH_OK);
    CHECK(berth_ucx_figures_get(ucx, &figures) == BERTH_OK && figures.slabs == 0);
    CHECK(figures.retired_bytes >= SLAB && figures.lost_bytes == 0);
    for (int i = 0; i < NEW_SLABS; i++) {
        CHECK(berth_allocate(pool, SLAB, 64, NULL, &fresh[i]) == BERTH_OK);
        CHECK((char *)fresh[i] + SLAB <= (char *)old || (char *)fresh[i] >= (char *)old + SLAB);
        memset(fresh[i], i, SLAB);
    }
    meet(w);
    meet(w); /* the peer has written by its old key */
    for (int i = 0; i < NEW_SLABS; i++) {
        const unsigned char *bytes = fresh[i];
        for (size_t at = 0; at < SLAB; at++)
            CHECK(bytes[at] == (unsigned char)i);
        CHECK(berth_deallocate(pool, fresh[i], SLAB, NULL) == BERTH_OK);
    }
}

/* A ticket that comes when its slab has gone back. */
static void own_late(wire *w, berth_ucx *ucx, berth_allocator *pool)
{
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    berth_ucx_figures figures = BERTH_UCX_FIGURES_INIT;
    void *block = NULL;
    CHECK(berth_allocate(pool, 2 * SLAB, 64, NULL, &block) == BERTH_OK);
    CHECK(berth_ucx_publish(pool, block, 0, 2 * SLAB, ticket, &bytes) == BERTH_OK);
    CHECK(berth_deallocate(pool, block, 2 * SLAB, NULL) == BERTH_OK);
    CHECK(berth_trim(pool, 0, NULL) == BERTH_OK);
    CHECK(berth_ucx_figures_get(ucx, &figures) == BERTH_OK && figures.slabs == 0);
    wire_send(w, ticket, bytes);
    meet(w);
}

static int own(int socket)
{
    wire w;
    berth_allocator *pool = NULL;
    berth_ucx *ucx = make_ucx();
    CHECK(berth_ucx_pool_create(ucx, NULL, &pool) == BERTH_OK);
    wire_open(&w, berth_ucx_context(ucx), socket);
    own_data(&w, pool);
    own_reuse(&w, pool);
    own_trim(&w, ucx, pool);
    own_late(&w, ucx, pool);
    wire_close(&w);
    berth_allocator_release(pool);
    CHECK(berth_ucx_destroy(ucx) == BERTH_OK);
    return 0;
}

/* ---- The peer ------------------------------------------------------------------------------------------ */

static berth_ucx_remote open_next(wire *w, berth_ucx_peer *peer)
{
    char ticket[TICKET_ROOM];
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    size_t bytes = wire_receive(w, ticket, sizeof ticket);
    CHECK(berth_ucx_peer_open(peer, ticket, bytes - 1, minute_ns, &remote) == BERTH_BAD_DATA);
    ticket[0] ^= 1;
    CHECK(berth_ucx_peer_open(peer, ticket, bytes, minute_ns, &remote) == BERTH_BAD_DATA);
    ticket[0] ^= 1;
    CHECK(berth_ucx_peer_open(peer, ticket, bytes, minute_ns, &remote) == BERTH_OK);
    return remote;
}

static void use_data(wire *w, berth_ucx_peer *peer, unsigned char *buffer)
{
    berth_ucx_remote remotes[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        remotes[i] = open_next(w, peer);
        CHECK(remotes[i].size_bytes == size_of(i));
        CHECK(i == 0 || remotes[i].rkey == remotes[0].rkey); /* one slab, one key */
        CHECK(berth_ucx_peer_get(peer, &remotes[i], 0, buffer, size_of(i), minute_ns) == BERTH_OK);
        CHECK(is_filled(buffer, size_of(i), (unsigned)i));
        fill(buffer, size_of(i), 1000u + (unsigned)i);
        CHECK(berth_ucx_peer_put(peer, &remotes[i], 0, buffer, size_of(i), minute_ns) == BERTH_OK);
    }
    meet(w);
    meet(w);
    for (int i = 0; i < TENSORS; i++)
        CHECK(berth_ucx_peer_put(peer, &remotes[i], 0, buffer, 1, minute_ns) == BERTH_NOT_FOUND);
}

static void use_reuse(wire *w, berth_ucx_peer *peer, unsigned char *buffer)
{
    berth_ucx_remote old = open_next(w, peer);
    CHECK(berth_ucx_peer_check(peer, &old, minute_ns) == BERTH_OK);
    meet(w);
    berth_ucx_remote fresh = open_next(w, peer);
    CHECK(berth_ucx_peer_check(peer, &old, minute_ns) == BERTH_NOT_FOUND);
    CHECK(berth_ucx_peer_check(peer, &fresh, minute_ns) == BERTH_OK);
    CHECK(berth_ucx_peer_get(peer, &old, 0, buffer, LARGEST, minute_ns) == BERTH_NOT_FOUND);
    CHECK(berth_ucx_peer_get(peer, &fresh, LARGEST - 1, buffer, 1, minute_ns) == BERTH_OK && buffer[0] == 7);
    CHECK(wire_get(w, buffer, LARGEST, fresh.address, fresh.rkey) == UCS_OK && buffer[LARGEST - 1] == 7);
    meet(w);
    meet(w);
    CHECK(berth_ucx_peer_check(peer, &fresh, minute_ns) == BERTH_NOT_FOUND);
}

static void use_trim(wire *w, berth_ucx_peer *peer, unsigned char *buffer)
{
    berth_ucx_remote old = open_next(w, peer);
    meet(w);
    meet(w);
    memset(buffer, 0xee, LARGEST);
    CHECK(berth_ucx_peer_put(peer, &old, 0, buffer, LARGEST, minute_ns) == BERTH_NOT_FOUND);
    CHECK(wire_put(w, buffer, LARGEST, old.address, old.rkey) == UCS_OK); /* against the rules */
    CHECK(berth_ucx_peer_forget(peer, old.slab) == BERTH_OK);
    meet(w);
}

/* UCX 1.13 crashes over shared memory on the key of a slab that is gone: the owner is asked before it is unpacked. */
static void use_late(wire *w, berth_ucx_peer *peer)
{
    char ticket[TICKET_ROOM];
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    size_t bytes = wire_receive(w, ticket, sizeof ticket);
    CHECK(berth_ucx_peer_open(peer, ticket, bytes, minute_ns, &remote) == BERTH_NOT_FOUND);
    CHECK(!remote.rkey && remote.size_bytes == 0);
    meet(w);
}

static int use(int socket)
{
    wire w;
    berth_ucx_peer *peer = NULL;
    berth_ucx *ucx = make_ucx();
    unsigned char *buffer = malloc(LARGEST);
    CHECK(buffer);
    wire_open(&w, berth_ucx_context(ucx), socket);
    CHECK(berth_ucx_peer_create(w.worker, w.endpoint, &peer) == BERTH_OK);
    use_data(&w, peer, buffer);
    use_reuse(&w, peer, buffer);
    use_trim(&w, peer, buffer);
    use_late(&w, peer);
    CHECK(berth_ucx_peer_destroy(peer) == BERTH_OK);
    wire_close(&w);
    free(buffer);
    CHECK(berth_ucx_destroy(ucx) == BERTH_OK);
    return 0;
}

int main(void)
{
    int ends[2], state = 0;
    alarm(120); /* both sides: nothing here waits for ever */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork(); /* before anything of UCX */
    CHECK(child >= 0);
    alarm(120);
    if (child == 0) {
        close(ends[1]);
        return use(ends[0]);
    }
    close(ends[0]);
    int mine = own(ends[1]);
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    if (mine == 0)
        printf("put and get over %s: data right, old tickets void\n",
               getenv("UCX_TLS") ? getenv("UCX_TLS") : "all");
    return mine;
}
