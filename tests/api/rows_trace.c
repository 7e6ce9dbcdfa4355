/* Rows of trace.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

static char trace_file[64];

static const char *new_trace_file(void)
{
    if (!trace_file[0])
        snprintf(trace_file, sizeof trace_file, "/tmp/berth-api-%d.trace", (int)getpid());
    return trace_file;
}
__attribute__((destructor)) static void remove_trace_file(void)
{
    if (trace_file[0])
        unlink(trace_file);
}

/* NULL or a trace that the row releases. */
static berth_trace *pick_trace(void)
{
    berth_trace *trace = NULL;
    if (api_bool())
        api_answer(berth_trace_create(new_trace_file(), NULL, &trace));
    return trace;
}

static berth_trace_reader *pick_reader(void)
{
    berth_trace_reader *reader = NULL;
    if (!api_bool())
        return NULL;
    berth_trace *trace = NULL;
    berth_trace_event event = BERTH_TRACE_EVENT_INIT;
    uint32_t number;
    api_answer(berth_trace_create(new_trace_file(), NULL, &trace));
    api_answer(berth_trace_define_text(trace, "text", 4, &number));
    api_answer(berth_trace_write(trace, &event));
    berth_trace_release(trace);
    api_answer(berth_trace_reader_open(new_trace_file(), NULL, &reader));
    return reader;
}

static uint32_t pick_number(void)
{
    static const uint32_t numbers[] = {0, 1, 2, UINT32_MAX};
    return PICK(numbers);
}

static uint32_t *pick_place(void)
{
    static uint32_t place;
    return api_bool() ? &place : NULL;
}

ROW(berth_trace_create)
{
    berth_trace_options options = {api_struct_size(sizeof options), api_bool(), pick_number(), NULL, NULL};
    const char *path = api_bool() ? new_trace_file() : api_path();
    GIVES(berth_trace_create(path, api_bool() ? &options : NULL, OUT(trace)),
          berth_trace_release(api_out.trace));
}

ROW(berth_trace_retain)
{
    berth_trace *trace = pick_trace();
    api_check(berth_trace_retain(trace) == trace, "retain answers its argument");
    berth_trace_release(trace);
    berth_trace_release(trace);
}

ROW(berth_trace_release)
{
    berth_trace_release(pick_trace());
}

ROW(berth_trace_write)
{
    static berth_trace *open_trace; /* one for all combinations: making a file takes its time */
    if (!open_trace)
        api_answer(berth_trace_create(new_trace_file(), NULL, &open_trace));
    berth_trace *trace = api_bool() ? berth_trace_retain(open_trace) : NULL;
    berth_trace_event event = BERTH_TRACE_EVENT_INIT;
    event.struct_size = api_struct_size(sizeof event);
    event.kind = (berth_trace_kind)api_enum();
    event.address = event.size_bytes = api_size();
    event.stack = pick_number();
    api_answer(berth_trace_write(trace, api_bool() ? &event : NULL));
    berth_trace_release(trace);
}

ROW(berth_trace_pause)
{
    berth_trace *trace = pick_trace();
    api_answer(berth_trace_pause(api_bool() ? new_trace_file() : api_path(), api_bool()));
    berth_trace_release(trace);
}

ROW(berth_trace_define_text)
{
    berth_trace *trace = pick_trace();
    api_answer(
        berth_trace_define_text(trace, api_bool() ? "some text" : NULL, api_bool() ? 9 : 0, pick_place()));
    berth_trace_release(trace);
}

ROW(berth_trace_define_frame)
{
    berth_trace *trace = pick_trace();
    berth_trace_frame frame = BERTH_TRACE_FRAME_INIT;
    frame.struct_size = api_struct_size(sizeof frame);
    frame.caller = pick_number();
    api_answer(berth_trace_define_frame(trace, api_bool() ? &frame : NULL, pick_place()));
    berth_trace_release(trace);
}

ROW(berth_trace_define_device)
{
    berth_trace *trace = pick_trace();
    berth_trace_device device = BERTH_TRACE_DEVICE_INIT;
    device.struct_size = api_struct_size(sizeof device);
    api_answer(berth_trace_define_device(trace, api_bool() ? &device : NULL, pick_place()));
    berth_trace_release(trace);
}

ROW(berth_trace_define_module)
{
    berth_trace *trace = pick_trace();
    berth_trace_module module = BERTH_TRACE_MODULE_INIT;
    module.struct_size = api_struct_size(sizeof module);
    api_answer(berth_trace_define_module(trace, api_bool() ? &module : NULL, pick_place()));
    berth_trace_release(trace);
}

