/* The meter: its figures agree whoever stops it, collects credit, comes second or closes it. */
#include "count/meter.h"

#include "explore.h"

static berth__meter meter;

static berth_stats figures(void)
{
    berth_stats stats = {.struct_size = sizeof stats};
    berth__meter_read(&meter, &stats);
    return stats;
}

/* ---- The second thread takes the meter away from its owner [M1, M2, M3] ------------------------------------ */

static void own_and_use(void)
{
    berth__meter_take(&meter, 1000);
    explore_ready();
    berth__meter_take(&meter, 500);
    berth__meter_give(&meter, 1000);
}

static void come_second(void)
{
    (void)berth__thread();
    explore_ready();
    berth__meter_take(&meter, 300);
}

static void expect_800(void)
{
    berth_stats stats = figures();
    explore_check(stats.bytes_in_use == 800, "[M1] 800 bytes are in use");
    explore_check(stats.max_bytes_in_use >= 1500, "[M2] the peak is not below what one thread had");
    explore_check(stats.max_bytes_in_use <= 1800 + 2 * 65536,
                  "[M3] the peak is above it by 64 KiB a thread at most");
    explore_check(stats.num_allocs == 3 && stats.total_bytes == 1800, "three allocations of 1800 bytes");
}

/* ---- Work in a slot while somebody else uses what lies beside it [S1] --------------------------------------- */

static volatile int beside; /* volatile, or the compiler would leave out what is undone at once */

static void work_inside(void)
{
    berth__meter_take(&meter, 10);
    berth__slot *slot = berth__slot_of(&meter.slots, berth__thread());
    (void)berth__slot_enter(&meter.slots, slot);
    slot->beside = (void *)&beside;
    berth__slot_leave(slot);
    explore_ready();
    while (!berth__slot_enter(&meter.slots, slot))
        berth__slots_wait_resumed(&meter.slots);
    beside = 1;
    beside = 0;
    berth__slot_leave(slot);
}

static void expect_0(void *context, void *value)
{
    (void)context;
    explore_check(*(volatile int *)value == 0,
                  "[S1] who has stopped the slots finds everything in its place");
    *(volatile int *)value = 0;
}

static void stop_and_look(void)
{
    (void)berth__thread();
    explore_ready();
    berth__slots_stop(&meter.slots);
    berth__slots_visit_beside(&meter.slots, expect_0, NULL);
    berth__slots_resume(&meter.slots);
}

/* The same where a filter came after the first use of berth. */
static void refuse_membarrier(void)
{
    (void)berth__thread();
    explore_refuse_membarrier();
}

/* ---- The last free and the close: one of them finds that nothing is left, and frees the meter [M7] ---------- */

typedef struct closable {
    berth__meter meter;
    _Atomic uint64_t remaining; /* 1 for the one who closes */
} closable;

static closable *closing;
static _Atomic uint32_t finished;

static void give_up(closable *c)
{
    if (atomic_fetch_sub(&c->remaining, 1) != 1)
        return;
    berth__meter_finish(&c->meter);
    berth__heap_free(c);
    atomic_fetch_add(&finished, 1);
}

static void make_closable(void)
{
    closing = berth__heap_zalloc(1, sizeof *closing);
    atomic_store(&closing->remaining, 1);
}

static void free_last(void)
{
    berth__meter_take(&closing->meter, 100);
    explore_ready();
    if (berth__meter_give(&closing->meter, 100))
        give_up(closing);
}

static void close_it(void)
{
    (void)berth__thread();
    explore_ready();
    berth__meter_close(&closing->meter, &closing->remaining);
    give_up(closing);
}

static void expect_finished(void)
{
    explore_check(finished == 1, "[M7] one of the two finds that it is the last");
}

static const explore_program programs[] = {
    {"share", NULL, {own_and_use, come_second}, expect_800, 2, 1, false},
    {"stop", NULL, {work_inside, stop_and_look}, NULL, 2, 1, false},
    {"stop_refused", refuse_membarrier, {work_inside, stop_and_look}, NULL, 2, 1, false},
    {"close", make_closable, {free_last, close_it}, expect_finished, 2, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
