/* Plans as files: a problem file like any other, so that every tool that reads those reads these too.
 *
 *     id,lower,upper,size,alignment,hint,label,offset
 *     0,0,2,4096,64,0,embed,0                    allocated as number 0, freed before number 2
 *     1,1,1,64,64,0,output,0                     an empty life: not freed inside, outside the plan
 *     ...
 *     fingerprint,7,7,0,1,0,9f86d081884c7d65,0   the last row: of all the others
 *
 * `hint` is the order of the frees. The fingerprint tells a file that is cut short or edited. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/problem_file.h"
#include "plan/plan.h"

/* ---- Writing ----------------------------------------------------------------------------------------- */

typedef struct saving {
    const berth__plan_content *plan;
    berth_problem_buffer *buffers;
    uint64_t *offsets;
    uint32_t *order;
} saving;

static size_t plan_file_put(const char *from, char *text, size_t room)
{
    int n = snprintf(text, room, "%s", from ? from : "");
    return n > 0 ? (size_t)n : 0;
}

static size_t id_of(void *context, size_t row, char *text, size_t room)
{
    const saving *s = context;
    char number[24];
    snprintf(number, sizeof number, "%zu", row);
    return plan_file_put(row < s->plan->count ? number : BERTH__FINGERPRINT_ID, text, room);
}

static size_t label_of(void *context, size_t row, char *text, size_t room)
{
    const saving *s = context;
    char print[24];
    snprintf(print, sizeof print, "%016" PRIx64, s->plan->fingerprint);
    return plan_file_put(row < s->plan->count ? s->plan->entries[row].label : print, text, room);
}

static void fill_rows(saving *s)
{
    const berth__plan_content *c = s->plan;
    for (uint32_t i = 0; i <= c->count; i++) {
        const berth__plan_entry *e = &c->entries[i];
        bool planned = i < c->count && e->freed_at != UINT32_MAX;
        s->buffers[i] = (berth_problem_buffer){
            .lower = i,
            .upper = planned ? e->freed_at : i,
            .size_bytes = i < c->count ? e->size_bytes : 0,
            .fixed_offset = BERTH_NO_OFFSET,
            .alignment = i < c->count ? e->alignment : 1,
        };
        s->offsets[i] = planned ? e->offset : 0;
    }
    berth__plan_free_order(c, s->order);
    for (uint32_t k = 0; k < c->planned; k++)
        s->buffers[s->order[k]].hint = k;
}

static berth_status save(const berth__plan_content *c, const char *path)
{
    size_t rows = (size_t)c->count + 1;
    saving s = {
        .plan = c,
        .buffers = berth__heap_zalloc(rows, sizeof *s.buffers),
        .offsets = berth__heap_zalloc(rows, sizeof *s.offsets),
        .order = berth__heap_zalloc(c->planned, sizeof *s.order),
    };
    berth_status status = BERTH_OK;
    if (!s.buffers || !s.offsets || !s.order) {
        status =
            berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to save a plan of %u allocations", c->count);
    } else {
        fill_rows(&s);
        berth_problem problem = {.struct_size = sizeof problem, .buffers = s.buffers, .buffer_count = rows};
        status = berth_problem_write(&problem, id_of, label_of, &s, s.offsets, path);
    }
    berth__heap_free(s.order);
    berth__heap_free(s.offsets);
    berth__heap_free(s.buffers);
    return status;
}

berth_status berth_plan_save(const berth_plan *plan, const char *path)
{
    if (!plan || !path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "saving needs a plan and a path");
    berth__plan_content *content = NULL;
    berth_status status = berth__plan_content_of(plan, &content);
    if (!status)
        status = save(content, path);
    berth__plan_content_release(content);
    return status;
}

/* ---- Reading ----------------------------------------------------------------------------------------- */

typedef struct freed {
    int64_t order;
    uint32_t id;
} freed;

typedef struct loading {
    const char *path;
    const berth_problem_file *file;
    const uint64_t *offsets;
    size_t count; /* of allocations */
    berth_plan_allocation *allocations;
    freed *frees;
    size_t free_count;
    uint32_t *order;
    char *text; /* the labels */
    size_t text_used;
} loading;

static berth_status bad_row(const loading *l, size_t line, const char *what)
{
    return berth__fail(BERTH_BAD_DATA, "%s, line %zu: %s", l->path, line, what);
}

static bool field_is(const berth__csv_field *field, const char *word)
{
    return field && field->length == strlen(word) && memcmp(field->text, word, field->length) == 0;
}

static bool field_number(const berth__csv_field *field, uint64_t *out)
{
    char text[32], *end = NULL;
    if (!field || field->length == 0 || field->length >= sizeof text)
        return false;
    berth__csv_copy(field, text, sizeof text);
    *out = strtoull(text, &end, 10);
    return *end == '\0' && text[0] != '-' && text[0] != '+';
}

static const char *take_label(loading *l, const berth__csv_field *field)
{
    if (!field || field->length == 0)
        return NULL;
    char *label = l->text + l->text_used;
    l->text_used += berth__csv_copy(field, label, field->length + 1) + 1;
    return label;
}

