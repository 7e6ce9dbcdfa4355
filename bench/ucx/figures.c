/* One-sided throughput between two processes: into memory of Berth's pool, and into memory that UCX allocated by itself, in
 * turns; the median of the pairs' ratios is the figure, and how far two halves of the pairs are apart is the noise. And what 1,265
 * tensors cost: one registration, or one each. Exits with 1 if the throughput is not what is promised; --try: only if something fails.
 *
 *     UCX_TLS=sm,self ucx_figures [--rounds N] [--try] */
#include "ucx/wire.h"

#include <berth/berth.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1 << 20, TENSORS = 1265, TENSOR_BYTES = 16000, TICKET_ROOM = 1024, ROUNDS_MAX = 10000 };
#define THROUGHPUT_AT_LEAST 0.95
#define MINUTE_NS UINT64_C(60000000000)

static void expect_ok(bool ok, const char *what)
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

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* ---- What tensors cost to register ------------------------------------------------------------------------- */

static double register_each(ucp_context_h context, char *memory)
{
    static ucp_mem_h handles[TENSORS];
    double began = now_us();
    for (int i = 0; i < TENSORS; i++) {
        ucp_mem_map_params_t params = {.field_mask =
                                           UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                       .address = memory + (size_t)i * TENSOR_BYTES,
                                       .length = TENSOR_BYTES};
        expect_ok(ucp_mem_map(context, &params, &handles[i]) == UCS_OK, "ucp_mem_map");
    }
    double took = now_us() - began;
    for (int i = 0; i < TENSORS; i++)
        ucp_mem_unmap(context, handles[i]);
    return took;
}

static void compare_registrations(berth_ucx *ucx)
{
    static void *tensors[TENSORS];
    berth_ucx_figures before = {.struct_size = sizeof before}, after = before;
    berth_allocator *pool = NULL;
    char *memory = calloc(TENSORS, TENSOR_BYTES);
    expect_ok(memory && berth_ucx_pool_create(ucx, NULL, &pool) == BERTH_OK, "a pool");
    berth_ucx_figures_get(ucx, &before);
    double each = register_each(berth_ucx_context(ucx), memory), began = now_us();
    for (int i = 0; i < TENSORS; i++)
        expect_ok(berth_allocate(pool, TENSOR_BYTES, 64, NULL, &tensors[i]) == BERTH_OK, "allocating");
    double pooled = now_us() - began;
    berth_ucx_figures_get(ucx, &after);
    printf("  %d tensors: %llu registration and %.0f us from the pool, memory included; %d and %.0f us one "
           "by one\n",
           TENSORS, (unsigned long long)(after.registrations - before.registrations), pooled, TENSORS, each);
    for (int i = 0; i < TENSORS; i++)
        berth_deallocate(pool, tensors[i], TENSOR_BYTES, NULL);
    berth_allocator_release(pool);
    free(memory);
}

/* ---- The owner ----------------------------------------------------------------------------------------------- */

