/* Walks through every interleaving of a few streams, blocks and operations on virtual time, with the real
 * host cache, and checks in each state that no block is reused before its last use has completed, and that
 * none is lost [H2, H4].
 *
 * A state is reached by running its operations from an empty cache. Two states are one if they differ only in
 * the names of streams and blocks, and everything that the cache decides by is the same: what each stream has
 * before it, who waits in which queue and at which place, the order of idle blocks. States are walked breadth
 * first, so the first violation is a shortest one, and it is printed as a list of operations. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "berth/virtual.h"
#include "host/host.h"

enum { STREAMS_MAX = 3, BLOCKS_MAX = 4, OPS_MAX = 12 };

/* ---- Operations ---------------------------------------------------------------------------------------- */

typedef enum verb { ALLOCATE, FREE, RECORD, ENQUEUE, STEP, COLLECT, EMPTY, LOSE, VERBS } verb;

typedef struct operation {
    uint8_t verb, block, stream;
} operation;

typedef struct path {
    uint8_t length;
    operation ops[OPS_MAX];
} path;

static const char *const verb_names[VERBS] = {"allocate", "free",    "record", "enqueue",
                                              "step",     "collect", "empty",  "lose"};

/* ---- What ought to be ------------------------------------------------------------------------------------
 */

typedef enum status { ABSENT, LIVE, FREED } status; /* FREED: waiting, or idle */

/* A place in memory that the cache has handed out. */
typedef struct block {
    status status;
    char *address;
    uint8_t recorded;            /* streams, a bit each */
    uint8_t lost;                /* those of them whose event got lost */
    uint32_t needs[STREAMS_MAX]; /* once freed: how far each of them must come */
} block;

typedef struct world {
    int streams, blocks, ops, bytes;
    bool may_lose, expect_violation;
    berth_device device;
    berth_allocator *cache;
    berth_stream *stream[STREAMS_MAX];
    /* the state */
    block block[BLOCKS_MAX];
    uint32_t enqueued[STREAMS_MAX], completed[STREAMS_MAX];
    bool losing[STREAMS_MAX]; /* the next event gets lost */
    bool lost;                /* one did, or will: blocks may then come back late */
    const char *violation;
} world;

static bool is_in_use(const world *w, const block *b)
{
    if (b->status != FREED)
        return b->status == LIVE;
    for (int s = 0; s < w->streams; s++)
        if ((b->recorded >> s & 1) && w->completed[s] < b->needs[s])
            return true;
    return false;
}

static void nothing(void *context)
{
    (void)context;
}

static void expect(world *w, bool holds, const char *what)
{
    if (!holds && !w->violation)
        w->violation = what;
}

/* ---- Running one operation -------------------------------------------------------------------------------
 */

static void allocate(world *w)
{
    void *p = NULL;
    int in_use = 0, place = -1;
    for (int i = 0; i < w->blocks; i++)
        in_use += is_in_use(w, &w->block[i]);
    if (berth_allocate(w->cache, (size_t)w->bytes, 64, NULL, &p) != BERTH_OK) {
        expect(w, in_use == w->blocks || w->lost, "there is a block free, but none was handed out");
        return;
    }
    for (int i = 0; i < w->blocks; i++)
        if (w->block[i].status != ABSENT && w->block[i].address == p)
            place = i;
    if (place >= 0) {
        expect(w, !is_in_use(w, &w->block[place]),
               "a block was handed out before its last use had completed");
    } else {
        for (int i = w->blocks; i-- > 0;)
            if (w->block[i].status == ABSENT)
                place = i;
        /* The cache gave memory back and took other: an idle place stands for it no longer. */
        for (int i = w->blocks; place < 0 && i-- > 0;)
            if (!is_in_use(w, &w->block[i]))
                place = i;
        expect(w, place >= 0, "more memory was taken than the limit allows");
        if (place < 0)
            return;
    }
    w->block[place] = (block){.status = LIVE, .address = p};
}

