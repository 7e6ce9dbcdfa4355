/* PyTorch's memory snapshots (torch.cuda.memory._dump_snapshot) as histories.
 *
 *     {'segments': [{address, total_size, blocks: [{address, size, requested_size, state, frames}]}],
 *      'device_traces': [[{action, addr, size, stream, time_us, frames, user_metadata}, …] a device],
 *      'host_segments', 'host_traces': the same of pinned memory, whose events are one list,
 *      'external_annotations': [{stage, name, device, time_us}]}
 *
 * or the list of segments alone, which torch.cuda.memory_snapshot() gives.
 *
 * A trace keeps the last events only: what was alive before them is told by frees of blocks that no event allocated, and by
 * the segments, which are of the end. For a tally events are taken as they come and not kept: a block that is freed without
 * having been allocated makes all that was counted before larger by it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/snapshot.h"

static const char *const keys[KEYS_END - 1] = {
    "action",        "addr",          "address",       "size",         "requested_size",
    "total_size",    "stream",        "time_us",       "frames",       "filename",
    "line",          "name",          "blocks",        "state",        "device",
    "segments",      "device_free",   "is_expandable", "segment_type", "segment_pool_id",
    "host_segments", "user_metadata", "stage"};

static const struct known_action {
    const char *word;
    uint8_t action;
    bool stands_alone;
} actions[] = {
    {"alloc", ALLOC, false},
    {"free_completed", FREE, false},
    {"free", FREE, false},
    {"segment_alloc", MAP, true},
    {"segment_map", MAP, false},
    {"segment_free", UNMAP, false},
    {"segment_unmap", UNMAP, false},
    {"oom", OOM, false},
    {"snapshot", MARKED, false},
    {"free_requested", LET_GO, false}}; /* the block is still taken until its streams have passed */
enum { ACTION_COUNT = sizeof actions / sizeof actions[0] };

static bool add_words(format_history *h)
{
    bool as_told = true;
    for (uint32_t i = 0; i < KEYS_END - 1; i++)
        as_told &= format_history_text(h, keys[i], strlen(keys[i])) == i + 1;
    for (uint32_t i = 0; i < ACTION_COUNT; i++)
        as_told &= format_history_text(h, actions[i].word, strlen(actions[i].word)) == FIRST_ACTION + i;
    return as_told;
}

static uint32_t text_at(const struct format_pickle_object *dict, uint32_t name)
{
    const format_pickle_value *v = format_pickle_get(dict, name);
    return v && v->type == FORMAT_PICKLE_TEXT ? (uint32_t)v->as.number : 0;
}
/* ---- Stacks ------------------------------------------------------------------------------------------- */

/* A list of frames, innermost first. Events of one place share the list: its stack is kept in its tag. */
uint32_t format_snapshot_stack(struct snapshot *s, const format_pickle_value *v)
{
    if (!v || v->type != FORMAT_PICKLE_LIST)
        return 0;
    struct format_pickle_object *frames = v->as.object;
    if (frames->tag)
        return frames->tag - 1;
    uint32_t stack = 0;
    for (size_t i = frames->count; i-- > 0;) {
        if (frames->items[i].type != FORMAT_PICKLE_DICT)
            continue;
        const struct format_pickle_object *f = frames->items[i].as.object;
        format_frame frame = {.caller = stack,
                              .function = text_at(f, NAME),
                              .file = text_at(f, FILENAME),
                              .line = (uint32_t)format_pickle_number(f, LINE)};
        stack = format_history_frame(s->h, &frame);
    }
    frames->tag = stack + 1;
    return stack;
}

/* ---- Events ------------------------------------------------------------------------------------------- */

/* Whether the last event of the list let go of the block there. */
static bool is_let_go(const struct snapshot *s, const struct format_pickle_object *list, uint64_t address)
{
    const struct event *last = s->events && s->count ? &s->events[s->count - 1] : NULL;
    return last && last->action == LET_GO && last->address == address && last->device == list->tag;
}

static void add_event(struct snapshot *s, const struct event *e);

void format_snapshot_add_old_block(struct snapshot *s, const struct event *e, uint64_t start_ns, bool ended)
{
    format_history_was_there(s->h,
                             &(format_block){.address = e->address,
                                             .size_bytes = e->size_bytes,
                                             .begin_ns = start_ns,
                                             .stream = e->stream,
                                             .stack = e->stack,
                                             .label = e->label,
                                             .device = e->device},
                             ended);
}

/* For a tally: devices by the lists of their events until the end, when the names are known. */
static void count_event(struct snapshot *s, struct event *e)
{
    char name[16];
    if (e->device < TRACES_MOST && !s->devices[e->device]) {
        snprintf(name, sizeof name, "list %u", (unsigned)e->device);
        s->devices[e->device] = format_history_device(s->h, name);
        s->start_ns = e->time_ns;
    }
    e->device = e->device < TRACES_MOST ? s->devices[e->device] : 0;
    if (e->action == FREE && !format_history_find(s->h, 0, e->device, e->address))
        format_snapshot_add_old_block(s, e, s->start_ns, true);
    else
        add_event(s, e);
}

