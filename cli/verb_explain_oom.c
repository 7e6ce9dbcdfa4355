/* berth explain-oom: when memory ran out, why, who held it, and what would have made it fit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/asking.h"
#include "cli/cli.h"
#include "cli/oom.h"
#include "cli/size.h"

enum { HOLDERS_SHOWN = 5 };
#define ABSURD_BYTES (UINT64_C(1) << 57) /* as much as addresses reach */

typedef struct explanation {
    asking a;
    uint64_t failure; /* which one, from 1 */
    oom o;
    lives l;
    uint64_t
        fits_bytes; /* what must suffice: the limit, or if it is not known what was ever alive; 0: no telling */
    bool is_absurd;       /* nothing has as much as was asked for */
    uint64_t bound_bytes; /* the peak with the request */
    bool is_planned;      /* the lives as they are */
    uint64_t planned_bytes;
    changes alone;
    changes steps; /* if nothing alone suffices */
    holders labels, sites;
} explanation;

/* ---- Finding out -------------------------------------------------------------------------------------- */

static void plan_one(explanation *x, changes_one *one)
{
    lives_change none = {.group = one->change.group};
    lives_change_set(&x->l, &one->change);
    one->bound_bytes = x->l.peak_bytes;
    one->is_planned = lives_plan(&x->l, &x->a.plan_seconds, &one->planned_bytes);
    lives_change_set(&x->l, &none);
}

/* Changes more where the bound fits and the plan does not. */
static void plan_smaller(explanation *x, changes_one *one)
{
    const uint64_t above = one->planned_bytes - x->fits_bytes;
    const uint64_t limit = above < x->fits_bytes ? x->fits_bytes - above : 0;
    const bool shrinks = one->change.kind == LIVES_SHRINK;
    changes_one smaller = *one;
    smaller.change.scale = (shrinks ? lives_scale_for : lives_longest_for)(&x->l, one->change.group, limit);
    if (!smaller.change.scale)
        return;
    plan_one(x, &smaller);
    uint64_t bytes = lives_group_bytes(&x->l, one->change.group, x->l.peak_state);
    if (shrinks)
        smaller.cost_bytes = bytes - (uint64_t)((double)bytes * smaller.change.scale / LIVES_WHOLE);
    if (smaller.is_planned && smaller.planned_bytes <= x->fits_bytes)
        *one = smaller;
}

static bool is_proven(const explanation *x, const changes_one *one)
{
    return one->is_planned && one->planned_bytes <= x->fits_bytes;
}

/* What is proven comes first, the cheapest first of these and of the rest. */
static void sort_alone(const explanation *x, changes *c)
{
    for (uint32_t i = 1; i < c->count; i++)
        for (uint32_t k = i; k > 0; k--) {
            const changes_one a = c->items[k - 1], b = c->items[k];
            bool right =
                is_proven(x, &a) == is_proven(x, &b) ? a.cost_bytes <= b.cost_bytes : is_proven(x, &a);
            if (right)
                break;
            c->items[k - 1] = b;
            c->items[k] = a;
        }
}

/* Plans every change that is shown. */
static void plan_alone(explanation *x)
{
    for (uint32_t i = 0; i < x->alone.count; i++) {
        changes_one *one = &x->alone.items[i];
        plan_one(x, one);
        const bool has_scale = one->change.kind == LIVES_SHRINK || one->change.kind == LIVES_FREE_EARLY;
        if (one->is_planned && one->planned_bytes > x->fits_bytes && has_scale)
            plan_smaller(x, one);
    }
    sort_alone(x, &x->alone);
}

static void plan_steps(explanation *x)
{
    lives_change_clear(&x->l);
    for (uint32_t i = 0; i < x->steps.count; i++) {
        lives_change_set(&x->l, &x->steps.items[i].change);
        x->steps.items[i].is_planned =
            lives_plan(&x->l, &x->a.plan_seconds, &x->steps.items[i].planned_bytes);
    }
}

