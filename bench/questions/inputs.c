/* questions_inputs trace|rmm EVENTS LIVE FILE [PERCENT]: writes a recording of EVENTS events, as a trace of several threads or as RMM's
 * log: LIVE blocks at once, of which most live briefly and some for long, from 500 call sites of eight frames. With PERCENT one site's
 * blocks are larger by so much. Prints the most bytes that were ever alive. A trace ends with a request that was refused. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/trace.h"

enum { SITES = 500, DEPTH = 8, THREADS = 4, CLASSES = 48, GROWING_SITE = 7, STEP_NS = 200 };

typedef struct block {
    uint64_t address, size;
    uint32_t size_class;
} block;

/* Addresses are used again, last in first out, as caches do. */
typedef struct heap {
    uint64_t *free[CLASSES];
    size_t count[CLASSES], room[CLASSES];
    uint64_t next;
} heap;

typedef struct output {
    berth_trace *trace; /* or */
    FILE *log;
    uint32_t stacks[SITES], labels[SITES], device;
    uint64_t time_ns;
} output;

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

static void give_up(const char *what)
{
    fprintf(stderr, "questions_inputs: %s\n", what);
    exit(1);
}

/* ---- Addresses ------------------------------------------------------------------------------------------ */

static uint32_t class_of(uint64_t size)
{
    uint32_t c = 4;
    while (c + 1 < CLASSES && (UINT64_C(1) << c) < size)
        c++;
    return c;
}

static block heap_take(heap *h, uint64_t size)
{
    block b = {.size = size, .size_class = class_of(size)};
    if (h->count[b.size_class])
        b.address = h->free[b.size_class][--h->count[b.size_class]];
    else {
        b.address = h->next;
        h->next += UINT64_C(1) << b.size_class;
    }
    return b;
}

static void heap_give(heap *h, block b)
{
    uint32_t c = b.size_class;
    if (h->count[c] == h->room[c]) {
        h->room[c] = h->room[c] ? 2 * h->room[c] : 64;
        h->free[c] = realloc(h->free[c], h->room[c] * sizeof *h->free[c]);
        if (!h->free[c])
            give_up("no memory");
    }
    h->free[c][h->count[c]++] = b.address;
}

/* ---- Writing -------------------------------------------------------------------------------------------- */

static uint32_t define_text(berth_trace *t, const char *format, unsigned a, unsigned b)
{
    char words[64];
    uint32_t number = 0;
    int length = snprintf(words, sizeof words, format, a, b);
    if (berth_trace_define_text(t, words, (size_t)length, &number) != BERTH_OK)
        give_up(berth_last_error()->message);
    return number;
}

/* Sites share their outer frames, as those of one program do. */
static void define_sites(output *o)
{
    for (unsigned site = 0; site < SITES; site++) {
        uint32_t number = 0;
        for (unsigned depth = 0; depth < DEPTH; depth++) {
            berth_trace_frame f = BERTH_TRACE_FRAME_INIT;
            unsigned branch = depth < 2 ? 0 : depth < 5 ? site / 25 : site;
            f.caller = number;
            f.function = define_text(o->trace, "layer%u_%u", branch, depth);
            f.file = define_text(o->trace, "file%u_%u.cc", branch / 8, depth);
            f.line = 10 * branch + depth;
            if (berth_trace_define_frame(o->trace, &f, &number) != BERTH_OK)
                give_up(berth_last_error()->message);
        }
        o->stacks[site] = number;
        o->labels[site] = site % 5 ? define_text(o->trace, "part%u", site / 25, 0) : 0;
    }
}