static bool keep_event(struct snapshot *s, const struct event *e)
{
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 1024;
        void *grown = realloc(s->events, room * sizeof *s->events);
        if (!grown)
            return false;
        s->events = grown;
        s->room = room;
    }
    s->events[s->count] = *e;
    return true;
}

/* What a dictionary has under the keys we know, in one pass: asking for one after another took a fifth of the time. Of two
 * values under one key the first counts, as format_pickle_get has it. */
static void find_fields(const struct format_pickle_object *item, const format_pickle_value *fields[KEYS_END])
{
    for (size_t i = item->count / 2; i-- > 0;) {
        const format_pickle_value *name = &item->items[2 * i];
        if (name->type == FORMAT_PICKLE_TEXT && name->as.number < KEYS_END)
            fields[name->as.number] = name + 1;
    }
}

static uint64_t number_of(const format_pickle_value *value)
{
    return (uint64_t)format_pickle_value_number(value);
}

static uint64_t time_of(const format_pickle_value *value)
{
    uint64_t time_us = number_of(value);
    return time_us < UINT64_MAX / 1000 ? time_us * 1000 : 0;
}

/* Nothing is less than nothing. */
static uint64_t size_of(const format_pickle_value *value)
{
    int64_t size = format_pickle_value_number(value);
    return size < 0 ? 0 : (uint64_t)size;
}

/* What the program has said of an allocation; of a free it is what was said last. */
static uint32_t label_of(const format_pickle_value *value, enum action action)
{
    return value && value->type == FORMAT_PICKLE_TEXT && (action == ALLOC || action == OOM)
               ? (uint32_t)value->as.number
               : 0;
}

static void add_or_count(struct snapshot *s, struct event *e)
{
    bool kept = true;
    if (s->h->tally)
        count_event(s, e);
    else
        kept = keep_event(s, e);
    if (kept)
        s->count++;
    else
        s->h->no_memory = true;
}

/* What the program was doing, as it told its profiler: where it begins is a named moment. For a tally it is nothing. */
static bool take_note(struct snapshot *s, const format_pickle_value *fields[KEYS_END])
{
    const format_pickle_value *stage = fields[STAGE], *name = fields[NAME];
    if (!stage || !name || stage->type != FORMAT_PICKLE_TEXT || name->type != FORMAT_PICKLE_TEXT)
        return false;
    struct event e = {.time_ns = time_of(fields[TIME_US]),
                      .address = number_of(fields[DEVICE]),
                      .label = (uint32_t)name->as.number,
                      .order = s->count,
                      .action = NOTED};
    if (s->h->tally || strcmp(format_history_words(s->h, (uint32_t)stage->as.number), "START") != 0)
        return true;
    s->notes++;
    add_or_count(s, &e);
    return true;
}

/* As format_pickle_item: whatever list of dictionaries has actions is a trace. */
static bool take_event(void *context, struct format_pickle_object *list,
                       const struct format_pickle_object *item)
{
    struct snapshot *s = context;
    const format_pickle_value *fields[KEYS_END] = {0};
    find_fields(item, fields);
    if (!fields[ACTION] || fields[ACTION]->type != FORMAT_PICKLE_TEXT)
        return take_note(s, fields);
    if (!list->tag)
        list->tag = ++s->traces;
    uint64_t which = (uint64_t)fields[ACTION]->as.number - FIRST_ACTION;
    if (which >= ACTION_COUNT)
        return true;
    struct event e = {.time_ns = time_of(fields[TIME_US]),
                      .address = number_of(fields[ADDR]),
                      .size_bytes = size_of(fields[SIZE]),
                      .stream = number_of(fields[STREAM]),
                      .stack = format_snapshot_stack(s, fields[FRAMES]),
                      .label = label_of(fields[USER_METADATA], actions[which].action),
                      .device = (uint16_t)list->tag, /* which list: its device is known at the end */
                      .action = actions[which].action,
                      .stands_alone = actions[which].stands_alone};
    if (e.action == FREE && is_let_go(s, list, e.address))
        s->count--; /* nobody waited: one event tells it all */
    e.order = s->count;
    if (e.action == OOM && fields[DEVICE_FREE]) {
        e.address = number_of(fields[DEVICE_FREE]);
        e.knows_free = true;
    }
    add_or_count(s, &e);
    return true;
}

