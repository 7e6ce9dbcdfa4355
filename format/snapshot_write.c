/* A history as a memory snapshot of PyTorch: what torch.cuda.memory._snapshot() gives, pickled by protocol 4.
 *
 *     {"segments": [...what is alive at the end...], "device_traces": [[...events of device 0...], ...],
 *      "allocator_settings": {}, "external_annotations": []}
 *
 * Texts, frames and stacks that come again are the same objects (the pickle's memo), so that the file grows by events only. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/outputs.h"
#include "format/text.h"

enum { BATCH = 1000, PROGRESS_EVERY = 1 << 14, DEVICES_MOST = 1024, ORDINAL_MOST = 64 };

struct pickle {
    FILE *out;
    const format_history *h;
    uint32_t memo;                     /* the next free number */
    uint32_t *texts, *frames, *stacks; /* by number: memo + 1 */
    uint32_t *labels;                  /* by text: a list with one frame that has this name */
    struct {
        const char *word;
        uint32_t memo;
    } words[64];            /* keys and values of ours */
    uint16_t (*devices)[2]; /* by index of the snapshot: process and device */
    uint32_t device_count;
};

/* ---- Opcodes -------------------------------------------------------------------------------------------- */

static void put_bytes(struct pickle *p, int opcode, uint64_t number, size_t bytes)
{
    fputc(opcode, p->out);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(number >> 8 * i & 0xff), p->out);
}

static void put_number(struct pickle *p, uint64_t number)
{
    if (number < 256)
        put_bytes(p, 'K', number, 1);
    else if (number < 65536)
        put_bytes(p, 'M', number, 2);
    else if (number <= INT32_MAX)
        put_bytes(p, 'J', number, 4);
    else {
        put_bytes(p, 0x8a, 9, 1); /* eight bytes and one that keeps it positive */
        for (size_t i = 0; i < 9; i++)
            fputc(i < 8 ? (int)(number >> 8 * i & 0xff) : 0, p->out);
    }
}

static uint32_t put_memo(struct pickle *p)
{
    put_bytes(p, 'r', p->memo, 4);
    return ++p->memo;
}

static void get_memo(struct pickle *p, uint32_t memo)
{
    put_bytes(p, 'j', memo - 1, 4);
}

static void put_string(struct pickle *p, const char *text)
{
    put_bytes(p, 'X', strlen(text), 4);
    while (*text) {
        size_t length = format_text_character(text);
        if (length)
            fwrite(text, 1, length, p->out);
        else
            fputc('?', p->out);
        text += length ? length : 1;
    }
}

/* A word of ours, which is a constant. */
static void put_word(struct pickle *p, const char *word)
{
    size_t i = 0;
    while (i < sizeof p->words / sizeof p->words[0] - 1 && p->words[i].word && p->words[i].word != word)
        i++;
    if (p->words[i].word == word) {
        get_memo(p, p->words[i].memo);
        return;
    }
    put_string(p, word);
    p->words[i].word = word;
    p->words[i].memo = put_memo(p);
}

static void put_text(struct pickle *p, uint32_t text)
{
    if (p->texts[text]) {
        get_memo(p, p->texts[text]);
        return;
    }
    put_string(p, format_history_words(p->h, text));
    p->texts[text] = put_memo(p);
}

static void put_field(struct pickle *p, const char *key, uint64_t number)
{
    put_word(p, key);
    put_number(p, number);
}

static void put_choice(struct pickle *p, const char *key, const char *word)
{
    put_word(p, key);
    put_word(p, word);
}

/* ---- Stacks --------------------------------------------------------------------------------------------- */

static void put_frame(struct pickle *p, uint32_t number)
{
    const format_frame *f = &p->h->frames[number];
    if (p->frames[number]) {
        get_memo(p, p->frames[number]);
        return;
    }
    fputs("}(", p->out);
    put_word(p, "name");
    if (f->function)
        put_text(p, f->function);
    else {
        char address[32];
        snprintf(address, sizeof address, "0x%" PRIx64, f->address);
        put_string(p, address);
    }
    put_word(p, "filename");
    put_text(p, f->file ? f->file : f->module);
    put_field(p, "line", f->line);
    fputc('u', p->out);
    p->frames[number] = put_memo(p);
}

