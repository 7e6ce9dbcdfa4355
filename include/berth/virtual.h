/* The virtual-time device: streams and events that move only when a test says so.
 *
 * It is a device like any other ({ BERTH_DEVICE_VIRTUAL, n }, made here), with host memory underneath. Work
 * that is enqueued lies still until berth_virtual_step or one of its relatives runs it, in any order of
 * streams. Events can be late or lost, and any call can be made to fail. Nothing here uses threads, clocks or
 * chance, so that a run can be repeated exactly and a checker can walk through millions of states.
 *
 * Memory (allocate, release, copies and fills without a stream) may be used from any thread. Calls on the
 * streams and events of one virtual device, and on the device itself, must not overlap in time; different
 * devices are independent. */
#ifndef BERTH_VIRTUAL_H
#define BERTH_VIRTUAL_H

#include "berth/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices ------------------------------------------------------------------------------------- */

/* A new device. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY (also when 4096 are alive). Any thread. */
BERTH_API berth_status berth_virtual_create(berth_device *out);

/* Ends the device: work that has not run never runs. Streams and events of it that are still alive answer
 * BERTH_DEVICE_LOST and are destroyed as usual. Blocks are host memory and stay until they are released,
 * which still works. BERTH_OK, BERTH_NOT_FOUND. */
BERTH_API berth_status berth_virtual_destroy(berth_device device);

/* Back to the beginning, keeping streams and events: work that has not run is dropped, every event counts as
 * complete, nothing is late, lost or made to fail. */
BERTH_API berth_status berth_virtual_reset(berth_device device);

/* ---- Time ---------------------------------------------------------------------------------------- */

/* Runs the next operation of `stream`. A stream that its user destroyed may be stepped until its last
 * operation has run. BERTH_OK: it has run; BERTH_NOT_FOUND: nothing is enqueued; BERTH_NOT_READY: the next
 * operation waits for an event that has not come. Keeps no words for the last two. */
BERTH_API berth_status berth_virtual_step(berth_stream *stream);

/* Steps `stream` until nothing is left or it must wait for another. BERTH_OK, BERTH_NOT_READY. */
BERTH_API berth_status berth_virtual_run(berth_stream *stream);

/* Steps all streams of `device`, oldest first and round after round, until none can move. BERTH_OK: all are
 * empty; BERTH_NOT_READY: some wait for events that cannot come. */
BERTH_API berth_status berth_virtual_run_all(berth_device device);

/* How many operations of `stream` have not run. */
BERTH_API uint64_t berth_virtual_pending(const berth_stream *stream);

/* Whether waiting on the host (berth_stream_synchronize, berth_event_wait, need_sync) lets the streams run as
 * far as it needs, which is the default, or answers BERTH_TIMED_OUT where it would have had to wait. */
BERTH_API berth_status berth_virtual_set_waits_run(berth_device device, bool run);

/* ---- Late and lost events ------------------------------------------------------------------------ */

/* While `late`, hosts do not hear of what the stream has passed: queries of its events, and of the stream,
 * lag behind until berth_virtual_deliver, a wait, or late = false. Other streams that wait for its events are
 * not affected. */
BERTH_API berth_status berth_virtual_set_late(berth_stream *stream, bool late);
BERTH_API berth_status berth_virtual_deliver(berth_stream *stream);

/* The next `count` events recorded on `stream` are lost: they never become complete, waiting for one answers
 * BERTH_TIMED_OUT, and a stream that waits for one stands still. Recording such an event again, or a reset,
 * finds it again. */
BERTH_API berth_status berth_virtual_lose_events(berth_stream *stream, uint64_t count);

/* ---- Failing calls ------------------------------------------------------------------------------- */

typedef enum berth_virtual_call {
    BERTH_VIRTUAL_ANY = 0,
    BERTH_VIRTUAL_ALLOCATE = 1,
    BERTH_VIRTUAL_RELEASE = 2,
    BERTH_VIRTUAL_COPY = 3,
    BERTH_VIRTUAL_ZERO = 4,
    BERTH_VIRTUAL_STREAM_CREATE = 5,
    BERTH_VIRTUAL_STREAM_QUERY = 6,
    BERTH_VIRTUAL_STREAM_SYNCHRONIZE = 7,
    BERTH_VIRTUAL_STREAM_WAIT_EVENT = 8,
    BERTH_VIRTUAL_STREAM_CALL = 9,
    BERTH_VIRTUAL_EVENT_CREATE = 10,
    BERTH_VIRTUAL_EVENT_RECORD = 11,
    BERTH_VIRTUAL_EVENT_QUERY = 12,
    BERTH_VIRTUAL_EVENT_WAIT = 13,
    BERTH_VIRTUAL_MAP = 14, /* and reserve, unreserve, unmap */
} berth_virtual_call;

/* The nth call of this sort from now (1: the next) answers `status` and does nothing else, and so do all
 * after it if `persist`. One rule a sort; n = 0 takes it away. The driver code in berth_last_error is the
 * number of the call's sort. */
BERTH_API berth_status berth_virtual_fail(berth_device device, berth_virtual_call call, uint64_t n,
                                          berth_status status, bool persist);

/* How many calls of this sort there have been (ANY: of all sorts), failing ones too. */
BERTH_API uint64_t berth_virtual_calls(berth_device device, berth_virtual_call call);

/* Device and managed memory beyond `bytes` is BERTH_OUT_OF_DEVICE_MEMORY, pinned memory
 * BERTH_OUT_OF_HOST_MEMORY. 0: no limit. */
BERTH_API berth_status berth_virtual_set_memory_limit(berth_device device, uint64_t bytes);

/* Bytes of all kinds that are allocated now. */
BERTH_API uint64_t berth_virtual_bytes_in_use(berth_device device);

/* ---- Going back ---------------------------------------------------------------------------------- */

typedef struct berth_virtual_state berth_virtual_state;

/* Keeps where every stream and event of `device` stands, what is enqueued, and the rules above; not the
 * content of memory. The caller owns it. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_virtual_save(berth_device device, berth_virtual_state **out);

/* Puts all that back, as often as wished. The streams and events must be those that were there: else
 * BERTH_MISMATCH, and nothing changes. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_virtual_restore(berth_device device, const berth_virtual_state *state);

BERTH_API void berth_virtual_state_destroy(berth_virtual_state *state);

#ifdef __cplusplus
}
#endif
#endif
