/* Lives in groups, and the peaks that changes would give. */
#include "cli/lives.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "berth/problem.h"

/* ---- Making ------------------------------------------------------------------------------------------ */

uint64_t lives_round_up(const lives *l, uint64_t bytes)
{
    uint64_t rest = bytes % l->alignment;
    return rest && bytes <= UINT64_MAX - l->alignment ? bytes + (l->alignment - rest) : bytes;
}

/* Labels come first, then call sites, then a request whose label and site no block has. */
static uint32_t group_of(const lives *l, uint32_t label, uint32_t stack)
{
    uint32_t at = label ? l->labels.of[label] : l->sites.of[stack];
    if (at == UINT32_MAX)
        return l->group_count - 1;
    return label ? at : l->labels.count + at;
}

uint32_t lives_end_of(const lives *l, const format_block *b)
{
    return b->end == FORMAT_ALIVE ? l->states : b->end + 1;
}

static bool lives_reserve(lives *l, uint32_t count)
{
    l->items = malloc(((size_t)count + 1) * sizeof *l->items);
    l->first = calloc((size_t)l->group_count + 2, sizeof *l->first);
    l->changes = calloc(l->group_count, sizeof *l->changes);
    l->live = calloc((size_t)l->states + 1, sizeof *l->live);
    l->peaks = calloc((size_t)l->states / LIVES_STRETCH + 1, sizeof *l->peaks);
    l->differences = calloc((size_t)l->states + 1, sizeof *l->differences);
    return l->items && l->first && l->changes && l->live && l->peaks && l->differences;
}

/* Counting sort: first[g + 1] is where the next life of group g goes, and in the end where the group ends. */
static life *lives_add(lives *l, uint32_t group, uint64_t size, uint32_t begin, uint32_t end)
{
    life *one = &l->items[l->first[group + 1]++];
    uint64_t rounded = lives_round_up(l, size);
    *one = (life){
        .size_bytes = rounded, .asked_bytes = size, .begin = begin, .end = end, .alignment = l->alignment};
    l->is_too_large = l->is_too_large || rounded > INT64_MAX - l->sum_bytes;
    l->sum_bytes += l->is_too_large ? 0 : rounded;
    l->count++;
    return one;
}

/* The unit whose life begins with block `i`, NULL if another block of it came before or there are none. */
static life_unit *unit_begins(const lives *l, const uint32_t *unit_of, uint32_t i)
{
    life_unit *unit = &l->units[unit_of[i]];
    return unit->life == i ? unit : NULL;
}

/* By block: the group that it counts to. Blocks of a unit count to that of the largest, and only the first of them. */
static uint32_t block_group(const lives *l, const uint32_t *unit_of, uint32_t i)
{
    const format_block *b = &l->h->blocks[unit_of ? l->units[unit_of[i]].part_first : i];
    return group_of(l, b->label, b->stack);
}

static void lives_fill(lives *l, uint16_t device, const lives_request *request, const uint32_t *unit_of)
{
    const format_history *h = l->h;
    for (uint32_t i = 0; i < h->block_count; i++)
        if (h->blocks[i].device == device && (!unit_of || unit_begins(l, unit_of, i)))
            l->first[block_group(l, unit_of, i) + 2]++;
    uint32_t asks = request ? group_of(l, request->label, request->stack) : 0;
    if (request)
        l->first[asks + 2]++;
    for (uint32_t g = 2; g <= l->group_count + 1; g++)
        l->first[g] += l->first[g - 1];
    bool is_asked = request == NULL;
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (!is_asked && b->begin >= request->state) {
            lives_add(l, asks, request->size_bytes, request->state, request->state + 1);
            is_asked = true;
        }
        if (b->device != device || (unit_of && !unit_begins(l, unit_of, i)))
            continue;
        life *one = lives_add(l, block_group(l, unit_of, i), b->size_bytes, b->begin + 1, lives_end_of(l, b));
        if (unit_of) {
            const life_unit *unit = &l->units[unit_of[i]];
            one->unit = unit->is_plain ? 0 : unit_of[i] + 1;
            one->alignment = unit->alignment;
        }
    }
    if (!is_asked)
        lives_add(l, asks, request->size_bytes, request->state, request->state + 1);
}

