/* The events, segments and moments of a history in one order. */
#include <stdlib.h>

#include "format/outputs.h"
#include "format/site.h"

struct ended {
    uint64_t time_ns;
    uint32_t position, segment;
};

static int compare_ended(const void *a, const void *b)
{
    const struct ended *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->segment < y->segment ? -1 : x->segment > y->segment;
}

bool format_steps_begin(format_steps *s, const format_history *h)
{
    *s = (format_steps){.h = h};
    struct ended *ended = malloc(((size_t)h->segment_count + 1) * sizeof *ended);
    s->ended = malloc(((size_t)h->segment_count + 1) * sizeof *s->ended);
    if (!ended || !s->ended) {
        free(ended);
        return false;
    }
    for (uint32_t i = 0; i < h->segment_count; i++)
        if (h->segments[i].end != FORMAT_ALIVE)
            ended[s->ended_count++] = (struct ended){h->segments[i].end_ns, h->segments[i].end, i};
    qsort(ended, s->ended_count, sizeof *ended, compare_ended);
    for (uint32_t i = 0; i < s->ended_count; i++)
        s->ended[i] = ended[i].segment;
    free(ended);
    return true;
}

/* What comes before the next event: a segment ends before another begins at the same time, but not before it began itself. */
static bool next_aside(format_steps *s, format_step *step)
{
    const format_history *h = s->h;
    const format_segment *map = s->segment < h->segment_count ? &h->segments[s->segment] : NULL;
    const format_segment *unmap = s->end < s->ended_count ? &h->segments[s->ended[s->end]] : NULL;
    const format_moment *moment = s->moment < h->moment_count ? &h->moments[s->moment] : NULL;
    map = map && map->begin <= s->event ? map : NULL;
    unmap = unmap && unmap->end <= s->event ? unmap : NULL;
    moment = moment && moment->before <= s->event ? moment : NULL;
    if (map && unmap) {
        if (s->ended[s->end] >= s->segment || map->begin_ns < unmap->end_ns)
            unmap = NULL;
        else
            map = NULL;
    }
    uint64_t time = map ? map->begin_ns : unmap ? unmap->end_ns : UINT64_MAX;
    if (moment && moment->time_ns < time)
        *step = (format_step){FORMAT_STEP_MOMENT, s->moment++, moment->time_ns};
    else if (map)
        *step = (format_step){FORMAT_STEP_MAP, s->segment++, time};
    else if (unmap)
        *step = (format_step){FORMAT_STEP_UNMAP, s->ended[s->end++], time};
    else
        return false;
    return true;
}

bool format_steps_next(format_steps *s, format_step *step)
{
    const format_history *h = s->h;
    if (!next_aside(s, step)) {
        if (s->event == h->event_count)
            return false;
        uint32_t event = h->events[s->event++];
        const format_block *b = &h->blocks[event / 2];
        *step = event & 1 ? (format_step){FORMAT_STEP_FREE, event / 2, b->end_ns}
                          : (format_step){FORMAT_STEP_ALLOC, event / 2, b->begin_ns};
    }
    s->time_ns = step->time_ns > s->time_ns ? step->time_ns : s->time_ns;
    step->time_ns = s->time_ns;
    return true;
}

void format_steps_end(format_steps *s)
{
    free(s->ended);
    *s = (format_steps){0};
}

/* ---- Names and devices ---------------------------------------------------------------------------------- */

/* The function to name for a stack; if all are general, the innermost. */
static uint32_t stack_name(const format_history *h, uint32_t stack)
{
    enum { DEEPEST = 4096 }; /* a damaged file may have circles */
    uint32_t named = 0, depth = 0;
    for (uint32_t at = stack; at && at < h->frame_count && depth < DEEPEST;
         at = h->frames[at].caller, depth++) {
        const format_frame *f = &h->frames[at];
        if (f->function && !format_site_is_general(h, f))
            return f->function;
        named = named ? named : f->function;
    }
    return named;
}

bool format_names_init(format_names *names, const format_history *h)
{
    *names = (format_names){h, malloc(((size_t)h->frame_count + 1) * sizeof(uint32_t))};
    for (uint32_t i = 0; names->functions && i <= h->frame_count; i++)
        names->functions[i] = UINT32_MAX;
    return names->functions;
}

void format_names_finish(format_names *names)
{
    free(names->functions);
    *names = (format_names){0};
}

const char *format_block_name(format_names *names, const format_block *b)
{
    if (b->label)
        return format_history_words(names->h, b->label);
    if (!b->stack || b->stack >= names->h->frame_count)
        return "";
    uint32_t *function = &names->functions[b->stack];
    if (*function == UINT32_MAX)
        *function = stack_name(names->h, b->stack);
    return *function ? format_history_words(names->h, *function) : "";
}

uint16_t format_main_device(const format_history *h)
{
    uint16_t most = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->device_count && i < FORMAT_ANY_DEVICE; i++) {
        uint64_t peak = format_history_peak(h, (uint16_t)i).bytes;
        if (peak > bytes) {
            bytes = peak;
            most = (uint16_t)i;
        }
    }
    return most;
}

static bool same_text(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

uint16_t format_find_device(const format_history *h, const char *name)
{
    if (same_text(name, "host") || same_text(name, "cpu"))
        return 0;
    for (uint32_t i = 1; i < h->device_count; i++)
        if (same_text(format_history_words(h, h->devices[i].name), name))
            return (uint16_t)i;
    return FORMAT_ANY_DEVICE;
}

uint32_t format_used_devices(const format_history *h)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->device_count && i < FORMAT_ANY_DEVICE; i++)
        count += format_history_peak(h, (uint16_t)i).event != FORMAT_ALIVE;
    return count;
}
