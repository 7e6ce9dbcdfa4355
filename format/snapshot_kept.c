/* What a snapshot of PyTorch had before its first event: told by frees of what no event allocated, and by the segments and blocks that
 * are listed at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/snapshot.h"

static uint64_t place_key(uint16_t device, uint64_t address)
{
    return (address ^ (uint64_t)device << 56) + 1;
}

static struct place *places_find(const struct snapshot_places *p, uint64_t wanted)
{
    for (size_t i = (size_t)(wanted * UINT64_C(0x9e3779b97f4a7c15) >> 20) & p->mask;; i = (i + 1) & p->mask)
        if (p->items[i].key == wanted || !p->items[i].key)
            return &p->items[i];
}

static bool places_init(struct snapshot_places *p, size_t most)
{
    size_t size = 1024;
    while (size < most * 2)
        size *= 2;
    p->items = calloc(size, sizeof *p->items);
    p->mask = size - 1;
    return p->items != NULL;
}

bool format_snapshot_kept_init(struct snapshot_kept *kept, const struct snapshot *s,
                               const struct format_pickle_object *top)
{
    const struct format_pickle_object *list = snapshot_list(top, SEGMENTS),
                                      *host = snapshot_list(top, HOST_SEGMENTS);
    *kept = (struct snapshot_kept){0};
    return places_init(&kept->blocks, s->count) &&
           places_init(&kept->segments, s->count + (list ? list->count : 0) + (host ? host->count : 0));
}

void format_snapshot_kept_finish(struct snapshot_kept *kept)
{
    free(kept->blocks.items);
    free(kept->segments.items);
}

void format_snapshot_add_freed(struct snapshot *s, struct snapshot_kept *kept, uint64_t start_ns)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct event *e = &s->events[i];
        bool is_segment = e->action == MAP || e->action == UNMAP;
        if (e->action > UNMAP)
            continue;
        struct place *p =
            places_find(is_segment ? &kept->segments : &kept->blocks, place_key(e->device, e->address));
        if (e->action == FREE && !p->alive)
            format_snapshot_add_block(s, e, start_ns);
        p->key = place_key(e->device, e->address);
        p->alive = e->action == ALLOC || e->action == MAP;
    }
}

/* And one that is there at the end, without having been allocated in between. */
static void add_kept_blocks(struct snapshot *s, const struct format_pickle_object *segment, uint16_t device,
                            struct snapshot_kept *kept, uint64_t start_ns)
{
    const struct format_pickle_object *list = snapshot_list(segment, BLOCKS);
    uint64_t address = (uint64_t)format_pickle_number(segment, ADDRESS);
    for (size_t i = 0; list && i < list->count; i++) {
        if (list->items[i].type != FORMAT_PICKLE_DICT)
            continue;
        const struct format_pickle_object *b = list->items[i].as.object;
        uint64_t size = (uint64_t)format_pickle_number(b, SIZE);
        uint64_t asked = (uint64_t)format_pickle_number(b, REQUESTED_SIZE);
        if (format_pickle_get(b, ADDRESS))
            address = (uint64_t)format_pickle_number(b, ADDRESS);
        struct event e = {.address = address,
                          .size_bytes = asked ? asked : size,
                          .stream = (uint64_t)format_pickle_number(segment, STREAM),
                          .stack = format_snapshot_stack(s, format_pickle_get(b, FRAMES)),
                          .device = device};
        const char *state = snapshot_words(s, b, STATE);
        bool active = strncmp(state, "active", 6) == 0;
        if (active && !kept) {
            if (!format_history_find(s->h, 0, device, address))
                format_snapshot_add_old_block(s, &e, start_ns, false);
        } else if (active) {
            const struct place *p = places_find(&kept->blocks, place_key(device, address));
            if (p->key && p->alive)
                active = false;
            else
                format_snapshot_add_block(s, &e, start_ns);
            if (active && strcmp(state, "active_allocated") != 0)
                format_history_wait(s->h, 0, device, address);
        }
        address += size;
    }
}

/* Which pool of PyTorch's cache a segment belongs to, in words, as a text; 0: the file does not say. */
static uint32_t pool_of(struct snapshot *s, const struct format_pickle_object *segment)
{
    const char *type = snapshot_words(s, segment, SEGMENT_TYPE);
    const struct format_pickle_object *id = snapshot_list(segment, SEGMENT_POOL_ID);
    int64_t part[2] = {0};
    char words[96];
    for (size_t i = 0; id && i < id->count && i < 2; i++)
        part[i] = format_pickle_value_number(&id->items[i]);
    if (part[0] || part[1]) /* of a graph, or one that the program has made */
        snprintf(words, sizeof words, "%.40s%sprivate (%lld, %lld)", type, *type ? ", " : "",
                 (long long)part[0], (long long)part[1]);
    else
        snprintf(words, sizeof words, "%.40s", type);
    return format_history_text(s->h, words, strlen(words));
}

/* A segment that is there at the end and of which no event tells was there from the start. */
static void add_kept_segment(struct snapshot *s, const struct format_pickle_object *segment, uint16_t device,
                             struct snapshot_kept *kept, uint64_t start_ns)
{
    uint64_t address = (uint64_t)format_pickle_number(segment, ADDRESS);
    uint32_t pool = pool_of(s, segment);
    struct place *p = kept ? places_find(&kept->segments, place_key(device, address)) : NULL;
    bool known = p ? p->key != 0 : format_history_has_segment(s->h, 0, device, address);
    if (p) {
        p->key = place_key(device, address);
        p->pool = pool;
    }
    if (!known)
        format_history_map(
            s->h, &(format_segment){.address = address,
                                    .size_bytes = (uint64_t)format_pickle_number(segment, TOTAL_SIZE),
                                    .begin_ns = start_ns,
                                    .stream = (uint64_t)format_pickle_number(segment, STREAM),
                                    .pool = pool,
                                    .device = device,
                                    .stands_alone = !format_pickle_number(segment, IS_EXPANDABLE)});
}

static void add_kept_list(struct snapshot *s, const struct format_pickle_object *list, bool is_host,
                          struct snapshot_kept *kept, uint64_t start_ns)
{
    for (size_t i = 0; list && i < list->count; i++) {
        if (list->items[i].type != FORMAT_PICKLE_DICT)
            continue;
        const struct format_pickle_object *segment = list->items[i].as.object;
        uint16_t device = is_host ? format_snapshot_device(s->h, "pinned", 0)
                                  : format_snapshot_told_device(s->h, format_pickle_number(segment, DEVICE));
        add_kept_segment(s, segment, device, kept, start_ns);
        add_kept_blocks(s, segment, device, kept, start_ns);
    }
}

void format_snapshot_add_kept(struct snapshot *s, const struct format_pickle_object *top,
                              struct snapshot_kept *kept, uint64_t start_ns)
{
    add_kept_list(s, snapshot_list(top, SEGMENTS), false, kept, start_ns);
    add_kept_list(s, snapshot_list(top, HOST_SEGMENTS), true, kept, start_ns);
}

void format_snapshot_name_pools(struct snapshot *s, const struct snapshot_kept *kept)
{
    for (uint32_t i = 0; i < s->h->segment_count; i++) {
        format_segment *g = &s->h->segments[i];
        if (g->end == FORMAT_ALIVE && !g->pool)
            g->pool = places_find(&kept->segments, place_key(g->device, g->address))->pool;
    }
}