ROW(berth_trace_define_process)
{
    berth_trace *trace = pick_trace();
    berth_trace_process process = BERTH_TRACE_PROCESS_INIT;
    process.struct_size = api_struct_size(sizeof process);
    api_answer(berth_trace_define_process(trace, pick_number(), api_bool() ? &process : NULL));
    berth_trace_release(trace);
}

ROW(berth_trace_define_thread)
{
    berth_trace *trace = pick_trace();
    berth_trace_thread thread = BERTH_TRACE_THREAD_INIT;
    thread.struct_size = api_struct_size(sizeof thread);
    thread.thread = pick_number();
    api_answer(berth_trace_define_thread(trace, api_bool() ? &thread : NULL));
    berth_trace_release(trace);
}

ROW(berth_trace_flush)
{
    berth_trace *trace = pick_trace();
    api_answer(berth_trace_flush(trace));
    berth_trace_release(trace);
}

ROW(berth_snapshot_write)
{
    api_answer(
        berth_snapshot_write(api_bool() ? api_system : NULL, api_bool() ? new_trace_file() : api_path()));
}

ROW(berth_trace_allocator_create)
{
    berth_trace *trace = pick_trace();
    void *p;
    GIVES(berth_trace_allocator_create(api_bool() ? api_system : NULL, trace, api_bool() ? 3 : UINT32_MAX,
                                       OUT(allocator)),
          {
              if (berth_allocate(api_out.allocator, 100, 64, NULL, &p) == BERTH_OK)
                  api_answer(berth_deallocate(api_out.allocator, p, 0, NULL));
              berth_allocator_release(api_out.allocator);
          });
    berth_trace_release(trace);
}

ROW(berth_trace_reader_open)
{
    berth_trace_reader_options options = {api_struct_size(sizeof options), NULL, NULL};
    berth_trace_reader_destroy(pick_reader());
    const char *path = api_bool() ? new_trace_file() : api_path();
    GIVES(berth_trace_reader_open(path, api_bool() ? &options : NULL, OUT(trace_reader)),
          berth_trace_reader_destroy(api_out.trace_reader));
}

ROW(berth_trace_reader_destroy)
{
    berth_trace_reader_destroy(pick_reader());
}

ROW(berth_trace_next)
{
    berth_trace_reader *reader = pick_reader();
    berth_trace_event event = BERTH_TRACE_EVENT_INIT;
    event.struct_size = api_struct_size(sizeof event);
    for (int i = 0; i < 3; i++)
        (void)berth_trace_next(reader, api_bool() ? &event : NULL);
    berth_trace_reader_destroy(reader);
}

ROW(berth_trace_rewind)
{
    berth_trace_reader *reader = pick_reader();
    berth_trace_rewind(reader);
    berth_trace_reader_destroy(reader);
}

ROW(berth_trace_follow)
{
    berth_trace_reader *reader = pick_reader();
    api_answer(berth_trace_follow(reader));
    berth_trace_reader_destroy(reader);
}

/* What is asked of a reader and a number; a reader that is none has nothing. */
#define ASK(function, call)                         \
    ROW(function)                                   \
    {                                               \
        berth_trace_reader *reader = pick_reader(); \
        (void)(call);                               \
        berth_trace_reader_destroy(reader);         \
    }

ASK(berth_trace_event_count, berth_trace_event_count(reader))
ASK(berth_trace_damage, berth_trace_damage(reader, api_size()))
ASK(berth_trace_text, berth_trace_text(reader, pick_number())[0])
ASK(berth_trace_text_count, berth_trace_text_count(reader))
ASK(berth_trace_frame_count, berth_trace_frame_count(reader))
ASK(berth_trace_module_count, berth_trace_module_count(reader))
ASK(berth_trace_device_count, berth_trace_device_count(reader))
ASK(berth_trace_process_count, berth_trace_process_count(reader))
ASK(berth_trace_thread_count, berth_trace_thread_count(reader))

#define GET(what)                                                                            \
    ROW(berth_trace_get_##what)                                                              \
    {                                                                                        \
        berth_trace_reader *reader = pick_reader();                                          \
        berth_trace_##what got = {.struct_size = api_struct_size(sizeof got)};               \
        api_answer(berth_trace_get_##what(reader, pick_number(), api_bool() ? &got : NULL)); \
        berth_trace_reader_destroy(reader);                                                  \
    }

GET(frame)
GET(module)
GET(device)
GET(process)
GET(thread)