static void put_label(struct pickle *p, uint32_t label)
{
    if (p->labels[label]) {
        get_memo(p, p->labels[label]);
        return;
    }
    fputs("](}(", p->out);
    put_word(p, "name");
    put_text(p, label);
    put_word(p, "filename");
    put_word(p, "");
    put_field(p, "line", 0);
    fputs("ue", p->out);
    p->labels[label] = put_memo(p);
}

/* The frames of a stack, the innermost first; a label stands for a stack that is not known. */
static void put_stack(struct pickle *p, uint32_t stack, uint32_t label)
{
    put_word(p, "frames");
    if (!stack && label) {
        put_label(p, label);
        return;
    }
    if (stack && p->stacks[stack]) {
        get_memo(p, p->stacks[stack]);
        return;
    }
    fputs("](", p->out);
    for (uint32_t at = stack; at; at = p->h->frames[at].caller)
        put_frame(p, at);
    fputc('e', p->out);
    if (stack)
        p->stacks[stack] = put_memo(p);
}

/* ---- Events --------------------------------------------------------------------------------------------- */

static void put_event(struct pickle *p, const char *action, uint64_t address, uint64_t size, uint64_t stream,
                      uint64_t time_ns)
{
    fputs("}(", p->out);
    put_choice(p, "action", action);
    put_field(p, "addr", address);
    put_field(p, "size", size);
    put_field(p, "stream", stream);
    put_field(p, "time_us", p->h->has_times ? time_ns / 1000 : time_ns);
}

static void end_event(struct pickle *p, uint32_t stack, uint32_t label)
{
    put_stack(p, stack, label);
    if (label) {
        put_word(p, "user_metadata");
        put_text(p, label);
    }
    fputc('u', p->out);
}

static bool is_of(const struct pickle *p, uint32_t device, uint16_t process, uint16_t of)
{
    return p->devices[device][0] == process && p->devices[device][1] == of;
}

/* How many events the step became. */
static uint32_t put_step(struct pickle *p, uint32_t device, const format_step *step)
{
    const format_history *h = p->h;
    if (step->kind == FORMAT_STEP_MOMENT) {
        const format_moment *m = &h->moments[step->index];
        if (!m->size_bytes || !is_of(p, device, m->process, m->device))
            return 0;
        put_event(p, "oom", 0, m->size_bytes, 0, step->time_ns);
        put_field(p, "device_free", 0);
        end_event(p, m->stack, m->label);
        return 1;
    }
    if (step->kind == FORMAT_STEP_MAP || step->kind == FORMAT_STEP_UNMAP) {
        const format_segment *s = &h->segments[step->index];
        if (!is_of(p, device, s->process, s->device))
            return 0;
        put_event(p, step->kind == FORMAT_STEP_MAP ? "segment_alloc" : "segment_free", s->address,
                  s->size_bytes, 0, step->time_ns);
        end_event(p, s->stack, 0);
        return 1;
    }
    const format_block *b = &h->blocks[step->index];
    if (!is_of(p, device, b->process, b->device))
        return 0;
    if (step->kind == FORMAT_STEP_FREE) { /* PyTorch tells both the wish and the deed */
        put_event(p, "free_requested", b->address, b->size_bytes, b->stream, step->time_ns);
        end_event(p, 0, 0);
    }
    put_event(p, step->kind == FORMAT_STEP_FREE ? "free_completed" : "alloc", b->address, b->size_bytes,
              b->stream, step->time_ns);
    end_event(p, step->kind == FORMAT_STEP_FREE ? 0 : b->stack,
              step->kind == FORMAT_STEP_FREE ? 0 : b->label);
    return step->kind == FORMAT_STEP_FREE ? 2 : 1;
}

