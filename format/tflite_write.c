/* Writes a TFLite model with a plan in its metadata.
 *
 * A flatbuffer's references lead forward only, so that nothing new can stand behind the old parts and refer to them. It is put in
 * front: a new root with new lists of metadata and buffers, then the old file as it was, at a distance that keeps every alignment.
 *
 *     | root, Model | metadata list | buffer list | Metadata, name | Buffer, plan | the old file ...
 *
 * References inside the old part are relative and stay; those that count from the start of the file (data behind the flatbuffer) are
 * moved. A model that has a plan of this size already gets the new one in its place. */
#include <stdlib.h>
#include <string.h>

#include "format/flat.h"
#include "format/tflite.h"

enum { MODEL_FIELDS = 8, MODEL_SUBGRAPHS = 2, MODEL_BUFFERS = 4, MODEL_METADATA = 6 };
enum { GRAPH_OPERATORS = 3, OPERATOR_LARGE_OFFSET = 9, BUFFER_DATA = 0, BUFFER_OFFSET = 1 };
enum { FRONT_ALIGNMENT = 64, PLAN_HEADER = 12 };
static const char plan_name[] = "OfflineMemoryAllocation";

typedef struct writer {
    flat file;
    flat_table root;
    flat_vector metadata, buffers, subgraphs;
    uint32_t entry;   /* of the plan that is there, or UINT32_MAX */
    flat_vector plan; /* its bytes */
    uint8_t *out;
    size_t front; /* bytes in front of the old file */
} writer;

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* Writes a reference at `at` to `to`, both places in the new file. */
static void put_reference(writer *w, size_t at, size_t to)
{
    if (to <= at || to - at > UINT32_MAX)
        flat_fail(&w->file, at, "reference", "the order asked for cannot be written into this file");
    else
        put(w->out + at, to - at, 4);
}

/* Where the element of a list of references leads in the old file. */
static size_t target_of(const writer *w, flat_vector v, uint32_t index)
{
    size_t at = v.at + 4 * (size_t)index;
    return at + (size_t)flat_read(w->file.data + at, 4);
}

static void find_plan(writer *w)
{
    w->entry = UINT32_MAX;
    for (uint32_t i = 0; i < w->metadata.count && !flat_failed(&w->file); i++) {
        flat_table entry = flat_item(&w->file, w->metadata, i, "Model.metadata");
        if (!format_text_is(flat_string(&w->file, entry, 0, "Metadata.name"), plan_name))
            continue;
        uint64_t index = flat_number(&w->file, entry, 1, 4, 0, "Metadata.buffer");
        w->entry = i;
        if (index < w->buffers.count)
            w->plan = flat_list(&w->file, flat_item(&w->file, w->buffers, (uint32_t)index, "Model.buffers"),
                                BUFFER_DATA, 1, "Buffer.data");
        return;
    }
}

static void put_plan(uint8_t *at, const int32_t *offsets, size_t count)
{
    put(at, 1, 4);
    put(at + 4, 0, 4);
    put(at + 8, count, 4);
    for (size_t i = 0; i < count; i++)
        put(at + PLAN_HEADER + 4 * i, (uint32_t)offsets[i], 4);
}

/* The parts in front, with the places they get. */
typedef struct front {
    size_t vtable, model, metadata, buffers, entry_vtable, entry, name, buffer_vtable, buffer, plan, end;
    uint32_t metadata_count, buffer_count;
} front;

static size_t front_take(size_t *at, size_t bytes, size_t alignment)
{
    *at = (*at + alignment - 1) / alignment * alignment;
    size_t place = *at;
    *at += bytes;
    return place;
}

