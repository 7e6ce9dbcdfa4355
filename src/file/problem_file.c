/* A problem file in memory: its rows found again, ids, labels, notices, and a plan matched with its problem. */
#include "file/problem_file.h"

#include <inttypes.h>
#include <string.h>

#include "file/folded.h"
#include "file/names.h"
#include "planner/engine/solver.h"

const berth_problem *berth_problem_file_problem(const berth_problem_file *file)
{
    return file ? &file->problem : NULL;
}

const uint64_t *berth_problem_file_offsets(const berth_problem_file *file)
{
    return file ? file->offsets : NULL;
}

const char *berth_problem_file_notice(const berth_problem_file *file, size_t index)
{
    return file && index < file->notice_count ? file->notices[index] : NULL;
}

berth_status berth__problem_file_next(const berth_problem_file *file, berth__csv *csv)
{
    berth_status status = berth__csv_next(csv);
    return !status && berth__problem_file_at_fingerprint(file, csv) ? berth__csv_next(csv) : status;
}

bool berth__problem_file_row(const berth_problem_file *file, size_t buffer, berth__csv *csv)
{
    /* While the file is being read its last row may have a mark but is not counted yet. */
    if (buffer >= file->problem.buffer_count)
        return false;
    berth__csv_begin(csv, file->text, file->text_bytes);
    csv->at = file->text + file->marks[buffer / BERTH__ROWS_A_MARK];
    for (size_t k = buffer % BERTH__ROWS_A_MARK; k > 0; k--) {
        berth_status status = berth__csv_skip(csv);
        if (!status && berth__problem_file_at_fingerprint(file, csv))
            status = berth__csv_skip(csv);
        if (status)
            return false;
    }
    return !berth__problem_file_next(file, csv);
}

static size_t copy_column(const berth_problem_file *file, size_t buffer, berth__column column, char *text,
                          size_t room)
{
    berth__csv csv;
    const berth__csv_field *field = NULL;
    if (!text)
        room = 0;
    if (room)
        text[0] = '\0';
    if (file && file->columns.place[column] >= 0 && berth__problem_file_row(file, buffer, &csv))
        field = berth__column_field(&file->columns, &csv, column);
    return field ? berth__csv_copy(field, text, room) : 0;
}

size_t berth_problem_file_id(const berth_problem_file *file, size_t buffer, char *text, size_t room)
{
    return copy_column(file, buffer, BERTH__COLUMN_ID, text, room);
}

size_t berth_problem_file_label(const berth_problem_file *file, size_t buffer, char *text, size_t room)
{
    return copy_column(file, buffer, BERTH__COLUMN_LABEL, text, room);
}

size_t berth_problem_file_line(const berth_problem_file *file, size_t buffer)
{
    berth__csv csv;
    if (!file || !berth__problem_file_row(file, buffer, &csv))
        return 0;
    size_t line = 1;
    for (const char *p = file->text; (p = memchr(p, '\n', (size_t)(csv.record - p))); p++)
        line++;
    return line;
}

/* ---- A plan in little memory --------------------------------------------------------------------- */

typedef struct solving {
    berth_problem_file *file;
    berth__folded folded;
} solving;

static void problem_file_fold(void *context)
{
    solving *s = context;
    berth__folded_close(&s->folded, s->file->buffers, s->file->problem.buffer_count);
}

static void unfold(void *context)
{
    solving *s = context;
    berth__folded_open(&s->folded);
}

berth_status berth_problem_file_solve(berth_problem_file *file, uint64_t capacity_bytes, uint32_t alignment,
                                      const berth_solve_options *options, uint64_t *offsets,
                                      berth_certificate *certificate)
{
    if (!file)
        return berth__fail(BERTH_INVALID_ARGUMENT, "solving needs a file");
    berth_problem problem = file->problem;
    problem.capacity_bytes = capacity_bytes;
    problem.alignment = alignment;
    solving s = {.file = file};
    return berth__solve(&problem, options, offsets, certificate,
                        &(berth__solve_pause){problem_file_fold, unfold, &s});
}

/* ---- A plan for a problem ----------------------------------------------------------------------- */

typedef struct matching {
    const berth_problem_file *plan;
    berth__csv ahead;  /* the plan's row of the same number: mostly the one */
    berth__names rows; /* id to row of the plan, made when that is not so */
    bool indexed;
} matching;

static bool is_id_of(const matching *m, const berth__csv *csv, const berth__csv_field *field)
{
    const berth__csv_field *other = berth__column_field(&m->plan->columns, csv, BERTH__COLUMN_ID);
    return other && other->length == field->length && memcmp(other->text, field->text, field->length) == 0;
}

