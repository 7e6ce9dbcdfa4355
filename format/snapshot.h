/* A memory snapshot of PyTorch while it is read: what snapshot.c and snapshot_kept.c share. */
#ifndef BERTH_FORMAT_SNAPSHOT_H
#define BERTH_FORMAT_SNAPSHOT_H

#include "format/inputs.h"
#include "format/pickle.h"

enum { TRACES_MOST = 256 };
enum action { ALLOC, FREE, MAP, UNMAP, OOM, MARKED, NOTED, LET_GO };

struct event {
    uint64_t time_ns, address, size_bytes, stream, order;
    uint32_t stack, label;
    uint16_t device;
    uint8_t action;
    bool stands_alone; /* a segment of its own, not more of a range that grows */
    bool
        knows_free; /* of a refusal: the address is what the device still had; of a note it is which device */
};

struct snapshot {
    format_history *h;
    format_progress progress;
    void *context;
    struct event *events;
    size_t count, room;
    uint16_t traces; /* how many lists of events there were */
    size_t notes;    /* how many of the events are annotations */
    uint16_t devices[TRACES_MOST];
    uint64_t start_ns;
    void *bytes;   /* of the file, mapped */
    size_t let_go; /* as far as they are not needed any more */
};

/* Words that snapshots consist of: they are the first texts of the history, in this order, so that their numbers are these. */
enum word {
    ACTION = 1,
    ADDR,
    ADDRESS,
    SIZE,
    REQUESTED_SIZE,
    TOTAL_SIZE,
    STREAM,
    TIME_US,
    FRAMES,
    FILENAME,
    LINE,
    NAME,
    BLOCKS,
    STATE,
    DEVICE,
    SEGMENTS,
    DEVICE_FREE,
    IS_EXPANDABLE,
    SEGMENT_TYPE,
    SEGMENT_POOL_ID,
    HOST_SEGMENTS,
    USER_METADATA,
    STAGE,
    KEYS_END,
    FIRST_ACTION = KEYS_END,
};

static inline const char *snapshot_words(const struct snapshot *s, const struct format_pickle_object *dict,
                                         uint32_t name)
{
    const format_pickle_value *v = format_pickle_get(dict, name);
    return v && v->type == FORMAT_PICKLE_TEXT ? format_history_words(s->h, (uint32_t)v->as.number) : "";
}
static inline const struct format_pickle_object *snapshot_list(const struct format_pickle_object *dict,
                                                               uint32_t name)
{
    const format_pickle_value *v = format_pickle_get(dict, name);
    return v && v->type == FORMAT_PICKLE_LIST ? v->as.object : NULL;
}

/* The stack of a list of frames; 0: it is none. */
uint32_t format_snapshot_stack(struct snapshot *s, const format_pickle_value *frames);
uint16_t format_snapshot_device(format_history *h, const char *kind, uint64_t ordinal);
/* As a segment tells it: -1 is the CPU, as the index of torch.device("cpu"). */
uint16_t format_snapshot_told_device(format_history *h, int64_t ordinal);
void format_snapshot_add_block(struct snapshot *s, const struct event *e, uint64_t time_ns);
/* For a tally: a block that was there at the start, and is or (ended) was until now. */
void format_snapshot_add_old_block(struct snapshot *s, const struct event *e, uint64_t start_ns, bool ended);

/* ---- What was there before the first event (snapshot_kept.c) ------------------------------------------- */

/* Addresses of which events tell. Open addressing; what leaves keeps its place. */
struct snapshot_places {
    struct place {
        uint64_t key;  /* address and device; 0: empty */
        uint32_t pool; /* of a segment that is there at the end */
        bool alive;
    } * items;
    size_t mask;
};
struct snapshot_kept {
    struct snapshot_places blocks, segments;
};

/* All zero is finished. False: no memory; finish is still right. */
bool format_snapshot_kept_init(struct snapshot_kept *kept, const struct snapshot *s,
                               const struct format_pickle_object *top);
void format_snapshot_kept_finish(struct snapshot_kept *kept);
/* Adds the blocks that are freed, and were not allocated, by events. */
void format_snapshot_add_freed(struct snapshot *s, struct snapshot_kept *kept, uint64_t start_ns);
/* Adds what is there at the end and of which no event tells. `kept` is NULL for a tally. */
void format_snapshot_add_kept(struct snapshot *s, const struct format_pickle_object *top,
                              struct snapshot_kept *kept, uint64_t start_ns);
/* Events do not tell a segment's pool: those that are there at the end get it from the list of them. */
void format_snapshot_name_pools(struct snapshot *s, const struct snapshot_kept *kept);

#endif