/* ---- All of it --------------------------------------------------------------------------------------- */

bool lives_init(lives *l, const format_history *h, uint16_t device, uint32_t alignment,
                const lives_request *request)
{
    *l = (lives){.h = h, .states = h->event_count + 1, .alignment = alignment ? alignment : 1};
    uint32_t event = request && request->state ? request->state - 1 : format_history_peak(h, device).event;
    if (!holders_init(&l->labels, h, device, event, HOLDERS_BY_LABEL) ||
        !holders_init(&l->sites, h, device, event, HOLDERS_BY_SITE))
        return false;
    l->group_count = l->labels.count + l->sites.count + 1;
    uint32_t *unit_of = h->ties ? lives_units_make(l) : NULL;
    if ((h->ties && !unit_of) || !lives_reserve(l, h->block_count + 1)) {
        free(unit_of);
        return false;
    }
    lives_fill(l, device, request, unit_of);
    if (unit_of)
        lives_units_settle(l, unit_of);
    free(unit_of);
    if (!l->is_too_large)
        lives_change_clear(l);
    return true;
}

void lives_finish(lives *l)
{
    holders_finish(&l->labels);
    holders_finish(&l->sites);
    free(l->items);
    free(l->units);
    free(l->parts);
    free(l->first);
    free(l->changes);
    free(l->live);
    free(l->peaks);
    free(l->differences);
    *l = (lives){0};
}

/* ---- Groups ------------------------------------------------------------------------------------------ */

const char *lives_name(const lives *l, uint32_t group, char text[HOLDERS_NAME_ROOM])
{
    if (group < l->labels.count)
        return holders_name(l->h, &l->labels, &l->labels.items[group], text);
    if (group - l->labels.count < l->sites.count)
        return holders_name(l->h, &l->sites, &l->sites.items[group - l->labels.count], text);
    return "the request itself";
}

bool lives_is_labelled(const lives *l, uint32_t group)
{
    return group < l->labels.count;
}

uint32_t lives_group_count(const lives *l, uint32_t group)
{
    return l->first[group + 1] - l->first[group];
}

bool lives_grows(const lives *l, uint32_t group, uint32_t state)
{
    enum { PARTS = 8, PARTS_ENOUGH = 6, KEPT_ENOUGH = 8 };
    uint32_t kept = 0, parts = 0;
    for (uint32_t i = l->first[group]; state && i < l->first[group + 1]; i++) {
        const life *one = &l->items[i];
        if (one->begin > state || one->end <= state)
            continue;
        kept++;
        parts |= 1u << ((uint64_t)(one->begin - (one->begin == state)) * PARTS / state);
    }
    uint32_t seen = 0;
    for (uint32_t part = 0; part < PARTS; part++)
        seen += parts >> part & 1;
    return kept >= KEPT_ENOUGH && seen >= PARTS_ENOUGH;
}

/* ---- A changed life ---------------------------------------------------------------------------------- */

static uint64_t scaled(uint64_t bytes, uint32_t scale)
{
    return bytes / LIVES_WHOLE * scale + (bytes % LIVES_WHOLE * scale + LIVES_WHOLE - 1) / LIVES_WHOLE;
}

/* The life at `i`, which is of the change's group. */
static life life_changed(const lives *l, uint32_t i, const lives_change *change)
{
    life one = l->items[i];
    uint32_t length = one.end - one.begin;
    switch (change->kind) {
    case LIVES_SHRINK:
        one.size_bytes = lives_round_up(l, scaled(one.asked_bytes, change->scale));
        break;
    case LIVES_FREE_PREVIOUS:
        if (i + 1 < l->first[change->group + 1] && l->items[i + 1].begin < one.end)
            one.end = l->items[i + 1].begin > one.begin ? l->items[i + 1].begin : one.begin + 1;
        break;
    case LIVES_FREE_HALFWAY:
        one.end = one.begin + (length + 1) / 2;
        break;
    case LIVES_FREE_EARLY:
        one.end = one.begin + (uint32_t)scaled(length, change->scale);
        break;
    case LIVES_RECOMPUTE:
        if (length > 2) {
            one.gap_begin = one.begin + 1;
            one.gap_end = one.end - 1;
        }
        break;
    case LIVES_AS_IS:
    case LIVES_KINDS:
        break;
    }
    return one;
}

