/* Buffers folded away in their own place: a row of 56 bytes becomes one of about 12, as most fields are the same in
 * all rows and times and sizes have 32 bits.
 *
 *     |row 0      |row 1      |row 2      | ...       |      56 bytes each
 *     |0 |1 |2 | ...|      given back                 |      front to back, as no row grows; back to front again
 *
 * An array of its own would be there beside the first for a moment, at the very peak of a large problem. */
#include "file/folded.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Below a megabyte it is not worth the time. */
enum { FEWEST_BUFFERS = 1 << 14 };

#define FIELD(name)                                                                  \
    {                                                                                \
        offsetof(berth_problem_buffer, name), sizeof((berth_problem_buffer){0}.name) \
    }
static const struct {
    size_t at, bytes;
} fields[BERTH__FOLDED_FIELDS] = {FIELD(lower),        FIELD(upper),     FIELD(size_bytes),
                                  FIELD(fixed_offset), FIELD(hint),      FIELD(alignment),
                                  FIELD(alias_group),  FIELD(gap_first), FIELD(gap_count)};
#undef FIELD

static inline uint64_t folded_load(const void *from, size_t bytes)
{
    uint64_t wide;
    uint32_t narrow;
    if (bytes == sizeof wide) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    memcpy(&narrow, from, sizeof narrow);
    return narrow;
}

static inline void store(void *to, size_t bytes, uint64_t value)
{
    uint32_t narrow = (uint32_t)value;
    if (bytes == sizeof value)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &narrow, sizeof narrow);
}

/* How far the values of each field lie from the first row's, in 64 bits that wrap: that a pin is absent is one below
 * a pin at 0. */
static void folded_measure(berth__folded *folded)
{
    uint64_t first[BERTH__FOLDED_FIELDS];
    int64_t highest[BERTH__FOLDED_FIELDS] = {0}, lowest[BERTH__FOLDED_FIELDS] = {0};
    for (unsigned k = 0; k < BERTH__FOLDED_FIELDS; k++)
        first[k] = folded_load((const char *)folded->buffers + fields[k].at, fields[k].bytes);
    for (size_t i = 0; i < folded->count; i++) {
        const char *row = (const char *)&folded->buffers[i];
        for (unsigned k = 0; k < BERTH__FOLDED_FIELDS; k++) {
            const int64_t far = (int64_t)(folded_load(row + fields[k].at, fields[k].bytes) - first[k]);
            highest[k] = far > highest[k] ? far : highest[k];
            lowest[k] = far < lowest[k] ? far : lowest[k];
        }
    }
    for (unsigned k = 0; k < BERTH__FOLDED_FIELDS; k++) {
        const uint64_t spread = (uint64_t)highest[k] - (uint64_t)lowest[k];
        folded->field[k].base = first[k] + (uint64_t)lowest[k];
        folded->field[k].bytes = spread == 0 ? 0 : spread <= UINT32_MAX ? 4 : 8;
        folded->field[k].at = (uint32_t)folded->row_bytes;
        folded->row_bytes += folded->field[k].bytes;
    }
}

static void give_back(char *from, char *end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)from + page - 1) / page * page, last = (uintptr_t)end / page * page;
    /* A refusal costs memory and nothing else. */
    if (first < last)
        madvise(from + (first - (uintptr_t)from), last - first, MADV_DONTNEED);
}

/* The fields that are not the same in all rows; returns how many. */
static unsigned fields_kept(const berth__folded *folded, unsigned kept[BERTH__FOLDED_FIELDS])
{
    unsigned count = 0;
    for (unsigned k = 0; k < BERTH__FOLDED_FIELDS; k++)
        if (folded->field[k].bytes)
            kept[count++] = k;
    return count;
}

void berth__folded_close(berth__folded *folded, berth_problem_buffer *buffers, size_t count)
{
    *folded = (berth__folded){.buffers = buffers, .count = count};
    if (count < FEWEST_BUFFERS)
        return;
    folded_measure(folded);
    if (folded->row_bytes >= sizeof *buffers)
        return;
    folded->is_folded = true;
    unsigned kept[BERTH__FOLDED_FIELDS];
    const unsigned kept_count = fields_kept(folded, kept);
    char *to = (char *)buffers;
    for (size_t i = 0; i < count; i++, to += folded->row_bytes) {
        const berth_problem_buffer row = buffers[i]; /* the folded row may lie on it */
        for (unsigned j = 0; j < kept_count; j++) {
            const unsigned k = kept[j];
            store(to + folded->field[k].at, folded->field[k].bytes,
                  folded_load((const char *)&row + fields[k].at, fields[k].bytes) - folded->field[k].base);
        }
    }
    give_back(to, (char *)(buffers + count));
}

void berth__folded_open(berth__folded *folded)
{
    if (!folded->is_folded)
        return;
    unsigned kept[BERTH__FOLDED_FIELDS];
    const unsigned kept_count = fields_kept(folded, kept);
    berth_problem_buffer row; /* what is the same in all stays in it */
    for (unsigned k = 0; k < BERTH__FOLDED_FIELDS; k++)
        store((char *)&row + fields[k].at, fields[k].bytes, folded->field[k].base);
    const char *from = (const char *)folded->buffers + folded->count * folded->row_bytes;
    for (size_t i = folded->count; i-- > 0;) {
        from -= folded->row_bytes;
        for (unsigned j = 0; j < kept_count; j++) {
            const unsigned k = kept[j];
            store((char *)&row + fields[k].at, fields[k].bytes,
                  folded->field[k].base + folded_load(from + folded->field[k].at, folded->field[k].bytes));
        }
        folded->buffers[i] = row;
    }
    *folded = (berth__folded){0};
}
