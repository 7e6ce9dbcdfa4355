/* berth what-if: what other rules, allocators, plans and changes would have made of a recording's peak. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/asking.h"
#include "cli/caches.h"
#include "cli/cli.h"
#include "cli/size.h"

enum { POLICIES_MOST = 16, NAME_ROOM = 64, SEGMENT_BYTES = 2 << 20 };

/* A way to serve the same blocks, and what it takes at most. */
typedef struct policy {
    char name[NAME_ROOM];
    const char *known_by;
    uint64_t peak_bytes;
    bool in_segments;
} policy;

typedef struct what_if {
    asking a;
    cli_list scales;
    policy policies[POLICIES_MOST];
    size_t policy_count;
    uint64_t live_bytes; /* as asked for, at most */
    format_peak peak;
    bool knows_error; /* a snapshot says itself what PyTorch took */
    double model_error;
    lives l;
    changes steps;
    bool is_planned; /* with all steps */
    uint64_t planned_bytes, bound_bytes, peak_bytes;
} what_if;

static void policy_add(what_if *w, const char *name, const char *known_by, uint64_t bytes)
{
    if (w->policy_count == POLICIES_MOST)
        return;
    policy *p = &w->policies[w->policy_count++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->known_by = known_by;
    p->peak_bytes = bytes;
    p->in_segments = false;
}

static void policy_add_cache(what_if *w, const char *name, const char *known_by, uint64_t bytes)
{
    size_t before = w->policy_count;
    policy_add(w, name, known_by, bytes);
    if (w->policy_count > before)
        w->policies[before].in_segments = true;
}

/* ---- Rounding ---------------------------------------------------------------------------------------- */

static uint64_t to_power_of_two(uint64_t bytes)
{
    uint64_t power = 1;
    while (power < bytes && power < UINT64_C(1) << 63)
        power *= 2;
    return power;
}

/* PyTorch's roundup_power2_divisions:8, and the size classes of many caches: eight steps from one power to the next. */
static uint64_t to_eighths(uint64_t bytes)
{
    uint64_t power = to_power_of_two(bytes), step = power / 16;
    return step < 1 ? power : (bytes + step - 1) / step * step;
}

static uint64_t to_multiple(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* The most bytes alive at once if every size is rounded; unit 0: to powers of two, 1: to eighths of them. */
static uint64_t rounded_peak(const what_if *w, uint64_t unit)
{
    const format_history *h = &w->a.h;
    uint64_t live = 0, peak = 0;
    for (uint32_t e = 0; e < h->event_count; e++) {
        const format_block *b = &h->blocks[h->events[e] / 2];
        if (b->device != w->a.device)
            continue;
        uint64_t size = unit > 1 ? to_multiple(b->size_bytes, unit)
                                 : (unit ? to_eighths : to_power_of_two)(b->size_bytes);
        live += h->events[e] % 2 ? 0 - size : size;
        peak = live > peak ? live : peak;
    }
    return peak;
}

static void add_roundings(what_if *w)
{
    static const struct {
        uint64_t unit;
        const char *name;
    } rules[] = {{512, "rounded up to 512 B"},
                 {4096, "rounded up to 4 KiB"},
                 {1, "rounded up to eighths of powers of two"},
                 {0, "rounded up to powers of two"}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        policy_add(w, rules[i].name, "counted", rounded_peak(w, rules[i].unit));
}

/* ---- Allocators -------------------------------------------------------------------------------------- */

static void add_recorded(what_if *w)
{
    const format_history *h = &w->a.h;
    caches_figures figures = caches_recorded(h, w->a.device);
    policy_add(w, "as it was: alive", "recorded", w->live_bytes);
    if (figures.reserved_bytes)
        policy_add(w, "as it was: taken from the device", "recorded", figures.reserved_bytes);
    uint64_t extent = 0;
    for (uint32_t i = 0; h->has_addresses && !h->has_times && i < h->block_count; i++)
        if (h->blocks[i].address + h->blocks[i].size_bytes > extent)
            extent = h->blocks[i].address + h->blocks[i].size_bytes;
    if (extent)
        policy_add(w, "as it was: the given plan", "recorded", extent);
}

static bool add_caches(what_if *w)
{
    caches_figures figures, recorded = caches_recorded(&w->a.h, w->a.device);
    bool is_pytorch = strcmp(w->a.h.format, "PyTorch snapshot") == 0;
    for (int expandable = 0; expandable < 2; expandable++) {
        if (!caches_pytorch(&w->a.h, w->a.device, expandable, &figures))
            return false;
        policy_add_cache(w, expandable ? "PyTorch's cache, expandable segments" : "PyTorch's cache",
                         "modelled", figures.reserved_bytes);
        if (is_pytorch && !expandable && recorded.reserved_bytes) {
            w->knows_error = true;
            w->model_error = (double)figures.reserved_bytes / (double)recorded.reserved_bytes - 1;
        }
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        const char *name = in_place ? "Berth's pool, growing in place" : "Berth's pool";
        berth_status status = (in_place ? caches_pool_in_place : caches_pool)(&w->a.h, w->a.device, &figures);
        if (!status)
            policy_add_cache(w, name, "run without memory", figures.reserved_bytes);
        else
            fprintf(stderr, "berth what-if: %s is left out: %s\n", name, berth_last_error()->message);
    }
    return true;
}

/* ---- Plans and scales -------------------------------------------------------------------------------- */

static void add_plan(what_if *w, const char *name)
{
    uint64_t planned;
    char text[NAME_ROOM];
    snprintf(text, sizeof text, "%s: bound", name);
    policy_add(w, text, "counted", w->l.peak_bytes);
    double half = w->a.plan_seconds / 2; /* something is left for the plan of the changes */
    w->a.plan_seconds -= half;
    bool done = lives_plan(&w->l, &half, &planned);
    w->a.plan_seconds += half;
    if (done) {
        snprintf(text, sizeof text, "%s: planned", name);
        policy_add(w, text, "planned", planned);
    }
}

/* "activations=0.5": the groups of that name, with or without what stands in brackets behind it; '*' is all of them. */
static int scale_one(what_if *w, const char *wish)
{
    const char *equals = strrchr(wish, '=');
    char *end = NULL, name[HOLDERS_NAME_ROOM];
    double factor = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || equals == wish || end == equals + 1 || *end || !(factor >= 0 && factor <= 1000))
        return cli_misuse("what-if", "--scale wants a label and a factor such as activations=0.5, not '%s'",
                          wish);
    size_t length = (size_t)(equals - wish), found = 0;
    for (uint32_t g = 0; g < w->l.group_count; g++) {
        const char *own = lives_name(&w->l, g, name);
        bool all = length == 1 && *wish == '*';
        const bool named =
            strncmp(own, wish, length) == 0 && (!own[length] || strncmp(own + length, " (", 2) == 0);
        if (!lives_group_count(&w->l, g) || (!all && !named))
            continue;
        lives_change_set(&w->l, &(lives_change){g, LIVES_SHRINK, (uint32_t)lround(factor * LIVES_WHOLE)});
        found++;
    }
    if (!found)
        return cli_misuse("what-if",
                          "nothing in it is called '%.*s'; berth what-if without --scale names what "
                          "holds the most",
                          (int)length, wish);
    return CLI_OK;
}

static int add_scales(what_if *w)
{
    int code = CLI_OK;
    for (size_t i = 0; i < w->scales.count && code == CLI_OK; i++)
        code = scale_one(w, w->scales.items[i]);
    if (code == CLI_OK && w->scales.count)
        add_plan(w, "scaled as asked");
    lives_change_clear(&w->l);
    return code;
}

/* ---- Words ------------------------------------------------------------------------------------------- */

/* A cache takes segments of some MiB: beside blocks of some KiB that is all there is to see. */
static bool is_tiny(const what_if *w)
{
    return w->live_bytes < SEGMENT_BYTES;
}

static void put_policies(const what_if *w)
{
    char size[CLI_SIZE_ROOM], gap[CLI_SIZE_ROOM];
    puts("\nWhat the same blocks take at most, served otherwise");
    for (size_t i = 0; i < w->policy_count; i++) {
        const policy *p = &w->policies[i];
        printf("  %12s  %10s  %-40s %s\n", cli_size_text(p->peak_bytes, size),
               p->in_segments && is_tiny(w) ? "-" : cli_times_text(p->peak_bytes, w->live_bytes, gap),
               p->name, p->known_by);
    }
    if (is_tiny(w))
        puts("  Caches and pools take whole segments: for so few bytes what they take says nothing of the "
             "program.");
    if (w->knows_error)
        printf("  The model of PyTorch's cache is %+.1f %% off what this snapshot says was taken.\n",
               100 * w->model_error);
}

static const char *bound_text(uint64_t bytes, char text[CLI_SIZE_ROOM])
{
    return bytes == UINT64_MAX ? "-" : cli_size_text(bytes, text);
}

static void put_steps(const what_if *w)
{
    char a[CLI_SIZE_ROOM], b[CLI_SIZE_ROOM], c[CLI_SIZE_ROOM], d[CLI_SIZE_ROOM];
    if (!w->steps.count && w->peak_bytes <= w->a.limit_bytes)
        return;
    if (!w->steps.count) {
        puts("\nNo change of one label or call site lowers the peak.");
        return;
    }
    puts(w->a.limit_bytes ? "\nChanges towards the limit, and the peak after each"
                          : "\nWhat would lower it, in the order of gain: the peak after each step");
    puts("        peak     at half       freed        made  change");
    puts("                    size     halfway       again");
    for (uint32_t i = 0; i < w->steps.count; i++) {
        const changes_one *one = &w->steps.items[i];
        char words[CHANGES_WORDS];
        printf("  %10s  %10s  %10s  %10s  %s\n", cli_size_text(one->bound_bytes, a),
               bound_text(one->bounds[LIVES_SHRINK], b), bound_text(one->bounds[LIVES_FREE_HALFWAY], c),
               bound_text(one->bounds[LIVES_RECOMPUTE], d), changes_words(&w->l, &one->change, words));
    }
}

static void put_end(const what_if *w)
{
    char size[CLI_SIZE_ROOM], limit[CLI_SIZE_ROOM];
    if (w->steps.count && w->is_planned)
        printf("  With all of them planned it takes %s.\n", cli_size_text(w->planned_bytes, size));
    if (w->a.limit_bytes) {
        const char *fits = asking_fits(&w->a, w->is_planned, w->planned_bytes, w->bound_bytes);
        cli_size_text(w->a.limit_bytes, limit);
        if (strcmp(fits, "yes") == 0)
            printf("\nIt fits %s%s: a plan of it is proof.\n", limit, w->steps.count ? " then" : " as it is");
        else if (strcmp(fits, "no") == 0)
            printf("\nNo set of %d such changes was found that fits %s.\n", CHANGES_MOST, limit);
        else
            printf(
                "\nWhether it fits %s is not known: the bound does, but no plan was found; --budget searches "
                "longer.\n",
                limit);
    }
    printf("\nPeaks of changes count live bytes (exact; no plan is smaller).\n%s\n", asking_use_words(&w->a));
}

static void put_report(const what_if *w)
{
    char size[CLI_SIZE_ROOM], when[ASKING_WHEN_ROOM];
    printf("%s (%s): at most %s alive, at %s\n", w->a.input, asking_device(&w->a),
           cli_size_text(w->live_bytes, size), asking_when(&w->a, w->peak.event, w->peak.time_ns, when));
    put_policies(w);
    put_steps(w);
    put_end(w);
}

static void put_json(const what_if *w)
{
    cli_json json;
    cli_json_begin(&json, stdout);
    asking_json(&w->a, &json, "berth-what-if");
    cli_json_number(&json, "live_bytes", w->live_bytes);
    cli_json_number(&json, "bound_bytes", w->peak_bytes);
    cli_json_number(&json, "peak_event", w->peak.event);
    cli_json_list_begin(&json, "policies");
    for (size_t i = 0; i < w->policy_count; i++) {
        cli_json_item_begin(&json);
        cli_json_text(&json, "name", w->policies[i].name);
        cli_json_number(&json, "peak_bytes", w->policies[i].peak_bytes);
        cli_json_text(&json, "known_by", w->policies[i].known_by);
        cli_json_item_end(&json);
    }
    cli_json_list_end(&json);
    if (w->knows_error)
        cli_json_real(&json, "model_error", w->model_error);
    else
        cli_json_null(&json, "model_error");
    cli_json_list_begin(&json, "steps");
    for (uint32_t i = 0; i < w->steps.count; i++) {
        cli_json_item_begin(&json);
        asking_json_change(&json, &w->l, &w->steps.items[i]);
        cli_json_item_end(&json);
    }
    cli_json_list_end(&json);
    cli_json_number(&json, "steps_bound_bytes", w->bound_bytes);
    if (w->is_planned)
        cli_json_number(&json, "steps_planned_bytes", w->planned_bytes);
    else
        cli_json_null(&json, "steps_planned_bytes");
    if (w->a.limit_bytes)
        cli_json_text(&json, "fits", asking_fits(&w->a, w->is_planned, w->planned_bytes, w->bound_bytes));
    else
        cli_json_null(&json, "fits");
    cli_json_end(&json);
}

/* ---- The verb ---------------------------------------------------------------------------------------- */

/* A bound that fits may have no plan that does: then more changes are made, until a plan fits or there are no more. */
static void what_if_steps(what_if *w)
{
    enum { TRIES = 4 };
    uint64_t target = w->a.limit_bytes;
    for (int tries = 0; tries < TRIES; tries++) {
        lives_change_clear(&w->l);
        changes_steps(&w->l, target, &w->steps);
        w->bound_bytes = w->l.peak_bytes;
        w->is_planned = lives_plan(&w->l, &w->a.plan_seconds, &w->planned_bytes);
        if (!w->a.limit_bytes || !w->is_planned || w->planned_bytes <= w->a.limit_bytes ||
            w->bound_bytes > target)
            return;
        target = w->bound_bytes - 1;
    }
}

static int what_if_answer(what_if *w)
{
    w->peak = format_history_peak(&w->a.h, w->a.device);
    w->live_bytes = w->peak.bytes;
    w->peak_bytes = w->l.peak_bytes;
    add_recorded(w);
    add_roundings(w);
    if (!add_caches(w))
        return cli_fail("what-if", BERTH_OUT_OF_HOST_MEMORY, w->a.input);
    add_plan(w, "a plan");
    int code = add_scales(w);
    if (code != CLI_OK)
        return code;
    what_if_steps(w);
    (w->a.json ? put_json : put_report)(w);
    bool fits = strcmp(asking_fits(&w->a, w->is_planned, w->planned_bytes, w->bound_bytes), "yes") == 0;
    return fits ? CLI_OK : CLI_NO;
}

static int what_if_run(int argc, char **argv)
{
    what_if w = {.a.verb = "what-if"};
    struct cli_option options[ASKING_OPTIONS + 1] = {{"--scale", NULL, CLI_LIST, &w.scales}};
    asking_options(&w.a, options + 1);
    size_t count;
    int code = cli_options_read("what-if", argc, argv, options, ASKING_OPTIONS + 1, &w.a.input, 1, &count);
    if (code == CLI_OK)
        code = asking_begin(&w.a);
    if (code != CLI_OK)
        return code;
    code = asking_lives(&w.a, NULL, &w.l);
    if (code == CLI_OK) {
        code = what_if_answer(&w);
        lives_finish(&w.l);
    }
    asking_end(&w.a);
    return code;
}

const struct cli_verb cli_verb_what_if = {
    .name = "what-if",
    .summary = "what other rules, allocators, plans and changes would have done to the peak",
    .help = "usage: berth what-if INPUT [--limit BYTES] [--scale NAME=FACTOR]...\n\n"
            "INPUT is what berth view reads: a trace (berth record), a PyTorch snapshot, a problem or plan "
            "in CSV, an event\n"
            "log, RMM's log, a file of heaptrack or massif, a model (.tflite, .onnx); - is the standard "
            "input. Says what the\n"
            "same blocks would have taken at most with sizes rounded, from PyTorch's caching allocator, from "
            "Berth's pool and\n"
            "from a plan, and which labels or call sites to shrink, free earlier or make again, in the order "
            "of gain.\n\n"
            "  --limit BYTES        a small set of changes after which it fits; exit 1 if none is found\n"
            "  --scale NAME=FACTOR  also with this label's (or call site's) sizes scaled, such as a smaller "
            "batch; * is\n"
            "                       all; several times for several\n"
            "  --align BYTES        sizes and places of plans are multiples of it (16, and 1 for CSV)\n"
            "  --budget TIME        for all plans together (0.8s, more above a million events)\n"
            "  --device NAME        whose memory (the device with the largest peak); host is the host's\n"
            "  --json               print one JSON object (docs/questions.md)\n"
            "  --dim, --runtime, --inplace, --scratch  of a model, as for berth plan\n\n"
            "Each figure says how it is known: recorded, counted (exact), modelled (PyTorch's rules without "
            "settings, on a\n"
            "device that never refuses), run without memory (Berth's pool itself), planned.\n\n"
            "examples:\n"
            "  berth what-if app.trace\n"
            "  berth what-if model.csv --limit 16M\n"
            "  berth what-if model.csv --scale activations=0.5 --json\n",
    .run = what_if_run,
};