static void free_block(world *w, block *b)
{
    expect(w, berth_deallocate(w->cache, b->address, 0, NULL) == BERTH_OK, "a live block could not be freed");
    b->status = FREED;
    for (int s = 0; s < w->streams; s++) {
        b->needs[s] = w->enqueued[s];
        if (w->losing[s] && (b->recorded >> s & 1)) {
            b->lost |= (uint8_t)(1u << s);
            w->losing[s] = false;
        }
    }
}

static void run(world *w, operation op)
{
    switch ((verb)op.verb) {
    case ALLOCATE:
        allocate(w);
        break;
    case FREE:
        free_block(w, &w->block[op.block]);
        break;
    case RECORD:
        expect(w,
               berth_record_use(w->cache, w->block[op.block].address + 7, w->stream[op.stream]) == BERTH_OK,
               "the use of a live block was not recorded");
        w->block[op.block].recorded |= (uint8_t)(1u << op.stream);
        break;
    case ENQUEUE:
        expect(w, berth_stream_call(w->stream[op.stream], nothing, NULL) == BERTH_OK, "enqueue failed");
        w->enqueued[op.stream]++;
        break;
    case STEP:
        expect(w, berth_virtual_step(w->stream[op.stream]) == BERTH_OK, "step failed");
        w->completed[op.stream]++;
        break;
    case COLLECT:
        berth_host_cache_collect(w->cache, NULL);
        break;
    case EMPTY:
        berth_host_cache_empty(w->cache, NULL);
        break;
    case LOSE:
        berth_virtual_lose_events(w->stream[op.stream], 1);
        w->losing[op.stream] = w->lost = true;
        break;
    case VERBS:
        break;
    }
}

/* ---- Looking at the cache --------------------------------------------------------------------------------
 */

static host_cache *inside(const world *w)
{
    return w->cache->self;
}

static host_block *block_of(const world *w, const block *b)
{
    return b->status == ABSENT ? NULL : berth__host_find(inside(w), b->address);
}

/* After every operation: the cache's own state agrees with what ought to be. */
static void check_state(world *w)
{
    uint64_t memory = 0;
    for (int i = 0; i < w->blocks; i++) {
        block *b = &w->block[i];
        host_block *h = block_of(w, b);
        uint32_t state = h ? atomic_load(&h->state) : HOST_NONE;
        if (b->status == LIVE)
            expect(w, state == HOST_LIVE, "a live block is not live in the cache");
        else if (is_in_use(w, b))
            expect(w, state == HOST_WAITING || state == HOST_PARKED,
                   "a block that a stream uses is not waiting");
        else if (b->status == FREED && state == HOST_NONE)
            *b = (block){0}; /* its memory is the device's again */
        else if (b->status == FREED)
            expect(w, state == HOST_WAITING || state == HOST_PARKED || state == HOST_IDLE,
                   "a freed block is live in the cache");
        memory += b->status == ABSENT ? 0 : (uint64_t)w->bytes;
    }
    expect(w, berth_virtual_bytes_in_use(w->device) == memory, "memory of the device is in no block");
}

/* Back to the empty cache; on the way, everything must come back. */
static void reset(world *w)
{
    for (int i = 0; i < w->blocks; i++)
        if (w->block[i].status == LIVE)
            free_block(w, &w->block[i]);
    berth_virtual_run_all(w->device);
    berth_host_cache_empty(w->cache, NULL);
    expect(w, berth_virtual_bytes_in_use(w->device) == 0, "a block was lost");
    berth_virtual_reset(w->device);
    memset(w->block, 0, sizeof w->block);
    memset(w->enqueued, 0, sizeof w->enqueued);
    memset(w->completed, 0, sizeof w->completed);
    memset(w->losing, 0, sizeof w->losing);
    w->lost = false;
}

/* ---- Names aside ------------------------------------------------------------------------------------------
 */