static void find_changes(explanation *x)
{
    x->bound_bytes = x->is_absurd ? x->o.size_bytes : x->l.peak_bytes;
    if (!x->fits_bytes)
        return; /* nothing to measure changes by */
    if (x->bound_bytes > x->fits_bytes)
        changes_alone(&x->l, x->fits_bytes, &x->alone);
    else
        x->is_planned = lives_plan(&x->l, &x->a.plan_seconds, &x->planned_bytes);
    plan_alone(x);
    if (!x->alone.count && x->bound_bytes > x->fits_bytes) {
        changes_steps(&x->l, x->fits_bytes, &x->steps);
        plan_steps(x);
    }
}

static bool find_holders(explanation *x)
{
    if (!x->o.state)
        return true; /* nothing is alive yet */
    return holders_init(&x->labels, &x->a.h, x->a.device, x->o.state - 1, HOLDERS_BY_LABEL) &&
           holders_init(&x->sites, &x->a.h, x->a.device, x->o.state - 1, HOLDERS_BY_SITE);
}

/* ---- Words -------------------------------------------------------------------------------------------- */

static const char *asker_name(const explanation *x, char text[HOLDERS_NAME_ROOM])
{
    if (x->o.label)
        return holders_label_name(&x->a.h, x->o.label, text);
    return holders_frame_name(&x->a.h, holders_site(&x->a.h, x->o.stack), text);
}

static const char *block_name(const explanation *x, uint32_t block, char text[HOLDERS_NAME_ROOM])
{
    const format_block *b = &x->a.h.blocks[block];
    if (b->label)
        return holders_label_name(&x->a.h, b->label, text);
    return holders_frame_name(&x->a.h, holders_site(&x->a.h, b->stack), text);
}

static void put_head(const explanation *x)
{
    char size[CLI_SIZE_ROOM], limit[CLI_SIZE_ROOM], when[ASKING_WHEN_ROOM], name[HOLDERS_NAME_ROOM];
    printf("%s (%s): %s at %s\n", x->a.input, asking_device(&x->a),
           x->o.is_recorded ? "failed" : "would fail", asking_when(&x->a, x->o.state, x->o.time_ns, when));
    printf("  asked for      %12s  for %s\n", cli_size_text(x->o.size_bytes, size), asker_name(x, name));
    printf("  alive          %12s  in %" PRIu32 " block%s\n", cli_size_text(x->o.live_bytes, size),
           x->o.live_blocks, x->o.live_blocks == 1 ? "" : "s");
    if (x->o.holes.has_segments)
        printf("  taken          %12s  from the device\n", cli_size_text(x->o.holes.reserved_bytes, size));
    if (x->o.limit_bytes)
        printf("  limit          %12s  %s\n", cli_size_text(x->o.limit_bytes, limit), x->o.limit_from);
    else
        printf("  limit                    -  not recorded; %s\n",
               x->fits_bytes  ? "changes are measured by the most that was ever alive"
               : x->is_absurd ? "nothing would suffice"
                              : "--limit BYTES says what there was");
    if (x->o.failures > 1)
        printf("  failures       %12" PRIu32 "  in all; --failure N explains another\n", x->o.failures);
}

static void put_pins(const explanation *x)
{
    const holes *f = &x->o.holes;
    char size[CLI_SIZE_ROOM], whole[CLI_SIZE_ROOM], name[HOLDERS_NAME_ROOM], when[ASKING_WHEN_ROOM];
    if (!f->pin_count)
        return;
    const format_block *pin = &x->a.h.blocks[f->pins[0]];
    printf("  Pinned by %s, alive since %s", block_name(x, f->pins[0], name),
           asking_when(&x->a, pin->begin, pin->begin_ns, when));
    if (f->pin_count > 1)
        printf(", and %" PRIu32 " more", f->pin_count - 1);
    printf(": without th%s %s there were a hole of %s.\n", f->pin_count > 1 ? "ese" : "is",
           cli_size_text(f->pin_bytes, size), cli_size_text(f->unpinned_bytes, whole));
}

static void put_growing(const explanation *x)
{
    char size[CLI_SIZE_ROOM], name[HOLDERS_NAME_ROOM];
    for (uint32_t i = 0; i < x->o.growing_count; i++)
        printf("  %s grew all the time%s: %s are alive, from every part of the run.\n",
               lives_name(&x->l, x->o.growing[i].group, name), i ? " too" : "",
               cli_size_text(x->o.growing[i].bytes, size));
}

