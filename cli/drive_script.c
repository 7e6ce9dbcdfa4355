/* The script of a recording: its events by thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/drive.h"

/* ---- Threads ------------------------------------------------------------------------------------------ */

/* Which lane a thread's events go to. */
typedef struct thread_map {
    uint32_t *threads, *lanes; /* threads in order */
    uint32_t count;
} thread_map;

static int number_compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* What is driven of a history. */
typedef struct choice {
    const format_history *h;
    uint16_t device, process;
} choice;

static bool is_chosen(const choice *c, const format_block *b)
{
    return b->process == c->process && b->device == c->device;
}

static uint32_t thread_of(const format_history *h, uint32_t event)
{
    const format_block *b = &h->blocks[h->events[event] / 2];
    return h->events[event] & 1 ? b->end_thread : b->thread;
}

static bool map_init(thread_map *m, const choice *c)
{
    m->threads = malloc(((size_t)c->h->event_count + 1) * sizeof *m->threads);
    uint32_t count = 0, kept = 0;
    if (!m->threads)
        return false;
    for (uint32_t i = 0; i < c->h->event_count; i++) {
        const uint32_t thread = thread_of(c->h, i);
        if (is_chosen(c, &c->h->blocks[c->h->events[i] / 2]) && (!count || m->threads[count - 1] != thread))
            m->threads[count++] = thread;
    }
    if (count)
        qsort(m->threads, count, sizeof *m->threads, number_compare);
    for (uint32_t i = 0; i < count; i++)
        if (!kept || m->threads[i] != m->threads[kept - 1])
            m->threads[kept++] = m->threads[i];
    m->count = kept;
    m->lanes = calloc((size_t)kept + 1, sizeof *m->lanes);
    for (uint32_t i = 0; m->lanes && i < kept;
         i++) /* beyond the most, several threads share one: their events stay in order */
        m->lanes[i] = i % DRIVE_LANES_MOST;
    return m->lanes != NULL;
}

static void map_finish(thread_map *m)
{
    free(m->threads);
    free(m->lanes);
}

static uint32_t map_lane(const thread_map *m, uint32_t thread)
{
    uint32_t low = 0, high = m->count;
    while (low + 1 < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (m->threads[middle] <= thread)
            low = middle;
        else
            high = middle;
    }
    return m->lanes[low];
}

/* ---- Counting ----------------------------------------------------------------------------------------- */

/* What each lane will have, and where the next of it goes. */
typedef struct lane_plan {
    uint64_t events, parts, blocks;
    uint64_t next_event, next_part, next_block;
    uint32_t stretch; /* of the last part; + 1 */
} lane_plan;

typedef struct script_plan {
    choice choice;
    thread_map map;
    lane_plan lanes[DRIVE_LANES_MOST];
    uint32_t *slots; /* by block: lanes have theirs beside each other, so that they share no cache line */
    uint32_t lane_count;
    uint64_t events, parts, blocks, live_bytes, peak_bytes, largest_bytes;
} script_plan;

static void plan_event(script_plan *p, uint32_t event)
{
    const format_history *h = p->choice.h;
    const format_block *b = &h->blocks[h->events[event] / 2];
    lane_plan *lane = &p->lanes[map_lane(&p->map, thread_of(h, event))];
    const uint32_t stretch = (uint32_t)(p->events++ / DRIVE_STRETCH) + 1;
    lane->events++;
    lane->parts += lane->stretch != stretch;
    lane->stretch = stretch;
    if (h->events[event] & 1) {
        p->live_bytes -= b->size_bytes;
        return;
    }
    lane->blocks++;
    p->blocks++;
    p->live_bytes += b->size_bytes;
    p->peak_bytes = p->live_bytes > p->peak_bytes ? p->live_bytes : p->peak_bytes;
    p->largest_bytes = b->size_bytes > p->largest_bytes ? b->size_bytes : p->largest_bytes;
}

static bool plan_count(script_plan *p)
{
    const format_history *h = p->choice.h;
    p->slots = malloc(((size_t)h->block_count + 1) * sizeof *p->slots);
    if (!p->slots || !map_init(&p->map, &p->choice))
        return false;
    p->lane_count = p->map.count < DRIVE_LANES_MOST ? p->map.count : DRIVE_LANES_MOST;
    for (uint32_t i = 0; i < h->event_count; i++)
        if (is_chosen(&p->choice, &h->blocks[h->events[i] / 2]))
            plan_event(p, i);
    uint64_t event = 0, part = 0, block = 0;
    for (uint32_t i = 0; i < p->lane_count; i++) {
        lane_plan *lane = &p->lanes[i];
        lane->next_event = event;
        lane->next_part = part;
        lane->next_block = block;
        lane->stretch = 0;
        event += lane->events;
        part += lane->parts;
        block += lane->blocks;
    }
    p->parts = part;
    return true;
}

