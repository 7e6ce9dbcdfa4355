/* What the numbers in a trace mean: taken from its definitions, and answered. */
#include "trace/definitions.h"

#include "trace/reader.h"

enum { WORDS_BYTES = 65536 - 64, PICTURES_MOST = 1 << 18 };

/* Texts are never given back one by one, so they lie one behind the other. */
struct berth__trace_words {
    struct berth__trace_words *next;
    size_t used;
    char bytes[WORDS_BYTES];
};

static const char *keep_text(berth_trace_reader *r, const char *text, size_t length)
{
    if (!r->words || WORDS_BYTES - r->words->used < length + 1) {
        struct berth__trace_words *more = berth__heap_alloc(sizeof *more);
        if (!more)
            return NULL;
        more->next = r->words;
        more->used = 0;
        r->words = more;
    }
    char *copy = r->words->bytes + r->words->used;
    memcpy(copy, text, length);
    copy[length] = 0;
    r->words->used += length + 1;
    return copy;
}

/* The place of `number`, made if need be; NULL: no memory. */
static void *list_place(berth__trace_list *list, uint64_t number, size_t element_bytes)
{
    if (number >= list->room) {
        uint64_t room = list->room ? list->room : 64;
        while (room <= number)
            room *= 2;
        char *grown = berth__heap_realloc(list->items, room * element_bytes);
        if (!grown)
            return NULL;
        memset(grown + list->room * element_bytes, 0, (room - list->room) * element_bytes);
        list->items = grown;
        list->room = (uint32_t)room;
    }
    if (number >= list->count)
        list->count = (uint32_t)number + 1;
    return (char *)list->items + number * element_bytes;
}

static uint32_t small(uint64_t n)
{
    return n > UINT32_MAX ? 0 : (uint32_t)n;
}

static bool define_text(berth_trace_reader *r, const uint64_t *v, const char *text)
{
    const char **place = list_place(&r->texts, v[0], sizeof *place);
    if (place && *place && strncmp(*place, text, v[1]) == 0 && (*place)[v[1]] == 0)
        return true; /* a chunk that is being written is taken more than once */
    const char *copy = place ? keep_text(r, text, v[1]) : NULL;
    if (copy)
        *place = copy;
    return copy != NULL;
}

static bool define_frame(berth_trace_reader *r, const uint64_t *v)
{
    berth_trace_frame *f = list_place(&r->frames, v[0], sizeof *f);
    if (f)
        *f = (berth_trace_frame){sizeof *f,   small(v[1]), small(v[2]), v[3],
                                 small(v[4]), small(v[5]), small(v[6]), v[7] != 0};
    return f != NULL;
}

static bool define_module(berth_trace_reader *r, const uint64_t *v)
{
    berth_trace_module *m = list_place(&r->modules, v[0], sizeof *m);
    if (m)
        *m = (berth_trace_module){sizeof *m, small(v[1]), small(v[2]), small(v[3]), v[4], v[5], v[6]};
    return m != NULL;
}

static bool define_device(berth_trace_reader *r, const uint64_t *v)
{
    berth_trace_device *d = list_place(&r->devices, v[0], sizeof *d);
    if (d)
        *d = (berth_trace_device){sizeof *d, small(v[1]), small(v[2]), small(v[3])};
    return d != NULL;
}

static bool define_process(berth_trace_reader *r, const uint64_t *v)
{
    berth_trace_process *p = list_place(&r->processes, v[0], sizeof *p);
    if (p)
        *p = (berth_trace_process){sizeof *p, v[1], small(v[2]), small(v[3])};
    return p != NULL;
}

static bool define_thread(berth_trace_reader *r, const uint64_t *v, uint32_t sequence)
{
    uint32_t key[2] = {small(v[0]), small(v[1])};
    uint32_t found = berth__trace_table_find(&r->thread_table, key, sizeof key);
    uint32_t number = found ? found - 1 : r->thread_names.count;
    if (number >= r->size_bytes * 16)
        return true; /* packed bytes that want memory: see berth__trace_take_definitions */
    struct berth__trace_named *t = list_place(&r->thread_names, number, sizeof *t);
    if (!t || (!found && !berth__trace_table_add(&r->thread_table, key, sizeof key, number + 1)))
        return false;
    if (sequence >= t->sequence)
        *t = (struct berth__trace_named){{sizeof t->thread, key[0], key[1], small(v[2])}, sequence};
    return true;
}

static bool define_picture(berth_trace_reader *r, const uint64_t *v)
{
    uint32_t key[4] = {small(v[0]), small(v[1]), small(v[2]), small(v[3])};
    uint32_t found = berth__trace_table_find(&r->picture_table, key, sizeof key);
    uint32_t number = found ? found - 1 : r->pictures.count;
    if (number >= PICTURES_MOST)
        return true; /* an allocator writes 256: packed bytes that want memory */
    berth_trace_picture *p = list_place(&r->pictures, number, sizeof *p);
    if (!p || (!found && !berth__trace_table_add(&r->picture_table, key, sizeof key, number + 1)))
        return false;
    *p = (berth_trace_picture){sizeof *p, v[4], v[5], v[6], v[7]};
    return true;
}

static bool define(berth_trace_reader *r, unsigned kind, const uint64_t *v, const char *text,
                   uint32_t sequence)
{
    switch (kind) {
    case BERTH__TRACE_TEXT:
        return define_text(r, v, text);
    case BERTH__TRACE_FRAME:
        return define_frame(r, v);
    case BERTH__TRACE_MODULE:
        return define_module(r, v);
    case BERTH__TRACE_DEVICE:
        return define_device(r, v);
    case BERTH__TRACE_PROCESS:
        return define_process(r, v);
    case BERTH__TRACE_THREAD:
        return define_thread(r, v, sequence);
    case BERTH__TRACE_PICTURE:
        return define_picture(r, v);
    default:
        return true; /* of a later version */
    }
}