static void put_absurd(void)
{
    puts("  No machine has as much: the size was not computed as it should be (a negative number?).");
}

static void put_cause(const explanation *x)
{
    const oom *o = &x->o;
    char a[CLI_SIZE_ROOM], b[CLI_SIZE_ROOM];
    printf("\nWhy: %s.\n", oom_cause_word(o->cause));
    switch (o->cause) {
    case OOM_TOO_MUCH_LIVE:
        if (x->is_absurd)
            put_absurd();
        else if (o->limit_bytes && o->size_bytes > o->limit_bytes)
            puts("  The request alone is larger than the limit.");
        else if (o->limit_bytes)
            printf("  What is alive and what was asked for are %s above the limit, however they lie.\n",
                   cli_size_text(o->live_bytes + o->size_bytes - o->limit_bytes, a));
        else
            puts("  Nothing that was used before is free for it.");
        break;
    case OOM_FRAGMENTED:
        if (o->limit_bytes && o->fixed_end_bytes > o->limit_bytes) {
            printf("  Its place is fixed: it would end at %s.\n", cli_size_text(o->fixed_end_bytes, a));
            break;
        }
        printf("  %s are free, in holes; the largest has %s.\n", cli_size_text(o->holes.free_bytes, a),
               cli_size_text(o->holes.largest_bytes, b));
        put_pins(x);
        break;
    case OOM_HELD_BY_CACHE:
        printf("  %s are in segments where nothing is alive: giving them back (empty_cache, berth_trim) "
               "would do.\n",
               cli_size_text(o->holes.unused_bytes, a));
        break;
    case OOM_HELD_BY_STREAMS:
        printf("  %s were freed, but streams still use them", cli_size_text(o->waiting_bytes, a));
        if (o->holes.largest_elsewhere_bytes)
            printf("; the largest hole that belongs to another stream has %s",
                   cli_size_text(o->holes.largest_elsewhere_bytes, b));
        puts(".");
        break;
    case OOM_NOT_KNOWN:
        if (x->is_absurd)
            put_absurd();
        else if (!o->limit_bytes && !o->live_bytes)
            puts("  Nothing was alive: the request alone was more than there was, or what refused is not in "
                 "the "
                 "recording.");
        else if (!o->holes.is_known)
            printf("  The limit %s: what refused is not in the recording.\n",
                   o->limit_bytes ? "leaves room" : "is not known");
        else
            printf("  The limit %s, and the largest hole has %s: what refused is not in the recording.\n",
                   o->limit_bytes ? "leaves room" : "is not known", cli_size_text(o->holes.largest_bytes, a));
        break;
    }
    put_growing(x);
}

static void put_holders(const explanation *x, const holders *by, const char *title)
{
    char size[CLI_SIZE_ROOM], name[HOLDERS_NAME_ROOM];
    printf("\n%s\n", title);
    for (uint32_t i = 0; i < by->count && i < HOLDERS_SHOWN && by->items[i].live_bytes; i++) {
        const holder *one = &by->items[i];
        printf("  %12s %5.1f %%  %7" PRIu32 " block%s  %s\n", cli_size_text(one->live_bytes, size),
               100 * (double)one->live_bytes / (double)x->o.live_bytes, one->live_blocks,
               one->live_blocks == 1 ? " " : "s", holders_name(&x->a.h, by, one, name));
    }
}

/* All blocks without a label, or without a stack, are no answer to who. */
static bool is_telling(const holders *by)
{
    return by->count > 1 || (by->count == 1 && (by->items[0].label || by->items[0].frame));
}

