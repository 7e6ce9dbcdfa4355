/* The ledger's memory and its search for neighbours. */
#include "replay/ledger.h"

#include <string.h>

static size_t words_for(size_t bits)
{
    return (bits + 63) / 64;
}

bool berth__ledger_is_valid(const berth__ledger *l)
{
    size_t live = 0;
    for (uint32_t level = 0; level < l->levels; level++) {
        const uint64_t *end = level + 1 < l->levels ? l->bits[level + 1] : l->words + l->word_count;
        for (const uint64_t *word = l->bits[level]; word < end; word++) {
            size_t at = (size_t)(word - l->bits[level]);
            live += level == 0 ? (size_t)__builtin_popcountll(*word) : 0;
            if (level + 1 < l->levels && (l->bits[level + 1][at >> 6] >> (at & 63) & 1) != (*word != 0))
                return false;
        }
    }
    return live == l->live;
}

berth_status berth__ledger_prepare(berth__ledger *l, uint32_t rank_count)
{
    if (rank_count <= l->rank_count && l->words) {
        berth__ledger_clear(l);
        return BERTH_OK;
    }
    berth__ledger fresh = {.rank_count = rank_count};
    size_t level_words[BERTH__LEDGER_LEVELS];
    size_t bits = rank_count ? rank_count : 1;
    do {
        level_words[fresh.levels] = words_for(bits);
        fresh.word_count += words_for(bits);
        bits = words_for(bits);
        fresh.levels++;
    } while (bits > 1);
    fresh.words = berth__heap_zalloc(fresh.word_count, sizeof *fresh.words);
    fresh.ids = berth__heap_zalloc(rank_count, sizeof *fresh.ids);
    if (!fresh.words || !fresh.ids) {
        berth__ledger_finish(&fresh);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of %u places", rank_count);
    }
    uint64_t *at = fresh.words;
    for (uint32_t level = 0; level < fresh.levels; level++) {
        fresh.bits[level] = at;
        at += level_words[level];
    }
    berth__ledger_finish(l);
    *l = fresh;
    BERTH_DCHECK(at == l->words + l->word_count && berth__ledger_is_valid(l),
                 "[R3] the levels of a fresh ledger fill its words, and nothing is live");
    return BERTH_OK;
}

void berth__ledger_finish(berth__ledger *l)
{
    berth__heap_free(l->words);
    berth__heap_free(l->ids);
    memset(l, 0, sizeof *l);
}

void berth__ledger_clear(berth__ledger *l)
{
    BERTH_DCHECK(berth__ledger_is_valid(l), "[R3] the levels of a ledger agree");
    if (l->live)
        memset(l->words, 0, l->word_count * sizeof *l->words);
    l->live = 0;
    BERTH_DCHECK(berth__ledger_is_valid(l), "[R3] after that nothing is live");
}

/* Down from a set bit of `level` to the lowest (or highest) rank below it. */
static uint32_t ledger_descend(const berth__ledger *l, uint32_t level, uint32_t at, bool highest)
{
    while (level-- > 0) {
        uint64_t word = l->bits[level][at];
        BERTH_DCHECK(word != 0, "[R3] a bit above stands for a word that is not zero");
        at = at * 64 + (uint32_t)(highest ? 63 - __builtin_clzll(word) : __builtin_ctzll(word));
    }
    return at;
}

uint32_t berth__ledger_next(const berth__ledger *l, uint32_t rank)
{
    uint32_t at = rank;
    for (uint32_t level = 0; level < l->levels; level++) {
        const uint64_t *end = level + 1 < l->levels ? l->bits[level + 1] : l->words + l->word_count;
        size_t words = (size_t)(end - l->bits[level]);
        if (at / 64 >= words)
            return BERTH__LEDGER_NONE;
        uint64_t word = l->bits[level][at / 64] & (UINT64_MAX << (at & 63));
        if (word)
            return ledger_descend(l, level, at / 64 * 64 + (uint32_t)__builtin_ctzll(word), false);
        at = at / 64 + 1; /* the words after this one */
    }
    return BERTH__LEDGER_NONE;
}

uint32_t berth__ledger_previous(const berth__ledger *l, uint32_t rank)
{
    BERTH_DCHECK(rank < l->rank_count, "[R7] there is no such place");
    uint32_t at = rank;
    for (uint32_t level = 0; level < l->levels; level++) {
        uint64_t word = l->bits[level][at / 64] & (UINT64_MAX >> (63 - (at & 63)));
        if (word)
            return ledger_descend(l, level, at / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word), true);
        if (at < 64)
            return BERTH__LEDGER_NONE;
        at = at / 64 - 1; /* the words before this one */
    }
    return BERTH__LEDGER_NONE;
}
