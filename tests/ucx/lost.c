/* An owner that is killed while a peer reads from it. Over tcp, by an endpoint that is told of it (UCP_ERR_HANDLING_MODE_PEER), the peer
 * gets UCX's words, and all of it can be let go. Shared memory has no such endpoint: what the owner left stays with who maps it. */
#include "wire.h"

#include <berth/berth.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 300000, TICKET_ROOM = 1024, ROUNDS = 3 };
static const uint64_t minute_ns = UINT64_C(60000000000);

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    berth_last_error()->message);                               \
            abort();                                                            \
        }                                                                       \
    } while (0)

static void own(int socket, bool is_watched)
{
    wire w;
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    void *block = NULL;
    berth_ucx *ucx = NULL;
    berth_allocator *pool = NULL;
    CHECK(berth_ucx_create(NULL, &ucx) == BERTH_OK && berth_ucx_pool_create(ucx, NULL, &pool) == BERTH_OK);
    (is_watched ? wire_open_watched : wire_open)(&w, berth_ucx_context(ucx), socket);
    CHECK(berth_allocate(pool, BYTES, 64, NULL, &block) == BERTH_OK);
    memset(block, 5, BYTES);
    CHECK(berth_ucx_publish(pool, block, 0, BYTES, ticket, &bytes) == BERTH_OK);
    wire_send(&w, ticket, bytes);
    (void)wire_receive(&w, ticket, sizeof ticket); /* progresses, and is killed here */
}

static void use(wire *w, pid_t owner, bool is_watched)
{
    char ticket[TICKET_ROOM];
    static unsigned char part[BYTES];
    berth_ucx_peer *peer = NULL;
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    CHECK(berth_ucx_peer_create(w->worker, w->endpoint, &peer) == BERTH_OK);
    size_t bytes = wire_receive(w, ticket, sizeof ticket);
    CHECK(berth_ucx_peer_open(peer, ticket, bytes, minute_ns, &remote) == BERTH_OK);
    for (int i = 0; i < ROUNDS; i++)
        CHECK(berth_ucx_peer_get(peer, &remote, 0, part, BYTES, minute_ns) == BERTH_OK &&
              part[BYTES - 1] == 5);
    CHECK(kill(owner, SIGKILL) == 0 && waitpid(owner, NULL, 0) == owner);
    for (int i = 0; i < ROUNDS; i++) {
        memset(part, 0, BYTES);
        berth_status status = berth_ucx_peer_get(peer, &remote, 0, part, BYTES, minute_ns);
        CHECK(is_watched ? status == BERTH_DEVICE_ERROR : status == BERTH_OK && part[BYTES - 1] == 5);
        CHECK(!is_watched || strstr(berth_last_error()->message, "UCX says"));
        status = berth_ucx_peer_put(peer, &remote, 0, part, BYTES, minute_ns);
        CHECK(status == (is_watched ? BERTH_DEVICE_ERROR : BERTH_OK));
    }
    CHECK(berth_ucx_peer_destroy(peer) == BERTH_OK);
}

int main(int argc, char **argv)
{
    const bool is_watched = argc > 1 && strcmp(argv[1], "watched") == 0;
    int ends[2];
    wire w;
    berth_ucx *ucx = NULL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t owner = fork(); /* before anything of UCX */
    CHECK(owner >= 0);
    alarm(60); /* both sides: nothing here waits for ever */
    if (owner == 0) {
        own(ends[0], is_watched);
        return 1;
    }
    CHECK(berth_ucx_create(NULL, &ucx) == BERTH_OK);
    (is_watched ? wire_open_watched : wire_open)(&w, berth_ucx_context(ucx), ends[1]);
    use(&w, owner, is_watched);
    ucp_worker_destroy(w.worker);
    CHECK(berth_ucx_destroy(ucx) == BERTH_OK);
    printf("an owner that was killed: %s\n", is_watched ? berth_last_error()->message : "its memory stays");
    return 0;
}