/* What one block and one stream have to do with each other. */
typedef struct relation {
    uint8_t recorded, left, order, place, passed, lost;
} relation;

/* A state as numbers, without addresses. */
typedef struct picture {
    struct {
        uint8_t status, idle_place;
        relation with[STREAMS_MAX];
    } block[BLOCKS_MAX];
    uint8_t pending[STREAMS_MAX], losing[STREAMS_MAX];
    uint8_t lost;
} picture;

/* The place of a use in its queue, from 1; those that came since the last look begin at 32. */
static uint8_t place_in_queue(const berth__stream_queue *q, const berth__use *use)
{
    uint8_t place = 1;
    for (const berth__use *u = q->waiting; u; u = u->next, place++)
        if (u == use)
            return place;
    place = 32;
    for (const berth__use *u = q->incoming; u; u = u->next, place++)
        if (u == use)
            return place;
    return 0;
}

static void see_use(const world *w, const berth__use *use, uint8_t order, relation *with)
{
    for (int s = 0; s < w->streams; s++) {
        if (use->queue->stream != w->stream[s])
            continue;
        with[s].order = order;
        with[s].place = place_in_queue(use->queue, use);
        with[s].passed = atomic_load(&use->passed);
    }
}

typedef struct search {
    const host_block *block;
    uint8_t place, found;
} search;

static void look_in_thread_cache(void *context, void *beside)
{
    search *s = context;
    const host_thread_cache *tcache = beside;
    for (const host_block *b = tcache->bins[s->block->bin].newest; b; b = b->next, s->place++)
        if (b == s->block)
            s->found = s->place;
}

/* The place of an idle block: the thread cache's from 1, the bin's from 32. */
static uint8_t idle_place(const world *w, const host_block *which)
{
    search s = {which, 1, 0};
    berth__host_stop(inside(w));
    berth__slots_visit_beside(&inside(w)->quota.slots, look_in_thread_cache, &s);
    berth__host_resume(inside(w));
    if (s.found)
        return s.found;
    uint8_t place = 32;
    for (const host_block *b = inside(w)->bins[which->bin].newest; b; b = b->next, place++)
        if (b == which)
            return place;
    return 0;
}

static picture look(const world *w)
{
    picture p;
    memset(&p, 0, sizeof p);
    p.lost = w->lost;
    for (int s = 0; s < w->streams; s++)
        p.pending[s] = (uint8_t)(w->enqueued[s] - w->completed[s]), p.losing[s] = w->losing[s];
    for (int i = 0; i < w->blocks; i++) {
        const block *b = &w->block[i];
        host_block *h = block_of(w, b);
        p.block[i].status = (uint8_t)b->status;
        if (!h)
            continue;
        uint32_t state = atomic_load(&h->state);
        p.block[i].status = (uint8_t)(b->status | state << 4);
        p.block[i].idle_place = state == HOST_IDLE ? idle_place(w, h) : 0;
        for (int s = 0; s < w->streams; s++) {
            p.block[i].with[s].recorded = b->recorded >> s & 1;
            p.block[i].with[s].lost = b->lost >> s & 1;
            if (b->status == FREED && (b->recorded >> s & 1) && b->needs[s] > w->completed[s])
                p.block[i].with[s].left = (uint8_t)(b->needs[s] - w->completed[s]);
        }
        if (h->uses == 0)
            continue;
        see_use(w, &h->first_use, 1, p.block[i].with);
        uint8_t order = 2;
        for (const berth__use *use = h->more_uses; use; use = use->next_owned)
            see_use(w, use, order++, p.block[i].with);
    }
    return p;
}

static int compare_blocks(const void *a, const void *b)
{
    return memcmp(a, b, sizeof((picture *)0)->block[0]);
}

