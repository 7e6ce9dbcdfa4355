/* What berth diff says. */
#include "cli/diff_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/size.h"

enum { CALLERS_MOST = 4, CALLER_WIDTH = 60, NAME_WIDTH = 44, SIGNED_ROOM = CLI_SIZE_ROOM + 2 };

double diff_percent(const compare *c)
{
    const double before = (double)c->peak[BEFORE].bytes, after = (double)c->peak[AFTER].bytes;
    if (before > 0)
        return (after - before) / before * 100;
    return after > 0 ? HUGE_VAL : 0;
}

/* ---- For people --------------------------------------------------------------------------------------- */

static const char *signed_size(int64_t bytes, char text[SIGNED_ROOM])
{
    char size[CLI_SIZE_ROOM];
    uint64_t far = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    snprintf(text, SIGNED_ROOM, "%s%s", bytes > 0 ? "+" : bytes < 0 ? "-" : "", cli_size_text(far, size));
    return text;
}

/* "+7.0 %"; "new" and "gone" where there is nothing to compare with. */
static const char *percent_text(uint64_t before, uint64_t after, char text[SIGNED_ROOM])
{
    if (!before || !after) {
        snprintf(text, SIGNED_ROOM, "%s", before ? "gone" : after ? "new" : "");
        return text;
    }
    const double percent = ((double)after / (double)before - 1) * 100;
    snprintf(text, SIGNED_ROOM, "%+.*f %%", fabs(percent) < 1 ? 2 : 1, percent);
    return text;
}

static const compare_figures *figures_of(const compare_row *row, int side)
{
    return &row->of[side];
}

static uint64_t bytes_of(const compare_row *row, int side, compare_order order)
{
    const compare_figures *f = figures_of(row, side);
    return order == COMPARE_AT_PEAK ? f->peak_bytes : order == COMPARE_AT_END ? f->end_bytes : f->total_bytes;
}

static uint64_t blocks_of(const compare_row *row, int side, compare_order order)
{
    const compare_figures *f = figures_of(row, side);
    return order == COMPARE_AT_PEAK  ? f->peak_blocks
           : order == COMPARE_AT_END ? f->end_blocks
                                     : f->allocations;
}

