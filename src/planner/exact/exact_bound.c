/* The bound of the exact search, which is where its time goes. In every section, take the unplaced items from
 * the highest `low` down and add up their sizes: all items taken so far lie at or above the last one's low,
 * so
 *
 *      sum of sizes taken  <=  capacity - low       for each of them,
 *
 * or there is no plan. Sections are lanes: an item's row holds its size in the sections it lives in and 0 in
 * the others, in blocks of 16, and one addition and one comparison serve 16 sections. A lane that an item
 * does not live in is compared with a wider limit than before, which changes nothing.
 *
 * The code is C with the vector types that gcc and clang share. It is compiled for the baseline and for AVX2
 * and chosen at run time; on ARM the baseline is NEON. */
#include <string.h>

#include "planner/exact/exact_state.h"

#if defined(__x86_64__) || defined(__i386__)
#define HAVE_AVX2 1
#define TARGET_AVX2 __attribute__((target("avx2")))
#else
#define HAVE_AVX2 0
#endif

/* 16 sections; the compiler splits them into as many registers as the target needs. */
typedef int16_t narrow_block __attribute__((vector_size(EXACT_LANES * sizeof(int16_t))));
typedef int32_t wide_block __attribute__((vector_size(EXACT_LANES * sizeof(int32_t))));

#define DEFINE_PASS(NAME, LANE, BLOCK, TARGET)                                                   \
    TARGET static bool NAME(const exact_pass *pass)                                              \
    {                                                                                            \
        BLOCK *restrict sums = pass->sums, *restrict over = pass->over, any = {0};               \
        const BLOCK *restrict rows = pass->rows;                                                 \
        const uint32_t from = pass->first_section / EXACT_LANES;                                 \
        const uint32_t to = (pass->last_section + EXACT_LANES - 1) / EXACT_LANES;                \
        memset(sums + from, 0, (to - from) * sizeof *sums);                                      \
        memset(over + from, 0, (to - from) * sizeof *over);                                      \
        for (uint32_t at = pass->count; at-- > 0;) {                                             \
            const uint32_t item = entry_item(pass->list[at]);                                    \
            const exact_span span = pass->spans[item];                                           \
            const uint32_t first = span.first_block > from ? span.first_block : from;            \
            const uint32_t last = span.last_block < to ? span.last_block : to;                   \
            const BLOCK limit = (BLOCK){0} + (LANE)(pass->capacity - entry_low(pass->list[at])); \
            if (first >= last)                                                                   \
                continue;                                                                        \
            const BLOCK *restrict row = rows + span.row_at + (first - span.first_block);         \
            for (uint32_t block = first; block < last; block++) {                                \
                BLOCK sum = sums[block] + row[block - first];                                    \
                BLOCK beyond = (BLOCK)(sum > limit);                                             \
                sums[block] = sum;                                                               \
                over[block] |= beyond;                                                           \
                any |= beyond;                                                                   \
            }                                                                                    \
        }                                                                                        \
        uint64_t words[sizeof any / sizeof(uint64_t)], found = 0;                                \
        memcpy(words, &any, sizeof any);                                                         \
        for (size_t k = 0; k < BERTH_COUNT_OF(words); k++)                                       \
            found |= words[k];                                                                   \
        return found == 0;                                                                       \
    }

DEFINE_PASS(pass_narrow_baseline, int16_t, narrow_block, )
DEFINE_PASS(pass_wide_baseline, int32_t, wide_block, )
#if HAVE_AVX2
DEFINE_PASS(pass_narrow_avx2, int16_t, narrow_block, TARGET_AVX2)
DEFINE_PASS(pass_wide_avx2, int32_t, wide_block, TARGET_AVX2)
#endif

exact_pass_fn berth__exact_pass(bool narrow, berth__exact_path path)
{
#if HAVE_AVX2
    bool has = __builtin_cpu_supports("avx2");
    if (path != BERTH__EXACT_BASELINE && has)
        return narrow ? pass_narrow_avx2 : pass_wide_avx2;
#endif
    if (path == BERTH__EXACT_AVX2)
        return NULL;
    return narrow ? pass_narrow_baseline : pass_wide_baseline;
}