static bool put_trace(struct pickle *p, uint32_t device, format_progress progress, void *context)
{
    format_steps steps;
    format_step step;
    uint32_t batch = 0;
    bool ready = format_steps_begin(&steps, p->h);
    fputs("](", p->out);
    while (ready && !ferror(p->out) && format_steps_next(&steps, &step)) {
        batch += put_step(p, device, &step);
        if (batch >= BATCH) { /* so that a reader's stack does not grow with the list */
            fputs("e(", p->out);
            batch = 0;
        }
        if (progress && steps.event % PROGRESS_EVERY == 0)
            progress(context, steps.event, p->h->event_count);
    }
    fputc('e', p->out);
    format_steps_end(&steps);
    return ready;
}

/* ---- What is alive at the end --------------------------------------------------------------------------- */

struct piece {
    uint64_t address, size_bytes;
    const format_block *block;     /* NULL: it is a segment */
    const format_segment *segment; /* or free space, if both are NULL */
};

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return (x->block != NULL) - (y->block != NULL); /* a segment before what is in it */
}

static void put_piece(struct pickle *p, const struct piece *piece)
{
    const format_block *b = piece->block;
    fputs("}(", p->out);
    put_field(p, "address", piece->address);
    put_field(p, "size", piece->size_bytes);
    put_field(p, "requested_size", b ? piece->size_bytes : 0);
    put_choice(p, "state", b ? "active_allocated" : "inactive");
    put_stack(p, b ? b->stack : 0, b ? b->label : 0);
    fputc('u', p->out);
}

/* One segment with the blocks that lie in it, and free space between them. */
static void put_segment(struct pickle *p, uint32_t device, const struct piece *segment,
                        const struct piece *blocks, size_t count)
{
    uint64_t used = 0, at = segment->address, end = segment->address + segment->size_bytes;
    fputs("}(", p->out);
    put_field(p, "device", device);
    put_field(p, "address", segment->address);
    put_field(p, "total_size", segment->size_bytes);
    put_word(p, "blocks");
    fputs("](", p->out);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].address > at)
            put_piece(p, &(struct piece){.address = at, .size_bytes = blocks[i].address - at});
        put_piece(p, &blocks[i]);
        used += blocks[i].size_bytes;
        at = blocks[i].address + blocks[i].size_bytes;
    }
    if (end > at)
        put_piece(p, &(struct piece){.address = at, .size_bytes = end - at});
    fputc('e', p->out);
    put_field(p, "allocated_size", used);
    put_field(p, "active_size", used);
    put_field(p, "requested_size", used);
    put_field(p, "stream", segment->block ? segment->block->stream : 0);
    put_choice(p, "segment_type", segment->size_bytes < 2 << 20 ? "small" : "large");
    put_word(p, "segment_pool_id");
    fputs("K", p->out), fputc(0, p->out), fputs("K", p->out), fputc(0, p->out), fputc(0x86, p->out);
    put_word(p, "is_expandable");
    fputc(0x89, p->out);
    put_stack(p, segment->segment ? segment->segment->stack : 0, 0);
    fputc('u', p->out);
}

/* Blocks that lie in no segment (a heap's) have one each. */
static void put_pieces(struct pickle *p, uint32_t device, const struct piece *pieces, size_t count)
{
    for (size_t i = 0, last; i < count; i = last) {
        last = i + 1;
        if (pieces[i].block) {
            put_segment(p, device, &pieces[i], &pieces[i], 1);
            continue;
        }
        uint64_t at = pieces[i].address, end = at + pieces[i].size_bytes;
        while (last < count && pieces[last].block && pieces[last].address >= at &&
               pieces[last].address < end && pieces[last].size_bytes <= end - pieces[last].address)
            at = pieces[last].address + pieces[last].size_bytes, last++;
        put_segment(p, device, &pieces[i], pieces + i + 1, last - i - 1);
    }
}

