/* The program that most tests of replay record and run again. */
#ifndef BERTH_TESTS_REPLAY_USUAL_H
#define BERTH_TESTS_REPLAY_USUAL_H

#include "rig.h"

/* a and b overlap in time, c takes a's place.
 *   +a 256  +b 128  -a  +c 200  -c  -b */
typedef struct program {
    size_t a, b, c;
    void *pa, *pb, *pc;
} program;

static const program usual = {256, 128, 200, NULL, NULL, NULL};

static inline void work(rig *r, program *p)
{
    p->pa = take(r, p->a);
    p->pb = take(r, p->b);
    give(r, p->pa);
    p->pc = take(r, p->c);
    give(r, p->pc);
    give(r, p->pb);
}

static inline void record_usual(rig *r)
{
    rig_begin(r);
    program p = usual;
    BERTH_RECORD(r->planned)
    {
        work(r, &p);
    }
    assert_int_equal(berth_plan_count(r->plan), 3);
    assert_int_equal(berth_plan_total_bytes(r->plan), 384);
    r->inner_allocs = r->inner_frees = 0;
}

#endif
