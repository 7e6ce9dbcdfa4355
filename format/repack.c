/* A recorded trace made ready to keep. */
#include "format/repack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/pack.h"
#include "format/symbols.h"

struct repack {
    berth_trace_reader *from;
    berth_trace *to;
    const format_repack_options *options;
    format_symbols *symbols;
    uint32_t *texts, *frames, *modules, *devices; /* numbers there, by numbers here */
    uint32_t *symbol_modules;
    berth_status status;
};

/* ---- Definitions ------------------------------------------------------------------------------------- */

static uint32_t define_text(struct repack *r, const char *text)
{
    uint32_t number = 0;
    if (!r->status && text && *text && !r->options->redact)
        r->status = berth_trace_define_text(r->to, text, strlen(text), &number);
    return number;
}

/* What is the system's own tells nothing of its user. */
static uint32_t define_public_text(struct repack *r, const char *text)
{
    uint32_t number = 0;
    if (!r->status && *text)
        r->status = berth_trace_define_text(r->to, text, strlen(text), &number);
    return number;
}

static void define_modules(struct repack *r)
{
    for (uint32_t i = 1; !r->status && i <= berth_trace_module_count(r->from); i++) {
        berth_trace_module m = BERTH_TRACE_MODULE_INIT;
        if (berth_trace_get_module(r->from, i, &m) != BERTH_OK)
            continue;
        const char *path = berth_trace_text(r->from, m.path), *id = berth_trace_text(r->from, m.build_id);
        if (r->options->symbols)
            r->symbol_modules[i] = format_symbols_module(r->symbols, path, id, m.base);
        m.path = define_text(r, path);
        m.build_id = define_public_text(r, id);
        if (!r->status)
            r->status = berth_trace_define_module(r->to, &m, &r->modules[i]);
    }
}

static void define_devices(struct repack *r)
{
    for (uint32_t i = 1; !r->status && i <= berth_trace_device_count(r->from); i++) {
        berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
        if (berth_trace_get_device(r->from, i, &d) != BERTH_OK)
            continue;
        d.name = define_public_text(r, berth_trace_text(r->from, d.name));
        if (!r->status)
            r->status = berth_trace_define_device(r->to, &d, &r->devices[i]);
    }
}

static void define_processes(struct repack *r)
{
    for (uint32_t i = 0; !r->status && i < berth_trace_process_count(r->from); i++) {
        berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
        if (berth_trace_get_process(r->from, i, &p) != BERTH_OK)
            continue;
        p.command = define_text(r, berth_trace_text(r->from, p.command));
        if (r->options->redact)
            p.pid = 0;
        if (!r->status)
            r->status = berth_trace_define_process(r->to, i, &p);
    }
}

static void define_threads(struct repack *r)
{
    for (uint32_t i = 0; !r->options->redact && !r->status && i < berth_trace_thread_count(r->from); i++) {
        berth_trace_thread t = BERTH_TRACE_THREAD_INIT;
        if (berth_trace_get_thread(r->from, i, &t) != BERTH_OK)
            continue;
        t.name = define_text(r, berth_trace_text(r->from, t.name));
        if (!r->status)
            r->status = berth_trace_define_thread(r->to, &t);
    }
}

/* ---- Frames ------------------------------------------------------------------------------------------ */

enum { INLINED_MOST = 64, DEPTH_MOST = 512 };

/* The functions at one address, innermost first. */
struct inlined {
    struct repack *repack;
    berth_trace_frame frames[INLINED_MOST];
    unsigned count;
};

static void take_symbol(void *context, const format_symbol *symbol)
{
    struct inlined *in = context;
    if (in->count == INLINED_MOST)
        return;
    berth_trace_frame *f = &in->frames[in->count++];
    f->function = define_text(in->repack, symbol->function);
    f->file = define_text(in->repack, symbol->file);
    f->line = in->repack->options->redact ? 0 : symbol->line;
}

/* One frame of the recording is as many as were inlined at its address; `caller` has its number there already. */
static uint32_t define_frame(struct repack *r, const berth_trace_frame *was, uint32_t caller)
{
    struct inlined in = {.repack = r};
    /* A return address stands behind the call, perhaps in the next line's or function's first instruction. */
    if (r->options->symbols && was->module && was->module <= berth_trace_module_count(r->from) &&
        was->address)
        format_symbols_find(r->symbols, r->symbol_modules[was->module], was->address - 1, take_symbol, &in);
    if (!in.count) {
        in.count = 1;
        in.frames[0] = *was;
        in.frames[0].function = define_text(r, berth_trace_text(r->from, was->function));
        in.frames[0].file = define_text(r, berth_trace_text(r->from, was->file));
    }
    uint32_t number = caller;
    for (unsigned i = in.count; i-- > 0 && !r->status;) {
        berth_trace_frame f = in.frames[i];
        f.struct_size = sizeof f;
        f.caller = number;
        f.address = was->address;
        f.module = was->module <= berth_trace_module_count(r->from) ? r->modules[was->module] : 0;
        f.is_inlined = i + 1 < in.count || was->is_inlined;
        r->status = berth_trace_define_frame(r->to, &f, &number);
    }
    return number;
}