static bool same_id(void *context, uint32_t row, const berth__csv_field *field)
{
    berth__csv csv;
    const matching *m = context;
    return berth__problem_file_row(m->plan, row, &csv) && is_id_of(m, &csv, field);
}

static berth_status index_plan(matching *m)
{
    berth__csv csv;
    m->indexed = true;
    berth__csv_begin(&csv, m->plan->text, m->plan->text_bytes);
    berth_status status = berth__csv_next(&csv); /* the header */
    size_t dropped = 0;
    for (size_t row = 0; !status && row < m->plan->problem.buffer_count; row++) {
        uint32_t found;
        dropped = berth__problem_file_drop(m->plan, &csv, dropped);
        status = berth__problem_file_next(m->plan, &csv);
        const berth__csv_field *id = berth__column_field(&m->plan->columns, &csv, BERTH__COLUMN_ID);
        if (!status && id)
            status = berth__names_add(&m->rows, id, (uint32_t)row, same_id, m, &found);
    }
    return status == BERTH_NOT_FOUND
               ? berth__fail(BERTH_BAD_DATA, "the plan's file changed while it was read")
               : status;
}

static berth_status match_row(matching *m, const berth_problem_file *problem, size_t row,
                              const berth__csv *csv, uint64_t *offset)
{
    const berth__csv_field *id = berth__column_field(&problem->columns, csv, BERTH__COLUMN_ID);
    if (!id)
        return berth__fail(BERTH_BAD_DATA, "the problem's file changed while it was read");
    uint32_t at = (uint32_t)row;
    bool in_step = !berth__problem_file_next(m->plan, &m->ahead) && is_id_of(m, &m->ahead, id);
    if (!in_step) {
        berth_status status = m->indexed ? BERTH_OK : index_plan(m);
        if (status)
            return status;
        at = berth__names_find(&m->rows, id, same_id, m);
    }
    char name[64];
    berth__csv_copy(id, name, sizeof name);
    if (at == BERTH__NO_NAME)
        return berth__fail(BERTH_MISMATCH, "buffer '%s' (line %zu of the problem) is not in the plan", name,
                           csv->record_line);
    const berth_problem_buffer *want = &problem->problem.buffers[row], *got = &m->plan->problem.buffers[at];
    if (want->lower != got->lower || want->upper != got->upper || want->size_bytes != got->size_bytes)
        return berth__fail(BERTH_MISMATCH,
                           "buffer '%s' lives %" PRId64 "-%" PRId64 " with %" PRIu64
                           " bytes in the problem, %" PRId64 "-%" PRId64 " with %" PRIu64 " in the plan",
                           name, want->lower, want->upper, want->size_bytes, got->lower, got->upper,
                           got->size_bytes);
    *offset = m->plan->offsets[at];
    return BERTH_OK;
}

berth_status berth_problem_file_match(const berth_problem_file *problem, const berth_problem_file *plan,
                                      uint64_t *offsets)
{
    if (!problem || !plan || (!offsets && problem->problem.buffer_count))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "matching needs a problem, a plan, and a place for the offsets");
    if (!plan->offsets && plan->problem.buffer_count)
        return berth__fail(BERTH_BAD_DATA, "the plan has no column `offset`; `berth plan -o` writes one");
    matching m = {.plan = plan};
    berth__csv csv;
    berth__csv_begin(&m.ahead, plan->text, plan->text_bytes);
    berth__csv_begin(&csv, problem->text, problem->text_bytes);
    berth_status status = berth__csv_next(&m.ahead); /* the headers */
    if (!status)
        status = berth__csv_next(&csv);
    size_t dropped = 0, dropped_ahead = 0;
    for (size_t row = 0; !status && row < problem->problem.buffer_count; row++) {
        status = berth__problem_file_next(problem, &csv);
        if (!status)
            status = match_row(&m, problem, row, &csv, &offsets[row]);
        dropped = berth__problem_file_drop(problem, &csv, dropped);
        dropped_ahead = berth__problem_file_drop(plan, &m.ahead, dropped_ahead);
    }
    /* ids are unique on both sides, so equal counts leave no extra row */
    if (!status && plan->problem.buffer_count != problem->problem.buffer_count)
        status = berth__fail(BERTH_MISMATCH, "the plan has %zu buffers, the problem %zu",
                             plan->problem.buffer_count, problem->problem.buffer_count);
    berth__names_finish(&m.rows);
    return status == BERTH_NOT_FOUND ? berth__fail(BERTH_BAD_DATA, "a file changed while it was read")
                                     : status;
}
