/* Random scopes on random streams, on virtual time: blocks kept after their scope, and freed in later ones or between them, on
 * streams or none. A block is filled when it is got and looked at by the last stream that works on it, which comes late: a
 * place that was given out again too early is seen. */
#include "berth/virtual.h"
#include "rig.h"
#include "scale.h"

enum { MOST = 12, KEPT = 6, STREAMS = 3, SCOPES = 40, SEEDS = 60 / SCALE };

typedef struct piece {
    unsigned char *p;
    size_t size;
    unsigned char fill;
    berth_stream *on; /* whose work it is filled by; NULL: the host's */
} piece;

typedef struct stage {
    rig r;
    berth_device device;
    berth_stream *streams[STREAMS];
    uint64_t random;
    size_t size[MOST], freed_after[MOST], count;
    piece kept[KEPT];
    unsigned char next_fill;
    size_t damaged, shared;
} stage;

static size_t below(stage *x, size_t bound)
{
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(x->random >> 33) % bound;
}

typedef struct work {
    piece what;
    size_t *damaged;
} work;

static void fill_there(void *context)
{
    work *w = context;
    memset(w->what.p, w->what.fill, w->what.size);
    free(w);
}

static void look_there(void *context)
{
    work *w = context;
    for (size_t i = 0; i < w->what.size; i++)
        if (w->what.p[i] != w->what.fill) {
            ++*w->damaged;
            break;
        }
    free(w);
}

static void enqueue(stage *x, berth_stream *stream, void (*fn)(void *), const piece *what)
{
    work *w = malloc(sizeof *w);
    assert_non_null(w);
    *w = (work){*what, &x->damaged};
    if (stream)
        assert_int_equal(berth_stream_call(stream, fn, w), BERTH_OK);
    else
        fn(w);
}

static piece get(stage *x, size_t size, berth_stream *on)
{
    piece got = {take(&x->r, size), size, ++x->next_fill, on};
    enqueue(x, on, fill_there, &got);
    return got;
}

/* Looked at by its own stream, or by another one that waits for that. The library is told of the stream before the free or at it. */
static void put(stage *x, const piece *gone)
{
    berth_stream *last = below(x, 2) ? x->streams[below(x, STREAMS)] : gone->on;
    if (last && gone->on && last != gone->on) {
        berth_event *filled = NULL;
        assert_int_equal(berth_event_create(x->device, &filled), BERTH_OK);
        assert_int_equal(berth_event_record(filled, gone->on), BERTH_OK);
        assert_int_equal(berth_stream_wait_event(last, filled), BERTH_OK);
        berth_event_destroy(filled);
    }
    enqueue(x, last, look_there, gone);
    bool before = last && below(x, 2);
    if (before)
        assert_int_equal(berth_record_use(x->r.planned, gone->p, last), BERTH_OK);
    assert_int_equal(berth_deallocate(x->r.planned, gone->p, 0, before ? NULL : last), BERTH_OK);
}

static void put_or_keep(stage *x, const piece *gone)
{
    piece *place = &x->kept[below(x, KEPT)];
    if (place->p || below(x, 4)) {
        put(x, gone);
        return;
    }
    *place = *gone;
}

static void put_some_kept(stage *x)
{
    piece *place = &x->kept[below(x, KEPT)];
    if (place->p && below(x, 3) == 0) {
        put(x, place);
        place->p = NULL;
    }
}

static void run_scope(stage *x)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    berth_report report = BERTH_REPORT_INIT;
    options.stream = below(x, 3) ? x->streams[below(x, STREAMS)] : NULL;
    piece live[MOST] = {{0}};
    assert_int_equal(berth_replay_begin(x->r.planned, &options), BERTH_OK);
    for (size_t i = 0; i < x->count; i++) {
        live[i] = get(x, x->size[i], options.stream);
        for (size_t k = 0; k <= i; k++)
            if (live[k].p && x->freed_after[k] <= i) {
                put_or_keep(x, &live[k]);
                live[k].p = NULL;
            }
        put_some_kept(x);
        (void)berth_virtual_step(x->streams[below(x, STREAMS)]);
    }
    for (size_t k = 0; k < x->count; k++)
        if (live[k].p)
            put_or_keep(x, &live[k]);
    assert_int_equal(berth_replay_end(x->r.planned, &report), BERTH_OK);
    x->shared += report.displaced != 0;
}

static void random_scopes_on_streams(void **state)
{
    (void)state;
    size_t shared = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        stage x = {.random = seed};
        assert_int_equal(berth_pool_create(NULL, &x.r.inner),
                         BERTH_OK); /* what the fallback serves follows streams too */
        assert_int_equal(berth_plan_create(&x.r.plan), BERTH_OK);
        assert_int_equal(berth_planned_create(x.r.inner, x.r.plan, &x.r.planned), BERTH_OK);
        assert_int_equal(berth_virtual_create(&x.device), BERTH_OK);
        for (size_t i = 0; i < STREAMS; i++)
            assert_int_equal(berth_stream_create(x.device, &x.streams[i]), BERTH_OK);
        x.count = 2 + below(&x, MOST - 2);
        for (size_t i = 0; i < x.count; i++) {
            x.size[i] = (size_t)64 << below(&x, 7);
            x.freed_after[i] = i + below(&x, 5);
        }
        BERTH_RECORD(x.r.planned)
        {
            void *live[MOST] = {0};
            for (size_t i = 0; i < x.count; i++) {
                live[i] = take(&x.r, x.size[i]);
                for (size_t k = 0; k <= i; k++)
                    if (live[k] && (x.freed_after[k] <= i || i + 1 == x.count)) {
                        give(&x.r, live[k]);
                        live[k] = NULL;
                    }
            }
        }
        for (int scope = 0; scope < SCOPES; scope++) {
            run_scope(&x);
            put_some_kept(&x);
            if (below(&x, 8) == 0)
                assert_int_equal(berth_trim(x.r.planned, 0, NULL), BERTH_OK);
        }
        for (size_t i = 0; i < KEPT; i++)
            if (x.kept[i].p)
                put(&x, &x.kept[i]);
        assert_int_equal(berth_virtual_run_all(x.device), BERTH_OK);
        assert_int_equal(x.damaged, 0);
        shared += x.shared;
        rig_end(&x.r);
        for (size_t i = 0; i < STREAMS; i++)
            berth_stream_destroy(x.streams[i]);
        assert_int_equal(berth_virtual_destroy(x.device), BERTH_OK);
    }
    print_message("%zu scopes ran around what was kept\n", shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_scopes_on_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