/* A time in which a changed life is there, as large as it is then. */
typedef struct span {
    uint64_t size_bytes;
    uint32_t begin, end;
} span;

/* How many spans a life may have. */
static uint32_t span_count(const lives *l, const life *one)
{
    return 2 * (one->unit ? l->units[one->unit - 1].part_count : 1);
}

/* The `k`th of them; false: it is empty. Each part of the life has one in front of the gap that a change makes, and one behind. */
static bool span_get(const lives *l, const life *one, const lives_change *change, uint32_t k, span *out)
{
    *out = (span){one->size_bytes, one->begin, one->end};
    if (one->unit) {
        const life_part *part = &l->parts[l->units[one->unit - 1].part_first + k / 2];
        const uint32_t scale = change->kind == LIVES_SHRINK ? change->scale : LIVES_WHOLE;
        out->size_bytes = lives_round_up(l, scaled(part->asked_bytes, scale));
        out->begin = part->begin;
        out->end = part->end < one->end ? part->end : one->end;
    }
    const bool has_gap = one->gap_end > one->gap_begin;
    if (k % 2 == 0 && has_gap && out->end > one->gap_begin)
        out->end = one->gap_begin;
    if (k % 2 && out->begin < one->gap_end)
        out->begin = one->gap_end;
    return out->end > out->begin && (has_gap || k % 2 == 0);
}

/* Adds a life to the differences, `sign` times. */
static void differ(const lives *l, const life *one, const lives_change *change, int64_t sign)
{
    int64_t *differences = l->differences;
    span part;
    for (uint32_t k = 0; one->unit && k < span_count(l, one); k++)
        if (span_get(l, one, change, k, &part)) {
            differences[part.begin] += sign * (int64_t)part.size_bytes;
            differences[part.end] -= sign * (int64_t)part.size_bytes;
        }
    if (one->unit)
        return;
    int64_t bytes = sign * (int64_t)one->size_bytes;
    differences[one->begin] += bytes;
    differences[one->end] -= bytes;
    if (one->gap_end > one->gap_begin) {
        differences[one->gap_begin] -= bytes;
        differences[one->gap_end] += bytes;
    }
}

static void differ_group(lives *l, const lives_change *change, int64_t sign)
{
    for (uint32_t i = l->first[change->group]; i < l->first[change->group + 1]; i++) {
        life one = life_changed(l, i, change);
        differ(l, &one, change, sign);
    }
}

uint64_t lives_group_bytes(const lives *l, uint32_t group, uint32_t state)
{
    uint64_t bytes = 0;
    const lives_change *change = &l->changes[group];
    for (uint32_t i = l->first[group]; i < l->first[group + 1]; i++) {
        life one = life_changed(l, i, change);
        span part;
        if (one.begin > state || state >= one.end)
            continue;
        for (uint32_t k = 0; k < span_count(l, &one); k++)
            if (span_get(l, &one, change, k, &part) && part.begin <= state && state < part.end)
                bytes += part.size_bytes;
    }
    return bytes;
}

/* Where the last of what has a fixed place ends: no plan takes less. `change` is made too, unless it is NULL. */
static uint64_t lives_floor(const lives *l, const lives_change *change, uint32_t *state)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < l->unit_count; u++) {
        const life_unit *unit = &l->units[u];
        if (unit->fixed_offset == UINT64_MAX)
            continue;
        const bool changes = change && change->group == unit->group;
        const life one = life_changed(l, unit->life, changes ? change : &l->changes[unit->group]);
        if (unit->fixed_offset + one.size_bytes > most) {
            most = unit->fixed_offset + one.size_bytes;
            *state = one.begin;
        }
    }
    return most;
}

/* ---- Bounds ------------------------------------------------------------------------------------------ */

/* The most that is alive from one state until before another, or `peak` if that is more. */
static int64_t peak_between(const lives *l, uint32_t from, uint32_t until, int64_t peak)
{
    for (uint32_t s = from; s < until;) {
        const bool whole = s % LIVES_STRETCH == 0 && until - s >= LIVES_STRETCH;
        const int64_t most = whole ? l->peaks[s / LIVES_STRETCH] : l->live[s];
        peak = most > peak ? most : peak;
        s += whole ? LIVES_STRETCH : 1;
    }
    return peak;
}

