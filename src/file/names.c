/* A table from names to numbers, lean enough for a million ids: eight bytes a slot, or one bit an id. */
#include "file/names.h"

#include <string.h>

#define EMPTY UINT64_MAX
/* 2^27 bits are 16 MiB at most, and only if an id is that large. */
enum { LARGEST_BIT = 1 << 27 };

uint64_t berth__names_hash(const berth__csv_field *field)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ field->length;
    const char *p = field->text;
    size_t left = field->length;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0xd6e8feb86659fd93u;
        hash ^= hash >> 32;
    }
    uint64_t word = 0;
    memcpy(&word, p, left);
    hash = (hash ^ word) * 0xd6e8feb86659fd93u;
    hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
}

static size_t place_of(const berth__names *names, uint64_t hash)
{
    return (size_t)hash & (names->slot_count - 1);
}

static void names_put(berth__names *names, uint64_t hash, uint32_t value)
{
    size_t at = place_of(names, hash);
    while (names->slots[at] != EMPTY)
        at = (at + 1) & (names->slot_count - 1);
    names->slots[at] = (hash >> 32) << 32 | value;
    names->used++;
}

/* Slots are found by the upper half of the hash alone, folded, so that growing needs no text. */
static uint64_t names_fold(uint64_t hash)
{
    uint64_t upper = hash >> 32;
    return upper << 32 | upper;
}

static berth_status names_grow(berth__names *names)
{
    berth__names larger = {.slot_count = names->slot_count ? names->slot_count * 2 : 64};
    larger.slots = berth__heap_alloc(larger.slot_count * sizeof(uint64_t));
    if (!larger.slots)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a table of %zu names", larger.slot_count);
    memset(larger.slots, 0xff, larger.slot_count * sizeof(uint64_t));
    for (size_t i = 0; i < names->slot_count; i++)
        if (names->slots[i] != EMPTY)
            names_put(&larger, names_fold(names->slots[i]), (uint32_t)names->slots[i]);
    berth__heap_free(names->slots);
    names->slots = larger.slots;
    names->slot_count = larger.slot_count;
    return BERTH_OK;
}

static uint32_t names_look(const berth__names *names, uint64_t hash, const berth__csv_field *field,
                           berth__names_same same, void *context)
{
    if (!names->slot_count)
        return BERTH__NO_NAME;
    for (size_t at = place_of(names, hash); names->slots[at] != EMPTY;
         at = (at + 1) & (names->slot_count - 1))
        if (names->slots[at] >> 32 == hash >> 32 && same(context, (uint32_t)names->slots[at], field))
            return (uint32_t)names->slots[at];
    return BERTH__NO_NAME;
}

void berth__names_expect(const berth__names *names, const berth__csv_field *field)
{
    if (names->slot_count)
        __builtin_prefetch(&names->slots[place_of(names, names_fold(berth__names_hash(field)))]);
}

uint32_t berth__names_find(const berth__names *names, const berth__csv_field *field, berth__names_same same,
                           void *context)
{
    return names_look(names, names_fold(berth__names_hash(field)), field, same, context);
}

berth_status berth__names_add(berth__names *names, const berth__csv_field *field, uint32_t value,
                              berth__names_same same, void *context, uint32_t *found)
{
    uint64_t hash = names_fold(berth__names_hash(field));
    *found = names_look(names, hash, field, same, context);
    if (*found != BERTH__NO_NAME)
        return BERTH_OK;
    if (names->used * 2 >= names->slot_count) {
        berth_status status = names_grow(names);
        if (status)
            return status;
    }
    names_put(names, hash, value);
    return BERTH_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The first name says what stands in front of numbers; nothing, if that is too long to keep or has a quote, which is
 * doubled in some names and single in others. */
static void learn_prefix(berth__names *names, const berth__csv_field *field)
{
    size_t length = field->length;
    while (length > 0 && is_digit(field->text[length - 1]))
        length--;
    if (length > sizeof names->prefix || memchr(field->text, '"', length))
        length = 0;
    memcpy(names->prefix, field->text, length);
    names->prefix_length = (uint8_t)length;
    names->has_prefix = true;
}

/* Behind the prefix the one usual form: no sign, no blank, no leading zero. */
static bool small_number(const berth__names *names, const berth__csv_field *field, uint32_t *out)
{
    if (field->length <= names->prefix_length ||
        memcmp(field->text, names->prefix, names->prefix_length) != 0)
        return false;
    const char *text = field->text + names->prefix_length;
    size_t length = field->length - names->prefix_length;
    if (length > 8 || (text[0] == '0' && length > 1))
        return false;
    uint32_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i]))
            return false;
        n = n * 10 + (uint32_t)(text[i] - '0');
    }
    *out = n;
    return n < LARGEST_BIT;
}

berth_status berth__names_add_number(berth__names *names, const berth__csv_field *field, bool *taken,
                                     bool *twice)
{
    uint32_t n;
    if (!names->has_prefix)
        learn_prefix(names, field);
    *taken = small_number(names, field, &n);
    if (!*taken)
        return BERTH_OK;
    if (n >= names->bit_count) {
        size_t count = names->bit_count ? names->bit_count : 1024;
        while (count <= n)
            count *= 2;
        uint64_t *bits = berth__heap_realloc(names->bits, count / 8);
        if (!bits)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note %zu ids", count);
        memset((char *)bits + names->bit_count / 8, 0, (count - names->bit_count) / 8);
        names->bits = bits;
        names->bit_count = count;
    }
    uint64_t bit = (uint64_t)1 << (n % 64);
    *twice = names->bits[n / 64] & bit;
    names->bits[n / 64] |= bit;
    return BERTH_OK;
}

void berth__names_finish(berth__names *names)
{
    berth__heap_free(names->slots);
    berth__heap_free(names->bits);
    memset(names, 0, sizeof *names);
}