static void own(int socket)
{
    wire w;
    berth_ucx *ucx = NULL;
    berth_allocator *pool = NULL;
    void *block = NULL, *key = NULL;
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket, key_bytes = 0;
    ucp_mem_h handle = NULL;
    ucp_mem_map_params_t params = {.field_mask =
                                       UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = BYTES,
                                   .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attributes = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    expect_ok(berth_ucx_create(NULL, &ucx) == BERTH_OK && berth_ucx_pool_create(ucx, NULL, &pool) == BERTH_OK,
              "UCX");
    compare_registrations(ucx);
    wire_open(&w, berth_ucx_context(ucx), socket);
    expect_ok(berth_allocate(pool, BYTES, 64, NULL, &block) == BERTH_OK, "allocating");
    memset(block, 1, BYTES);
    expect_ok(berth_ucx_publish(pool, block, 0, BYTES, ticket, &bytes) == BERTH_OK, "a ticket");
    wire_send(&w, ticket, bytes);
    expect_ok(ucp_mem_map(berth_ucx_context(ucx), &params, &handle) == UCS_OK &&
                  ucp_mem_query(handle, &attributes) == UCS_OK &&
                  ucp_rkey_pack(berth_ucx_context(ucx), handle, &key, &key_bytes) == UCS_OK,
              "memory of UCX's own");
    memset(attributes.address, 1, BYTES);
    uint64_t address = (uint64_t)(uintptr_t)attributes.address;
    wire_send(&w, &address, sizeof address);
    wire_send(&w, key, key_bytes);
    wire_close(&w); /* serves meanwhile */
    ucp_rkey_buffer_release(key);
    ucp_mem_unmap(berth_ucx_context(ucx), handle);
    berth_deallocate(pool, block, BYTES, NULL);
    berth_allocator_release(pool);
    expect_ok(berth_ucx_destroy(ucx) == BERTH_OK, "the end");
}

/* ---- The peer ------------------------------------------------------------------------------------------------- */

typedef struct target {
    uint64_t address;
    ucp_rkey_h rkey;
} target;

static double time_one(wire *w, bool is_put, void *buffer, target to)
{
    double began = now_us();
    ucs_status_t code = is_put ? wire_put(w, buffer, BYTES, to.address, to.rkey)
                               : wire_get(w, buffer, BYTES, to.address, to.rkey);
    expect_ok(code == UCS_OK, is_put ? "a put" : "a get");
    return now_us() - began;
}

/* How far the medians of two halves of the pairs are apart: two out of four are one half, so that both have either order. */
static double noise_of(const double *values, int count)
{
    static double halves[2][ROUNDS_MAX];
    int counts[2] = {0, 0};
    for (int i = 0; i < count; i++)
        halves[i / 2 % 2][counts[i / 2 % 2]++] = values[i];
    return counts[1] ? fabs(median_of(halves[0], counts[0]) - median_of(halves[1], counts[1])) : 0;
}

/* Whether the figure is met. */
static bool compare_throughput(wire *w, bool is_put, int rounds, target berth, target own_memory)
{
    static double ratios[ROUNDS_MAX], ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    char *buffer = malloc(BYTES);
    expect_ok(buffer != NULL, "memory");
    memset(buffer, 2, BYTES);
    for (int i = -3; i < rounds; i++) { /* the first three only warm up */
        bool first = i & 1;
        double a = first ? time_one(w, is_put, buffer, berth) : 0;
        double b = time_one(w, is_put, buffer, own_memory);
        a = first ? a : time_one(w, is_put, buffer, berth);
        if (i >= 0)
            ours[i] = a, theirs[i] = b, ratios[i] = b / a;
    }
    const double noise = noise_of(ratios, rounds), ratio = median_of(ratios, rounds);
    const bool is_met = ratio >= THROUGHPUT_AT_LEAST - noise;
    printf("  %s of 1 MiB: Berth's memory %.0f MiB/s, UCX's own %.0f MiB/s; throughput in the median of %d "
           "pairs %.3f x (at least %.2f, less %.3f of noise: %s)\n",
           is_put ? "put" : "get", 1e6 / median_of(ours, rounds), 1e6 / median_of(theirs, rounds), rounds,
           ratio, THROUGHPUT_AT_LEAST, noise, is_met ? "met" : "NOT met");
    free(buffer);
    return is_met;
}

static bool use(int socket, int rounds)
{
    wire w;
    berth_ucx *ucx = NULL;
    berth_ucx_peer *peer = NULL;
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    target own_memory = {0, NULL};
    char bytes[TICKET_ROOM];
    expect_ok(berth_ucx_create(NULL, &ucx) == BERTH_OK, "UCX");
    wire_open(&w, berth_ucx_context(ucx), socket);
    expect_ok(berth_ucx_peer_create(w.worker, w.endpoint, &peer) == BERTH_OK, "a peer");
    size_t count = wire_receive(&w, bytes, sizeof bytes);
    expect_ok(berth_ucx_peer_open(peer, bytes, count, MINUTE_NS, &remote) == BERTH_OK, "a ticket");
    wire_receive(&w, &own_memory.address, sizeof own_memory.address);
    wire_receive(&w, bytes, sizeof bytes);
    expect_ok(ucp_ep_rkey_unpack(w.endpoint, bytes, &own_memory.rkey) == UCS_OK, "a key");
    target berth = {remote.address, remote.rkey};
    bool is_met = compare_throughput(&w, true, rounds, berth, own_memory);
    is_met &= compare_throughput(&w, false, rounds, berth, own_memory);
    ucp_rkey_destroy(own_memory.rkey);
    berth_ucx_peer_destroy(peer);
    wire_close(&w);
    expect_ok(berth_ucx_destroy(ucx) == BERTH_OK, "the end");
    return is_met;
}

static bool read_options(int argc, char **argv, int *rounds, bool *is_try)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--try") == 0)
            *is_try = true;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            *rounds = atoi(argv[++i]);
        else
            return false;
    return *rounds >= 1 && *rounds <= ROUNDS_MAX;
}

int main(int argc, char **argv)
{
    enum { NOT_MET = 3 };
    int ends[2], state = 0, rounds = 201;
    bool is_try = false;
    if (!read_options(argc, argv, &rounds, &is_try)) {
        fprintf(stderr, "usage: ucx_figures [--rounds N] [--try]   N from 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    expect_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    alarm(300);
    pid_t child = fork(); /* before UCX is there */
    expect_ok(child >= 0, "fork");
    close(ends[child != 0 ? 1 : 0]);
    if (child == 0) {
        alarm(300);
        return use(ends[1], rounds) ? 0 : NOT_MET;
    }
    own(ends[0]);
    expect_ok(waitpid(child, &state, 0) == child && WIFEXITED(state) &&
                  (WEXITSTATUS(state) == 0 || WEXITSTATUS(state) == NOT_MET),
              "the other process");
    return WEXITSTATUS(state) == NOT_MET && !is_try ? 1 : 0;
}