static front front_lay_out(const writer *w, size_t tensor_count)
{
    front f = {.metadata_count = w->metadata.count + (w->entry == UINT32_MAX),
               .buffer_count = w->buffers.count + 1};
    size_t at = 8;
    f.vtable = front_take(&at, 4 + 2 * MODEL_FIELDS, 4);
    f.model = front_take(&at, 4 + 4 * MODEL_FIELDS, 4);
    f.metadata = front_take(&at, 4 + 4 * (size_t)f.metadata_count, 4);
    f.buffers = front_take(&at, 4 + 4 * (size_t)f.buffer_count, 4);
    f.entry_vtable = front_take(&at, 8, 4);
    f.entry = front_take(&at, 12, 4);
    f.name = front_take(&at, 4 + sizeof plan_name, 4);
    f.buffer_vtable = front_take(&at, 6, 4);
    f.buffer = front_take(&at, 8, 4);
    f.plan = front_take(&at, 4, 16) + 12; /* its bytes begin at a multiple of 16 */
    at = f.plan + 4 + PLAN_HEADER + 4 * tensor_count;
    f.end = front_take(&at, 0, FRONT_ALIGNMENT);
    return f;
}

/* A vtable: its size, the table's, and where the fields are. */
static void put_vtable(writer *w, size_t at, size_t table, unsigned fields, const unsigned *places,
                       unsigned bytes)
{
    put(w->out + at, 4 + 2 * fields, 2);
    put(w->out + at + 2, bytes, 2);
    for (unsigned i = 0; i < fields; i++)
        put(w->out + at + 4 + 2 * i, places[i], 2);
    put(w->out + table, (uint32_t)((int64_t)table - (int64_t)at), 4);
}

static void put_model(writer *w, const front *f)
{
    unsigned places[MODEL_FIELDS];
    for (unsigned i = 0; i < MODEL_FIELDS; i++) {
        size_t old = flat_field(&w->file, w->root, i, 4, "Model");
        places[i] = 0;
        if (!old && i != MODEL_METADATA && i != MODEL_BUFFERS)
            continue;
        places[i] = 4 + 4 * i;
        size_t at = f->model + places[i];
        if (i == 0)
            put(w->out + at, flat_read(w->file.data + old, 4), 4);
        else if (i == MODEL_METADATA)
            put_reference(w, at, f->metadata);
        else if (i == MODEL_BUFFERS)
            put_reference(w, at, f->buffers);
        else
            put_reference(w, at, w->front + old + (size_t)flat_read(w->file.data + old, 4));
    }
    put_vtable(w, f->vtable, f->model, MODEL_FIELDS, places, 4 + 4 * MODEL_FIELDS);
}

static void put_front(writer *w, const front *f, const int32_t *offsets, size_t tensor_count)
{
    put(w->out, f->model, 4);
    memcpy(w->out + 4, "TFL3", 4);
    put_model(w, f);
    put(w->out + f->metadata, f->metadata_count, 4);
    for (uint32_t i = 0; i < f->metadata_count; i++)
        put_reference(w, f->metadata + 4 + 4 * (size_t)i,
                      i == w->entry || i == w->metadata.count ? f->entry
                                                              : w->front + target_of(w, w->metadata, i));
    put(w->out + f->buffers, f->buffer_count, 4);
    for (uint32_t i = 0; i < f->buffer_count; i++)
        put_reference(w, f->buffers + 4 + 4 * (size_t)i,
                      i == w->buffers.count ? f->buffer : w->front + target_of(w, w->buffers, i));
    put_vtable(w, f->entry_vtable, f->entry, 2, (const unsigned[]){4, 8}, 12);
    put_reference(w, f->entry + 4, f->name);
    put(w->out + f->entry + 8, w->buffers.count, 4);
    put(w->out + f->name, sizeof plan_name - 1, 4);
    memcpy(w->out + f->name + 4, plan_name, sizeof plan_name);
    put_vtable(w, f->buffer_vtable, f->buffer, 1, (const unsigned[]){4}, 8);
    put_reference(w, f->buffer + 4, f->plan);
    put(w->out + f->plan, PLAN_HEADER + 4 * tensor_count, 4);
    put_plan(w->out + f->plan + 4, offsets, tensor_count);
}

/* Moves a number that counts from the start of the file. Parts may be shared: the old value is what counts. */
static void move_offset(writer *w, flat_table table, unsigned field, const char *name)
{
    size_t at = flat_field(&w->file, table, field, 8, name);
    uint64_t offset = at ? flat_read(w->file.data + at, 8) : 0;
    if (offset > 1)
        put(w->out + w->front + at, offset + w->front, 8);
}

