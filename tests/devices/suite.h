/* What the checks of a device share: what it has, blocks and copies that must work, and the checks of suite_streams.c. */
#ifndef BERTH_TESTS_DEVICES_SUITE_H
#define BERTH_TESTS_DEVICES_SUITE_H

#include <stdint.h>
#include <time.h>

#include "harness.h"

extern bool has_streams, has_calls;

static inline bool has(berth_memory_kind kind)
{
    return (info.memory_kinds >> kind & 1) != 0;
}

static inline void needs_streams(void)
{
    if (!has_streams)
        check_skip("the device has no streams");
}

static inline void needs_calls(void)
{
    needs_streams();
    if (!has_calls)
        check_skip(
            "the device does not call functions of the host, and only these hold a stream back for certain");
}

/* NULL on a device without streams: then work is done at once. */
static inline berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    if (!has_streams)
        return NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

static inline berth_event *new_event(void)
{
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    return event;
}

static inline void *take(size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, size_bytes, 64, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static inline void give(void *p, size_t size_bytes)
{
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, size_bytes, NULL), BERTH_OK);
}

static inline void put(void *dst, const void *src, size_t size_bytes)
{
    assert_int_equal(berth_copy(device, dst, src, size_bytes, BERTH_COPY_HOST_TO_DEVICE, NULL, false),
                     BERTH_OK);
}

static inline void get(void *dst, const void *src, size_t size_bytes)
{
    assert_int_equal(berth_copy(device, dst, src, size_bytes, BERTH_COPY_DEVICE_TO_HOST, NULL, false),
                     BERTH_OK);
}

static inline void fill_pattern(unsigned char *p, size_t size_bytes, unsigned seed)
{
    for (size_t i = 0; i < size_bytes; i++)
        p[i] = (unsigned char)(seed + i * 7 + (i >> 8) * 13);
}

static inline void rest(void)
{
    const struct timespec moment = {0, 1000000};
    nanosleep(&moment, NULL);
}

void check_streams_are_asynchronous(void);
void check_waits_last_until_the_end(void);
void check_waits_are_for_one_stream_only(void);
void check_functions_and_copies_run_in_order(void);
void check_streams_wait_for_events_of_others(void);
void check_waits_are_for_the_mark_as_it_was(void);
void check_recording_again_moves_the_mark(void);
void check_teardown_in_any_order(void);
void check_streams_take_turns(void);
void check_waiting_for_oneself_is_refused(void);
void check_functions_may_use_the_device(void);
void check_release_on_a_stream(void);
void check_a_forked_child_is_answered(void);
void check_many_threads(void);

#endif
