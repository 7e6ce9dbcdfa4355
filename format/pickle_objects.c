/* Lists and dictionaries of a pickle: they belong to the machine, which frees them at the end, or as soon as its user has seen
 * enough of them. */
#include "format/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE_ROOM_MOST = 64 }; /* items of an object that is kept for the next */

bool format_pickle_grow(format_pickle *p, void *array, size_t wanted, size_t *room, size_t element_bytes)
{
    void **items = array;
    size_t more = *room ? *room : 4;
    while (more < wanted)
        more *= 2;
    size_t bytes = (more - *room) * element_bytes;
    if (bytes > PICKLE_BYTES_MOST - p->bytes)
        return pickle_refuse(p);
    void *grown = realloc(*items, more * element_bytes);
    if (!grown)
        return pickle_refuse(p);
    p->bytes += bytes;
    *items = grown;
    *room = more;
    return true;
}

/* ---- Life --------------------------------------------------------------------------------------------- */

static struct format_pickle_object *object_make(format_pickle *p)
{
    if (p->spare_count) {
        struct format_pickle_object *o = p->spare[--p->spare_count];
        *o = (struct format_pickle_object){.items = o->items, .room = o->room};
        return o;
    }
    struct format_pickle_object *o = sizeof *o > PICKLE_BYTES_MOST - p->bytes ? NULL : calloc(1, sizeof *o);
    if (!o) {
        (void)pickle_refuse(p);
        return NULL;
    }
    p->bytes += sizeof *o;
    return o;
}

static void object_free(format_pickle *p, struct format_pickle_object *o)
{
    p->bytes -= sizeof *o + o->room * sizeof *o->items;
    free(o->items);
    free(o);
}

struct format_pickle_object *format_pickle_push_object(format_pickle *p, format_pickle_type type)
{
    if (p->object_count == p->object_room &&
        !format_pickle_grow(p, &p->objects, p->object_count + 1, &p->object_room, sizeof *p->objects))
        return NULL;
    struct format_pickle_object *o = object_make(p);
    if (!o)
        return NULL;
    o->index = p->object_count;
    p->objects[p->object_count++] = o;
    pickle_push(p, (format_pickle_value){type, {.object = o}});
    return p->no_memory ? NULL : o;
}

/* The user has seen it: its items go, and it too if it stands nowhere else. */
static void object_drop(format_pickle *p, struct format_pickle_object *o)
{
    if (o->shared) {
        o->count = 0;
        return;
    }
    if (o->memo_plus_one)
        format_pickle_memo_forget(&p->memo, o->memo_plus_one - 1);
    struct format_pickle_object *last = p->objects[--p->object_count];
    p->objects[o->index] = last;
    last->index = o->index;
    if (p->spare_count < PICKLE_SPARE_MOST && o->room <= SPARE_ROOM_MOST)
        p->spare[p->spare_count++] = o;
    else
        object_free(p, o);
}

void format_pickle_free_objects(format_pickle *p)
{
    for (size_t i = 0; i < p->spare_count; i++)
        object_free(p, p->spare[i]);
    for (size_t i = 0; i < p->object_count; i++)
        object_free(p, p->objects[i]);
    free(p->objects);
}

/* ---- Filling ------------------------------------------------------------------------------------------ */

static void object_add(format_pickle *p, struct format_pickle_object *o, const format_pickle_value *values,
                       size_t count)
{
    if (count > o->room - o->count &&
        !format_pickle_grow(p, &o->items, o->count + count, &o->room, sizeof *o->items))
        return;
    if (count)
        memcpy(&o->items[o->count], values, count * sizeof *values);
    o->count += count;
}

static void list_append(format_pickle *p, struct format_pickle_object *list, const format_pickle_value *value)
{
    if (value->type == FORMAT_PICKLE_DICT && p->item && p->item(p->context, list, value->as.object))
        object_drop(p, value->as.object);
    else
        object_add(p, list, value, 1);
}

void format_pickle_fill_list(format_pickle *p)
{
    size_t depth = p->depth, mark = pickle_pop_mark(p);
    if (p->over)
        return;
    if (mark == p->fence || p->stack[mark - 1].type != FORMAT_PICKLE_LIST) {
        pickle_fail(p, "it appends to something that is no list");
        return;
    }
    struct format_pickle_object *list = p->stack[mark - 1].as.object;
    for (size_t i = mark + 1; i < depth; i++)
        list_append(p, list, &p->stack[i]);
    if (p->history->no_memory)
        (void)pickle_refuse(p);
}

void format_pickle_fill_ahead(format_pickle *p)
{
    size_t mark = p->fence - 1, at = p->fence;
    if (mark == (size_t)p->stack[mark].as.number || p->stack[mark - 1].type != FORMAT_PICKLE_LIST || !p->item)
        return;
    struct format_pickle_object *list = p->stack[mark - 1].as.object;
    for (; at < p->depth && p->stack[at].type == FORMAT_PICKLE_DICT &&
           p->item(p->context, list, p->stack[at].as.object);
         at++)
        object_drop(p, p->stack[at].as.object);
    memmove(&p->stack[p->fence], &p->stack[at], (p->depth - at) * sizeof *p->stack);
    p->depth -= at - p->fence;
    if (p->history->no_memory)
        (void)pickle_refuse(p);
}

void format_pickle_fill_dict(format_pickle *p)
{
    size_t depth = p->depth, mark = pickle_pop_mark(p);
    if (p->over)
        return;
    if (mark == p->fence || p->stack[mark - 1].type != FORMAT_PICKLE_DICT || (depth - mark) % 2 == 0) {
        pickle_fail(p, "it sets items of something that is no dictionary");
        return;
    }
    object_add(p, p->stack[mark - 1].as.object, &p->stack[mark + 1], depth - mark - 1);
}

void format_pickle_fill_one(format_pickle *p, size_t count)
{
    if (!pickle_has(p, count + 1))
        return;
    const format_pickle_value *to = &p->stack[p->depth - 1 - count];
    if (to->type != (count == 1 ? FORMAT_PICKLE_LIST : FORMAT_PICKLE_DICT)) {
        pickle_fail(p, "it fills something that is no list or dictionary");
        return;
    }
    p->depth -= count;
    if (count == 1)
        list_append(p, to->as.object, to + 1);
    else
        object_add(p, to->as.object, to + 1, count);
    if (p->history->no_memory)
        (void)pickle_refuse(p);
}

/* The `count` values from `first` become one collection, which takes the place `to` and is the topmost. */
static void collect_from(format_pickle *p, format_pickle_type type, size_t to, size_t first, size_t count)
{
    p->depth = first + count;
    struct format_pickle_object *o = format_pickle_push_object(p, type);
    if (!o)
        return;
    object_add(p, o, &p->stack[first], count);
    p->stack[to] = p->stack[p->depth - 1];
    p->depth = to + 1;
}

void format_pickle_collect(format_pickle *p, format_pickle_type type)
{
    size_t depth = p->depth, mark = pickle_pop_mark(p);
    if (!p->over)
        collect_from(p, type, mark, mark + 1, depth - mark - 1);
}

void format_pickle_collect_some(format_pickle *p, size_t count)
{
    if (pickle_has(p, count))
        collect_from(p, FORMAT_PICKLE_LIST, p->depth - count, p->depth - count, count);
}

void format_pickle_replace(format_pickle *p, size_t count)
{
    if (!pickle_has(p, count))
        return;
    p->depth -= count;
    (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
}