static void take_progress(void *context, uint64_t done, uint64_t all)
{
    struct snapshot *s = context;
    /* What has been read is not needed in memory any more. */
    size_t passed = (size_t)done & ~(size_t)((1 << 20) - 1);
    if (passed > s->let_go && madvise((char *)s->bytes + s->let_go, passed - s->let_go, MADV_DONTNEED) == 0)
        s->let_go = passed;
    if (s->progress)
        s->progress(s->context, done, all);
}

static int compare_events(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Traces stand one behind the other in the order of devices, those without events too; times of one never go back. */
static void order_events(struct snapshot *s)
{
    uint64_t last = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->events[i].action == NOTED) /* those stand behind all traces */
            continue;
        if (i && s->events[i].device != s->events[i - 1].device)
            last = 0;
        if (s->events[i].time_ns < last)
            s->events[i].time_ns = last;
        last = s->events[i].time_ns;
    }
    if (s->traces > 1 || s->notes)
        qsort(s->events, s->count, sizeof *s->events, compare_events);
}

/* ---- Devices ------------------------------------------------------------------------------------------- */

uint16_t format_snapshot_device(format_history *h, const char *kind, uint64_t ordinal)
{
    char name[64];
    snprintf(name, sizeof name, "%s:%llu", kind, (unsigned long long)ordinal);
    return format_history_device(h, name);
}

uint16_t format_snapshot_told_device(format_history *h, int64_t ordinal)
{
    return ordinal < 0 ? format_history_device(h, "cpu")
                       : format_snapshot_device(h, "cuda", (uint64_t)ordinal);
}

/* The lists that events came from stand under a key of the whole; their places there are their devices. */
static void name_traces(struct snapshot *s, const struct format_pickle_object *top,
                        uint16_t devices[TRACES_MOST])
{
    for (size_t i = 0; i + 1 < top->count; i += 2) {
        const format_pickle_value *name = &top->items[i], *value = &top->items[i + 1];
        if (name->type != FORMAT_PICKLE_TEXT || value->type != FORMAT_PICKLE_LIST)
            continue;
        bool is_host = strstr(format_history_words(s->h, (uint32_t)name->as.number), "host") != NULL;
        const struct format_pickle_object *list = value->as.object;
        if (list->tag && list->tag < TRACES_MOST)
            devices[list->tag] = format_snapshot_device(s->h, is_host ? "pinned" : "cuda", 0);
        for (size_t j = 0; j < list->count; j++)
            if (list->items[j].type == FORMAT_PICKLE_LIST && list->items[j].as.object->tag &&
                list->items[j].as.object->tag < TRACES_MOST)
                devices[list->items[j].as.object->tag] =
                    format_snapshot_device(s->h, is_host ? "pinned" : "cuda", j);
    }
}

static void set_devices(struct snapshot *s, const struct format_pickle_object *top)
{
    uint16_t devices[TRACES_MOST] = {0};
    name_traces(s, top, devices);
    for (size_t i = 0; i < s->count; i++) {
        struct event *e = &s->events[i];
        e->device = e->action == NOTED        ? format_snapshot_told_device(s->h, (int64_t)e->address)
                    : e->device < TRACES_MOST ? devices[e->device]
                                              : 0;
    }
}

/* ---- All of it ----------------------------------------------------------------------------------------- */

void format_snapshot_add_block(struct snapshot *s, const struct event *e, uint64_t time_ns)
{
    format_history_alloc(s->h, &(format_block){.address = e->address,
                                               .size_bytes = e->size_bytes,
                                               .begin_ns = time_ns,
                                               .stream = e->stream,
                                               .stack = e->stack,
                                               .label = e->label,
                                               .device = e->device});
}

static void add_event(struct snapshot *s, const struct event *e)
{
    format_moment moment = {.time_ns = e->time_ns,
                            .size_bytes = e->size_bytes,
                            .stream = e->stream,
                            .stack = e->stack,
                            .label = e->label,
                            .device = e->device,
                            .free_bytes = e->address,
                            .knows_free = e->knows_free};
    switch ((enum action)e->action) {
    case ALLOC:
        format_snapshot_add_block(s, e, e->time_ns);
        break;
    case FREE:
        format_history_free(s->h, 0, e->device, e->address, e->time_ns);
        break;
    case MAP:
        format_history_map(s->h, &(format_segment){.address = e->address,
                                                   .size_bytes = e->size_bytes,
                                                   .begin_ns = e->time_ns,
                                                   .stream = e->stream,
                                                   .stack = e->stack,
                                                   .device = e->device,
                                                   .stands_alone = e->stands_alone});
        break;
    case UNMAP:
        format_history_unmap(s->h, 0, e->device, e->address, e->size_bytes, e->time_ns);
        break;
    case LET_GO:
        format_history_wait(s->h, 0, e->device, e->address);
        break;
    case NOTED:
        format_history_moment(
            s->h, &(format_moment){.time_ns = e->time_ns, .label = e->label, .device = e->device});
        break;
    case MARKED:
        moment.size_bytes = 0;
        moment.label = format_history_text(s->h, "snapshot", strlen("snapshot"));
        __attribute__((fallthrough));
    case OOM:
        format_history_moment(s->h, &moment);
        break;
    }
}

