/* Python's pickles (protocols 0 to 5) as plain values. Nothing is executed and nothing imported: what would be an object of
 * some class is an empty dictionary. Bytes are untrusted.
 *
 * A pickle may be far larger than what is wanted of it: dictionaries that are appended to a list can be looked at and dropped
 * one by one (format_pickle_item). */
#ifndef BERTH_FORMAT_PICKLE_H
#define BERTH_FORMAT_PICKLE_H

#include "format/history.h"

typedef enum format_pickle_type {
    FORMAT_PICKLE_NONE,
    FORMAT_PICKLE_INT, /* booleans too */
    FORMAT_PICKLE_FLOAT,
    FORMAT_PICKLE_TEXT, /* a text of the history */
    FORMAT_PICKLE_LIST, /* tuples and sets too */
    FORMAT_PICKLE_DICT, /* items: key, value, key, value, … */
    FORMAT_PICKLE_MARK, /* never seen outside */
} format_pickle_type;

struct format_pickle_object;

typedef struct format_pickle_value {
    format_pickle_type type;
    union {
        int64_t number; /* INT; TEXT: the text's number */
        double real;
        struct format_pickle_object *object;
    } as;
} format_pickle_value;

struct format_pickle_object {
    format_pickle_value *items;
    size_t count, room;
    size_t index;           /* among all objects */
    uint64_t memo_plus_one; /* 0: nobody can mean it again */
    uint32_t tag;           /* the user's */
    bool shared;            /* it stands in more places than one */
};

/* Called for each dictionary when it is appended to a list, whose tag is the user's. True: it has been dealt with
 * and is forgotten. */
typedef bool (*format_pickle_item)(void *context, struct format_pickle_object *list,
                                   const struct format_pickle_object *item);

typedef struct format_pickle format_pickle;

/* Reads a pickle of `size_bytes` bytes; texts go to `h`. BERTH_OK with the value, which lives until destroy, BERTH_BAD_DATA with the
 * offset, BERTH_OUT_OF_HOST_MEMORY. */
berth_status format_pickle_read(const void *bytes, size_t size_bytes, format_history *h,
                                format_pickle_item item, format_progress progress, void *context,
                                format_pickle **out, format_pickle_value *value, format_error *error);
void format_pickle_destroy(format_pickle *pickle);

/* The value of a key, which is a text of the history; NULL if there is none. */
const format_pickle_value *format_pickle_get(const struct format_pickle_object *dict, uint32_t key);
/* The same as a number, 0 if it is none. */
int64_t format_pickle_number(const struct format_pickle_object *dict, uint32_t key);

/* A real that is no int64_t is 0. */
int64_t format_pickle_real_number(double real);
static inline int64_t format_pickle_value_number(const format_pickle_value *value)
{
    if (!value)
        return 0;
    if (value->type == FORMAT_PICKLE_FLOAT)
        return format_pickle_real_number(value->as.real);
    return value->type == FORMAT_PICKLE_INT ? value->as.number : 0;
}

#endif
