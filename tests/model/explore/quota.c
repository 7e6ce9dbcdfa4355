/* The quota: a limit holds and refuses nothing that fits, a peak is a true one, while credit is called back. */
#include "count/quota.h"

#include "explore.h"

static berth__quota quota;
static _Atomic int64_t held;

static bool take(int64_t bytes)
{
    if (!berth__quota_take(&quota, (uint64_t)bytes))
        return false;
    explore_check(atomic_fetch_add_explicit(&held, bytes, memory_order_relaxed) + bytes <= 1000,
                  "[Q2] the limit of 1000 is exceeded");
    return true;
}

static void give(int64_t bytes)
{
    atomic_fetch_sub_explicit(&held, bytes, memory_order_relaxed);
    berth__quota_give(&quota, (uint64_t)bytes);
}

static void limit_1000(void)
{
    berth__quota_init(&quota, 1000);
}

static void expect_held(void)
{
    explore_check(berth__quota_in_use(&quota) == (uint64_t)held, "[Q1] what was taken is in use");
}

/* ---- One takes from its credit while another needs it -------------------------------------------------------- */

static void take_100_then_50(void)
{
    take(100); /* which brings credit for what follows */
    explore_ready();
    take(50);
}

static void take_900(void)
{
    (void)berth__thread();
    explore_ready();
    take(900);
}

static void take_850(void)
{
    (void)berth__thread();
    explore_ready();
    explore_check(take(850), "[Q3] 850 bytes fit beside 100 and 50");
}

static void give_and_take(void)
{
    take(500);
    explore_ready();
    give(500);
    take(400);
}

static void take_600(void)
{
    (void)berth__thread();
    explore_ready();
    take(600);
}

/* ---- Another cap while threads take -------------------------------------------------------------------------- */

static _Atomic bool lowered;

static void take_100_then_50_if_it_fits(void)
{
    take(100); /* which brings credit for what follows */
    explore_ready();
    bool was_lowered = atomic_load_explicit(&lowered, memory_order_acquire), taken = take(50);
    explore_check(!taken || !was_lowered, "[Q2] credit from before is not used under a lower cap");
}

static void set_cap_100(void)
{
    (void)berth__thread();
    explore_ready();
    berth__quota_set_cap(&quota, 100);
    atomic_store_explicit(&lowered, true, memory_order_release);
    explore_check(!berth__quota_take(&quota, 1), "[Q2] nothing fits below what is in use");
}

/* ---- A true peak was in use at one moment [M8] ---------------------------------------------------------------- */

/* Two threads have held 120 bytes together, and then pass 60 on: never do they hold more than 60 again, so that the
 * 50 bytes of the third are no new peak. The first thread's slot is open and has no credit, the other's has 60. */
static _Atomic bool passed_on;

static void rise(void)
{
    quota.rises = true;
}

static void hold_and_pass_on(void)
{
    (void)berth__quota_take(&quota, 120);
    berth__quota_give(&quota, 120);
    (void)berth__quota_take(&quota, 10); /* which opens the slot */
    (void)berth__quota_take(&quota, 110);
    explore_ready();
    berth__quota_give(&quota, 60);
    atomic_store_explicit(&passed_on, true, memory_order_release);
}

static void take_over(void)
{
    (void)berth__thread();
    berth__quota_give(&quota, 60); /* half of what the first has taken */
    (void)berth__quota_take(&quota, 10);
    berth__quota_give(&quota, 10);
    explore_ready();
    if (atomic_load_explicit(&passed_on, memory_order_acquire))
        (void)berth__quota_take(&quota, 60);
}

static void take_50(void)
{
    (void)berth__thread();
    explore_ready();
    (void)berth__quota_take(&quota, 50);
}

static void expect_120(void)
{
    explore_check(berth__quota_peak(&quota) == 120, "[M8] a true peak was in use at one moment");
}

static const explore_program programs[] = {
    {"exceed", limit_1000, {take_100_then_50, take_900}, expect_held, 2, 1, false},
    {"fit", limit_1000, {take_100_then_50, take_850}, expect_held, 2, 1, false},
    {"give", limit_1000, {give_and_take, take_600}, expect_held, 2, 1, false},
    {"cap", limit_1000, {take_100_then_50_if_it_fits, set_cap_100}, expect_held, 1, 1, false},
    {"peak", rise, {hold_and_pass_on, take_over, take_50}, expect_120, 1, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
