/* The ledger: which planned allocations are live in a block, by the rank of their offset.
 *
 *   bits[0]   one bit a rank: live
 *   bits[1]   one bit a word of bits[0]: not zero
 *   ...       until one word is left
 *
 * so that the neighbours of an offset are found in as many words as there are levels (3 for 262,144 ranks),
 * however many blocks are live. Live blocks never overlap, so two neighbours answer whether a place is free. */
#ifndef BERTH_REPLAY_LEDGER_H
#define BERTH_REPLAY_LEDGER_H

#include "base/base.h"

#define BERTH__LEDGER_LEVELS 6
#define BERTH__LEDGER_NONE UINT32_MAX

typedef struct berth__ledger {
    uint64_t *words; /* all levels in one piece, then nothing */
    uint64_t *bits[BERTH__LEDGER_LEVELS];
    size_t word_count;
    uint32_t levels;
    uint32_t *ids; /* the live allocation at a rank, where its bit is set */
    uint32_t rank_count;
    uint32_t live;
} berth__ledger;

/* Makes the ledger empty and ready for ranks below `rank_count`, keeping its memory where that suffices. A
 * zeroed ledger may be prepared and finished. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__ledger_prepare(berth__ledger *ledger, uint32_t rank_count);
void berth__ledger_finish(berth__ledger *ledger);
/* For assertions: the levels say the same, and as many ranks are live as it says. */
bool berth__ledger_is_valid(const berth__ledger *ledger);
/* Forgets what is live. */
void berth__ledger_clear(berth__ledger *ledger);

/* The first live rank at or above `rank`, the last at or below; BERTH__LEDGER_NONE if there is none. */
uint32_t berth__ledger_next(const berth__ledger *ledger, uint32_t rank);
uint32_t berth__ledger_previous(const berth__ledger *ledger, uint32_t rank);

static inline bool berth__ledger_has(const berth__ledger *ledger, uint32_t rank)
{
    BERTH_DCHECK(rank < ledger->rank_count, "[R7] there is no such place");
    return (ledger->bits[0][rank >> 6] >> (rank & 63)) & 1;
}

static inline void berth__ledger_add(berth__ledger *ledger, uint32_t rank, uint32_t id)
{
    BERTH_DCHECK(!berth__ledger_has(ledger, rank), "[R4] a place is taken while nothing live is there");
    ledger->ids[rank] = id;
    ledger->live++;
    for (uint32_t level = 0; level < ledger->levels; level++, rank >>= 6) {
        uint64_t *word = &ledger->bits[level][rank >> 6];
        uint64_t before = *word;
        *word = before | (uint64_t)1 << (rank & 63);
        if (before)
            return;
    }
}

static inline void berth__ledger_remove(berth__ledger *ledger, uint32_t rank)
{
    BERTH_DCHECK(berth__ledger_has(ledger, rank) && ledger->live > 0, "[R3] what leaves its place was live");
    ledger->live--;
    for (uint32_t level = 0; level < ledger->levels; level++, rank >>= 6) {
        uint64_t *word = &ledger->bits[level][rank >> 6];
        *word &= ~((uint64_t)1 << (rank & 63));
        if (*word)
            return;
    }
}

#endif
