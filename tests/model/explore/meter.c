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
    berth__meter_add(&meter, 1000);
    explore_ready();
    berth__meter_add(&meter, 500);
    berth__meter_sub(&meter, 1000);
}

static void come_second(void)
{
    (void)berth__thread();
    explore_ready();
    berth__meter_add(&meter, 300);
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
    berth__meter_add(&meter, 10);
    berth__meter_slot *slot = berth__meter_slot_of(&meter, berth__thread());
    (void)berth__meter_enter(&meter, slot);
    slot->beside = (void *)&beside;
    berth__meter_leave(slot);
    explore_ready();
    while (!berth__meter_enter(&meter, slot))
        berth__meter_wait_resumed(&meter);
    beside = 1;
    beside = 0;
    berth__meter_leave(slot);
}

static void expect_0(void *context, void *value)
{
    (void)context;
    explore_check(*(volatile int *)value == 0,
                  "[S1] who has stopped the meter finds everything in its place");
    *(volatile int *)value = 0;
}

static void stop_and_look(void)
{
    (void)berth__thread();
    explore_ready();
    berth__meter_stop(&meter);
    berth__meter_visit_beside(&meter, expect_0, NULL);
    berth__meter_resume(&meter);
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
    berth__meter_add(&closing->meter, 100);
    explore_ready();
    if (berth__meter_sub(&closing->meter, 100))
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

/* ---- A limit is never exceeded, and nothing is refused that fits [M4] -------------------------------------- */

static _Atomic int64_t charged;

static void charge(uint64_t bytes)
{
    if (berth__meter_add(&meter, bytes) == BERTH__METER_OVER)
        return;
    explore_check(
        atomic_fetch_add_explicit(&charged, (int64_t)bytes, memory_order_relaxed) + (int64_t)bytes <= 1000,
        "[M4] the limit is exceeded");
}

static void limit_1000(void)
{
    berth__meter_set_limit(&meter, 1000);
}

static void charge_and_free(void)
{
    berth__meter_add(&meter, 600);
    atomic_fetch_add(&charged, 600);
    explore_ready();
    atomic_fetch_sub(&charged, 600);
    berth__meter_sub(&meter, 600);
    charge(300);
}

static void charge_700(void)
{
    (void)berth__thread();
    explore_ready();
    charge(700);
}

/* The limit comes when a thread has credit already. */
static void charge_with_credit(void)
{
    charge(10);
    berth__meter_sub(&meter, 10);
    atomic_fetch_sub(&charged, 10);
    explore_ready();
    charge(700);
}

static void limit_and_charge(void)
{
    charge(10); /* the meter is shared from here on */
    berth__meter_sub(&meter, 10);
    atomic_fetch_sub(&charged, 10);
    explore_ready();
    berth__meter_set_limit(&meter, 1000);
    charge(700);
}

static void expect_charged(void)
{
    explore_check(figures().bytes_in_use == (uint64_t)charged, "[M1] what was granted is in use");
}

/* ---- A true peak was in use at one moment [M8] ------------------------------------------------------------- */

/* Two threads have held 60 bytes each, and then pass 60 on: never do they hold more together again, so that the 50
 * bytes of the third are no new peak. */
static void hold_and_pass_on(void)
{
    berth__meter_add_true(&meter, 60);
    explore_ready();
    berth__meter_sub(&meter, 60);
    atomic_store_explicit(&charged, 1, memory_order_release);
}

static void take_over(void)
{
    berth__meter_add_true(&meter, 60);
    berth__meter_sub(&meter, 60);
    explore_ready();
    if (atomic_load_explicit(&charged, memory_order_acquire))
        berth__meter_add_true(&meter, 60);
}

static void add_50(void)
{
    (void)berth__thread();
    explore_ready();
    berth__meter_add_true(&meter, 50);
}

static void expect_120(void)
{
    explore_check(figures().max_bytes_in_use == 120, "[M8] a true peak was in use at one moment");
}

static const explore_program programs[] = {
    {"share", NULL, {own_and_use, come_second}, expect_800, 2, 1, false},
    {"stop", NULL, {work_inside, stop_and_look}, NULL, 2, 1, false},
    {"stop_refused", refuse_membarrier, {work_inside, stop_and_look}, NULL, 2, 1, false},
    {"close", make_closable, {free_last, close_it}, expect_finished, 2, 1, false},
    {"limit", limit_1000, {charge_and_free, charge_700}, expect_charged, 2, 1, false},
    {"lower", NULL, {charge_with_credit, limit_and_charge}, expect_charged, 1, 1, false},
    {"peak", NULL, {hold_and_pass_on, take_over, add_50}, expect_120, 1, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
