/* A history as a trace. */
#include <stdlib.h>
#include <string.h>

#include "berth/trace.h"
#include "format/outputs.h"
#include "format/pack.h"

enum { THREADS_MOST = 4096 }; /* a thread has a chunk of its own in memory: numbers from files are bounded */

/* The numbers of the history's definitions in the trace. */
struct trace_writer {
    const format_history *h;
    berth_trace *trace;
    uint32_t *texts, *frames, *modules, *devices; /* modules by text */
    uint64_t time_ns;
    uint32_t last_thread, last_process;
    uint64_t events;
};

static berth_status define_texts(struct trace_writer *w)
{
    berth_status status = BERTH_OK;
    for (uint32_t i = 1; i < w->h->text_count && !status; i++) {
        const char *text = w->h->texts[i];
        if (*text)
            status = berth_trace_define_text(w->trace, text, strlen(text), &w->texts[i]);
    }
    return status;
}

static berth_status define_module(struct trace_writer *w, uint32_t text)
{
    berth_trace_module m = BERTH_TRACE_MODULE_INIT;
    m.path = w->texts[text];
    return w->modules[text] || !m.path ? BERTH_OK
                                       : berth_trace_define_module(w->trace, &m, &w->modules[text]);
}

/* A frame's caller has a smaller number: it was defined before. */
static berth_status define_frames(struct trace_writer *w)
{
    berth_status status = BERTH_OK;
    for (uint32_t i = 1; i < w->h->frame_count && !status; i++) {
        const format_frame *from = &w->h->frames[i];
        berth_trace_frame f = BERTH_TRACE_FRAME_INIT;
        status = define_module(w, from->module);
        f.caller = w->frames[from->caller];
        f.module = w->modules[from->module];
        f.address = from->address;
        f.function = w->texts[from->function];
        f.file = w->texts[from->file];
        f.line = from->line;
        if (!status)
            status = berth_trace_define_frame(w->trace, &f, &w->frames[i]);
    }
    return status;
}

static berth_status define_rest(struct trace_writer *w)
{
    berth_status status = BERTH_OK;
    for (uint32_t i = 1; i < w->h->device_count && !status; i++) {
        berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
        d.name = w->texts[w->h->devices[i].name];
        status = berth_trace_define_device(w->trace, &d, &w->devices[i]);
    }
    for (uint32_t i = 0; i < w->h->process_count && !status; i++) {
        berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
        p.command = w->texts[w->h->commands[i]];
        status = berth_trace_define_process(w->trace, i, &p);
    }
    for (uint32_t i = 0; i < w->h->named_count && !status; i++) {
        const format_thread *from = &w->h->threads[i];
        berth_trace_thread t = {sizeof t, from->process, from->thread, w->texts[from->name]};
        if (t.thread < THREADS_MOST)
            status = berth_trace_define_thread(w->trace, &t);
    }
    return status;
}

/* Readers put frees of a moment first where threads differ; here the order is known, so another thread comes later. */
static berth_status put_event(struct trace_writer *w, berth_trace_event *e, uint64_t time_ns)
{
    e->thread = e->thread < THREADS_MOST ? e->thread : THREADS_MOST;
    bool same = e->thread == w->last_thread && e->process == w->last_process;
    if (w->events && time_ns <= w->time_ns)
        time_ns = w->time_ns + !same;
    w->time_ns = e->time_ns = time_ns;
    w->last_thread = e->thread;
    w->last_process = e->process;
    w->events++;
    return berth_trace_write(w->trace, e);
}

static berth_status put_capacities(struct trace_writer *w)
{
    berth_status status = BERTH_OK;
    for (uint32_t i = 0; i < w->h->device_count && !status; i++) {
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.kind = BERTH_TRACE_CAPACITY;
        e.thread = 0;
        e.device = w->devices[i];
        e.size_bytes = w->h->devices[i].capacity_bytes;
        if (e.size_bytes)
            status = put_event(w, &e, w->h->first_ns);
    }
    return status;
}