/* Whether a byte is one that a character of UTF-8 goes on with. */
static bool goes_on(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Bytes of the first `count` characters. */
static size_t bytes_up_to(const char *name, size_t count)
{
    size_t at = 0;
    for (; name[at]; at++)
        if (!goes_on(name[at]) && count-- == 0)
            break;
    return at;
}

static void print_callers(const compare *c, const compare_row *row, FILE *out)
{
    uint32_t frames[CALLERS_MOST];
    char name[HOLDERS_NAME_ROOM];
    const uint32_t count = compare_callers(c, row, frames, CALLERS_MOST);
    for (uint32_t i = 0; i < count; i++) {
        holders_frame_name(c->h[AFTER], frames[i], name);
        fprintf(out, "%s%.*s", i ? ", " : "    called by ", (int)bytes_up_to(name, CALLER_WIDTH), name);
    }
    if (count)
        fputc('\n', out);
}

/* Cut in the middle, and filled up to the width in characters: the place at the end says more than the arguments before it. */
static void print_name(const char *name, FILE *out)
{
    enum { HEAD = NAME_WIDTH / 2, TAIL = NAME_WIDTH - HEAD - 3 };
    int width = 0;
    for (const char *c = name; *c; c++)
        width += !goes_on(*c);
    if (width <= NAME_WIDTH)
        fprintf(out, "  %s%*s", name, NAME_WIDTH - width, "");
    else
        fprintf(out, "  %.*s...%s", (int)bytes_up_to(name, HEAD), name,
                name + bytes_up_to(name, (size_t)width - TAIL));
}

static void print_row(const compare *c, const compare_table *t, const compare_row *row, compare_order order,
                      FILE *out)
{
    char name[HOLDERS_NAME_ROOM], before[CLI_SIZE_ROOM], after[CLI_SIZE_ROOM], growth[SIGNED_ROOM],
        percent[SIGNED_ROOM];
    const uint64_t was = bytes_of(row, BEFORE, order), is = bytes_of(row, AFTER, order);
    print_name(compare_name(c, t, row, name), out);
    fprintf(out, " %11s %11s %12s %9s", cli_size_text(was, before), cli_size_text(is, after),
            signed_size(compare_growth(row, order), growth), percent_text(was, is, percent));
    const uint64_t had = blocks_of(row, BEFORE, order), has = blocks_of(row, AFTER, order);
    if (had != has)
        fprintf(out, "  %" PRIu64 " -> %" PRIu64, had, has);
    fputc('\n', out);
    if (order == COMPARE_AT_PEAK && t == &c->sites)
        print_callers(c, row, out);
}

/* The rows that grew most, and as far as there is room those that shrank most. */
static bool print_table(const compare *c, const compare_table *t, compare_order order, const char *title,
                        uint64_t top, FILE *out)
{
    uint32_t *sorted = compare_sorted(t, order);
    uint32_t up = 0, down = 0, shown = 0;
    if (!sorted)
        return false;
    while (up < t->count && compare_growth(&t->rows[sorted[up]], order) > 0)
        up++;
    while (down < t->count && compare_growth(&t->rows[sorted[t->count - 1 - down]], order) < 0)
        down++;
    if (up + down)
        fprintf(out, "\n  %-*s %11s %11s %12s %9s  %s\n", NAME_WIDTH, title, "before", "after", "grew by", "",
                order == COMPARE_IN_ALL ? "allocations" : "blocks");
    for (; shown < up && shown < top; shown++)
        print_row(c, t, &t->rows[sorted[shown]], order, out);
    for (uint32_t i = 0; i < down && shown < top && i < 3; i++, shown++)
        print_row(c, t, &t->rows[sorted[t->count - 1 - i]], order, out);
    if (up + down > shown)
        fprintf(out, "  and %u more (--top)\n", up + down - shown);
    free(sorted);
    return true;
}

static void print_side(const compare *c, const diff_request *r, int side, FILE *out)
{
    char peak[CLI_SIZE_ROOM], total[CLI_SIZE_ROOM], end[CLI_SIZE_ROOM];
    const compare_figures *all = &c->all[side];
    fprintf(out, "%s %s: peak %s in %u block%s; %" PRIu64 " allocation%s of %s in all; %s never freed\n",
            side == BEFORE ? "before" : "after ", r->input[side], cli_size_text(c->peak[side].bytes, peak),
            c->peak[side].blocks, c->peak[side].blocks == 1 ? "" : "s", all->allocations,
            all->allocations == 1 ? "" : "s", cli_size_text(all->total_bytes, total),
            cli_size_text(all->end_bytes, end));
}

static void print_verdict(const compare *c, const diff_request *r, FILE *out)
{
    char size[CLI_SIZE_ROOM], percent[SIGNED_ROOM];
    const uint64_t was = c->peak[BEFORE].bytes, is = c->peak[AFTER].bytes;
    if (was == is)
        fprintf(out, "The peak is the same.\n");
    else
        fprintf(out, "The peak %s by %s (%s).%s\n", is > was ? "grew" : "fell",
                cli_size_text(is > was ? is - was : was - is, size), percent_text(was, is, percent),
                r->fail_above < 0                 ? ""
                : diff_percent(c) > r->fail_above ? " That is more than --fail-above allows."
                                                  : " --fail-above allows that.");
}

/* Whether anything but "none" is known. */
static bool has_names(const compare_table *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        if ((t->rows[i].is_in[BEFORE] && t->rows[i].name[BEFORE]) ||
            (t->rows[i].is_in[AFTER] && t->rows[i].name[AFTER]))
            return true;
    return false;
}

/* Whether the later recording's peak is where the earlier one had its own. */
static bool is_same_moment(const compare *c)
{
    return c->all[BEFORE].peak_bytes == c->peak[BEFORE].bytes;
}

static void print_renamed(const compare *c, const compare_table *t, FILE *out)
{
    enum { NAMED = 5 };
    char was[HOLDERS_NAME_ROOM], is[HOLDERS_NAME_ROOM];
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->rows[i].is_renamed && count++ < NAMED)
            fprintf(out, "%s%s was called %s: the same allocations in the same order.\n",
                    count == 1 ? "\n" : "", compare_name_in(c, t, &t->rows[i], AFTER, is),
                    compare_name_in(c, t, &t->rows[i], BEFORE, was));
    if (count > NAMED)
        fprintf(out, "And %u more have other names.\n", count - NAMED);
}

static void print_how(const compare *c, FILE *out)
{
    char size[CLI_SIZE_ROOM];
    const bool sites = has_names(&c->sites);
    if (!sites && !has_names(&c->labels))
        fprintf(out, "\nNeither call stacks nor labels are recorded: who grew cannot be told.\n");
    if (sites)
        fprintf(
            out,
            "\nCall sites are the same if function and file are; without those, if module and offset are.\n");
    if (!is_same_moment(c))
        fprintf(out,
                "%sThe peak is at another moment than before: compared is the moment of the new one, when %s "
                "were alive before.\n",
                sites ? "" : "\n", cli_size_text(c->all[BEFORE].peak_bytes, size));
}