/* For a tally: the devices get their names, and what was there from the start to the end is counted. */
static void count_kept(struct snapshot *s, const struct format_pickle_object *top)
{
    uint16_t named[TRACES_MOST] = {0};
    name_traces(s, top, named);
    for (uint32_t i = 1; i < TRACES_MOST; i++)
        if (named[i] && s->devices[i])
            s->h->devices[s->devices[i]].name = s->h->devices[named[i]].name;
    format_snapshot_add_kept(s, top, NULL, s->start_ns);
}

static void add_all(struct snapshot *s, const struct format_pickle_object *top)
{
    if (s->h->tally) {
        count_kept(s, top);
        return;
    }
    struct snapshot_kept kept;
    set_devices(s, top);
    order_events(s);
    uint64_t start_ns = s->count ? s->events[0].time_ns : 0;
    if (!format_snapshot_kept_init(&kept, s, top)) {
        s->h->no_memory = true;
    } else {
        format_snapshot_add_freed(s, &kept, start_ns);
        format_snapshot_add_kept(s, top, &kept, start_ns);
        for (size_t i = 0; i < s->count && !s->h->no_memory; i++)
            add_event(s, &s->events[i]);
        format_snapshot_name_pools(s, &kept);
    }
    format_snapshot_kept_finish(&kept);
}

static void say_if_empty(struct snapshot *s)
{
    if (s->count > s->notes)
        return;
    bool is_cpu =
        s->h->device_count > 1 && strcmp(format_history_words(s->h, s->h->devices[1].name), "cpu") == 0;
    format_history_notice(s->h,
                          is_cpu ? "the snapshot has no events, only what was alive when it was made: "
                                   "berth_torch.trace() writes them"
                                 : "the snapshot has no events, only what was alive when it was made: call "
                                   "torch.cuda.memory._record_memory_history() before");
}

/* A list of segments, as far as its first item tells. */
static bool is_segments(const format_pickle_value *top)
{
    const struct format_pickle_object *list = top->type == FORMAT_PICKLE_LIST ? top->as.object : NULL;
    return list && list->count && list->items[0].type == FORMAT_PICKLE_DICT &&
           snapshot_list(list->items[0].as.object, BLOCKS);
}

static berth_status read_bytes(const char *path, const void *bytes, size_t size_bytes, struct snapshot *s,
                               format_error *error)
{
    format_pickle *pickle = NULL;
    format_pickle_value top;
    format_error inner;
    berth_status status =
        format_pickle_read(bytes, size_bytes, s->h, take_event, take_progress, s, &pickle, &top, &inner);
    if (status)
        return format_fail(error, status, "%s: %s", path, inner.words);
    format_pickle_value alone[] = {{FORMAT_PICKLE_TEXT, {.number = SEGMENTS}}, top};
    struct format_pickle_object whole = {.items = alone, .count = 2};
    if (top.type == FORMAT_PICKLE_DICT &&
        (s->count || snapshot_list(top.as.object, SEGMENTS) || snapshot_list(top.as.object, HOST_SEGMENTS)))
        add_all(s, top.as.object), say_if_empty(s);
    else if (is_segments(&top))
        add_all(s, &whole), say_if_empty(s);
    else
        status = format_fail(error, BERTH_BAD_DATA,
                             "%s is a pickle, but no memory snapshot of PyTorch: it has no segments", path);
    format_pickle_destroy(pickle);
    return status;
}

berth_status format_snapshot_read(const char *path, format_history *h, format_progress progress,
                                  void *context, format_error *error)
{
    struct stat info;
    berth_status status = BERTH_OK;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info)) {
        status = format_fail(error, BERTH_IO, "%s: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        return status;
    }
    size_t size_bytes = (size_t)info.st_size;
    void *bytes = mmap(NULL, size_bytes ? size_bytes : 1, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED)
        return format_fail(error, BERTH_IO, "%s: %s", path, strerror(errno));
    (void)madvise(bytes, size_bytes, MADV_SEQUENTIAL);
    struct snapshot s = {.h = h, .progress = progress, .context = context, .bytes = bytes};
    if (format_history_begin(h, "PyTorch snapshot")) {
        if (add_words(h))
            status = read_bytes(path, bytes, size_bytes, &s, error);
    }
    munmap(bytes, size_bytes ? size_bytes : 1);
    free(s.events);
    format_history_close(h);
    if (!status && h->no_memory)
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the events of %s", path);
    if (status)
        format_history_finish(h);
    return status;
}
