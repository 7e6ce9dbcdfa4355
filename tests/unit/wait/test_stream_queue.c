/* The set of streams: a stream has one queue for as long as it is there, whichever others come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "berth/virtual.h"
#include "wait/stream_queue.h"

enum { STREAMS = 200 };

static void test_streams_that_stay_keep_their_queues(void **state)
{
    (void)state;
    berth_device device;
    static berth_stream *streams[STREAMS];
    static berth__stream_queue *queues[STREAMS];
    berth__streams set;
    uint64_t seed = 1;
    memset(&set, 0, sizeof set); /* clang 14 takes no {0} for an atomic pointer */
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    for (int i = 0; i < STREAMS; i++) {
        /* Numbers that follow each other never meet in the set; with gaps between them some do. */
        for (uint64_t skipped = (seed >> 33) % 17; skipped > 0; skipped--) {
            berth_stream *other = NULL;
            assert_int_equal(berth_stream_create(device, &other), BERTH_OK);
            berth_stream_destroy(other);
        }
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        assert_int_equal(berth_stream_create(device, &streams[i]), BERTH_OK);
        queues[i] = berth__streams_enter(&set, streams[i]);
        assert_non_null(queues[i]);
    }
    /* Every third goes, in several rounds, so that searches pass places where others were. */
    for (int round = 0; round < 3; round++) {
        for (int i = round * STREAMS / 3; i < (round + 1) * STREAMS / 3; i += 3) {
            berth_stream_destroy(streams[i]);
            streams[i] = NULL;
        }
        assert_true(berth__streams_suspect(&set, false));
        berth__stream_queue *taken = berth__streams_take_suspects(&set);
        berth__streams_release(taken);
        berth__streams_reuse(&set, taken);
        for (int i = 0; i < STREAMS; i++)
            if (streams[i])
                assert_ptr_equal(berth__streams_enter(&set, streams[i]), queues[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        berth_stream_destroy(streams[i]);
    berth__streams_finish(&set);
    berth_virtual_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_that_stay_keep_their_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
