/* Buffers folded away come back as they were, whatever their numbers are, and take less room meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "berth/problem_file.h"
#include "file/folded.h"

enum { COUNT = 40000 };

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

/* Nothing, a small number, one of 32 bits, or any: as the field's digit of `kind` says. */
static uint64_t value(uint64_t *state, unsigned kind, unsigned field)
{
    uint64_t any = next(state);
    switch (kind >> (2 * field) & 3) {
    case 0:
        return 7;
    case 1:
        return any % 3 - 1; /* -1 is a pin that is absent, or a time before 0 */
    case 2:
        return (uint32_t)any;
    default:
        return any % 5 ? any : any % 2 ? UINT64_MAX : (uint64_t)INT64_MAX + 1;
    }
}

static void fill(berth_problem_buffer *buffers, size_t count, unsigned kind)
{
    uint64_t state = kind;
    memset(buffers, 0, count * sizeof *buffers);
    for (size_t i = 0; i < count; i++)
        buffers[i] = (berth_problem_buffer){.lower = (int64_t)value(&state, kind, 0),
                                            .upper = (int64_t)value(&state, kind, 1),
                                            .size_bytes = value(&state, kind, 2),
                                            .fixed_offset = value(&state, kind, 3),
                                            .hint = (int64_t)value(&state, kind, 4),
                                            .alignment = (uint32_t)value(&state, kind, 5),
                                            .alias_group = (uint32_t)value(&state, kind, 6),
                                            .gap_first = (uint32_t)value(&state, kind, 7),
                                            .gap_count = (uint32_t)value(&state, kind, 8)};
}

static void what_is_folded_comes_back(void **state)
{
    (void)state;
    berth_problem_buffer *buffers = berth__heap_alloc(COUNT * sizeof *buffers);
    berth_problem_buffer *before = berth__heap_alloc(COUNT * sizeof *before);
    assert_true(buffers && before);
    uint64_t seed = 1;
    for (unsigned round = 0; round < 60; round++) {
        const unsigned kind = round == 0 ? 0 : round == 1 ? 0x3ffff : (unsigned)next(&seed);
        const size_t count = COUNT - round * 311;
        berth__folded folded;
        fill(buffers, count, kind);
        memcpy(before, buffers, count * sizeof *buffers);
        berth__folded_close(&folded, buffers, count);
        assert_true(folded.row_bytes <= sizeof *buffers);
        berth__folded_open(&folded);
        assert_memory_equal(buffers, before, count * sizeof *buffers);
        berth__folded_open(&folded); /* twice is no harm */
        assert_memory_equal(buffers, before, count * sizeof *buffers);
    }
    berth__heap_free(buffers);
    berth__heap_free(before);
}

static size_t resident_pages(const void *from, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
                    first = ((uintptr_t)from + page - 1) / page * page;
    const size_t pages = ((uintptr_t)from + bytes - first) / page;
    unsigned char *seen = calloc(pages, 1);
    size_t count = 0;
    assert_non_null(seen);
    assert_int_equal(mincore((void *)first, pages * page, seen), 0); /* NOLINT(performance-no-int-to-ptr) */
    for (size_t k = 0; k < pages; k++)
        count += seen[k] & 1;
    free(seen);
    return count;
}

static void plain_buffers_take_a_quarter(void **state)
{
    (void)state;
    berth_problem_buffer *buffers = berth__heap_alloc(COUNT * sizeof *buffers);
    assert_non_null(buffers);
    for (size_t i = 0; i < COUNT; i++)
        buffers[i] = (berth_problem_buffer){.lower = (int64_t)i,
                                            .upper = (int64_t)i + 9,
                                            .size_bytes = i % 977 * 64,
                                            .fixed_offset = BERTH_NO_OFFSET,
                                            .alignment = 1};
    const size_t before = resident_pages(buffers, COUNT * sizeof *buffers);
    berth__folded folded;
    berth__folded_close(&folded, buffers, COUNT);
    assert_int_equal(folded.row_bytes, 12);
    assert_true(resident_pages(buffers, COUNT * sizeof *buffers) * 4 <= before);
    berth__folded_open(&folded);
    assert_int_equal(buffers[COUNT - 1].lower, COUNT - 1);
    berth__heap_free(buffers);
}

/* The whole way: the same plan and the same certificate as from the problem itself, and the file as before. */
static void a_file_is_solved_as_its_problem(void **state)
{
    (void)state;
    char *text = malloc(COUNT * 40), *at = text;
    assert_non_null(text);
    uint64_t seed = 3;
    at += sprintf(at, "id,lower,upper,size\n");
    for (int i = 0; i < COUNT; i++) {
        const unsigned lower = (unsigned)(next(&seed) % COUNT);
        at += sprintf(at, "%d,%u,%u,%u\n", i, lower, lower + 1 + (unsigned)(next(&seed) % 30),
                      1 + (unsigned)(next(&seed) % 4096));
    }
    berth_problem_file *file = NULL;
    assert_int_equal(berth_problem_file_parse(text, (size_t)(at - text), &file), BERTH_OK);
    static uint64_t offsets[COUNT], again[COUNT];
    berth_certificate c = {.struct_size = sizeof c}, d = {.struct_size = sizeof d};
    berth_problem problem = *berth_problem_file_problem(file);
    problem.alignment = 64;
    problem.capacity_bytes = 1 << 30;
    berth_solve_options options = {.struct_size = sizeof options, .solver = "greedy"};
    assert_int_equal(berth_solve(&problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_file_solve(file, 1 << 30, 64, &options, again, &d), BERTH_OK);
    assert_memory_equal(offsets, again, sizeof offsets);
    assert_true(c.fingerprint == d.fingerprint && c.peak_bytes == d.peak_bytes && c.fits == d.fits &&
                c.naive_bytes == d.naive_bytes && c.binding_buffers == d.binding_buffers &&
                c.binding_time == d.binding_time && c.max_live_bytes == d.max_live_bytes);
    assert_int_equal(berth_problem_check(&problem, again, NULL), BERTH_OK);
    options.solver = "none";
    assert_int_equal(berth_problem_file_solve(file, 0, 0, &options, again, NULL), BERTH_NOT_FOUND);
    assert_int_equal(berth_problem_file_solve(NULL, 0, 0, NULL, again, NULL), BERTH_INVALID_ARGUMENT);
    berth_problem_file_destroy(file);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_folded_comes_back),
        cmocka_unit_test(plain_buffers_take_a_quarter),
        cmocka_unit_test(a_file_is_solved_as_its_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
