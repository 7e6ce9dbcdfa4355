/* A table with one row for each function of the public API. A row calls its function with every combination of
 * good, missing, zero, huge, misaligned and unknown arguments; what it must never do is crash. */
#ifndef BERTH_TESTS_API_H
#define BERTH_TESTS_API_H

#include <stdint.h>

#include "berth/berth.h"
#include "berth/problem_file.h"

typedef struct api_row {
    const char *name;
    void (*call)(void);
    struct api_row *next;
} api_row;

void api_add(api_row *row);

/* One row: ROW(berth_something) { ... } */
#define ROW(function)                                                    \
    static void row_##function(void);                                    \
    static api_row entry_##function = {#function, row_##function, NULL}; \
    __attribute__((constructor)) static void add_##function(void)        \
    {                                                                    \
        api_add(&entry_##function);                                      \
    }                                                                    \
    static void row_##function(void)

/* One of `count` choices. The row is called again until it has seen every combination of all its picks. */
size_t api_pick(size_t count);
#define PICK(values) ((values)[api_pick(sizeof(values) / sizeof *(values))])

/* Fails the test, naming the row and the combination, unless `holds`. */
void api_check(bool holds, const char *what);
/* The status is one of ours, and a failure left words. */
void api_answer(berth_status status);

/* ---- What arguments may be ------------------------------------------------------------------------- */

size_t api_size(void);      /* 0, small, odd, larger than any memory, SIZE_MAX */
size_t api_alignment(void); /* good, 0, no power of two, too large */
bool api_bool(void);
berth_device api_device(void);        /* good, unknown kinds, ordinals out of range */
int32_t api_enum(void);               /* small ones, negative, huge */
berth_allocator *api_allocator(void); /* NULL or one of every sort */
void *
api_pointer(berth_allocator *allocator); /* NULL, never mapped, foreign, misaligned, inside a block of it */
berth_stream *api_stream(void);          /* NULL, of the CPU, of a virtual device */
berth_event *api_event(void);
const berth_request *api_request(void); /* NULL, good, short, unknown flags */
size_t api_struct_size(size_t right);   /* right, 0, 1, SIZE_MAX */
const char *api_path(void);             /* NULL, "", a folder, in a folder that is not there */

/* Small memory that is nobody's block, for arguments that are written to. */
extern _Alignas(64) char api_memory[256];

/* One that the row may spoil: it is made anew for each row. */
extern berth_allocator *api_cache;   /* a host cache */
extern berth_allocator *api_planned; /* a planned allocator */
extern berth_allocator *api_system;
extern berth_device api_virtual;
extern berth_plan *api_plan;
extern berth_plan_cache *api_plan_cache;

/* ---- Results --------------------------------------------------------------------------------------- */

typedef union api_result {
    void *any;
    void *block;
    berth_allocator *allocator;
    berth_buffer *buffer;
    berth_budget *budget;
    berth_stream *stream;
    berth_event *event;
    berth_plan *plan;
    berth_plan_cache *plan_cache;
    berth_problem_file *file;
    berth_virtual_state *state;
    berth_trace *trace;
    berth_trace_reader *trace_reader;
    berth_shared *shared;
} api_result;

extern api_result api_out;
extern bool api_out_given;
extern char api_poison;

/* NULL, or a place for a result. */
#define OUT(member) (api_pick(2) ? (api_out_given = true, api_out.any = &api_poison, &api_out.member) : NULL)

/* A pointer result is NULL on failure and written on success; then `release` gets it. */
#define GIVES(call, release)                                                      \
    do {                                                                          \
        api_out_given = false;                                                    \
        berth_status gives_ = (call);                                             \
        api_answer(gives_);                                                       \
        if (!api_out_given)                                                       \
            break;                                                                \
        api_check(api_out.any != &api_poison, "the result was not written");      \
        api_check(gives_ == BERTH_OK || !api_out.any, "a failure left a result"); \
        if (gives_ == BERTH_OK && api_out.any) {                                  \
            release;                                                              \
        }                                                                         \
    } while (0)

#endif