static void move_offsets(writer *w)
{
    for (uint32_t i = 0; i < w->buffers.count && !flat_failed(&w->file); i++)
        move_offset(w, flat_item(&w->file, w->buffers, i, "Model.buffers"), BUFFER_OFFSET, "Buffer.offset");
    for (uint32_t s = 0; s < w->subgraphs.count && !flat_failed(&w->file); s++) {
        flat_table graph = flat_item(&w->file, w->subgraphs, s, "Model.subgraphs");
        flat_vector operators = flat_list(&w->file, graph, GRAPH_OPERATORS, 4, "SubGraph.operators");
        for (uint32_t i = 0; i < operators.count && !flat_failed(&w->file); i++)
            move_offset(w, flat_item(&w->file, operators, i, "SubGraph.operators"), OPERATOR_LARGE_OFFSET,
                        "Operator.large_custom_options_offset");
    }
}

/* Puts the references to operators into another order. Two subgraphs may share one list: it must be right for both. */
static void reorder(writer *w, const uint32_t *order, bool check)
{
    uint32_t first = 0;
    for (uint32_t s = 0; s < w->subgraphs.count && !flat_failed(&w->file); s++) {
        flat_table graph = flat_item(&w->file, w->subgraphs, s, "Model.subgraphs");
        flat_vector operators = flat_list(&w->file, graph, GRAPH_OPERATORS, 4, "SubGraph.operators");
        for (uint32_t i = 0; i < operators.count && !flat_failed(&w->file); i++) {
            const size_t at = w->front + operators.at + 4 * (size_t)i;
            const size_t to = w->front + target_of(w, operators, order[first + i] - first);
            if (!check)
                put_reference(w, at, to);
            else if (at + (size_t)flat_read(w->out + at, 4) != to)
                flat_fail(&w->file, at, "SubGraph.operators",
                          "two subgraphs share their operators, which can have one order only");
        }
        first += operators.count;
    }
}

static void refuse_unknown_fields(writer *w)
{
    for (unsigned i = MODEL_FIELDS; i < w->root.fields; i++)
        if (flat_field(&w->file, w->root, i, 1, "Model"))
            flat_fail(
                &w->file, w->root.at, "Model",
                "a newer kind of model, with fields that are not known; it can be planned but not written");
}

berth_status format_tflite_write(const uint8_t *data, size_t size, const int32_t *offsets,
                                 size_t tensor_count, const uint32_t *order, uint8_t **out, size_t *out_size,
                                 format_error *error)
{
    writer w = {.file = {data, size, error}};
    error->status = BERTH_OK;
    *out = NULL;
    w.root = flat_root(&w.file, "TFL3");
    w.metadata = flat_list(&w.file, w.root, MODEL_METADATA, 4, "Model.metadata");
    w.buffers = flat_list(&w.file, w.root, MODEL_BUFFERS, 4, "Model.buffers");
    w.subgraphs = flat_list(&w.file, w.root, MODEL_SUBGRAPHS, 4, "Model.subgraphs");
    find_plan(&w);
    refuse_unknown_fields(&w);
    if (flat_failed(&w.file))
        return error->status;
    bool in_place = w.plan.present && w.plan.count == PLAN_HEADER + 4 * tensor_count;
    front f = front_lay_out(&w, tensor_count);
    w.front = in_place ? 0 : f.end;
    *out_size = w.front + size;
    w.out = calloc(1, *out_size);
    if (!w.out)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu bytes", *out_size);
    memcpy(w.out + w.front, data, size);
    if (in_place)
        put_plan(w.out + w.plan.at, offsets, tensor_count);
    else {
        move_offsets(&w);
        put_front(&w, &f, offsets, tensor_count);
    }
    if (order) {
        reorder(&w, order, false);
        reorder(&w, order, true);
    }
    if (error->status) {
        free(w.out);
        return error->status;
    }
    *out = w.out;
    return BERTH_OK;
}
