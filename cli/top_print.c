/* What berth top shows, as text and as JSON. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/size.h"
#include "cli/top.h"
#include "format/text.h"

enum { LINE_ROOM = 1024, NAME_ROOM = 512 };

/* ---- Rows --------------------------------------------------------------------------------------------- */

typedef struct top_row {
    format_counts counts;
    uint64_t at_peak;
    uint32_t number;
} top_row;

/* A list of rows, largest first; NULL: no memory, or nothing to list. */
typedef struct top_rows {
    top_row *rows;
    uint32_t count;
} top_rows;

static uint64_t row_value(const top_row *r, top_order order)
{
    return order == TOP_BY_LIVE ? r->counts.live_bytes : order == TOP_BY_PEAK ? r->at_peak : r->counts.allocs;
}

#define COMPARE_BY(name, order)                                                                \
    static int name(const void *a, const void *b)                                              \
    {                                                                                          \
        const top_row *x = a, *y = b;                                                          \
        uint64_t u = row_value(x, order), v = row_value(y, order);                             \
        if (u == v) /* the same rows stay in the same places */                                \
            u = x->at_peak, v = y->at_peak;                                                    \
        return u != v ? (u > v ? -1 : 1) : x->number < y->number ? -1 : x->number > y->number; \
    }
COMPARE_BY(compare_live, TOP_BY_LIVE)
COMPARE_BY(compare_peak, TOP_BY_PEAK)
COMPARE_BY(compare_allocs, TOP_BY_ALLOCS)

static void sort_rows(top_rows *r, top_order order)
{
    if (r->rows)
        qsort(r->rows, r->count, sizeof *r->rows,
              order == TOP_BY_LIVE   ? compare_live
              : order == TOP_BY_PEAK ? compare_peak
                                     : compare_allocs);
}

static top_rows rows_of(const top_picture *p, top_table table)
{
    const format_tally *t = p->tally;
    uint32_t most = table == TOP_HOLDERS   ? t->holder_count
                    : table == TOP_THREADS ? t->thread_count
                                           : t->device_count;
    top_rows r = {calloc(most ? most : 1, sizeof *r.rows), 0};
    for (uint32_t i = 0; r.rows && i < most; i++) {
        top_row row = {.number = i};
        if (table == TOP_HOLDERS) {
            row.counts = t->holders[i].counts;
            row.at_peak = format_holder_at_peak(t, &t->holders[i]);
        } else {
            row.counts = table == TOP_THREADS ? t->threads[i].counts : t->devices[i].counts;
            row.at_peak = row.counts.peak_bytes;
        }
        if (row.counts.peak_bytes || row.counts.allocs)
            r.rows[r.count++] = row;
    }
    sort_rows(&r, p->order);
    return r;
}

static const char *device_words(const format_history *h, uint32_t device)
{
    const char *name = device < h->device_count ? format_history_words(h, h->devices[device].name) : "";
    return *name ? name : "host";
}

static const char *row_name(const top_picture *p, top_table table, const top_row *row, char *text)
{
    char name[NAME_ROOM];
    const format_tally *t = p->tally;
    if (table == TOP_DEVICES) {
        snprintf(text, NAME_ROOM, "%s", device_words(p->h, row->number));
    } else if (table == TOP_THREADS) {
        const format_tally_thread *o = &t->threads[row->number];
        const char *called = format_history_thread_name(p->h, o->process, o->thread);
        int length = snprintf(text, NAME_ROOM, "thread %u%s%.*s%s", o->thread + 1, *called ? " (" : "",
                              NAME_ROOM / 2, called, *called ? ")" : "");
        if (p->h->process_count > 1)
            snprintf(text + length, NAME_ROOM - (size_t)length, " of process %u", o->process);
    } else {
        const format_holder *o = &t->holders[row->number];
        format_holder_words(p->h, o, name, sizeof name);
        if (o->device)
            snprintf(text, NAME_ROOM, "%.400s on %.90s", name, device_words(p->h, o->device));
        else
            snprintf(text, NAME_ROOM, "%s", name);
    }
    return format_text_clean(text); /* names are other people's: no control characters to the terminal */
}

/* ---- Text --------------------------------------------------------------------------------------------- */

typedef struct top_page {
    FILE *out;
    unsigned width, left; /* lines; 0: as many as there are */
    bool is_full;
    const char *end;
} top_page;

/* How many bytes make the first `width` characters of UTF-8. */
static size_t cut_words(const char *text, unsigned width)
{
    size_t at = 0;
    for (unsigned shown = 0; text[at]; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && shown++ == width)
            break;
    return at;
}

static void BERTH_PRINTF(2, 3) page_line(top_page *page, const char *format, ...)
{
    char text[LINE_ROOM];
    if (page->is_full)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t length = page->width ? cut_words(text, page->width) : strlen(text);
    while (length && text[length - 1] == ' ')
        length--;
    fprintf(page->out, "%.*s%s", (int)length, text, page->end);
    if (page->left && --page->left == 0)
        page->is_full = true;
}