/* What was planned is shown; of very many events there is no time to plan all. */
static void put_change_rows(const explanation *x, const changes *c)
{
    char a[CLI_SIZE_ROOM], b[CLI_SIZE_ROOM], words[CHANGES_WORDS];
    uint32_t left = 0;
    puts("         bound       planned  fits");
    for (uint32_t i = 0; i < c->count; i++) {
        const changes_one *one = &c->items[i];
        if (one->is_planned || (c == &x->steps && i + 1 == c->count) || !i)
            printf("  %12s  %12s  %-4s  %s\n", cli_size_text(one->bound_bytes, a),
                   one->is_planned ? cli_size_text(one->planned_bytes, b) : "-",
                   is_proven(x, one)                  ? "yes"
                   : one->bound_bytes > x->fits_bytes ? "no"
                                                      : "?",
                   changes_words(&x->l, &one->change, words));
        else
            left++;
    }
    if (left)
        printf("  %" PRIu32 " more have a bound but no plan yet: --json tells them, --budget plans them.\n",
               left);
}

static void put_changes(const explanation *x)
{
    char a[CLI_SIZE_ROOM], b[CLI_SIZE_ROOM];
    if (!x->fits_bytes) /* nothing was ever alive, and no limit is known */
        return;
    if (x->bound_bytes <= x->fits_bytes) {
        printf("\nNo change is needed if blocks lie well: the bound is %s", cli_size_text(x->bound_bytes, a));
        if (x->is_planned)
            printf(", and a plan takes %s", cli_size_text(x->planned_bytes, b));
        puts(".");
    } else if (x->alone.count) {
        puts("\nEach of these alone would make it fit, the cheapest first");
        put_change_rows(x, &x->alone);
    } else if (x->steps.count) {
        bool enough = x->steps.items[x->steps.count - 1].bound_bytes <= x->fits_bytes;
        puts(enough ? "\nNo single change suffices; these together do, and the peak after each"
                    : "\nNo such changes make it fit; these lower it the most, and the peak after each");
        put_change_rows(x, &x->steps);
    } else {
        puts("\nNo change of one label or call site lowers the peak.");
    }
    if (x->bound_bytes > x->fits_bytes)
        printf("  As it is, it needs %s at least.\n", cli_size_text(x->bound_bytes, a));
}