berth_status berth__trace_take_definitions(berth_trace_reader *r, uint64_t offset, uint32_t sequence,
                                           const unsigned char *bytes, size_t size_bytes)
{
    const unsigned char *end = bytes + size_bytes;
    for (const unsigned char *at = bytes; at < end;) {
        unsigned kind;
        uint64_t values[BERTH__TRACE_NUMBERS_MOST] = {0};
        const char *text = NULL;
        const unsigned char *next = berth__trace_take_definition(at, end, &kind, values, &text);
        /* Numbers are given one by one, and a definition takes more than two bytes (packed: a fraction of one): a number
         * beyond this would only be memory that is asked for. */
        if (!next || values[0] > r->size_bytes * 16 || values[0] >= UINT32_MAX / 2) {
            berth__trace_note(r, "the definitions at byte %llu break off at byte %llu of them",
                              (unsigned long long)offset, (unsigned long long)(at - bytes));
            return BERTH_OK;
        }
        if (!define(r, kind, values, text, sequence))
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the definitions of a trace");
        at = next;
    }
    return BERTH_OK;
}

void berth__trace_definitions_finish(berth_trace_reader *r)
{
    while (r->words) {
        struct berth__trace_words *next = r->words->next;
        berth__heap_free(r->words);
        r->words = next;
    }
    berth__heap_free(r->texts.items);
    berth__heap_free(r->frames.items);
    berth__heap_free(r->modules.items);
    berth__heap_free(r->devices.items);
    berth__heap_free(r->processes.items);
    berth__heap_free(r->thread_names.items);
    berth__heap_free(r->pictures.items);
}

/* ---- Answers ------------------------------------------------------------------------------------------ */

static uint32_t list_last(const berth__trace_list *list)
{
    return list->count ? list->count - 1 : 0;
}

const char *berth_trace_text(const berth_trace_reader *reader, uint32_t number)
{
    if (!reader || number >= reader->texts.count)
        return "";
    const char *text = ((const char **)reader->texts.items)[number];
    return text ? text : "";
}

uint32_t berth_trace_text_count(const berth_trace_reader *reader)
{
    return reader ? list_last(&reader->texts) : 0;
}
uint32_t berth_trace_frame_count(const berth_trace_reader *reader)
{
    return reader ? list_last(&reader->frames) : 0;
}
uint32_t berth_trace_module_count(const berth_trace_reader *reader)
{
    return reader ? list_last(&reader->modules) : 0;
}
uint32_t berth_trace_device_count(const berth_trace_reader *reader)
{
    return reader ? list_last(&reader->devices) : 0;
}
uint32_t berth_trace_process_count(const berth_trace_reader *reader)
{
    return reader ? reader->processes.count : 0;
}

uint32_t berth_trace_thread_count(const berth_trace_reader *reader)
{
    return reader ? reader->thread_names.count : 0;
}

const berth_trace_picture *berth__trace_find_picture(const berth_trace_reader *r, uint32_t process,
                                                     uint32_t thread, uint32_t sequence, uint32_t refusal)
{
    uint32_t key[4] = {process, thread, sequence, refusal};
    uint32_t found = r->pictures.count ? berth__trace_table_find(&r->picture_table, key, sizeof key) : 0;
    return found ? &((const berth_trace_picture *)r->pictures.items)[found - 1] : NULL;
}

/* Copies definition `number`; those that were never made have no struct_size. */
static berth_status get(const berth__trace_list *list, uint32_t number, size_t element_bytes, void *out,
                        const size_t *out_size)
{
    if (!list || !out_size || *out_size < element_bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "a definition of a trace goes into a struct from its _INIT");
    const char *item =
        number < list->count ? (const char *)list->items + number * element_bytes : NULL; /* or no items */
    if (!item || *(const size_t *)(const void *)item == 0)
        return berth__fail(BERTH_NOT_FOUND, "the trace defines nothing with the number %u", number);
    memcpy(out, item, element_bytes);
    return BERTH_OK;
}

berth_status berth_trace_get_frame(const berth_trace_reader *reader, uint32_t number, berth_trace_frame *out)
{
    return get(reader ? &reader->frames : NULL, number, sizeof *out, out, out ? &out->struct_size : NULL);
}
berth_status berth_trace_get_module(const berth_trace_reader *reader, uint32_t number,
                                    berth_trace_module *out)
{
    return get(reader ? &reader->modules : NULL, number, sizeof *out, out, out ? &out->struct_size : NULL);
}
berth_status berth_trace_get_device(const berth_trace_reader *reader, uint32_t number,
                                    berth_trace_device *out)
{
    return get(reader ? &reader->devices : NULL, number, sizeof *out, out, out ? &out->struct_size : NULL);
}
berth_status berth_trace_get_process(const berth_trace_reader *reader, uint32_t number,
                                     berth_trace_process *out)
{
    return get(reader ? &reader->processes : NULL, number, sizeof *out, out, out ? &out->struct_size : NULL);
}
berth_status berth_trace_get_thread(const berth_trace_reader *reader, uint32_t number,
                                    berth_trace_thread *out)
{
    if (!reader || !out || out->struct_size < sizeof *out)
        return get(NULL, number, sizeof *out, out, NULL);
    if (number >= reader->thread_names.count)
        return berth__fail(BERTH_NOT_FOUND, "the trace names no thread with the number %u", number);
    *out = ((const struct berth__trace_named *)reader->thread_names.items)[number].thread;
    return BERTH_OK;
}