static void print_table(top_page *page, const top_picture *p, top_table table, unsigned most)
{
    static const char *const titles[] = {"HOLDER", "THREAD", "DEVICE"};
    top_rows r = rows_of(p, table);
    page_line(page, "%12s %12s %10s %12s  %s", "LIVE", table == TOP_HOLDERS ? "AT PEAK" : "PEAK", "BLOCKS",
              "ALLOCATIONS", titles[table]);
    for (uint32_t i = 0; i < r.count && (!most || i < most); i++) {
        char live[CLI_SIZE_ROOM], peak[CLI_SIZE_ROOM], name[NAME_ROOM];
        page_line(page, "%12s %12s %10" PRIu64 " %12" PRIu64 "  %s",
                  cli_size_text(r.rows[i].counts.live_bytes, live), cli_size_text(r.rows[i].at_peak, peak),
                  r.rows[i].counts.live_blocks, r.rows[i].counts.allocs,
                  row_name(p, table, &r.rows[i], name));
    }
    if (most && r.count > most)
        page_line(page, "%50s  and %u more", "", r.count - most);
    free(r.rows);
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_head(top_page *page, const top_picture *p)
{
    char live[CLI_SIZE_ROOM], peak[CLI_SIZE_ROOM], mapped[CLI_SIZE_ROOM];
    format_counts sum = format_tally_sum(p->tally);
    uint64_t failures = 0, pages = 0;
    for (uint32_t i = 0; i < p->tally->device_count; i++) {
        failures += p->tally->devices[i].failures;
        pages += p->tally->devices[i].mapped_bytes;
    }
    const char *slash = strrchr(p->name, '/');
    page_line(page, "%s: %s, %.1f s", slash ? slash + 1 : p->name, p->state, p->seconds);
    if (sum.peak_bytes)
        page_line(page, "live %s in %" PRIu64 " block%s, peak %s", cli_size_text(sum.live_bytes, live),
                  sum.live_blocks, plural(sum.live_blocks), cli_size_text(sum.peak_bytes, peak));
    else
        page_line(page, "live %s in %" PRIu64 " block%s", cli_size_text(sum.live_bytes, live),
                  sum.live_blocks, plural(sum.live_blocks));
    page_line(page, "%" PRIu64 " allocation%s, %.0f a second%s%s", sum.allocs, plural(sum.allocs), p->rate,
              pages ? "; mapped " : "", pages ? cli_size_text(pages, mapped) : "");
    if (failures)
        page_line(page, "%" PRIu64 " allocation%s refused", failures, failures == 1 ? " was" : "s were");
}

static uint32_t used_devices(const format_tally *t)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < t->device_count; i++)
        used += t->devices[i].counts.peak_bytes != 0;
    return used;
}

void top_print(FILE *out, const top_picture *p, unsigned width, unsigned height, const char *end)
{
    static const char *const orders[] = {"live", "peak", "allocations"};
    enum { ROWS = 20 };
    top_page page = {.out = out, .width = width, .left = height, .end = end};
    print_head(&page, p);
    if (p->is_live) {
        page_line(&page, "q: quit  h: holders  t: threads  d: devices  s: sort (by %s)", orders[p->order]);
        print_table(&page, p, p->table, 0);
        return;
    }
    if (used_devices(p->tally) > 1) {
        page_line(&page, "%s", "");
        print_table(&page, p, TOP_DEVICES, ROWS);
    }
    if (p->tally->thread_count > 1) {
        page_line(&page, "%s", "");
        print_table(&page, p, TOP_THREADS, ROWS);
    }
    page_line(&page, "%s", "");
    print_table(&page, p, TOP_HOLDERS, ROWS);
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

static void json_counts(cli_json *json, const format_counts *c)
{
    cli_json_number(json, "live_bytes", c->live_bytes);
    cli_json_number(json, "live_blocks", c->live_blocks);
    cli_json_number(json, "peak_bytes", c->peak_bytes);
    cli_json_number(json, "allocations", c->allocs);
}

static void json_table(cli_json *json, const top_picture *p, top_table table, const char *key, unsigned most)
{
    top_rows r = rows_of(p, table);
    cli_json_list_begin(json, key);
    for (uint32_t i = 0; i < r.count && i < most; i++) {
        char name[NAME_ROOM];
        const top_row *row = &r.rows[i];
        cli_json_item_begin(json);
        cli_json_text(json, "name", row_name(p, table, row, name));
        json_counts(json, &row->counts);
        if (table == TOP_HOLDERS) {
            cli_json_number(json, "at_peak_bytes", row->at_peak);
            cli_json_text(json, "device", device_words(p->h, p->tally->holders[row->number].device));
        }
        if (table == TOP_DEVICES) {
            cli_json_number(json, "mapped_bytes", p->tally->devices[row->number].mapped_bytes);
            cli_json_number(json, "failures", p->tally->devices[row->number].failures);
        }
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
    free(r.rows);
}

void top_print_json(FILE *out, const top_picture *p, unsigned rows)
{
    cli_json json;
    format_counts sum = format_tally_sum(p->tally);
    cli_json_begin(&json, out);
    cli_json_number(&json, "schema", 1);
    cli_json_text(&json, "input", p->name);
    cli_json_text(&json, "format", p->h->format);
    cli_json_text(&json, "state", p->state);
    cli_json_real(&json, "duration_seconds", p->seconds);
    json_counts(&json, &sum);
    cli_json_real(&json, "allocations_a_second", p->rate);
    json_table(&json, p, TOP_DEVICES, "devices", UINT32_MAX);
    json_table(&json, p, TOP_THREADS, "threads", rows);
    json_table(&json, p, TOP_HOLDERS, "holders", rows);
    cli_json_end(&json);
}