static void fill_block(const struct trace_writer *w, const format_block *b, bool begins, berth_trace_event *e)
{
    e->kind = begins ? BERTH_TRACE_ALLOC : BERTH_TRACE_FREE;
    e->process = b->process;
    e->thread = begins ? b->thread : b->end_thread;
    e->device = w->devices[b->device];
    e->address = b->address;
    e->stream = b->stream;
    e->size_bytes = begins ? b->size_bytes : 0;
    e->stack = begins ? w->frames[b->stack] : 0;
    e->label = begins ? w->texts[b->label] : 0;
}

static void fill_segment(const struct trace_writer *w, const format_segment *s, bool begins,
                         berth_trace_event *e)
{
    e->kind = begins ? BERTH_TRACE_MAP : BERTH_TRACE_UNMAP;
    e->process = s->process;
    e->device = w->devices[s->device];
    e->address = s->address;
    e->size_bytes = s->size_bytes;
    e->stack = begins ? w->frames[s->stack] : 0;
}

/* *picture is for the event, and as long as it. */
static void fill_moment(const struct trace_writer *w, const format_moment *m, berth_trace_event *e,
                        berth_trace_picture *picture)
{
    *picture = (berth_trace_picture){sizeof *picture, m->waiting_bytes, m->hole_bytes, m->largest_hole_bytes,
                                     m->unused_bytes};
    e->picture = m->knows_holes ? picture : NULL;
    e->kind = m->size_bytes ? BERTH_TRACE_FAIL : BERTH_TRACE_MARK;
    e->process = m->process;
    e->device = w->devices[m->device];
    e->size_bytes = m->size_bytes;
    e->stack = m->size_bytes ? w->frames[m->stack] : 0;
    e->label = w->texts[m->label];
}

static berth_status put_steps(struct trace_writer *w, format_progress progress, void *context)
{
    enum { EVERY = 1 << 16 };
    format_steps steps;
    format_step step;
    berth_status status = format_steps_begin(&steps, w->h) ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    while (!status && format_steps_next(&steps, &step)) {
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        berth_trace_picture picture;
        e.thread = 0;
        if (step.kind == FORMAT_STEP_ALLOC || step.kind == FORMAT_STEP_FREE)
            fill_block(w, &w->h->blocks[step.index], step.kind == FORMAT_STEP_ALLOC, &e);
        else if (step.kind == FORMAT_STEP_MOMENT)
            fill_moment(w, &w->h->moments[step.index], &e, &picture);
        else
            fill_segment(w, &w->h->segments[step.index], step.kind == FORMAT_STEP_MAP, &e);
        status = put_event(w, &e, step.time_ns);
        if (progress && w->events % EVERY == 0)
            progress(context, steps.event, w->h->event_count);
    }
    format_steps_end(&steps);
    return status;
}

berth_status format_trace_write(const format_history *h, const char *path, format_progress progress,
                                void *context, format_error *error)
{
    struct trace_writer w = {.h = h};
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    options.pack = format_can_pack() ? format_pack : NULL;
    w.texts = calloc((size_t)h->text_count + 1, sizeof *w.texts);
    w.modules = calloc((size_t)h->text_count + 1, sizeof *w.modules);
    w.frames = calloc((size_t)h->frame_count + 1, sizeof *w.frames);
    w.devices = calloc((size_t)h->device_count + 1, sizeof *w.devices);
    berth_status status = w.texts && w.modules && w.frames && w.devices
                              ? berth_trace_create(path, &options, &w.trace)
                              : BERTH_OUT_OF_HOST_MEMORY;
    berth_status (*const parts[])(struct trace_writer *) = {define_texts, define_frames, define_rest,
                                                            put_capacities};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !status; i++)
        status = parts[i](&w);
    if (!status)
        status = put_steps(&w, progress, context);
    if (!status)
        status = berth_trace_flush(w.trace);
    berth_trace_release(w.trace);
    free(w.texts);
    free(w.modules);
    free(w.frames);
    free(w.devices);
    return !status
               ? BERTH_OK
               : format_fail(error, status, "the trace cannot be written: %s",
                             status == BERTH_OUT_OF_HOST_MEMORY ? "no memory" : berth_last_error()->message);
}