static void put(output *o, berth_trace_kind kind, uint32_t thread, uint32_t site, const block *b)
{
    o->time_ns += STEP_NS;
    if (o->log) {
        fprintf(o->log, "%u,%" PRIu64 ".%06" PRIu64 ",%s,0x%" PRIx64 ",%" PRIu64 ",0\n", 100 + thread,
                1700000000 + o->time_ns / 1000000000, o->time_ns % 1000000000 / 1000,
                kind == BERTH_TRACE_ALLOC ? "allocate" : "free", b->address, b->size);
        return;
    }
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = kind;
    e.thread = thread;
    e.time_ns = o->time_ns;
    e.address = b->address;
    e.size_bytes = kind == BERTH_TRACE_FREE ? 0 : b->size;
    if (kind != BERTH_TRACE_FREE) {
        e.stack = o->stacks[site];
        e.label = o->labels[site];
    }
    if (berth_trace_write(o->trace, &e) != BERTH_OK)
        give_up(berth_last_error()->message);
}

/* ---- The program ---------------------------------------------------------------------------------------- */

static uint64_t size_of(uint64_t *state, uint32_t site, unsigned percent)
{
    uint64_t r = draw(state), size = 16 + r % (UINT64_C(32) << (r >> 60) % 8);
    return site == GROWING_SITE ? size * (100 + percent) / 100 : size;
}

/* Frees one of the newest blocks, which live briefly, or seldom any. */
static size_t choose(uint64_t *state, size_t live)
{
    uint64_t r = draw(state), newest = live < 64 ? live : 64;
    return (size_t)(r >> 40) % 16 ? live - 1 - (size_t)r % newest : (size_t)r % live;
}

static uint64_t run(output *o, uint64_t events, size_t most_live, unsigned percent)
{
    uint64_t state = 1, bytes = 0, peak = 0;
    heap h = {.next = UINT64_C(0x7f0000000000)};
    block *blocks = malloc((most_live + 1) * sizeof *blocks);
    size_t live = 0;
    if (!blocks)
        give_up("no memory");
    for (uint64_t i = 0; i < events; i++) {
        uint64_t r = draw(&state);
        uint32_t thread = (uint32_t)(r % THREADS), site = (uint32_t)(r >> 32) % SITES;
        if (live < most_live && (live == 0 || r >> 20 & 1 || (i < 2 * most_live && r >> 21 & 1))) {
            block b = heap_take(&h, size_of(&state, site, percent));
            bytes += b.size;
            peak = bytes > peak ? bytes : peak;
            put(o, BERTH_TRACE_ALLOC, thread, site, &b);
            blocks[live++] = b;
        } else {
            size_t at = choose(&state, live);
            block b = blocks[at];
            bytes -= b.size;
            put(o, BERTH_TRACE_FREE, thread, 0, &b);
            heap_give(&h, b);
            blocks[at] = blocks[--live];
        }
    }
    if (o->trace)
        put(o, BERTH_TRACE_FAIL, 0, 3, &(block){.size = UINT64_C(1) << 26});
    for (size_t c = 0; c < CLASSES; c++)
        free(h.free[c]);
    free(blocks);
    return peak;
}

int main(int argc, char **argv)
{
    output o = {0};
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    uint64_t events = argc > 2 ? strtoull(argv[2], NULL, 10) : 0,
             live = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (argc < 5 || argc > 6 || !events || !live)
        give_up("usage: questions_inputs trace|rmm EVENTS LIVE FILE [PERCENT]");
    options.times_given = true;
    if (strcmp(argv[1], "rmm") == 0) {
        o.log = fopen(argv[4], "w");
        if (!o.log)
            give_up("the log cannot be written");
        fputs("Thread,Time,Action,Pointer,Size,Stream\n", o.log);
    } else if (berth_trace_create(argv[4], &options, &o.trace) != BERTH_OK)
        give_up(berth_last_error()->message);
    if (o.trace)
        define_sites(&o);
    printf("%" PRIu64 "\n",
           run(&o, events, (size_t)live, argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 0));
    bool written = o.log ? fclose(o.log) == 0 : berth_trace_flush(o.trace) == BERTH_OK;
    berth_trace_release(o.trace);
    return written ? 0 : 1;
}
