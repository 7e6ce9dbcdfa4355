/* A history divided into spaces, each with its addresses folded and its live bytes counted. */
#include "cli/view.h"

#include <stdlib.h>
#include <string.h>

/* What was never used between two ranges is folded away if it is longer than this. */
#define FOLD_BYTES (UINT64_C(1) << 20)

enum { REGIONS_MOST = 1024, PAGE_BYTES = 4096 };

/* ---- Who has a space --------------------------------------------------------------------------------- */

struct key {
    uint32_t place; /* process and device */
    uint32_t count; /* blocks */
    uint64_t live, peak;
    uint8_t space;
};

struct keys {
    struct key *keys; /* by place */
    uint32_t count, room;
    uint32_t last; /* found: blocks of a place come in a row */
};

static uint32_t place_of(const format_block *b)
{
    return (uint32_t)b->process << 16 | b->device;
}

/* The first key that is not below `place`. */
static uint32_t keys_search(const struct keys *k, uint32_t place)
{
    uint32_t low = 0, high = k->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (k->keys[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL: no memory. */
static struct key *keys_find(struct keys *k, uint32_t place)
{
    if (k->last < k->count && k->keys[k->last].place == place)
        return &k->keys[k->last];
    uint32_t at = keys_search(k, place);
    if (at == k->count || k->keys[at].place != place) {
        if (k->count == k->room) {
            uint32_t room = k->room ? k->room * 2 : 64;
            struct key *grown = realloc(k->keys, room * sizeof *grown);
            if (!grown)
                return NULL;
            k->keys = grown;
            k->room = room;
        }
        memmove(k->keys + at + 1, k->keys + at, (k->count - at) * sizeof *k->keys);
        k->keys[at] = (struct key){.place = place, .space = VIEW_NO_SPACE};
        k->count++;
    }
    k->last = at;
    return &k->keys[at];
}

static bool keys_count(struct keys *k, const format_history *h)
{
    for (uint32_t e = 0; e < h->event_count; e++) {
        const format_block *b = &h->blocks[h->events[e] / 2];
        struct key *key = keys_find(k, place_of(b));
        if (!key)
            return false;
        if (h->events[e] % 2) {
            key->live -= b->size_bytes;
            continue;
        }
        key->count++;
        key->live += b->size_bytes;
        if (key->live > key->peak)
            key->peak = key->live;
    }
    return true;
}

/* Gives the keys with the highest peaks a space each, the highest first. */
static uint32_t keys_choose(struct keys *k, struct key *chosen[VIEW_SPACES])
{
    uint32_t count = 0;
    while (count < VIEW_SPACES && count < k->count) {
        struct key *best = NULL;
        for (uint32_t i = 0; i < k->count; i++)
            if (k->keys[i].space == VIEW_NO_SPACE && (!best || k->keys[i].peak > best->peak))
                best = &k->keys[i];
        if (!best)
            break;
        best->space = (uint8_t)count;
        chosen[count++] = best;
    }
    return count;
}

static bool spaces_fill(view *v, struct keys *k)
{
    const format_history *h = v->h;
    struct key *chosen[VIEW_SPACES];
    uint32_t count = keys_choose(k, chosen);
    v->spaces_left = k->count - count;
    v->spaces = calloc(count + 1, sizeof *v->spaces);
    v->space_of = malloc((size_t)h->block_count + 1);
    if (!v->spaces || !v->space_of)
        return false;
    v->space_count = count;
    for (uint32_t i = 0; i < count; i++) {
        view_space *s = &v->spaces[i];
        s->process = (uint16_t)(chosen[i]->place >> 16);
        s->device = (uint16_t)chosen[i]->place;
        s->blocks = malloc(((size_t)chosen[i]->count + 1) * sizeof *s->blocks);
        if (!s->blocks)
            return false;
    }
    for (uint32_t i = 0; i < h->block_count; i++) {
        uint8_t number = keys_find(k, place_of(&h->blocks[i]))->space;
        v->space_of[i] = number;
        view_space *s = number < count ? &v->spaces[number] : NULL;
        if (s && s->blocks) /* the second is for an analyzer that does not follow the loop above */
            s->blocks[s->block_count++] = i;
    }
    return true;
}

/* ---- Folding ----------------------------------------------------------------------------------------- */

static uint64_t region_end(const view_region *r)
{
    return r->address + r->size_bytes;
}

/* Joins what is nearer than `fold` and returns how many are left. */
static uint32_t regions_join(view_region *r, uint32_t count, uint64_t fold)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept &&
            (r[i].address <= region_end(&r[kept - 1]) || r[i].address - region_end(&r[kept - 1]) <= fold)) {
            if (region_end(&r[i]) > region_end(&r[kept - 1]))
                r[kept - 1].size_bytes = region_end(&r[i]) - r[kept - 1].address;
        } else {
            r[kept++] = r[i];
        }
    }
    return kept;
}