/* ---- Writing ------------------------------------------------------------------------------------------ */

static uint64_t take_room(uint64_t *size, uint64_t count, uint64_t item_bytes)
{
    const uint64_t at = (*size + 63) & ~(uint64_t)63;
    *size = at + count * item_bytes;
    return at;
}

static drive_script layout(const script_plan *p)
{
    drive_script s = {.event_count = p->events,
                      .live_bytes = p->peak_bytes,
                      .largest_bytes = p->largest_bytes,
                      .lane_count = p->lane_count,
                      .block_count = (uint32_t)p->blocks,
                      .stretch_count = (uint32_t)((p->events + DRIVE_STRETCH - 1) / DRIVE_STRETCH),
                      .size_bytes = sizeof(drive_script)};
    s.lanes = take_room(&s.size_bytes, p->lane_count, sizeof(drive_lane));
    s.parts = take_room(&s.size_bytes, p->parts, sizeof(drive_part));
    s.events = take_room(&s.size_bytes, p->events, sizeof(uint32_t));
    s.sizes = take_room(&s.size_bytes, p->blocks, sizeof(uint64_t));
    s.lefts = take_room(&s.size_bytes, s.stretch_count, sizeof(uint32_t));
    return s;
}

static void write_lanes(drive_script *s, script_plan *p)
{
    const format_history *h = p->choice.h;
    char *base = (char *)s;
    drive_lane *lanes = (drive_lane *)(void *)(base + s->lanes);
    drive_part *parts = (drive_part *)(void *)(base + s->parts);
    uint32_t *events = (uint32_t *)(void *)(base + s->events), *lefts = (uint32_t *)(void *)(base + s->lefts);
    uint64_t *sizes = (uint64_t *)(void *)(base + s->sizes), done = 0;
    for (uint32_t i = 0; i < s->lane_count; i++)
        lanes[i] = (drive_lane){.first_event = p->lanes[i].next_event, .first_part = p->lanes[i].next_part};
    for (uint32_t i = 0; i < h->event_count; i++) {
        const uint32_t block = h->events[i] / 2, frees = h->events[i] & 1;
        if (!is_chosen(&p->choice, &h->blocks[block]))
            continue;
        const uint32_t number = map_lane(&p->map, thread_of(h, i)),
                       stretch = (uint32_t)(done++ / DRIVE_STRETCH);
        lane_plan *lane = &p->lanes[number];
        if (lane->stretch != stretch + 1) {
            parts[lane->next_part++] = (drive_part){.stretch = stretch};
            lane->stretch = stretch + 1;
            lanes[number].part_count++;
            lefts[stretch]++;
        }
        parts[lane->next_part - 1].event_count++;
        if (!frees) {
            p->slots[block] = (uint32_t)lane->next_block++;
            sizes[p->slots[block]] = h->blocks[block].size_bytes;
        }
        events[lane->next_event++] = p->slots[block] * 2 + frees;
    }
}

uint16_t drive_main_process(const format_history *h, uint16_t device, uint32_t *process_count)
{
    uint32_t *counts = calloc(UINT16_MAX + 1, sizeof *counts);
    uint32_t best = 0;
    *process_count = 0;
    for (uint32_t i = 0; counts && i < h->block_count; i++)
        if (h->blocks[i].device == device && counts[h->blocks[i].process]++ == 0)
            ++*process_count;
    for (uint32_t i = 0; counts && i <= UINT16_MAX; i++)
        best = counts[i] > counts[best] ? i : best;
    free(counts);
    return (uint16_t)best;
}

drive_script *drive_script_create(const format_history *h, uint16_t device, uint16_t process, bool touches,
                                  uint32_t *thread_count, int *file)
{
    script_plan *p = calloc(1, sizeof *p);
    drive_script *script = NULL;
    *file = -1;
    if (p)
        p->choice = (choice){h, device, process};
    if (p && plan_count(p)) {
        drive_script s = layout(p);
        s.touches = touches;
        *thread_count = p->map.count;
        *file = memfd_create("berth drive", 0);
        void *room = MAP_FAILED;
        if (*file >= 0 && ftruncate(*file, (off_t)s.size_bytes) == 0)
            room = mmap(NULL, s.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
        if (room != MAP_FAILED) {
            script = room;
            *script = s;
            write_lanes(script, p);
        } else if (*file >= 0)
            close(*file);
    }
    if (p) {
        map_finish(&p->map);
        free(p->slots);
    }
    free(p);
    return script;
}

void drive_script_destroy(drive_script *script, int file)
{
    if (!script)
        return;
    munmap(script, script->size_bytes);
    close(file);
}
