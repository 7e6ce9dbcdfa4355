/* What berth bench-allocators found: a table and JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/json.h"
#include "cli/size.h"

enum { NAME_WIDTH = 28 };

/* ---- Figures ------------------------------------------------------------------------------------------ */

static int figure_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t beyond_base(const drive_result *r)
{
    return r->peak_bytes > r->base_bytes ? r->peak_bytes - r->base_bytes : 0;
}

bench_figures bench_figures_of(const bench_row *row)
{
    uint64_t wall[BENCH_RUNS_MOST], cpu[BENCH_RUNS_MOST], resident[BENCH_RUNS_MOST];
    const uint32_t n = row->run_count;
    bench_figures f = {0};
    for (uint32_t i = 0; i < n; i++) {
        wall[i] = row->runs[i].wall_ns;
        cpu[i] = row->runs[i].cpu_ns;
        resident[i] = beyond_base(&row->runs[i]);
        f.refused = row->runs[i].failures > f.refused ? row->runs[i].failures : f.refused;
    }
    if (!n)
        return f;
    qsort(wall, n, sizeof *wall, figure_compare);
    qsort(cpu, n, sizeof *cpu, figure_compare);
    qsort(resident, n, sizeof *resident, figure_compare);
    const uint32_t middle = n / 2;
    f.seconds = (double)wall[middle] * 1e-9;
    f.least_seconds = (double)wall[0] * 1e-9;
    f.most_seconds = (double)wall[n - 1] * 1e-9;
    f.cpu_seconds = (double)cpu[middle] * 1e-9;
    f.resident_bytes = resident[middle];
    return f;
}

/* The part of a row's time that is not the driver's. */
static double own_seconds(const bench *b, const bench_figures *f)
{
    const bench_figures driver = bench_figures_of(&b->rows[0]);
    return f->seconds > driver.seconds ? f->seconds - driver.seconds : 0;
}

static double waste_percent(const bench *b, const bench_figures *f)
{
    const double live = (double)b->script->live_bytes;
    return live > 0 ? ((double)f->resident_bytes - live) / live * 100 : 0;
}

/* ---- For people --------------------------------------------------------------------------------------- */

static void print_figures(const bench *b, const bench_row *row, FILE *out)
{
    char time[CLI_SIZE_ROOM], own[CLI_SIZE_ROOM], resident[CLI_SIZE_ROOM], waste[CLI_SIZE_ROOM];
    const bench_figures f = bench_figures_of(row);
    const bool is_driver = row == b->rows;
    fprintf(out, "%9s", cli_time_text(f.seconds, time));
    if (is_driver)
        fprintf(out, " %11s %9s %13s %9s", "", "", cli_size_text(f.resident_bytes, resident), "");
    else
        fprintf(out, " %11s %6.1f ns %13s %9s", cli_time_text(own_seconds(b, &f), own),
                own_seconds(b, &f) * 1e9 / (double)b->script->event_count,
                cli_size_text(f.resident_bytes, resident),
                b->script->touches ? cli_times_text(f.resident_bytes, b->script->live_bytes, waste) : "-");
    if (row->calls.is_known)
        fprintf(out, " %8" PRIu64, row->calls.all);
    else
        fprintf(out, " %8s", "?");
    if (f.refused)
        fprintf(out, "  %" PRIu64 " refused", f.refused);
    fputc('\n', out);
}

static void print_how(const bench *b, FILE *out)
{
    fprintf(
        out,
        "\nEach allocator ran in a process of its own, %" PRIu32
        " time%s, in turn with the others; times are the median.\nalone: less the driver's own time, which "
        "an "
        "allocator that does nothing shows. resident: the most beyond what\nthe process had before the first "
        "event (VmHWM)%s. waste: resident against the bytes alive at the peak.\n",
        b->run_count, b->run_count == 1 ? "" : "s",
        b->script->touches ? "; every page of a block is written to" : "; blocks are not written to");
    if (b->rows[0].calls.is_known)
        fprintf(out,
                "calls: system calls during the events, counted in a run of its own (seccomp and ptrace); "
                "sched_yield is left out.\n");
    else
        fprintf(out, "System calls are not counted: %s.\n", b->calls_words);
}