/* A change of a block that lives for a moment differs in a few states of a million: the others are looked up. No change lets
 * a life begin earlier or end later. */
uint64_t lives_bound(lives *l, const lives_change *change)
{
    uint32_t first = l->states, last = 0;
    for (uint32_t i = l->first[change->group]; i < l->first[change->group + 1]; i++) {
        first = l->items[i].begin < first ? l->items[i].begin : first;
        last = l->items[i].end > last ? l->items[i].end : last;
    }
    if (first > last)
        return l->peak_bytes;
    differ_group(l, &l->changes[change->group], -1);
    differ_group(l, change, 1);
    int64_t more = 0, peak = peak_between(l, 0, first, 0);
    for (uint32_t s = first; s <= last; s++) {
        more += l->differences[s];
        peak = l->live[s] + more > peak ? l->live[s] + more : peak;
    }
    memset(l->differences + first, 0, ((size_t)last - first + 1) * sizeof *l->differences);
    const uint64_t most = (uint64_t)peak_between(l, last + 1, l->states + 1, peak);
    uint32_t unused;
    const uint64_t least = lives_floor(l, change, &unused);
    return most > least ? most : least;
}

/* The part of the group that must go, at the state where most of it must. */
static double part_above(lives *l, uint32_t group, uint64_t limit)
{
    double part = 0;
    int64_t own = 0;
    differ_group(l, &l->changes[group], 1);
    for (uint32_t s = 0; s <= l->states; s++) {
        own += l->differences[s];
        int64_t above = l->live[s] - (int64_t)limit;
        if (above > 0 && above >= own)
            part = 1;
        else if (above > 0 && (double)above / (double)own > part)
            part = (double)above / (double)own;
    }
    memset(l->differences, 0, ((size_t)l->states + 1) * sizeof *l->differences);
    return part;
}

uint32_t lives_scale_for(lives *l, uint32_t group, uint64_t limit)
{
    double part = part_above(l, group, limit);
    uint32_t hundredths = part < 1 ? (uint32_t)(100 - 100 * part) : 0;
    /* Rounding may take what the scale gives: a little less then. */
    for (uint32_t tries = 0; hundredths > 0 && tries < 3; tries++, hundredths--) {
        lives_change change = {group, LIVES_SHRINK, hundredths * (LIVES_WHOLE / 100)};
        if (lives_bound(l, &change) <= limit)
            return change.scale;
    }
    return 0;
}

/* The longer it lives, the more there is: the middle is tried, and the middle of what is left. */
uint32_t lives_longest_for(lives *l, uint32_t group, uint64_t limit)
{
    uint32_t fits = 0;
    for (uint32_t above = 100; above - fits > 1;) {
        const uint32_t middle = (fits + above) / 2;
        const lives_change change = {group, LIVES_FREE_EARLY, middle * (LIVES_WHOLE / 100)};
        if (lives_bound(l, &change) <= limit)
            fits = middle;
        else
            above = middle;
    }
    return fits * (LIVES_WHOLE / 100);
}

static void lives_count(lives *l)
{
    int64_t now = 0;
    l->peak_bytes = 0;
    memset(l->peaks, 0, ((size_t)l->states / LIVES_STRETCH + 1) * sizeof *l->peaks);
    for (uint32_t s = 0; s <= l->states; s++) {
        int64_t *most = &l->peaks[s / LIVES_STRETCH];
        now += l->differences[s];
        l->live[s] += now;
        *most = l->live[s] > *most ? l->live[s] : *most;
        if ((uint64_t)l->live[s] > l->peak_bytes) {
            l->peak_bytes = (uint64_t)l->live[s];
            l->peak_state = s;
        }
    }
    memset(l->differences, 0, ((size_t)l->states + 1) * sizeof *l->differences);
    uint32_t state = 0;
    const uint64_t least = lives_floor(l, NULL, &state);
    if (least > l->peak_bytes) {
        l->peak_bytes = least;
        l->peak_state = state;
    }
}

