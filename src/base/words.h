/* Words that messages share: sizes as people read them, and who holds the most.
 *
 *     berth__fail(BERTH_OVER_BUDGET, "%s asked for %s", label, BERTH__SIZE(size_bytes));
 *
 * gives "loader asked for 1.5 MiB (1572864 bytes)". */
#ifndef BERTH_BASE_WORDS_H
#define BERTH_BASE_WORDS_H

#include "base/base.h"

enum { BERTH__SIZE_WORDS = 48, BERTH__HOLDERS_SEEN = 128, BERTH__HOLDERS_TOLD = 5 };

/* "512 bytes", "1.5 MiB (1572864 bytes)" into `words`, which is returned. */
const char *berth__size_words(uint64_t size_bytes, char words[BERTH__SIZE_WORDS]);
/* The same for a call's arguments: the words live as long as the block that the call stands in. */
#define BERTH__SIZE(size_bytes) berth__size_words((size_bytes), (char[BERTH__SIZE_WORDS]){0})

/* Text that is put together piece by piece. What does not fit is left out and counted. */
typedef struct berth__text {
    char *start; /* NULL with capacity 0: only counted */
    size_t capacity;
    size_t length; /* what all of it takes */
} berth__text;
void berth__say(berth__text *text, const char *format, ...) BERTH_PRINTF(2, 3);

/* Bytes by label. All zero is empty. */
typedef struct berth__holders {
    struct berth__holder_sum {
        const char *label;
        uint64_t bytes;
    } sums[BERTH__HOLDERS_SEEN];
    size_t count;
} berth__holders;

/* Counts `bytes` for `label` (kept by reference; NULL: "no label"). Beyond BERTH__HOLDERS_SEEN labels the
 * smallest gives way. */
void berth__holders_add(berth__holders *holders, const char *label, uint64_t bytes);
/* The BERTH__HOLDERS_TOLD largest come first, in order. */
void berth__holders_sort(berth__holders *holders);
/* "activations 2 GiB (2147483648 bytes), weights 512 MiB (536870912 bytes)"; sorts first. */
void berth__holders_say(berth__holders *holders, berth__text *text);

#endif