/* The first region that ends behind `address`. */
static uint32_t regions_search(const view_space *s, uint64_t address)
{
    uint32_t low = 0, high = s->region_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (region_end(&s->regions[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds a range, joined with what is near; twice as far is near when there are too many. False: no memory. */
static bool regions_add(view_space *s, uint64_t address, uint64_t size, uint64_t *fold)
{
    if (address + size < address || !size)
        return true;
    uint64_t end = address + size;
    uint32_t at = regions_search(s, address > *fold ? address - *fold : 0);
    if (at < s->region_count && s->regions[at].address <= (end + *fold < end ? UINT64_MAX : end + *fold)) {
        view_region *r = &s->regions[at];
        uint64_t last = region_end(r) > end ? region_end(r) : end;
        bool grew = last > region_end(r);
        r->address = r->address < address ? r->address : address;
        r->size_bytes = last - r->address;
        uint32_t next = at + 1;
        if (grew && next < s->region_count && s->regions[next].address <= last + *fold)
            s->region_count = regions_join(s->regions, s->region_count, *fold);
        return true;
    }
    if (s->region_count == s->region_room) {
        uint32_t room = s->region_room ? s->region_room * 2 : 64;
        view_region *grown = realloc(s->regions, room * sizeof *grown);
        if (!grown)
            return false;
        s->regions = grown;
        s->region_room = room;
    }
    memmove(s->regions + at + 1, s->regions + at, (s->region_count - at) * sizeof *s->regions);
    s->regions[at] = (view_region){.address = address, .size_bytes = size};
    s->region_count++;
    while (s->region_count > REGIONS_MOST) {
        *fold = *fold > UINT64_MAX / 4 ? *fold : *fold * 2;
        s->region_count = regions_join(s->regions, s->region_count, *fold);
    }
    return true;
}

static bool space_fold(const view *v, view_space *s)
{
    const format_history *h = v->h;
    uint64_t fold = FOLD_BYTES, first = UINT64_MAX;
    for (uint32_t i = 0; i < s->block_count; i++)
        if (!regions_add(s, h->blocks[s->blocks[i]].address, h->blocks[s->blocks[i]].size_bytes, &fold))
            return false;
    for (uint32_t i = 0; i < h->segment_count; i++)
        if (h->segments[i].process == s->process && h->segments[i].device == s->device &&
            !regions_add(s, h->segments[i].address, h->segments[i].size_bytes, &fold))
            return false;
    if (s->region_count && !h->has_times) { /* a plan's arena begins at 0 */
        first = s->regions[0].address;
        if (first <= fold) {
            s->regions[0].address = 0;
            s->regions[0].size_bytes += first;
        }
    }
    for (uint32_t i = 0; i < s->region_count; i++)
        s->range_bytes += s->regions[i].size_bytes;
    uint64_t pad = (s->range_bytes / 256 + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES, at = 0;
    for (uint32_t i = 0; i < s->region_count; i++) {
        view_region *r = &s->regions[i];
        uint64_t skew = r->address % PAGE_BYTES; /* so that what is aligned stays so */
        r->at = at + skew;
        at = (r->at + r->size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES + pad;
        s->extent_bytes = r->at + r->size_bytes;
    }
    return true;
}

uint64_t view_folded(const view_space *s, uint64_t address)
{
    uint32_t i = regions_search(s, address);
    if (i == s->region_count || address < s->regions[i].address)
        return s->extent_bytes; /* nothing of a size is there */
    return s->regions[i].at + (address - s->regions[i].address);
}

/* ---- Live bytes -------------------------------------------------------------------------------------- */

/* One walk for all spaces. */
static bool spaces_count(view *v)
{
    const format_history *h = v->h;
    uint64_t live[VIEW_SPACES] = {0};
    uint32_t blocks[VIEW_SPACES] = {0}, bucket = UINT32_MAX;
    v->bucket_count = h->event_count < VIEW_BUCKETS ? h->event_count : VIEW_BUCKETS;
    for (uint32_t i = 0; i < v->space_count; i++) {
        v->spaces[i].high = calloc(v->bucket_count + 1, sizeof *v->spaces[i].high);
        v->spaces[i].low = calloc(v->bucket_count + 1, sizeof *v->spaces[i].low);
        v->spaces[i].peak.event = FORMAT_ALIVE;
        if (!v->spaces[i].high || !v->spaces[i].low)
            return false;
    }
    for (uint32_t e = 0; e < h->event_count; e++) {
        uint32_t now = (uint32_t)((uint64_t)e * v->bucket_count / h->event_count);
        for (uint32_t i = 0; now != bucket && i < v->space_count; i++)
            v->spaces[i].high[now] = v->spaces[i].low[now] = live[i];
        bool first = now != bucket;
        bucket = now;
        uint8_t number = v->space_of[h->events[e] / 2];
        if (number >= v->space_count)
            continue;
        view_space *s = &v->spaces[number];
        if (!s->high || !s->low) /* never: for an analyzer, as above */
            continue;
        const format_block *b = &h->blocks[h->events[e] / 2];
        live[number] += h->events[e] % 2 ? 0 - b->size_bytes : b->size_bytes;
        blocks[number] += h->events[e] % 2 ? UINT32_MAX : 1;
        if (first) /* the bucket begins with its first event */
            s->high[now] = s->low[now] = live[number];
        s->high[now] = live[number] > s->high[now] ? live[number] : s->high[now];
        s->low[now] = live[number] < s->low[now] ? live[number] : s->low[now];
        if (live[number] > s->peak.bytes)
            s->peak = (format_peak){
                .bytes = live[number], .event = e, .time_ns = b->begin_ns, .blocks = blocks[number]};
    }
    for (uint32_t i = 0; i < v->space_count; i++)
        v->spaces[i].bound_bytes = v->spaces[i].peak.bytes;
    return true;
}

/* ---- Life -------------------------------------------------------------------------------------------- */

bool view_init(view *v, const format_history *h, const char *name)
{
    struct keys keys = {0};
    *v = (view){.h = h, .name = name};
    bool done = keys_count(&keys, h) && spaces_fill(v, &keys) && spaces_count(v);
    free(keys.keys);
    for (uint32_t i = 0; done && h->has_addresses && i < v->space_count; i++)
        done = space_fold(v, &v->spaces[i]);
    return done;
}

void view_finish(view *v)
{
    for (uint32_t i = 0; i < v->space_count; i++) {
        view_space *s = &v->spaces[i];
        free(s->blocks);
        free(s->regions);
        free(s->high);
        free(s->low);
        free(s->planned);
        free(s->kept);
    }
    free(v->spaces);
    free(v->space_of);
    *v = (view){0};
}

/* The program alone of a command line. */
static int program_of(const char *command, const char **name)
{
    size_t length = strcspn(command, " ");
    *name = command;
    for (size_t i = 0; i < length; i++)
        if (command[i] == '/' && i + 1 < length)
            *name = command + i + 1;
    return (int)(length - (size_t)(*name - command));
}

const char *view_space_name(const view *v, const view_space *s, char text[VIEW_NAME_ROOM])
{
    const format_history *h = v->h;
    const char *device =
        s->device < h->device_count ? format_history_words(h, h->devices[s->device].name) : "";
    const char *command =
        s->process < h->process_count ? format_history_words(h, h->commands[s->process]) : "";
    const char *program;
    int length = program_of(command, &program);
    bool several = false;
    for (uint32_t i = 0; i < v->space_count; i++)
        several = several || v->spaces[i].process != s->process;
    device = *device ? device : "host";
    if (several)
        snprintf(text, VIEW_NAME_ROOM, "%.40s, process %u%s%.*s", device, s->process + 1u, length ? ": " : "",
                 length < 80 ? length : 80, program);
    else
        snprintf(text, VIEW_NAME_ROOM, "%.40s%s%.*s", device, length ? ", " : "", length < 80 ? length : 80,
                 program);
    return text;
}