/* The smallest picture over all names of streams; blocks are sorted by what they are. */
static picture without_names(const picture *p, int streams)
{
    static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const int count[STREAMS_MAX + 1] = {0, 1, 3, 6}; /* of two streams, the third and first do */
    picture best;
    for (int o = 0; o < count[streams]; o++) {
        if (streams == 2 && orders[o][2] != 2)
            continue;
        picture q = *p;
        for (int s = 0; s < streams; s++) {
            q.pending[s] = p->pending[orders[o][s]];
            q.losing[s] = p->losing[orders[o][s]];
            for (int i = 0; i < BLOCKS_MAX; i++)
                q.block[i].with[s] = p->block[i].with[orders[o][s]];
        }
        qsort(q.block, BLOCKS_MAX, sizeof q.block[0], compare_blocks);
        if (o == 0 || memcmp(&q, &best, sizeof q) < 0)
            best = q;
    }
    return best;
}

/* ---- States seen ------------------------------------------------------------------------------------------
 */

typedef struct seen {
    picture *pictures;
    path *paths;
    size_t count, room;
    uint32_t *places; /* open addressing; index + 1 */
    size_t mask;
} seen;

static uint64_t hash(const picture *p)
{
    uint64_t h = 0xcbf29ce484222325u;
    const unsigned char *bytes = (const unsigned char *)p;
    for (size_t i = 0; i < sizeof *p; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static void *grown(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "no memory for the states\n");
        exit(4);
    }
    return p;
}

static uint32_t *find(seen *s, const picture *p)
{
    for (size_t i = hash(p);; i++) {
        uint32_t *place = &s->places[i & s->mask];
        if (*place == 0 || memcmp(&s->pictures[*place - 1], p, sizeof *p) == 0)
            return place;
    }
}

static void grow_places(seen *s)
{
    s->mask = s->mask ? s->mask * 2 + 1 : 0xffff;
    free(s->places);
    s->places = calloc(s->mask + 1, sizeof *s->places);
    for (size_t i = 0; i < s->count; i++)
        *find(s, &s->pictures[i]) = (uint32_t)i + 1;
}

static bool add(seen *s, const picture *p, const path *way)
{
    if ((s->count + 1) * 2 > s->mask)
        grow_places(s);
    uint32_t *place = find(s, p);
    if (*place)
        return false;
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 4096;
        s->pictures = grown(s->pictures, s->room * sizeof *s->pictures);
        s->paths = grown(s->paths, s->room * sizeof *s->paths);
    }
    s->pictures[s->count] = *p;
    s->paths[s->count] = *way;
    *place = (uint32_t)++s->count;
    return true;
}

/* ---- The walk
 * ---------------------------------------------------------------------------------------------- */

/* The operations that make sense in the present state. */
static int list_operations(const world *w, operation *out)
{
    int n = 0;
    out[n++] = (operation){ALLOCATE, 0, 0};
    for (uint8_t b = 0; b < w->blocks; b++) {
        if (w->block[b].status != LIVE)
            continue;
        out[n++] = (operation){FREE, b, 0};
        for (uint8_t s = 0; s < w->streams; s++)
            out[n++] = (operation){RECORD, b, s};
    }
    for (uint8_t s = 0; s < w->streams; s++) {
        out[n++] = (operation){ENQUEUE, 0, s};
        if (w->enqueued[s] > w->completed[s])
            out[n++] = (operation){STEP, 0, s};
        if (w->may_lose && !w->lost)
            out[n++] = (operation){LOSE, 0, s};
    }
    out[n++] = (operation){COLLECT, 0, 0};
    out[n++] = (operation){EMPTY, 0, 0};
    return n;
}

static void go(world *w, const path *way)
{
    for (int i = 0; i < way->length; i++) {
        run(w, way->ops[i]);
        check_state(w);
    }
}

static void print_path(const path *way)
{
    for (int i = 0; i < way->length; i++)
        printf("  %2d  %-8s block %d, stream %d\n", i + 1, verb_names[way->ops[i].verb], way->ops[i].block,
               way->ops[i].stream);
}

