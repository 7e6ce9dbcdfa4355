/* Tensors that another process reads and writes without asking: two processes, UCX between them (UCX_TLS=tcp,self for sockets,
 * sm,self for shared memory), and memory from a pool whose slab was registered once.
 *
 * The owner allocates, publishes and frees; the peer gets, adds one and puts, and meets a ticket that is void. */
#include <berth/berth.h>
#include <berth_ucx.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS = 1265, FLOATS = 4000, TICKET_ROOM = 1024 };
static const uint64_t ten_seconds = UINT64_C(10000000000);

static int line; /* a socket to the other process, for what is not one-sided */
static ucp_worker_h worker;
static ucp_ep_h endpoint;

static void expect(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s failed: %s\n", what, berth_last_error()->message);
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void progress(void)
{
    if (!ucp_worker_progress(worker))
        sched_yield(); /* the other process may need this processor */
}

/* ---- Words between the two ------------------------------------------------------------------------------- */

static void say(const void *data, size_t size_bytes)
{
    char message[TICKET_ROOM + sizeof size_bytes];
    expect(size_bytes <= TICKET_ROOM, "a message of that size");
    memcpy(message, &size_bytes, sizeof size_bytes);
    memcpy(message + sizeof size_bytes, data, size_bytes);
    expect(send(line, message, size_bytes + sizeof size_bytes, MSG_NOSIGNAL) > 0, "sending");
}

static void hear_bytes(void *data, size_t size_bytes)
{
    for (char *at = data; size_bytes;) {
        ssize_t got = recv(line, at, size_bytes, MSG_DONTWAIT);
        expect(got != 0, "hearing from the other process");
        if (got < 0) {
            progress(); /* over sockets UCX needs the owner's processor now and then */
            continue;
        }
        at += got;
        size_bytes -= (size_t)got;
    }
}

static size_t hear(void *data, size_t room)
{
    size_t size_bytes = 0;
    hear_bytes(&size_bytes, sizeof size_bytes);
    expect(size_bytes <= room, "a message of that size");
    hear_bytes(data, size_bytes);
    return size_bytes;
}

static void meet(void)
{
    char word = 0;
    say(&word, 1);
    hear(&word, 1);
}

/* ---- UCX, as any program uses it ---------------------------------------------------------------------------- */

static void finish(void *request)
{
    expect(!UCS_PTR_IS_ERR(request), "an operation of UCX");
    if (!request)
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        progress();
    expect(ucp_request_check_status(request) == UCS_OK, "an operation of UCX");
    ucp_request_free(request);
}

static const ucp_request_param_t plain; /* no options */

static void connect_both(berth_ucx *ucx)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_address_t *mine = NULL;
    size_t bytes = 0;
    char theirs[TICKET_ROOM];
    expect(ucp_worker_create(berth_ucx_context(ucx), &params, &worker) == UCS_OK, "ucp_worker_create");
    expect(ucp_worker_get_address(worker, &mine, &bytes) == UCS_OK, "ucp_worker_get_address");
    say(mine, bytes);
    ucp_worker_release_address(worker, mine);
    hear(theirs, sizeof theirs);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                          .address = (const ucp_address_t *)(const void *)theirs};
    expect(ucp_ep_create(worker, &to, &endpoint) == UCS_OK, "ucp_ep_create");
}

static void disconnect(void)
{
    meet();
    finish(ucp_ep_close_nbx(endpoint, &plain));
    meet();
    ucp_worker_destroy(worker);
}

/* ---- The owner ------------------------------------------------------------------------------------------------ */

static void register_one_by_one(ucp_context_h context)
{
    static ucp_mem_h handles[TENSORS];
    static char memory[TENSORS][FLOATS * sizeof(float)];
    double began = now_us();
    for (int i = 0; i < TENSORS; i++) {
        ucp_mem_map_params_t params = {.field_mask =
                                           UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                       .address = memory[i],
                                       .length = sizeof memory[i]};
        expect(ucp_mem_map(context, &params, &handles[i]) == UCS_OK, "ucp_mem_map");
    }
    printf("%-40s %5d registrations, %8.0f us\n", "without Berth, tensor by tensor", TENSORS,
           now_us() - began);
    for (int i = 0; i < TENSORS; i++)
        ucp_mem_unmap(context, handles[i]);
}

static void own_tensors(berth_ucx *ucx, berth_allocator *pool, float **tensors)
{
    berth_ucx_figures figures = {.struct_size = sizeof figures};
    double began = now_us();
    for (int i = 0; i < TENSORS; i++)
        expect(berth_allocate(pool, FLOATS * sizeof(float), 64, NULL, (void **)&tensors[i]) == BERTH_OK,
               "allocating");
    double took = now_us() - began;
    expect(berth_ucx_figures_get(ucx, &figures) == BERTH_OK, "figures");
    printf("%-40s %5llu registrations, %8.0f us\n", "from Berth's pool, memory included",
           (unsigned long long)figures.registrations, took);
    for (int i = 0; i < TENSORS; i++)
        for (int j = 0; j < FLOATS; j++)
            tensors[i][j] = (float)(i + j);
}

