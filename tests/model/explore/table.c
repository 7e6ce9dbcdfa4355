/* Tracking's table of live blocks: its owner works without a lock until somebody else comes [T4]. */
#include "wrap/table.h"

#include "explore.h"

static berth__meter meter;
static berth__table table = {.slots = &meter.slots};

/* Two blocks of one shard. */
static const void *const first = (const void *)0x7000010, *const second = (const void *)0x7000020;

static void put(const void *address, uint64_t id)
{
    berth__slot *slot = berth__slot_fast(&meter.slots);
    if (slot && berth__table_put_alone(&table, slot, address, 8, 8, id, NULL))
        return;
    berth__entry entry = {.address = address, .requested_bytes = 8, .size_bytes = 8, .id = id}, old;
    explore_check(berth__table_put(&table, &entry, &old), "there is memory");
    explore_check(!old.address, "[T1] no block is there twice");
    berth__meter_take(&meter, 8);
}

static void take(const void *address, uint64_t id)
{
    berth__entry entry = {0};
    berth__slot *slot = berth__slot_fast(&meter.slots);
    if (!slot || !berth__table_take_alone(&table, slot, address, &entry))
        explore_check(berth__table_take(&table, address, &entry), "a live block is in the table");
    explore_check(entry.id == id && entry.requested_bytes == 8, "with what is known of it");
    berth__meter_give(&meter, 8);
}

static void expect_empty(void)
{
    berth__entry entry;
    explore_check(!berth__table_get(&table, first, &entry) && !berth__table_get(&table, second, &entry),
                  "what was freed is in the table");
    explore_check(berth__meter_in_use(&meter) == 0, "[M1] nothing is in use");
}

/* ---- Another thread frees a block of the owner's shard -------------------------------------------------------- */

static void own_the_shard(void)
{
    put(first, 1);
    explore_ready();
    put(second, 2);
    take(second, 2);
}

static void free_first(void)
{
    (void)berth__thread();
    explore_ready();
    take(first, 1);
}

/* ---- Another thread allocates there, and a third looks --------------------------------------------------------- */

static void own_and_free(void)
{
    put(first, 1);
    explore_ready();
    take(first, 1);
}

static void put_and_take_second(void)
{
    (void)berth__thread();
    explore_ready();
    put(second, 2);
    take(second, 2);
}

static void look(void)
{
    (void)berth__thread();
    explore_ready();
    berth__entry entry;
    if (berth__table_get(&table, first, &entry))
        explore_check(entry.id == 1, "a copy is whole");
}

static const explore_program programs[] = {
    {"free_elsewhere", NULL, {own_the_shard, free_first}, expect_empty, 2, 1, false},
    {"put_elsewhere", NULL, {own_and_free, put_and_take_second}, expect_empty, 2, 1, false},
    {"look", NULL, {own_the_shard, free_first, look}, expect_empty, 1, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