static bool put_alive(struct pickle *p, uint32_t device)
{
    const format_history *h = p->h;
    size_t count = 0;
    struct piece *pieces = malloc(((size_t)h->block_count + h->segment_count + 1) * sizeof *pieces);
    if (!pieces)
        return false;
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (b->end == FORMAT_ALIVE && b->size_bytes && b->size_bytes <= UINT64_MAX - b->address &&
            is_of(p, device, b->process, b->device))
            pieces[count++] = (struct piece){b->address, b->size_bytes, b, NULL};
    }
    for (uint32_t i = 0; i < h->segment_count; i++) {
        const format_segment *s = &h->segments[i];
        if (s->end == FORMAT_ALIVE && s->size_bytes && s->size_bytes <= UINT64_MAX - s->address &&
            is_of(p, device, s->process, s->device))
            pieces[count++] = (struct piece){s->address, s->size_bytes, NULL, s};
    }
    qsort(pieces, count, sizeof *pieces, compare_pieces);
    put_pieces(p, device, pieces, count);
    free(pieces);
    return true;
}

/* ---- Devices -------------------------------------------------------------------------------------------- */

/* The place of "cuda:3" is 3 where one process was recorded; else places are taken in the order of appearance. */
static uint32_t ordinal_of(const format_history *h, uint16_t device)
{
    const char *colon = strrchr(format_history_words(h, h->devices[device].name), ':');
    unsigned long n =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, NULL, 10) : ORDINAL_MOST;
    return n < ORDINAL_MOST ? (uint32_t)n : ORDINAL_MOST;
}

static bool place_device(struct pickle *p, uint16_t process, uint16_t device)
{
    for (uint32_t i = 0; i < p->device_count; i++)
        if (is_of(p, i, process, device))
            return true;
    uint32_t at = process == 0 ? ordinal_of(p->h, device) : ORDINAL_MOST;
    if (at == ORDINAL_MOST || (at < p->device_count && p->devices[at][1] != FORMAT_ANY_DEVICE))
        at = p->device_count;
    if (at >= DEVICES_MOST)
        return false;
    for (; p->device_count <= at; p->device_count++)
        p->devices[p->device_count][1] = FORMAT_ANY_DEVICE;
    p->devices[at][0] = process;
    p->devices[at][1] = device;
    return true;
}

static bool place_devices(struct pickle *p)
{
    bool placed = true;
    for (uint32_t i = 0; i < p->h->block_count; i++)
        placed = place_device(p, p->h->blocks[i].process, p->h->blocks[i].device) && placed;
    return placed;
}

static bool put_all(struct pickle *p, format_progress progress, void *context)
{
    bool done = true;
    put_bytes(p, 0x80, 4, 1);
    fputs("}(", p->out);
    put_word(p, "segments");
    fputs("](", p->out);
    for (uint32_t i = 0; i < p->device_count; i++)
        done = put_alive(p, i) && done;
    fputc('e', p->out);
    put_word(p, "device_traces");
    fputs("](", p->out);
    for (uint32_t i = 0; i < p->device_count; i++)
        done = put_trace(p, i, progress, context) && done;
    fputc('e', p->out);
    put_word(p, "allocator_settings");
    fputc('}', p->out);
    put_word(p, "external_annotations");
    fputs("]u.", p->out);
    return done;
}

berth_status format_snapshot_write(const format_history *h, FILE *out, format_progress progress,
                                   void *context, format_error *error)
{
    struct pickle p = {.out = out, .h = h};
    p.texts = calloc((size_t)h->text_count + 1, sizeof *p.texts);
    p.labels = calloc((size_t)h->text_count + 1, sizeof *p.labels);
    p.frames = calloc((size_t)h->frame_count + 1, sizeof *p.frames);
    p.stacks = calloc((size_t)h->frame_count + 1, sizeof *p.stacks);
    p.devices = calloc(DEVICES_MOST, sizeof *p.devices);
    berth_status status = BERTH_OK;
    if (!p.texts || !p.labels || !p.frames || !p.stacks || !p.devices)
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the snapshot");
    else if (!place_devices(&p))
        status = format_fail(error, BERTH_UNSUPPORTED, "there are more than %d devices and processes",
                             DEVICES_MOST);
    else if (!put_all(&p, progress, context))
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the blocks of the snapshot");
    else if (ferror(out) || fflush(out))
        status = format_fail(error, BERTH_IO, "%s", strerror(errno));
    free(p.texts);
    free(p.labels);
    free(p.frames);
    free(p.stacks);
    free(p.devices);
    return status;
}
