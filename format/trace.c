/* A trace as a history. */
#include "format/follow.h"

#include "berth/trace.h"

#include <stdlib.h>
#include <string.h>

#include "format/pack.h"
#include "format/symbols.h"

enum { PROCESSES_MOST = UINT16_MAX }; /* that a history tells apart */

/* The words of the last failure of the library. */
static berth_status trace_fail(format_error *error, berth_status status)
{
    return format_fail(error, status, "%s", berth_last_error()->message);
}

static berth_status trace_open(const char *path, berth_trace_reader **out, format_error *error)
{
    berth_trace_reader_options options = BERTH_TRACE_READER_OPTIONS_INIT;
    options.unpack = format_can_pack() ? format_unpack : NULL;
    berth_status status = berth_trace_reader_open(path, &options, out);
    return !status ? BERTH_OK : trace_fail(error, status);
}

/* ---- Into a history ---------------------------------------------------------------------------------- */

/* The numbers of the trace's definitions in the history. */
struct numbers {
    uint32_t *texts, *frames;
    uint16_t *devices;
    uint32_t text_count, frame_count, device_count;
};

static uint32_t text_of(const struct numbers *n, uint32_t text)
{
    return text <= n->text_count ? n->texts[text] : 0;
}
static uint32_t frame_of(const struct numbers *n, uint32_t frame)
{
    return frame <= n->frame_count ? n->frames[frame] : 0;
}
static uint16_t device_of(const struct numbers *n, uint32_t device)
{
    return device <= n->device_count ? n->devices[device] : 0;
}

static void numbers_finish(struct numbers *n)
{
    free(n->texts);
    free(n->frames);
    free(n->devices);
}

/* One more than `count` elements, of which those from `known` on are 0. */
static bool numbers_extend(void *array, uint32_t known, uint32_t count, size_t bytes)
{
    void **items = array;
    char *grown = realloc(*items, ((size_t)count + 1) * bytes);
    if (!grown)
        return false;
    size_t from = known ? (size_t)known + 1 : 0;
    memset(grown + from * bytes, 0, ((size_t)count + 1 - from) * bytes);
    *items = grown;
    return true;
}

static void take_devices(const berth_trace_reader *r, struct numbers *n, format_history *h)
{
    for (uint32_t i = 1; i <= n->device_count; i++) {
        berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
        if (berth_trace_get_device(r, i, &d) == BERTH_OK)
            n->devices[i] = format_history_device(h, berth_trace_text(r, d.name));
    }
}

/* The module of a frame; zeros for none. */
static berth_trace_module module_of(const berth_trace_reader *r, uint32_t module)
{
    berth_trace_module m = BERTH_TRACE_MODULE_INIT;
    if (!module || berth_trace_get_module(r, module, &m) != BERTH_OK)
        m = (berth_trace_module)BERTH_TRACE_MODULE_INIT;
    return m;
}

/* A caller may have a larger number than who it calls (an inlined frame is split later), and a damaged file may have
 * circles: frames are taken from the outside inward, and what does not end is cut. */
static uint32_t take_frame(const berth_trace_reader *r, struct numbers *n, format_history *h, uint32_t number)
{
    enum { DEPTH_MOST = 512 };
    uint32_t chain[DEPTH_MOST];
    uint32_t depth = 0;
    berth_trace_frame f = BERTH_TRACE_FRAME_INIT;
    for (uint32_t at = number; at && at <= n->frame_count && !n->frames[at] && depth < DEPTH_MOST;
         at = f.caller) {
        if (berth_trace_get_frame(r, at, &f) != BERTH_OK)
            break;
        chain[depth++] = at;
    }
    while (depth-- > 0) {
        if (berth_trace_get_frame(r, chain[depth], &f) != BERTH_OK)
            continue;
        const berth_trace_module m = module_of(r, f.module);
        format_frame frame = {.caller = frame_of(n, f.caller),
                              .function = text_of(n, f.function),
                              .file = text_of(n, f.file),
                              .module = text_of(n, m.path),
                              .line = f.line,
                              .address = f.address,
                              .base = m.base};
        n->frames[chain[depth]] = format_history_frame(h, &frame);
    }
    return n->frames[number];
}

/* All anew: a thread's name may be another one by now. */
static void take_threads(const berth_trace_reader *r, const struct numbers *n, format_history *h)
{
    h->named_count = 0;
    for (uint32_t i = 0; i < berth_trace_thread_count(r); i++) {
        berth_trace_thread t = BERTH_TRACE_THREAD_INIT;
        if (berth_trace_get_thread(r, i, &t) == BERTH_OK && t.process < PROCESSES_MOST && text_of(n, t.name))
            format_history_thread(h, (uint16_t)t.process, t.thread, text_of(n, t.name));
    }
    format_history_threads_sort(h);
}

