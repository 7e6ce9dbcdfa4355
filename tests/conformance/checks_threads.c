/* What every allocator must do when several threads use it. No assertion runs on their threads: they answer.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "conformance.h"

enum { threads = 3, steps = SCALE == 1 ? 400 : 100, places = 24 };

struct worker {
    subject *s;
    uint64_t seed;
    uint64_t allocs, bytes;
    const char *trouble;
    _Atomic(void *) *exchange; /* blocks of 100 bytes on their way from thread to thread */
};

static bool keeps(struct worker *w, void *p, size_t size_bytes, unsigned char as)
{
    if (!same(w->s, p, size_bytes, as))
        w->trouble = "another thread wrote into a block";
    else if (berth_deallocate(w->s->a, p, size_bytes, NULL) != BERTH_OK)
        w->trouble = "a free was refused";
    return !w->trouble;
}

static void *churn(void *context)
{
    struct worker *w = context;
    struct {
        void *p;
        size_t size;
    } held[places] = {0};
    for (int i = 0; i < steps && !w->trouble; i++) {
        size_t at = (size_t)draw(&w->seed) % places;
        if (held[at].p) {
            keeps(w, held[at].p, held[at].size, (unsigned char)at);
            held[at].p = NULL;
            continue;
        }
        held[at].size = 1 + (size_t)draw(&w->seed) % 1000;
        if (berth_allocate(w->s->a, held[at].size, 64, NULL, &held[at].p) != BERTH_OK) {
            w->trouble = "an allocation failed";
            break;
        }
        fill(w->s, held[at].p, held[at].size, (unsigned char)at);
        w->allocs++;
        w->bytes += held[at].size;
    }
    for (size_t i = 0; i < places && !w->trouble; i++)
        if (held[i].p)
            keeps(w, held[i].p, held[i].size, (unsigned char)i);
    return NULL;
}

/* Frees what another thread has allocated, as often as there is something. */
static void *pass_on(void *context)
{
    struct worker *w = context;
    for (int i = 0; i < steps && !w->trouble; i++) {
        void *p = NULL;
        if (berth_allocate(w->s->a, 100, 64, NULL, &p) != BERTH_OK) {
            w->trouble = "an allocation failed";
            break;
        }
        fill(w->s, p, 100, 0x77);
        w->allocs++;
        w->bytes += 100;
        void *theirs = atomic_exchange(&w->exchange[draw(&w->seed) % places], p);
        if (theirs)
            keeps(w, theirs, 100, 0x77);
    }
    return NULL;
}

static void run_threads(subject *s, void *(*work)(void *context))
{
    _Atomic(void *) exchange[places] = {NULL};
    struct worker workers[threads];
    pthread_t ids[threads];
    berth_stats before, after;
    bool known = stats_of(s, &before);
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.s = s, .seed = (uint64_t)i + 1, .exchange = exchange};
        assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
    }
    uint64_t allocs = 0, bytes = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        allocs += workers[i].allocs;
        bytes += workers[i].bytes;
    }
    for (int i = 0; i < threads; i++)
        if (workers[i].trouble)
            fail_msg("%s", workers[i].trouble);
    for (int i = 0; i < places; i++)
        give(s, atomic_load(&exchange[i]), 0);
    if (!known || !stats_of(s, &after))
        return;
    assert_int_equal(after.num_allocs, before.num_allocs + allocs);
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
    assert_true(after.total_bytes >= before.total_bytes + bytes);
}

static void threads_keep_out_of_each_others_blocks(subject *s)
{
    run_threads(s, churn);
}

static void blocks_may_be_freed_by_another_thread(subject *s)
{
    run_threads(s, pass_on);
}

const check thread_checks[] = {
    {"threads keep out of each other's blocks", threads_keep_out_of_each_others_blocks},
    {"blocks may be freed by another thread", blocks_may_be_freed_by_another_thread},
};
const size_t thread_check_count = sizeof thread_checks / sizeof thread_checks[0];