static void own_exchange(berth_allocator *pool, float **tensors)
{
    char ticket[TICKET_ROOM];
    for (int i = 0; i < TENSORS; i++) {
        size_t bytes = sizeof ticket;
        expect(berth_ucx_publish(pool, tensors[i], 0, FLOATS * sizeof(float), ticket, &bytes) == BERTH_OK,
               "a ticket");
        say(ticket, bytes);
        hear(ticket, sizeof ticket); /* the peer has it */
    }
    meet(); /* the peer has added one everywhere */
    long wrong = 0;
    for (int i = 0; i < TENSORS; i++)
        for (int j = 0; j < FLOATS; j++)
            wrong += tensors[i][j] != (float)(i + j + 1);
    printf("%d tensors got, changed and put by the other process: %s\n", TENSORS,
           wrong ? "WRONG" : "all right");
    expect(!wrong, "the exchange");
}

static void show_place(const float *tensor)
{
    berth_ucx_place place = BERTH_UCX_PLACE_INIT;
    expect(berth_ucx_locate(tensor + 7, &place) == BERTH_OK, "locating");
    printf("a pointer into tensor 3: slab of %llu MiB, offset %llu, key of %zu bytes\n",
           (unsigned long long)place.size_bytes >> 20, (unsigned long long)place.offset_bytes,
           place.key_bytes);
}

static void own(void)
{
    static float *tensors[TENSORS];
    berth_ucx *ucx = NULL;
    berth_allocator *pool = NULL;
    /* A program that needs no context of its own asks the registry: berth_registry_best_for(BERTH_NIC_COMPATIBLE, &pool). */
    expect(berth_ucx_create(NULL, &ucx) == BERTH_OK, "UCX");
    expect(berth_ucx_pool_create(ucx, NULL, &pool) == BERTH_OK, "a pool");
    connect_both(ucx);
    register_one_by_one(berth_ucx_context(ucx));
    own_tensors(ucx, pool, tensors);
    own_exchange(pool, tensors);
    show_place(tensors[3]);
    for (int i = 0; i < TENSORS; i++)
        expect(berth_deallocate(pool, tensors[i], 0, NULL) == BERTH_OK, "freeing");
    meet();
    disconnect();
    berth_allocator_release(pool);
    expect(berth_ucx_destroy(ucx) == BERTH_OK, "the end");
}

/* ---- The peer -------------------------------------------------------------------------------------------------- */

static void change(berth_ucx_peer *peer, const berth_ucx_remote *remote)
{
    static float values[FLOATS];
    expect(berth_ucx_peer_get(peer, remote, 0, values, sizeof values, ten_seconds) == BERTH_OK, "a get");
    for (int j = 0; j < FLOATS; j++)
        values[j] += 1;
    expect(berth_ucx_peer_put(peer, remote, 0, values, sizeof values, ten_seconds) == BERTH_OK, "a put");
}

static void use(void)
{
    berth_ucx *ucx = NULL;
    berth_ucx_peer *peer = NULL;
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    char ticket[TICKET_ROOM];
    expect(berth_ucx_create(NULL, &ucx) == BERTH_OK, "UCX");
    connect_both(ucx);
    expect(berth_ucx_peer_create(worker, endpoint, &peer) == BERTH_OK, "a peer");
    for (int i = 0; i < TENSORS; i++) {
        size_t bytes = hear(ticket, sizeof ticket);
        expect(berth_ucx_peer_open(peer, ticket, bytes, ten_seconds, &remote) == BERTH_OK,
               "opening a ticket");
        change(peer, &remote);
        say(ticket, 1);
    }
    meet();
    meet(); /* the owner has freed them */
    expect(berth_ucx_peer_put(peer, &remote, 0, ticket, 1, ten_seconds) == BERTH_NOT_FOUND,
           "an old ticket is void");
    printf("the other process afterwards: %s\n", berth_last_error()->message);
    expect(berth_ucx_peer_destroy(peer) == BERTH_OK, "leaving");
    disconnect();
    expect(berth_ucx_destroy(ucx) == BERTH_OK, "the end");
}

int main(void)
{
    int ends[2], state = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    pid_t child = fork(); /* before UCX is there: it does not survive a fork */
    expect(child >= 0, "fork");
    line = ends[child == 0];
    close(ends[child != 0]);
    alarm(60);
    if (child == 0) {
        use();
        return 0;
    }
    own();
    expect(waitpid(child, &state, 0) == child && state == 0, "the other process");
    return 0;
}