/* All of them, or those that came since. */
static bool take_definitions(const berth_trace_reader *r, struct numbers *n, format_history *h)
{
    struct numbers was = *n;
    uint32_t texts = berth_trace_text_count(r), frames = berth_trace_frame_count(r);
    uint32_t devices = berth_trace_device_count(r);
    if (!numbers_extend(&n->texts, was.text_count, texts, sizeof *n->texts) ||
        !numbers_extend(&n->frames, was.frame_count, frames, sizeof *n->frames) ||
        !numbers_extend(&n->devices, was.device_count, devices, sizeof *n->devices)) {
        h->no_memory = true;
        return false;
    }
    n->text_count = texts;
    n->frame_count = frames;
    n->device_count = devices;
    for (uint32_t i = was.text_count + 1; i <= n->text_count; i++)
        n->texts[i] = format_history_text(h, berth_trace_text(r, i), strlen(berth_trace_text(r, i)));
    for (uint32_t i = was.frame_count + 1; i <= n->frame_count; i++)
        take_frame(r, n, h, i);
    take_devices(r, n, h);
    for (uint32_t i = 0; i < berth_trace_process_count(r) && i < PROCESSES_MOST; i++) {
        berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
        bool known = berth_trace_get_process(r, i, &p) == BERTH_OK;
        format_history_process(h, (uint16_t)i, known ? text_of(n, p.command) : 0);
    }
    take_threads(r, n, h);
    return !h->no_memory;
}

static void take_event(const struct numbers *n, format_history *h, const berth_trace_event *e)
{
    uint16_t process = (uint16_t)e->process, device = device_of(n, e->device);
    uint32_t stack = frame_of(n, e->stack), label = text_of(n, e->label);
    const berth_trace_picture nothing = BERTH_TRACE_PICTURE_INIT, *p = e->picture ? e->picture : &nothing;
    switch (e->kind) {
    case BERTH_TRACE_ALLOC:
        format_history_alloc(h, &(format_block){.address = e->address,
                                                .size_bytes = e->size_bytes,
                                                .begin_ns = e->time_ns,
                                                .stream = e->stream,
                                                .stack = stack,
                                                .label = label,
                                                .thread = e->thread,
                                                .process = process,
                                                .device = device});
        break;
    case BERTH_TRACE_FREE:
        format_history_free_by(h, process, device, e->address, e->time_ns, e->thread);
        break;
    case BERTH_TRACE_MAP:
        format_history_map(h, &(format_segment){.address = e->address,
                                                .size_bytes = e->size_bytes,
                                                .begin_ns = e->time_ns,
                                                .stack = stack,
                                                .process = process,
                                                .device = device});
        break;
    case BERTH_TRACE_UNMAP:
        format_history_unmap(h, process, device, e->address, e->size_bytes, e->time_ns);
        break;
    case BERTH_TRACE_FAIL:
    case BERTH_TRACE_MARK:
        format_history_moment(h, &(format_moment){.time_ns = e->time_ns,
                                                  .size_bytes = e->size_bytes,
                                                  .waiting_bytes = p->waiting_bytes,
                                                  .hole_bytes = p->free_bytes,
                                                  .largest_hole_bytes = p->largest_bytes,
                                                  .unused_bytes = p->unused_bytes,
                                                  .knows_holes = e->picture != NULL,
                                                  .stack = stack,
                                                  .label = label,
                                                  .process = process,
                                                  .device = device});
        break;
    case BERTH_TRACE_CAPACITY:
        h->devices[device].capacity_bytes = e->size_bytes;
        break;
    case BERTH_TRACE_USE: /* a stream's blocks wait once freed: a refusal's picture tells how many do */
        break;
    }
}

static berth_status take_events(berth_trace_reader *r, const struct numbers *n, format_history *h,
                                format_progress progress, void *context)
{
    enum { PROGRESS_EVERY = 1 << 16 };
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    uint64_t all = berth_trace_event_count(r), done = 0, left_out = 0;
    berth_status status;
    while ((status = berth_trace_next(r, &e)) == BERTH_OK && !h->no_memory) {
        if (e.process < PROCESSES_MOST)
            take_event(n, h, &e);
        else
            left_out++;
        if (progress && ++done % PROGRESS_EVERY == 0)
            progress(context, done, all);
    }
    if (left_out)
        format_history_notice(h, "of processes behind the first %d nothing is told: %llu events",
                              PROCESSES_MOST, (unsigned long long)left_out);
    return status == BERTH_NOT_FOUND ? BERTH_OK : status;
}

berth_status format_trace_read(const char *path, format_history *h, format_progress progress, void *context,
                               format_error *error)
{
    berth_trace_reader *r = NULL;
    struct numbers n = {0};
    bool ready = format_history_begin(h, "trace");
    berth_status status = ready ? trace_open(path, &r, error) : BERTH_OK;
    if (ready && !status && take_definitions(r, &n, h)) {
        status = take_events(r, &n, h, progress, context);
        if (status)
            trace_fail(error, status);
        for (size_t i = 0; berth_trace_damage(r, i); i++)
            format_history_notice(h, "%s", berth_trace_damage(r, i));
    }
    numbers_finish(&n);
    berth_trace_reader_destroy(r);
    format_history_close(h);
    if (!status && (h->no_memory || !ready))
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the blocks of %s", path);
    if (status)
        format_history_finish(h);
    return status;
}