static berth_status take_row(loading *l, const berth__csv *csv, size_t row)
{
    const berth__columns *columns = &l->file->columns;
    const berth__csv_field *name = berth__column_field(columns, csv, BERTH__COLUMN_ID);
    if (field_is(name, BERTH__FINGERPRINT_ID))
        return bad_row(l, csv->record_line, "the fingerprint is not a number in hex");
    const berth_problem_buffer *b = &l->file->problem.buffers[row];
    uint64_t id = 0;
    if (!field_number(name, &id) || id >= l->count || l->allocations[id].struct_size)
        return bad_row(l, csv->record_line, "ids count from 0 without a hole, in any order");
    if (b->lower != (int64_t)id || (uint64_t)b->upper > l->count)
        return bad_row(l, csv->record_line, "a life begins at its id and ends by the last row");
    if (b->gap_count || b->alias_group || b->fixed_offset != BERTH_NO_OFFSET)
        return bad_row(l, csv->record_line, "plans have no gaps, aliases or fixed places");
    if (b->size_bytes == 0 || !berth__is_power_of_two(b->alignment))
        return bad_row(l, csv->record_line, "an allocation has bytes, and a power of two as alignment");
    bool planned = b->upper > b->lower;
    if (planned && l->offsets[row] == BERTH_NO_OFFSET)
        return bad_row(l, csv->record_line, "the offset is missing");
    l->allocations[id] = (berth_plan_allocation){
        .struct_size = sizeof *l->allocations,
        .size_bytes = b->size_bytes,
        .alignment = b->alignment,
        .freed_at = planned ? (uint64_t)b->upper : BERTH_NEVER_FREED,
        .offset = planned ? l->offsets[row] : BERTH_NO_OFFSET,
        .label = take_label(l, berth__column_field(columns, csv, BERTH__COLUMN_LABEL)),
    };
    if (planned)
        l->frees[l->free_count++] = (freed){b->hint, (uint32_t)id};
    return BERTH_OK;
}

static int compare_freed(const void *a, const void *b)
{
    const freed *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static berth_status take_rows(loading *l)
{
    berth__csv csv;
    berth__csv_begin(&csv, l->file->text, l->file->text_bytes);
    berth_status status = berth__csv_next(&csv); /* the header */
    for (size_t row = 0; row < l->file->problem.buffer_count && !status; row++) {
        status = berth__problem_file_next(l->file, &csv);
        if (!status)
            status = take_row(l, &csv, row);
    }
    if (status)
        return status;
    if (!l->file->has_fingerprint)
        return berth__fail(BERTH_BAD_DATA,
                           "%s: there is no fingerprint row; the file is cut short, or "
                           "berth_plan_save did not write it",
                           l->path);
    qsort(l->frees, l->free_count, sizeof *l->frees, compare_freed);
    for (size_t k = 0; k < l->free_count; k++)
        l->order[k] = l->frees[k].id;
    return BERTH_OK;
}

static berth_status plan_file_load(loading *l, berth__plan_content **out)
{
    l->count = l->file->problem.buffer_count;
    if (l->file->columns.place[BERTH__COLUMN_OFFSET] < 0)
        return berth__fail(BERTH_BAD_DATA, "%s: there is no column `offset`; this is a problem, not a plan",
                           l->path);
    if (l->count > UINT32_MAX / 2 - 2)
        return berth__fail(BERTH_OVERFLOW, "%s: %zu allocations are too many", l->path, l->count);
    l->allocations = berth__heap_zalloc(l->count, sizeof *l->allocations);
    l->frees = berth__heap_zalloc(l->count, sizeof *l->frees);
    l->order = berth__heap_zalloc(l->count, sizeof *l->order);
    l->text = berth__heap_alloc(l->file->text_bytes + 1); /* every label with its 0 is shorter than its row */
    if (!l->allocations || !l->frees || !l->order || !l->text)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to load a plan of %zu allocations", l->count);
    berth_status status = take_rows(l);
    if (status)
        return status;
    berth__plan_source source = {
        .allocations = l->allocations, .count = l->count, .free_order = l->order, .has_offsets = true};
    status = berth__plan_build(&source, NULL, out);
    if (!status && (*out)->fingerprint != l->file->fingerprint) {
        status = berth__fail(BERTH_BAD_DATA,
                             "%s: the rows have the fingerprint %016" PRIx64 ", the file says %016" PRIx64
                             "; it was cut short or edited",
                             l->path, (*out)->fingerprint, l->file->fingerprint);
        berth__plan_content_release(*out);
        *out = NULL;
    }
    return status;
}

static berth_status read_plan(const char *path, berth__plan_content **out)
{
    berth_problem_file *file = NULL;
    berth_status status = berth_problem_file_read(path, &file);
    if (status)
        return status;
    loading l = {.path = path, .file = file, .offsets = file->offsets};
    status = plan_file_load(&l, out);
    berth__heap_free(l.text);
    berth__heap_free(l.order);
    berth__heap_free(l.frees);
    berth__heap_free(l.allocations);
    berth_problem_file_destroy(file);
    return status;
}

berth_status berth_plan_load(berth_plan *plan, const char *path)
{
    if (!plan || !path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "loading needs a plan and a path");
    berth_status status = berth__plan_lock(plan);
    if (status)
        return status;
    berth__plan_content *content = NULL;
    berth__plan_put(plan, berth__plan_empty());
    status = read_plan(path, &content);
    if (!status)
        berth__plan_put(plan, content);
    berth__plan_unlock(plan);
    return status;
}