/* One operation more from a state that is known. */
static void extend(world *w, seen *s, size_t from, operation op, uint64_t *transitions)
{
    path way = s->paths[from];
    go(w, &way);
    run(w, op);
    way.ops[way.length++] = op;
    check_state(w);
    picture here = look(w), nameless = without_names(&here, w->streams);
    reset(w);
    ++*transitions;
    if (w->violation) {
        printf("violation: %s\n", w->violation);
        print_path(&way);
        return;
    }
    add(s, &nameless, &way);
}

static int walk(world *w)
{
    seen s = {0};
    path start = {0};
    picture here = look(w), nameless = without_names(&here, w->streams);
    uint64_t transitions = 0;
    add(&s, &nameless, &start);
    for (size_t i = 0; i < s.count && !w->violation && s.paths[i].length < w->ops; i++) {
        operation ops[64];
        path way = s.paths[i];
        go(w, &way);
        int n = list_operations(w, ops);
        reset(w);
        for (int k = 0; k < n && !w->violation; k++)
            extend(w, &s, i, ops[k], &transitions);
    }
    printf("%d streams, %d blocks, %d operations%s: %zu states, %llu transitions, %s\n", w->streams,
           w->blocks, w->ops, w->may_lose ? ", one event lost" : "", s.count, (unsigned long long)transitions,
           w->violation ? "a violation" : "no violation");
    free(s.pictures);
    free(s.paths);
    free(s.places);
    return (w->violation != NULL) == w->expect_violation ? 0 : 1;
}

/* ---- The program
 * ------------------------------------------------------------------------------------------- */

static bool read_arguments(world *w, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int *number = strcmp(argv[i], "--streams") == 0  ? &w->streams
                      : strcmp(argv[i], "--blocks") == 0 ? &w->blocks
                      : strcmp(argv[i], "--ops") == 0    ? &w->ops
                      : strcmp(argv[i], "--bytes") == 0  ? &w->bytes
                                                         : NULL;
        if (number && i + 1 < argc)
            *number = atoi(argv[++i]);
        else if (strcmp(argv[i], "--lose") == 0)
            w->may_lose = true;
        else if (strcmp(argv[i], "--expect-violation") == 0)
            w->expect_violation = true;
        else
            return false;
    }
    return w->streams >= 1 && w->streams <= STREAMS_MAX && w->blocks >= 1 && w->blocks <= BLOCKS_MAX &&
           w->ops >= 1 && w->ops <= OPS_MAX;
}

/* Debug builds abort where an assertion sees the fault first: it has been noticed. */
static void noticed(int number)
{
    (void)number;
    _exit(0);
}

int main(int argc, char **argv)
{
    world w = {.streams = 3, .blocks = 4, .ops = 10, .bytes = 36 << 10};
    if (!read_arguments(&w, argc, argv)) {
        fprintf(stderr,
                "usage: %s [--streams 1..3] [--blocks 1..4] [--ops 1..12] [--bytes size of a class above 32 "
                "KiB] [--lose] [--expect-violation]\n",
                argv[0]);
        return 2;
    }
    if (w.expect_violation)
        signal(SIGABRT, noticed);
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.hard_limit_bytes = (uint64_t)w.blocks * (uint64_t)w.bytes;
    if (berth_virtual_create(&w.device) != BERTH_OK)
        return 4;
    options.device = w.device;
    for (int s = 0; s < w.streams; s++)
        if (berth_stream_create(w.device, &w.stream[s]) != BERTH_OK)
            return 4;
    if (berth_host_cache_create(&options, &w.cache) != BERTH_OK)
        return 4;
    int failed = walk(&w);
    berth_allocator_release(w.cache);
    for (int s = 0; s < w.streams; s++)
        berth_stream_destroy(w.stream[s]);
    berth_virtual_destroy(w.device);
    return failed;
}