/* ---- Following ---------------------------------------------------------------------------------------- */

struct format_follow {
    berth_trace_reader *reader;
    struct numbers numbers;
    format_history h;
    format_tally *tally;
    uint64_t pid; /* 0: all */
    format_symbols *symbols;
    uint32_t *modules; /* numbers of the trace's in `symbols`, + 1; 0: not looked at */
    uint32_t module_count;
};

/* Of the functions that were inlined at an address the innermost is taken. */
struct named {
    format_history *h;
    uint32_t frame;
    bool done;
};

static void take_symbol(void *context, const format_symbol *symbol)
{
    struct named *n = context;
    if (n->done || !symbol->function)
        return;
    uint32_t function = format_history_text(n->h, symbol->function, strlen(symbol->function));
    uint32_t file = symbol->file ? format_history_text(n->h, symbol->file, strlen(symbol->file)) : 0;
    format_frame *f = &n->h->frames[n->frame];
    f->function = function;
    f->file = file;
    f->line = symbol->line;
    n->done = true;
}

/* The module of the trace in which an address of a process lies; 0: none. */
static uint32_t find_module(const format_follow *f, uint32_t path, uint64_t address)
{
    for (uint32_t i = berth_trace_module_count(f->reader); i > 0; i--) {
        berth_trace_module m = BERTH_TRACE_MODULE_INIT;
        if (berth_trace_get_module(f->reader, i, &m) == BERTH_OK && address >= m.start && address < m.end &&
            text_of(&f->numbers, m.path) == path)
            return i;
    }
    return 0;
}

/* As format_tally.name_frame: a trace that is being recorded has addresses only. */
static void name_frame(void *context, format_history *h, uint32_t frame)
{
    format_follow *f = context;
    struct named named = {.h = h, .frame = frame};
    uint32_t module =
        h->frames[frame].module ? find_module(f, h->frames[frame].module, h->frames[frame].address) : 0;
    if (!module)
        return;
    if (!f->symbols)
        f->symbols = format_symbols_create();
    uint32_t count = berth_trace_module_count(f->reader);
    if (!f->symbols || (count > f->module_count &&
                        !numbers_extend(&f->modules, f->module_count, count, sizeof *f->modules))) {
        h->no_memory = true;
        return;
    }
    f->module_count = count;
    if (!f->modules[module]) {
        berth_trace_module m = BERTH_TRACE_MODULE_INIT;
        (void)berth_trace_get_module(f->reader, module, &m);
        f->modules[module] = 1 + format_symbols_module(f->symbols, berth_trace_text(f->reader, m.path),
                                                       berth_trace_text(f->reader, m.build_id), m.base);
    }
    /* A return address stands behind the call. */
    format_symbols_find(f->symbols, f->modules[module] - 1, h->frames[frame].address - 1, take_symbol,
                        &named);
}

berth_status format_follow_open(const char *path, format_tally *tally, uint64_t pid, format_follow **out,
                                format_error *error)
{
    format_follow *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for following %s", path);
    f->tally = f->h.tally = tally;
    f->pid = pid;
    tally->name_frame = name_frame;
    tally->context = f;
    berth_status status =
        format_history_begin(&f->h, "trace")
            ? trace_open(path, &f->reader, error)
            : format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for following %s", path);
    if (status) {
        format_follow_close(f);
        return status;
    }
    *out = f;
    return BERTH_OK;
}

void format_follow_close(format_follow *f)
{
    if (!f)
        return;
    numbers_finish(&f->numbers);
    berth_trace_reader_destroy(f->reader);
    format_symbols_destroy(f->symbols);
    free(f->modules);
    format_history_finish(&f->h);
    free(f);
}

static bool is_wanted(const format_follow *f, uint32_t process)
{
    berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
    return !f->pid || (berth_trace_get_process(f->reader, process, &p) == BERTH_OK && p.pid == f->pid);
}

berth_status format_follow_more(format_follow *f, format_progress progress, void *context,
                                format_error *error)
{
    enum { PROGRESS_EVERY = 1 << 16 };
    berth_status status = berth_trace_follow(f->reader);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    uint64_t all = berth_trace_event_count(f->reader), done = 0;
    uint32_t last = UINT32_MAX;
    bool wanted = false;
    if (status)
        return trace_fail(error, status);
    if (take_definitions(f->reader, &f->numbers, &f->h))
        while (!f->h.no_memory && (status = berth_trace_next(f->reader, &e)) == BERTH_OK) {
            if (e.process != last) {
                last = e.process;
                wanted = is_wanted(f, last);
            }
            if (wanted && e.process < PROCESSES_MOST)
                take_event(&f->numbers, &f->h, &e);
            if (progress && ++done % PROGRESS_EVERY == 0)
                progress(context, done, all);
        }
    if (f->h.no_memory)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for what is alive in the trace");
    return status == BERTH_NOT_FOUND ? BERTH_OK : trace_fail(error, status);
}

const format_history *format_follow_history(const format_follow *f)
{
    return &f->h;
}

const berth_trace_reader *format_follow_reader(const format_follow *f)
{
    return f->reader;
}