bool diff_print(const compare *c, const diff_request *r, FILE *out)
{
    const uint64_t few = r->top < 3 ? r->top : 3;
    bool done = true;
    print_side(c, r, BEFORE, out);
    print_side(c, r, AFTER, out);
    print_verdict(c, r, out);
    if (has_names(&c->sites)) {
        done = print_table(c, &c->sites, COMPARE_AT_PEAK, "at the peak, by call site", r->top, out);
        done = done && print_table(c, &c->sites, COMPARE_AT_END, "never freed, by call site", few, out);
        done = done && print_table(c, &c->sites, COMPARE_IN_ALL, "in all, by call site", few, out);
    }
    if (has_names(&c->labels)) {
        done = done && print_table(c, &c->labels, COMPARE_AT_PEAK, "at the peak, by label", r->top, out);
        done = done && print_table(c, &c->labels, COMPARE_AT_END, "never freed, by label", few, out);
        done = done && print_table(c, &c->labels, COMPARE_IN_ALL, "in all, by label", few, out);
    }
    print_renamed(c, &c->sites, out);
    print_renamed(c, &c->labels, out);
    print_how(c, out);
    return done;
}

/* ---- For scripts -------------------------------------------------------------------------------------- */

static void json_figures(cli_json *json, const compare_figures *f, const char *side)
{
    char key[48];
    const struct {
        const char *name;
        uint64_t value;
    } facts[] = {{"peak_bytes", f->peak_bytes},   {"peak_blocks", f->peak_blocks},
                 {"end_bytes", f->end_bytes},     {"end_blocks", f->end_blocks},
                 {"total_bytes", f->total_bytes}, {"allocations", f->allocations}};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        snprintf(key, sizeof key, "%s_%s", side, facts[i].name);
        cli_json_number(json, key, facts[i].value);
    }
}

static void json_callers(cli_json *json, const compare *c, const compare_row *row)
{
    uint32_t frames[CALLERS_MOST];
    char name[HOLDERS_NAME_ROOM];
    const uint32_t count = compare_callers(c, row, frames, CALLERS_MOST);
    cli_json_list_begin(json, "callers");
    for (uint32_t i = 0; i < count; i++) {
        cli_json_item_begin(json);
        cli_json_text(json, "name", holders_frame_name(c->h[AFTER], frames[i], name));
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

static void json_table(cli_json *json, const compare *c, const compare_table *t, const char *key)
{
    enum { CALLERS_OF = 20 }; /* rows: each is a pass over the blocks */
    char name[HOLDERS_NAME_ROOM];
    cli_json_list_begin(json, key);
    for (uint32_t i = 0; i < t->count; i++) {
        const compare_row *row = &t->rows[i];
        cli_json_item_begin(json);
        cli_json_text(json, "name", compare_name(c, t, row, name));
        if (row->is_renamed)
            cli_json_text(json, "was_called", compare_name_in(c, t, row, BEFORE, name));
        cli_json_text(json, "in",
                      row->is_in[BEFORE] && row->is_in[AFTER] ? "both"
                      : row->is_in[AFTER]                     ? "after"
                                                              : "before");
        cli_json_signed(json, "grew_peak_bytes", compare_growth(row, COMPARE_AT_PEAK));
        cli_json_signed(json, "grew_end_bytes", compare_growth(row, COMPARE_AT_END));
        cli_json_signed(json, "grew_total_bytes", compare_growth(row, COMPARE_IN_ALL));
        json_figures(json, &row->of[BEFORE], "before");
        json_figures(json, &row->of[AFTER], "after");
        if (t == &c->sites && i < CALLERS_OF)
            json_callers(json, c, row);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

bool diff_print_json(const compare *c, const diff_request *r, FILE *out)
{
    cli_json json;
    const double percent = diff_percent(c);
    cli_json_begin(&json, out);
    cli_json_number(&json, "schema", 1);
    cli_json_text(&json, "before", r->input[BEFORE]);
    cli_json_text(&json, "after", r->input[AFTER]);
    cli_json_number(&json, "before_peak", c->peak[BEFORE].bytes);
    cli_json_number(&json, "after_peak", c->peak[AFTER].bytes);
    if (isfinite(percent))
        cli_json_real(&json, "grew_percent", percent);
    else
        cli_json_null(&json, "grew_percent");
    if (r->fail_above >= 0) {
        cli_json_real(&json, "fail_above", r->fail_above);
        cli_json_bool(&json, "passes", percent <= r->fail_above);
    } else {
        cli_json_null(&json, "fail_above");
        cli_json_null(&json, "passes");
    }
    cli_json_bool(&json, "same_moment", is_same_moment(c));
    json_figures(&json, &c->all[BEFORE], "before");
    json_figures(&json, &c->all[AFTER], "after");
    json_table(&json, c, &c->sites, "sites");
    json_table(&json, c, &c->labels, "labels");
    cli_json_end(&json);
    return true;
}
