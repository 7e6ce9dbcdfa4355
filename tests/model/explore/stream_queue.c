/* The queues of what waits for streams: nothing is collected early [H3], nothing is lost or collected twice. */
#include "wait/stream_queue.h"

#include "device.h"
#include "explore.h"

static berth__streams set;
static berth__stream_queue *queue;
static berth__use *uses[3];
static int collected[3];

static void make_queue(void)
{
    queue = berth__streams_enter(&set, device_stream(0));
    for (int i = 0; i < 3; i++) {
        uses[i] = berth__use_take(queue);
        uses[i]->owner = &collected[i];
    }
}

static void add(int which)
{
    berth__use_mark(&set, uses[which]);
    berth__use_add(uses[which]);
}

static void collect(void)
{
    uint64_t count = 0;
    if (!berth__stream_queue_begin(queue))
        return;
    berth__use *last = berth__stream_queue_look(queue, false, &count), *next;
    for (berth__use *use = berth__stream_queue_end(queue, last, count); use; use = next) {
        next = use->next;
        explore_check(device_has_passed(use->event),
                      "[H3] a use was collected before its stream had passed it");
        ++*(int *)use->owner;
    }
}

/* ---- Two threads mark in one order and add in the other ------------------------------------------------------- */

static void one_is_there(void)
{
    make_queue();
    add(0);
}

static void add_first(void)
{
    explore_ready();
    add(1);
}

static void enqueue_and_add_second(void)
{
    explore_ready();
    device_enqueue(0);
    add(2);
}

/* ---- Adding while somebody collects, and somebody else too ---------------------------------------------------- */

static void add_two(void)
{
    explore_ready();
    add(1);
    add(2);
}

static void collect_twice(void)
{
    explore_ready();
    collect();
    collect();
}

static void collect_rest(void)
{
    collect();
    device_complete(0);
    collect();
    for (int i = 0; i < 3; i++)
        explore_check(collected[i] == 1, "every use is collected once");
    explore_check(berth__stream_queue_length(queue) == 0, "nothing waits");
}

static void enqueue_and_complete(void)
{
    explore_ready();
    device_enqueue(0);
    add(1);
    device_complete(0);
    add(2);
}

static const explore_program programs[] = {
    {"order", one_is_there, {add_first, enqueue_and_add_second}, collect_rest, 2, 2, false},
    {"collect", one_is_there, {add_two, collect_twice}, collect_rest, 2, 2, false},
    {"work", one_is_there, {enqueue_and_complete, collect_twice}, collect_rest, 2, 2, false},
    {"three", one_is_there, {add_two, collect_twice, collect_twice}, collect_rest, 2, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
