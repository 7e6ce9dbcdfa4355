/* A history as Chrome's trace events (JSON), which chrome://tracing and ui.perfetto.dev show: every life an async event, and live
 * bytes as counters, one a process and device. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/outputs.h"
#include "format/text.h"

enum { STACK_SHOWN = 32, PROGRESS_EVERY = 1 << 14 };

struct chrome {
    FILE *out;
    const format_history *h;
    format_names names;
    uint64_t *live; /* by process and device */
    uint32_t processes;
    bool comma;
};

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text) {
        unsigned char c = (unsigned char)*text;
        size_t length = format_text_character(text);
        if (!length)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32 || c == 127)
            fprintf(out, "\\u%04x", c);
        else
            fwrite(text, 1, length, out);
        text += length ? length : 1;
    }
    fputc('"', out);
}

static void begin_event(struct chrome *c, const char *phase, const char *name, const char *suffix,
                        uint32_t process, uint64_t time_ns)
{
    char whole[256];
    fprintf(c->out, "%s{\"ph\":\"%s\",\"name\":", c->comma ? ",\n" : "\n", phase);
    c->comma = true;
    if (*suffix)
        snprintf(whole, sizeof whole, "%s%s", name, suffix);
    put_text(c->out, *suffix ? whole : name);
    fprintf(c->out, ",\"pid\":%" PRIu32, process + 1);
    /* microseconds; a time without a unit counts as so many */
    if (c->h->has_times)
        fprintf(c->out, ",\"ts\":%" PRIu64 ".%03" PRIu64, (time_ns - c->h->first_ns) / 1000,
                (time_ns - c->h->first_ns) % 1000);
    else
        fprintf(c->out, ",\"ts\":%" PRIu64, time_ns - c->h->first_ns);
}

static void put_stack(struct chrome *c, uint32_t stack)
{
    fputs(",\"stack\":[", c->out);
    for (uint32_t at = stack, depth = 0; at && depth < STACK_SHOWN; at = c->h->frames[at].caller, depth++) {
        const format_frame *f = &c->h->frames[at];
        char address[32];
        snprintf(address, sizeof address, "0x%" PRIx64, f->address);
        if (depth)
            fputc(',', c->out);
        put_text(c->out, f->function ? format_history_words(c->h, f->function) : address);
    }
    fputc(']', c->out);
}

static void put_life(struct chrome *c, const format_step *step)
{
    const format_block *b = &c->h->blocks[step->index];
    const char *name = format_block_name(&c->names, b);
    bool begins = step->kind == FORMAT_STEP_ALLOC;
    begin_event(c, begins ? "b" : "e", *name ? name : "block", "", b->process, step->time_ns);
    fprintf(c->out, ",\"cat\":\"memory\",\"id\":%" PRIu32 ",\"tid\":%" PRIu32, step->index, b->thread);
    if (begins) {
        fprintf(c->out, ",\"args\":{\"bytes\":%" PRIu64, b->size_bytes);
        if (c->h->has_addresses)
            fprintf(c->out, ",\"address\":\"0x%" PRIx64 "\"", b->address);
        if (b->stream)
            fprintf(c->out, ",\"stream\":\"0x%" PRIx64 "\"", b->stream);
        if (b->stack)
            put_stack(c, b->stack);
        fputc('}', c->out);
    }
    fputc('}', c->out);
    uint64_t *live = &c->live[(size_t)b->process * c->h->device_count + b->device];
    *live += begins ? b->size_bytes : 0 - b->size_bytes;
    begin_event(c, "C", "live bytes ",
                b->device ? format_history_words(c->h, c->h->devices[b->device].name) : "host", b->process,
                step->time_ns);
    fprintf(c->out, ",\"args\":{\"bytes\":%" PRIu64 "}}", *live);
}

static void put_moment(struct chrome *c, const format_step *step)
{
    const format_moment *m = &c->h->moments[step->index];
    const char *label = format_history_words(c->h, m->label);
    begin_event(c, "i",
                m->size_bytes ? "allocation refused"
                : *label      ? label
                              : "mark",
                "", m->process, step->time_ns);
    fprintf(c->out, ",\"s\":\"p\",\"tid\":0,\"args\":{\"bytes\":%" PRIu64 "}}", m->size_bytes);
}

static void put_processes(struct chrome *c)
{
    for (uint32_t i = 0; i < c->h->process_count; i++) {
        if (!c->h->commands[i])
            continue;
        begin_event(c, "M", "process_name", "", i, c->h->first_ns);
        fputs(",\"args\":{\"name\":", c->out);
        put_text(c->out, format_history_words(c->h, c->h->commands[i]));
        fputs("}}", c->out);
    }
}

static void put_threads(struct chrome *c)
{
    for (uint32_t i = 0; i < c->h->named_count; i++) {
        const format_thread *t = &c->h->threads[i];
        begin_event(c, "M", "thread_name", "", t->process, c->h->first_ns);
        fprintf(c->out, ",\"tid\":%" PRIu32 ",\"args\":{\"name\":", t->thread);
        put_text(c->out, format_history_words(c->h, t->name));
        fputs("}}", c->out);
    }
}

static void put_all(struct chrome *c, format_steps *steps, format_progress progress, void *context)
{
    format_step step;
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"berth\"},\"traceEvents\":[", c->out);
    put_processes(c);
    put_threads(c);
    while (!ferror(c->out) && format_steps_next(steps, &step)) {
        if (step.kind == FORMAT_STEP_ALLOC || step.kind == FORMAT_STEP_FREE)
            put_life(c, &step);
        else if (step.kind == FORMAT_STEP_MOMENT)
            put_moment(c, &step);
        if (progress && steps->event % PROGRESS_EVERY == 0)
            progress(context, steps->event, c->h->event_count);
    }
    fputs("\n]}\n", c->out);
}

berth_status format_chrome_write(const format_history *h, FILE *out, format_progress progress, void *context,
                                 format_error *error)
{
    struct chrome c = {.out = out, .h = h, .processes = 1};
    format_steps steps;
    for (uint32_t i = 0; i < h->block_count; i++)
        if (h->blocks[i].process >= c.processes)
            c.processes = h->blocks[i].process + 1u;
    c.live = calloc((size_t)c.processes * h->device_count, sizeof *c.live);
    bool ready = format_names_init(&c.names, h);
    ready = format_steps_begin(&steps, h) && c.live && ready;
    if (ready)
        put_all(&c, &steps, progress, context);
    format_steps_end(&steps);
    format_names_finish(&c.names);
    free(c.live);
    if (!ready)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the counters");
    return ferror(out) || fflush(out) ? format_fail(error, BERTH_IO, "%s", strerror(errno)) : BERTH_OK;
}