static void put_report(const explanation *x)
{
    put_head(x);
    put_cause(x);
    if (is_telling(&x->labels))
        put_holders(x, &x->labels, "Who holds the most then, by label");
    if (is_telling(&x->sites))
        put_holders(x, &x->sites, "Who holds the most then, by call site");
    put_changes(x);
    if (x->fits_bytes)
        printf("\nBounds are the most bytes alive at once, counted exactly; plans are proven places for all "
               "blocks.\n%s\n",
               asking_use_words(&x->a));
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

static void json_holders(const explanation *x, cli_json *json, const char *key, const holders *by)
{
    char name[HOLDERS_NAME_ROOM];
    cli_json_list_begin(json, key);
    for (uint32_t i = 0; i < by->count && i < 4 * HOLDERS_SHOWN && by->items[i].live_bytes; i++) {
        cli_json_item_begin(json);
        cli_json_text(json, "name", holders_name(&x->a.h, by, &by->items[i], name));
        cli_json_number(json, "bytes", by->items[i].live_bytes);
        cli_json_number(json, "blocks", by->items[i].live_blocks);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

static void json_pins(const explanation *x, cli_json *json)
{
    const holes *f = &x->o.holes;
    char name[HOLDERS_NAME_ROOM];
    cli_json_list_begin(json, "pinned_by");
    for (uint32_t i = 0; i < f->pin_count && i < HOLES_PINS; i++) {
        cli_json_item_begin(json);
        cli_json_text(json, "name", block_name(x, f->pins[i], name));
        cli_json_number(json, "address", x->a.h.blocks[f->pins[i]].address);
        cli_json_number(json, "bytes", x->a.h.blocks[f->pins[i]].size_bytes);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
    cli_json_number(json, "pins", f->pin_count);
    cli_json_number(json, "unpinned_bytes", f->unpinned_bytes);
}

static void json_changes(const explanation *x, cli_json *json, const char *key, const changes *c)
{
    cli_json_list_begin(json, key);
    for (uint32_t i = 0; i < c->count; i++) {
        cli_json_item_begin(json);
        asking_json_change(json, &x->l, &c->items[i]);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

static void json_facts(const explanation *x, cli_json *json)
{
    const oom *o = &x->o;
    char name[HOLDERS_NAME_ROOM];
    cli_json_bool(json, "fails", true);
    cli_json_bool(json, "recorded", o->is_recorded);
    cli_json_number(json, "failures", o->failures);
    cli_json_number(json, "before_event", o->state);
    cli_json_signed(json, "time_ns", asking_time(&x->a, o->time_ns));
    cli_json_number(json, "asked_bytes", o->size_bytes);
    cli_json_text(json, "asked_for", asker_name(x, name));
    cli_json_number(json, "limit", o->limit_bytes);
    cli_json_text(json, "limit_from", o->limit_from);
    cli_json_number(json, "live_bytes", o->live_bytes);
    cli_json_number(json, "live_blocks", o->live_blocks);
    cli_json_number(json, "waiting_bytes", o->waiting_bytes);
    cli_json_text(json, "cause", oom_cause_word(o->cause));
    cli_json_text(json, "growing", o->growing_count ? lives_name(&x->l, o->growing[0].group, name) : NULL);
    cli_json_number(json, "growing_bytes", o->growing_count ? o->growing[0].bytes : 0);
    cli_json_list_begin(json, "growing_too");
    for (uint32_t i = 1; i < o->growing_count; i++) {
        cli_json_item_begin(json);
        cli_json_text(json, "name", lives_name(&x->l, o->growing[i].group, name));
        cli_json_number(json, "bytes", o->growing[i].bytes);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
    cli_json_number(json, "reserved_bytes", o->holes.reserved_bytes);
    cli_json_number(json, "free_bytes", o->holes.free_bytes);
    cli_json_number(json, "largest_hole_bytes", o->holes.largest_bytes);
    cli_json_number(json, "unused_segment_bytes", o->holes.unused_bytes);
}

static void put_json(const explanation *x)
{
    cli_json json;
    cli_json_begin(&json, stdout);
    asking_json(&x->a, &json, "berth-explain-oom");
    json_facts(x, &json);
    json_pins(x, &json);
    json_holders(x, &json, "by_label", &x->labels);
    json_holders(x, &json, "by_site", &x->sites);
    cli_json_number(&json, "must_fit_bytes", x->fits_bytes);
    cli_json_number(&json, "bound_bytes", x->bound_bytes);
    if (x->is_planned)
        cli_json_number(&json, "planned_bytes", x->planned_bytes);
    else
        cli_json_null(&json, "planned_bytes");
    json_changes(x, &json, "changes", &x->alone);
    json_changes(x, &json, "steps", &x->steps);
    cli_json_end(&json);
}

/* ---- The verb ----------------------------------------------------------------------------------------- */

/* A problem wants a plan, and what is aligned or fixed may need more than what is alive at once. */
static bool plan_all(explanation *x)
{
    if (!x->a.limit_bytes || x->a.h.has_times || x->a.h.has_addresses ||
        asking_lives(&x->a, NULL, &x->l) != CLI_OK)
        return false;
    x->is_planned = lives_plan(&x->l, &x->a.plan_seconds, &x->planned_bytes);
    lives_finish(&x->l);
    return x->is_planned && x->planned_bytes > x->a.limit_bytes;
}

static int nothing_fails(explanation *x)
{
    char size[CLI_SIZE_ROOM], limit[CLI_SIZE_ROOM], planned[CLI_SIZE_ROOM];
    const bool plan_fails = plan_all(x);
    uint64_t peak = format_history_peak(&x->a.h, x->a.device).bytes;
    if (x->a.json) {
        cli_json json;
        cli_json_begin(&json, stdout);
        asking_json(&x->a, &json, "berth-explain-oom");
        cli_json_bool(&json, "fails", false);
        cli_json_number(&json, "failures", x->o.failures);
        cli_json_number(&json, "live_bytes", peak);
        if (x->is_planned)
            cli_json_number(&json, "planned_bytes", x->planned_bytes);
        cli_json_end(&json);
        return CLI_NO;
    }
    if (x->o.failures)
        printf("%s has %" PRIu32 " failure%s, not %" PRIu64 ".\n", x->a.input, x->o.failures,
               x->o.failures == 1 ? "" : "s", x->failure);
    else if (x->a.limit_bytes)
        printf("%s (%s): nothing fails under %s: at most %s are alive%s%s.\n", x->a.input,
               asking_device(&x->a), cli_size_text(x->a.limit_bytes, limit), cli_size_text(peak, size),
               plan_fails ? "; but the plan that was found takes " : "",
               plan_fails ? cli_size_text(x->planned_bytes, planned) : "");
    else
        printf("%s (%s): no failure is recorded; at most %s are alive. --limit BYTES asks what would fail.\n",
               x->a.input, asking_device(&x->a), cli_size_text(peak, size));
    return CLI_NO;
}

static int explain_answer(explanation *x)
{
    if (!oom_find(&x->a.h, x->a.device, x->a.limit_bytes, (uint32_t)x->failure, &x->o))
        return nothing_fails(x);
    if (!oom_explain(&x->a.h, x->a.device, &x->o) || !find_holders(x))
        return cli_fail("explain-oom", BERTH_OUT_OF_HOST_MEMORY, x->a.input);
    lives_request request = {x->o.size_bytes, x->o.state, x->o.label, x->o.stack};
    x->is_absurd = x->o.size_bytes > ABSURD_BYTES;
    int code = x->is_absurd ? CLI_OK : asking_lives(&x->a, x->o.is_recorded ? &request : NULL, &x->l);
    if (code != CLI_OK)
        return code;
    x->fits_bytes = x->is_absurd       ? 0
                    : x->o.limit_bytes ? x->o.limit_bytes
                                       : format_history_peak(&x->a.h, x->a.device).bytes;
    oom_find_growing(&x->l, &x->o);
    find_changes(x);
    (x->a.json ? put_json : put_report)(x);
    lives_finish(&x->l);
    return CLI_OK;
}

static int explain_run(int argc, char **argv)
{
    explanation x = {.a.verb = "explain-oom", .a.about_refusals = true, .failure = 1};
    struct cli_option options[ASKING_OPTIONS + 1] = {{"--failure", NULL, CLI_NUMBER, &x.failure}};
    asking_options(&x.a, options + 1);
    size_t count;
    int code =
        cli_options_read("explain-oom", argc, argv, options, ASKING_OPTIONS + 1, &x.a.input, 1, &count);
    if (code == CLI_OK && (!x.failure || x.failure > UINT32_MAX))
        code = cli_misuse("explain-oom", "--failure counts from 1");
    if (code == CLI_OK)
        code = asking_begin(&x.a);
    if (code != CLI_OK)
        return code;
    code = explain_answer(&x);
    holders_finish(&x.labels);
    holders_finish(&x.sites);
    asking_end(&x.a);
    return code;
}

const struct cli_verb cli_verb_explain_oom = {
    .name = "explain-oom",
    .summary = "when memory ran out, why, who held it, and what would make it fit",
    .help = "usage: berth explain-oom INPUT [--limit BYTES]\n\n"
            "INPUT is what berth view reads: a trace (berth record), a PyTorch snapshot, a problem or plan "
            "in CSV, an event\n"
            "log, RMM's log, a file of heaptrack or massif, a model (.tflite, .onnx); - is the standard "
            "input. Explains the\n"
            "first failure that it tells of, or the first request that would fail under --limit: too much is "
            "alive;\n"
            "fragmented, with the largest hole and the blocks that pin it; held by a cache; held by streams. "
            "Then who holds\n"
            "the most, by label and by call site, and the cheapest changes under which it fits, each with "
            "its bound and a\n"
            "plan. Exit 1 if nothing fails.\n\n"
            "  --limit BYTES   what there is; without it what the recording says\n"
            "  --failure N     the Nth recorded failure (1)\n"
            "  --align BYTES   sizes and places of plans are multiples of it (16, and 1 for CSV)\n"
            "  --budget TIME   for all plans together (0.8s, more above a million events)\n"
            "  --device NAME   whose memory (the device with the largest peak); host is the host's\n"
            "  --json          print one JSON object (docs/questions.md)\n"
            "  --dim, --runtime, --inplace, --scratch  of a model, as for berth plan\n\n"
            "examples:\n"
            "  berth explain-oom snapshot.pickle\n"
            "  berth explain-oom model.csv --limit 16M\n",
    .run = explain_run,
};