void lives_change_set(lives *l, const lives_change *change)
{
    differ_group(l, &l->changes[change->group], -1);
    differ_group(l, change, 1);
    l->changes[change->group] = *change;
    lives_count(l);
}

void lives_change_clear(lives *l)
{
    memset(l->live, 0, ((size_t)l->states + 1) * sizeof *l->live);
    for (uint32_t g = 0; g < l->group_count; g++) {
        l->changes[g] = (lives_change){.group = g};
        differ_group(l, &l->changes[g], 1);
    }
    lives_count(l);
}

/* ---- Plans ------------------------------------------------------------------------------------------- */

static double lives_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static berth_stop plan_watch(void *context, const berth_progress *progress)
{
    (void)progress;
    return lives_now() > *(const double *)context ? BERTH_STOP_CLOCK : BERTH_STOP_DONE;
}

/* A life of a unit: every part a row, all of them at one place. */
static size_t unit_rows(const lives *l, const life *one, const lives_change *change,
                        berth_problem_buffer *rows)
{
    const life_unit *unit = &l->units[one->unit - 1];
    size_t count = 0;
    span part;
    for (uint32_t k = 0; k < span_count(l, one); k++)
        if (span_get(l, one, change, k, &part))
            rows[count++] = (berth_problem_buffer){.lower = part.begin,
                                                   .upper = part.end,
                                                   .size_bytes = part.size_bytes,
                                                   .fixed_offset = unit->fixed_offset,
                                                   .alignment = unit->alignment,
                                                   .alias_group = one->unit};
    return count;
}

static void lives_rows(const lives *l, berth_problem *problem, berth_problem_buffer *rows, berth_gap *gaps)
{
    for (uint32_t g = 0; g < l->group_count; g++)
        for (uint32_t i = l->first[g]; i < l->first[g + 1]; i++) {
            life one = life_changed(l, i, &l->changes[g]);
            if (one.unit) {
                problem->buffer_count += unit_rows(l, &one, &l->changes[g], rows + problem->buffer_count);
                continue;
            }
            bool has_gap = one.gap_end > one.gap_begin;
            rows[problem->buffer_count++] = (berth_problem_buffer){.lower = one.begin,
                                                                   .upper = one.end,
                                                                   .size_bytes = one.size_bytes,
                                                                   .fixed_offset = BERTH_NO_OFFSET,
                                                                   .alignment = one.alignment,
                                                                   .gap_first = (uint32_t)problem->gap_count,
                                                                   .gap_count = has_gap};
            if (has_gap)
                gaps[problem->gap_count++] = (berth_gap){one.gap_begin, one.gap_end};
        }
}

/* How many rows there may be. */
static size_t lives_most_rows(const lives *l)
{
    size_t count = l->count;
    for (uint32_t u = 0; u < l->unit_count; u++)
        count += 2 * (size_t)l->units[u].part_count;
    return count;
}

bool lives_plan(const lives *l, double *seconds_left, uint64_t *peak)
{
    double began = lives_now(), deadline = began + *seconds_left;
    berth_solve_options options = BERTH_SOLVE_OPTIONS_INIT;
    berth_certificate certificate = BERTH_CERTIFICATE_INIT;
    berth_problem problem = BERTH_PROBLEM_INIT;
    if (*seconds_left <= 0)
        return false;
    options.effort = BERTH_EFFORT_FAST;
    options.progress = plan_watch;
    options.context = &deadline;
    const size_t most = lives_most_rows(l);
    uint64_t *offsets = malloc((most + 1) * sizeof *offsets);
    berth_problem_buffer *buffers = malloc((most + 1) * sizeof *buffers);
    berth_gap *gaps = malloc(((size_t)l->count + 1) * sizeof *gaps);
    bool done = false;
    if (offsets && buffers && gaps) {
        lives_rows(l, &problem, buffers, gaps);
        problem.buffers = buffers;
        problem.alignment = l->unit_count ? l->alignment : 0; /* beside what units ask for */
        problem.gaps = gaps;
        done = berth_solve(&problem, &options, offsets, &certificate) == BERTH_OK;
    }
    if (done)
        *peak = certificate.peak_bytes;
    free(offsets);
    free(buffers);
    free(gaps);
    *seconds_left -= lives_now() - began;
    return done;
}