/* From the outside inward, since a frame names its caller; circles of a damaged file are cut. */
static void define_stack(struct repack *r, uint32_t number)
{
    uint32_t chain[DEPTH_MOST], depth = 0, count = berth_trace_frame_count(r->from);
    berth_trace_frame f = BERTH_TRACE_FRAME_INIT;
    for (uint32_t at = number; at && at <= count && !r->frames[at] && depth < DEPTH_MOST; at = f.caller) {
        if (berth_trace_get_frame(r->from, at, &f) != BERTH_OK)
            break;
        chain[depth++] = at;
    }
    while (depth-- > 0 && !r->status)
        if (berth_trace_get_frame(r->from, chain[depth], &f) == BERTH_OK)
            r->frames[chain[depth]] = define_frame(r, &f, f.caller <= count ? r->frames[f.caller] : 0);
}

/* ---- Events ------------------------------------------------------------------------------------------ */

static void copy_events(struct repack *r, format_progress progress, void *context, format_repacked *out)
{
    enum { PROGRESS_EVERY = 1 << 16 };
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    uint64_t all = berth_trace_event_count(r->from);
    uint32_t texts = berth_trace_text_count(r->from), frames = berth_trace_frame_count(r->from);
    uint32_t devices = berth_trace_device_count(r->from);
    while (!r->status && (r->status = berth_trace_next(r->from, &e)) == BERTH_OK) {
        e.label = e.label <= texts ? r->texts[e.label] : 0;
        e.stack = e.stack <= frames ? r->frames[e.stack] : 0;
        e.device = e.device <= devices ? r->devices[e.device] : 0;
        r->status = berth_trace_write(r->to, &e);
        if (++out->events % PROGRESS_EVERY == 0 && progress)
            progress(context, out->events, all);
    }
    if (r->status == BERTH_NOT_FOUND)
        r->status = BERTH_OK;
}

static uint32_t *numbers(uint32_t count)
{
    return calloc((size_t)count + 1, sizeof(uint32_t));
}

static bool repack_init(struct repack *r)
{
    r->texts = numbers(berth_trace_text_count(r->from));
    r->frames = numbers(berth_trace_frame_count(r->from));
    r->modules = numbers(berth_trace_module_count(r->from));
    r->symbol_modules = numbers(berth_trace_module_count(r->from));
    r->devices = numbers(berth_trace_device_count(r->from));
    r->symbols = format_symbols_create();
    return r->texts && r->frames && r->modules && r->symbol_modules && r->devices && r->symbols;
}

static void repack_all(struct repack *r, format_progress progress, void *context, format_repacked *out)
{
    for (uint32_t i = 1; i <= berth_trace_text_count(r->from); i++)
        r->texts[i] = define_text(r, berth_trace_text(r->from, i));
    define_modules(r);
    define_devices(r);
    define_processes(r);
    define_threads(r);
    for (uint32_t i = 1; !r->status && i <= berth_trace_frame_count(r->from); i++)
        define_stack(r, i);
    copy_events(r, progress, context, out);
    if (!r->status)
        r->status = berth_trace_flush(r->to); /* what it was made from goes then */
    out->processes = berth_trace_process_count(r->from);
    for (size_t i = 0; berth_trace_damage(r->from, i); i++)
        if (out->notices++ == 0)
            snprintf(out->first_notice, sizeof out->first_notice, "%s", berth_trace_damage(r->from, i));
}

berth_status format_repack(const char *from, const char *to, const format_repack_options *options,
                           format_progress progress, void *context, format_repacked *out, format_error *error)
{
    struct repack r = {.options = options};
    berth_trace_options to_options = BERTH_TRACE_OPTIONS_INIT;
    berth_trace_reader_options from_options = BERTH_TRACE_READER_OPTIONS_INIT;
    *out = (format_repacked){0};
    to_options.times_given = true;
    to_options.tick_ns = 16;
    to_options.pack = format_can_pack() ? format_pack : NULL;
    from_options.unpack = format_can_pack() ? format_unpack : NULL;
    r.status = berth_trace_reader_open(from, &from_options, &r.from);
    if (!r.status)
        r.status = berth_trace_create(to, &to_options, &r.to);
    if (!r.status && !repack_init(&r))
        r.status = berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the definitions of %s", from);
    if (!r.status)
        repack_all(&r, progress, context, out);
    if (r.status)
        format_fail(error, r.status, "%s", berth_last_error()->message);
    berth_trace_release(r.to);
    berth_trace_reader_destroy(r.from);
    format_symbols_destroy(r.symbols);
    free(r.texts);
    free(r.frames);
    free(r.modules);
    free(r.symbol_modules);
    free(r.devices);
    return r.status;
}
