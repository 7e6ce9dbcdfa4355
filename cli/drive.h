/* Driving an allocator with what a program did: each allocation and free of a recording, on as many threads as it had, in a process of
 * its own.
 *
 *     history -> script (in shared memory) -> a child for each allocator and run -> result (in the script)
 *
 * The driver itself allocates nothing while it runs: the script is ready before, and pointers go into a table. Each thread does its own
 * events in their order. A free waits for the allocation, if that is another thread's; and no thread runs ahead of the others by more than
 * three stretches of DRIVE_STRETCH events, so that what is alive at once stays about what it was. */
#ifndef BERTH_CLI_DRIVE_H
#define BERTH_CLI_DRIVE_H

#include "format/history.h"

enum { DRIVE_STRETCH = 1024, DRIVE_LANES_MOST = 256, DRIVE_WORDS = 512 };

/* What came of one run. */
typedef struct drive_result {
    uint64_t wall_ns, cpu_ns;        /* from the first event to the last; of all threads */
    uint64_t base_bytes, peak_bytes; /* resident before the first event, and at most */
    uint64_t failures;               /* allocations that were refused */
    bool done;
    bool is_filtered;        /* system calls are told to the parent */
    char words[DRIVE_WORDS]; /* why it is not done */
} drive_result;

/* The events of one thread: parts of them lie in one stretch each. */
typedef struct drive_lane {
    uint64_t first_event, first_part;
    uint32_t part_count;
} drive_lane;

typedef struct drive_part {
    uint32_t stretch, event_count;
} drive_part;

/* At the beginning of the shared memory; arrays follow at the offsets. */
typedef struct drive_script {
    uint64_t size_bytes;
    uint64_t event_count, live_bytes, largest_bytes; /* live: the peak of what was asked for */
    uint64_t lanes, parts, events, sizes,
        lefts; /* offsets of drive_lane, drive_part, uint32_t, uint64_t, uint32_t */
    uint32_t lane_count, block_count, stretch_count;
    bool touches;
    drive_result result;
} drive_script;

/* Makes the script of a device's blocks in the process that has the most of them; *file is its shared memory, which the caller closes after
 * unmapping. `thread_count` is how many threads the recording had. NULL: no memory. */
drive_script *drive_script_create(const format_history *h, uint16_t device, uint16_t process, bool touches,
                                  uint32_t *thread_count, int *file);
void drive_script_destroy(drive_script *script, int file);

/* The process of a device with the most blocks, and how many processes have any. */
uint16_t drive_main_process(const format_history *h, uint16_t device, uint32_t *process_count);

/* ---- Allocators --------------------------------------------------------------------------------------- */

typedef enum drive_kind {
    DRIVE_EMPTY,    /* hands out the same memory again and again: what is measured is the driver */
    DRIVE_MALLOC,   /* the C library's */
    DRIVE_LIBRARY,  /* malloc of a library that is preloaded */
    DRIVE_BERTH,    /* berth_cpu_allocator */
    DRIVE_SETTINGS, /* a stack of Berth's, as BERTH_CONF describes it */
} drive_kind;

typedef struct drive_allocator {
    drive_kind kind;
    const char *name;  /* for people */
    const char *value; /* the library's path, the settings */
} drive_allocator;

/* ---- Parent ------------------------------------------------------------------------------------------- */

/* System calls of the events alone. */
typedef struct drive_calls {
    uint64_t all, memory; /* memory: mmap, munmap, mremap, brk, madvise, mprotect */
    bool is_known;
} drive_calls;

/* Runs the script once; script->result says what came of it. With `calls`, counts system calls, for which the child is stopped at each:
 * its times mean nothing then. False: the child could not be started or died; result.words says why. */
bool drive_run(drive_script *script, int file, const drive_allocator *allocator, drive_calls *calls);

/* ---- Child -------------------------------------------------------------------------------------------- */

/* The command calls itself with this word first, so that a library can be preloaded. */
#define DRIVE_WORD "--drive"
enum { DRIVE_MARK = 0x6265 }; /* asked as a process group: the events are over */
/* argv: berth --drive FILE COUNTS KIND VALUE. The exit code. */
int drive_main(int argc, char **argv);

/* Runs all lanes on `script` with one allocator, which gives and takes blocks by these. */
typedef struct drive_ops {
    void *(*allocate)(void *self, size_t size_bytes);
    void (*deallocate)(void *self, void *p);
    void *selves[DRIVE_LANES_MOST]; /* by lane */
} drive_ops;
/* `before` is called when everything is ready. False with result.words. */
bool drive_lanes(drive_script *script, const drive_ops *ops, bool (*before)(drive_script *script),
                 void (*after)(void));

static inline const void *drive_at(const drive_script *script, uint64_t offset)
{
    return (const char *)script + offset;
}

#endif