void bench_print(const bench *b, FILE *out)
{
    char live[CLI_SIZE_ROOM];
    const drive_script *s = b->script;
    fprintf(out,
            "%s: %" PRIu64 " event%s of %" PRIu32 " block%s on %" PRIu32
            " thread%s; %s alive at the peak\n\n",
            b->input, s->event_count, s->event_count == 1 ? "" : "s", s->block_count,
            s->block_count == 1 ? "" : "s", b->thread_count, b->thread_count == 1 ? "" : "s",
            cli_size_text(s->live_bytes, live));
    fprintf(out, "  %-*s %9s %11s %9s %13s %9s %8s\n", NAME_WIDTH, "allocator", "time", "alone", "an event",
            "resident", "waste", "calls");
    for (uint32_t i = 0; i < b->row_count; i++) {
        const bench_row *row = &b->rows[i];
        fprintf(out, "  %-*.*s ", NAME_WIDTH, NAME_WIDTH, row->allocator.name);
        if (row->run_count)
            print_figures(b, row, out);
        else
            fprintf(out, "%s\n", row->words);
    }
    print_how(b, out);
}

/* ---- For scripts -------------------------------------------------------------------------------------- */

static void json_row(cli_json *json, const bench *b, const bench_row *row)
{
    static const char *const kinds[] = {"empty", "malloc", "library", "berth", "settings"};
    const bench_figures f = bench_figures_of(row);
    cli_json_item_begin(json);
    cli_json_text(json, "name", row->allocator.name);
    cli_json_text(json, "kind", kinds[row->allocator.kind]);
    cli_json_text(json, "value", row->allocator.value);
    cli_json_text(json, "error", row->words[0] ? row->words : NULL);
    cli_json_number(json, "runs", row->run_count);
    if (row->run_count) {
        cli_json_real(json, "seconds", f.seconds);
        cli_json_real(json, "seconds_least", f.least_seconds);
        cli_json_real(json, "seconds_most", f.most_seconds);
        cli_json_real(json, "cpu_seconds", f.cpu_seconds);
        cli_json_real(json, "own_seconds", own_seconds(b, &f));
        cli_json_number(json, "resident_bytes", f.resident_bytes);
        if (b->script->touches)
            cli_json_real(json, "waste_percent", waste_percent(b, &f));
        else /* what nobody writes to is not resident */
            cli_json_null(json, "waste_percent");
        cli_json_number(json, "refused", f.refused);
    }
    if (row->calls.is_known) {
        cli_json_number(json, "system_calls", row->calls.all);
        cli_json_number(json, "memory_calls", row->calls.memory);
    } else {
        cli_json_null(json, "system_calls");
        cli_json_null(json, "memory_calls");
    }
    cli_json_item_end(json);
}

void bench_print_json(const bench *b, FILE *out)
{
    cli_json json;
    cli_json_begin(&json, out);
    cli_json_number(&json, "schema", 1);
    cli_json_text(&json, "input", b->input);
    cli_json_number(&json, "events", b->script->event_count);
    cli_json_number(&json, "blocks", b->script->block_count);
    cli_json_number(&json, "threads", b->thread_count);
    cli_json_number(&json, "lanes", b->script->lane_count);
    cli_json_number(&json, "live_peak", b->script->live_bytes);
    cli_json_bool(&json, "touched", b->script->touches);
    cli_json_text(&json, "not_counted", b->calls_words[0] ? b->calls_words : NULL);
    cli_json_list_begin(&json, "allocators");
    for (uint32_t i = 0; i < b->row_count; i++)
        json_row(&json, b, &b->rows[i]);
    cli_json_list_end(&json);
    cli_json_end(&json);
}
