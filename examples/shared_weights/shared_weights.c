/* Weights that are loaded once and read by many processes: what memory that takes, beside a copy for each.
 *
 *     shared_weights [READERS [MEBIBYTES]]         default 4 readers, 64 MiB */
#include <berth/berth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 8, READERS_MOST = 64, MEBIBYTES_MOST = 4096 };

static void stop_if(berth_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s\n", what, berth_last_error()->message);
    exit(1);
}

/* All layers live together, so the plan gives each a place of its own. */
static berth_plan *plan_weights(size_t layer_bytes)
{
    static char labels[LAYERS][32];
    berth_plan_allocation layers[LAYERS];
    berth_plan *plan = NULL;
    for (int i = 0; i < LAYERS; i++) {
        snprintf(labels[i], sizeof labels[i], "layer.%d.weight", i);
        layers[i] =
            (berth_plan_allocation){sizeof layers[i], layer_bytes, 4096, LAYERS, BERTH_NO_OFFSET, labels[i]};
    }
    stop_if(berth_plan_create(&plan), "plan");
    stop_if(berth_plan_set(plan, layers, LAYERS, NULL), "plan");
    return plan;
}

/* A stand-in for reading a file. */
static void load(char *to, size_t bytes, int layer)
{
    memset(to, layer + 1, bytes);
}

static unsigned long long sum(const char *data, size_t bytes)
{
    unsigned long long total = 0;
    for (size_t i = 0; i < bytes; i++)
        total += (unsigned char)data[i];
    return total;
}

/* This process's share of the memory it maps: a page that n processes map counts 1/n to each. */
static long share_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %ld kB", &kib) != 1)
            kib = -1;
    if (f)
        fclose(f);
    return kib;
}

/* ---- A reader ---------------------------------------------------------------------------------------- */

typedef struct reader {
    int weights; /* the socket that the arena comes by; -1: it loads its own */
    int report, go_on, over;
    size_t layer_bytes;
} reader;

static unsigned long long read_shared(const reader *r)
{
    berth_shared_attach_options options = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    options.seals = BERTH_SHARED_SEAL_CONTENT; /* nobody changes them under us */
    berth_shared *weights = NULL;
    unsigned long long total = 0;
    stop_if(berth_shared_receive(r->weights, &options, &weights), "receive");
    for (int i = 0; i < LAYERS; i++) {
        char label[32];
        size_t id = 0, bytes = 0;
        void *data = NULL;
        snprintf(label, sizeof label, "layer.%d.weight", i);
        stop_if(berth_shared_find(weights, label, &id), label);
        stop_if(berth_shared_get(weights, id, &data, &bytes), label);
        total += sum(data, bytes);
    }
    return total; /* and keeps them mapped, to be counted */
}

static unsigned long long read_own(const reader *r)
{
    unsigned long long total = 0;
    for (int i = 0; i < LAYERS; i++) {
        void *data = NULL;
        stop_if(berth_allocate(berth_cpu_allocator(), r->layer_bytes, 4096, NULL, &data), "allocate");
        load(data, r->layer_bytes, i);
        total += sum(data, r->layer_bytes);
    }
    return total;
}

static void run_reader(const reader *r)
{
    unsigned long long answer[2];
    char byte;
    answer[0] = r->weights >= 0 ? read_shared(r) : read_own(r);
    if (write(r->report, "r", 1) != 1 || read(r->go_on, &byte, 1) != 1) /* counted while all are there */
        _exit(1);
    answer[1] = (unsigned long long)share_kib();
    if (write(r->report, answer, sizeof answer) != sizeof answer || read(r->over, &byte, 1) != 0)
        _exit(1);
    _exit(0);
}

/* ---- All of them ------------------------------------------------------------------------------------- */

static bool read_all(int from, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(from, (char *)to + done, bytes - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* Bytes of memory that `count` readers take together; every one must have read the same. */
static double try_readers(berth_shared *weights, int count, size_t layer_bytes, unsigned long long expected)
{
    int report[2], go_on[2], over[2], sockets[2];
    if (pipe(report) != 0 || pipe(go_on) != 0 || pipe(over) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0)
        exit(1);
    for (int i = 0; i < count; i++)
        if (fork() == 0) {
            close(over[1]);                /* that this one is closed tells the end */
            berth_shared_release(weights); /* a reader is a stranger: it has only the socket */
            run_reader(&(reader){weights ? sockets[1] : -1, report[1], go_on[0], over[0], layer_bytes});
        }
    for (int i = 0; i < count && weights; i++)
        stop_if(berth_shared_send(weights, sockets[0], BERTH_SHARED_READ), "send");
    char ready[READERS_MOST];
    unsigned long long answer[2];
    double kib = 0;
    close(report[1]); /* so that a reader that fails is an end and not a wait */
    if (!read_all(report[0], ready, (size_t)count) || write(go_on[1], ready, (size_t)count) != count)
        exit(1);
    for (int i = 0; i < count; i++) {
        if (!read_all(report[0], answer, sizeof answer) || answer[0] != expected)
            exit((fprintf(stderr, "a reader has read something else\n"), 1));
        kib += (double)answer[1];
    }
    kib += weights ? (double)share_kib() : 0; /* whoever loaded them has its share */
    close(over[0]), close(over[1]), close(go_on[0]), close(go_on[1]), close(report[0]), close(sockets[0]),
        close(sockets[1]);
    while (wait(NULL) > 0)
        ;
    return kib * 1024;
}

int main(int count, char **arguments)
{
    int readers = count > 1 ? atoi(arguments[1]) : 4, mebibytes = count > 2 ? atoi(arguments[2]) : 64;
    if (readers < 1 || readers > READERS_MOST || mebibytes < 1 || mebibytes > MEBIBYTES_MOST) {
        fprintf(stderr, "usage: shared_weights [READERS [MEBIBYTES]]\n");
        return 2;
    }
    size_t layer_bytes = ((size_t)mebibytes << 20) / LAYERS;
    unsigned long long expected = 0;
    berth_plan *plan = plan_weights(layer_bytes);
    double own = try_readers(NULL, readers, layer_bytes, layer_bytes * (LAYERS * (LAYERS + 1) / 2));

    berth_shared *weights = NULL;
    stop_if(berth_shared_create(plan, NULL, &weights), "create");
    for (int i = 0; i < LAYERS; i++) {
        void *data = NULL;
        stop_if(berth_shared_get(weights, (size_t)i, &data, NULL), "get");
        load(data, layer_bytes, i);
        expected += sum(data, layer_bytes);
    }
    stop_if(berth_shared_publish(weights, NULL), "publish");
    stop_if(berth_shared_seal(weights, BERTH_SHARED_SEAL_CONTENT), "seal");
    double shared = try_readers(weights, readers, layer_bytes, expected);

    double bytes = (double)mebibytes * (1 << 20);
    printf("%d MiB of weights, %d readers; memory of all together (Pss):\n", mebibytes, readers);
    printf("  a copy each       %8.1f MiB  %5.2f x the weights\n", own / (1 << 20), own / bytes);
    printf("  one shared arena  %8.1f MiB  %5.2f x the weights\n", shared / (1 << 20), shared / bytes);
    berth_shared_release(weights);
    berth_plan_release(plan);
    return 0;
}
