/* The process that drives one allocator: berth itself, called again, so that a library can be preloaded into it. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "berth/config.h"
#include "berth/source.h"
#include "cli/cli.h"
#include "cli/drive.h"

enum { MALLOC_ALIGNMENT = 16, TILE = 65536, TILES_MOST = 64 };

static bool child_fail(drive_script *s, const char *words)
{
    snprintf(s->result.words, sizeof s->result.words, "%s", words);
    return false;
}

/* ---- Allocators --------------------------------------------------------------------------------------- */

static void *by_malloc(void *self, size_t size_bytes)
{
    (void)self;
    return malloc(size_bytes);
}
static void by_free(void *self, void *p)
{
    (void)self;
    free(p);
}

static void *by_berth(void *self, size_t size_bytes)
{
    void *p = NULL;
    return berth_allocate(self, size_bytes, MALLOC_ALIGNMENT, NULL, &p) == BERTH_OK ? p : NULL;
}
static void by_berth_free(void *self, void *p)
{
    berth_deallocate(self, p, 0, NULL);
}

static void *by_nobody(void *self, size_t size_bytes)
{
    (void)size_bytes;
    return self;
}
static void by_nobody_free(void *self, void *p)
{
    (void)self;
    (void)p;
}

/* As many addresses as the largest block has, of a few pages that come again and again: the driver can write to them, and nobody pays for
 * memory. NULL: it cannot be had. */
static void *scratch_map(uint64_t largest_bytes)
{
    uint64_t tile = TILE;
    while (tile * TILES_MOST < largest_bytes)
        tile *= 2;
    const uint64_t count = largest_bytes / tile + 1;
    const int file = memfd_create("berth scratch", MFD_CLOEXEC);
    char *room = mmap(NULL, count * tile, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool done = file >= 0 && room != MAP_FAILED && ftruncate(file, (off_t)tile) == 0;
    for (uint64_t i = 0; done && i < count; i++)
        done = mmap(room + i * tile, tile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                    file, 0) != MAP_FAILED;
    if (file >= 0)
        close(file);
    return done ? room : NULL;
}

static bool use_empty(drive_script *s, drive_ops *ops)
{
    ops->allocate = by_nobody;
    ops->deallocate = by_nobody_free;
    for (uint32_t i = 0; i < s->lane_count; i++) {
        ops->selves[i] = scratch_map(s->largest_bytes);
        if (!ops->selves[i])
            return child_fail(s, "no memory for the driver");
    }
    return true;
}

/* Whether malloc is the library's: a loader that cannot preload says so and goes on without it. */
static bool use_malloc(drive_script *s, drive_ops *ops, const char *library)
{
    Dl_info about;
    struct stat wanted, there;
    *ops = (drive_ops){.allocate = by_malloc, .deallocate = by_free};
    if (!library)
        return true;
    void *found = dlsym(RTLD_DEFAULT, "malloc");
    if (!found || !dladdr(found, &about) || stat(library, &wanted) != 0 ||
        stat(about.dli_fname, &there) != 0 || wanted.st_dev != there.st_dev || wanted.st_ino != there.st_ino)
        return child_fail(s, "the library was not loaded, or malloc is not in it");
    return true;
}

static bool use_berth(drive_script *s, drive_ops *ops, const char *settings)
{
    berth_allocator *a = settings ? NULL : berth_cpu_allocator();
    ops->allocate = by_berth;
    ops->deallocate = by_berth_free;
    if (settings && berth_stack_create(settings, NULL, &a) != BERTH_OK)
        return child_fail(s, berth_last_error()->message);
    for (uint32_t i = 0; i < s->lane_count; i++)
        ops->selves[i] = a;
    return true;
}

static bool use_allocator(drive_script *s, drive_ops *ops, drive_kind kind, const char *value)
{
    switch (kind) {
    case DRIVE_EMPTY:
        return use_empty(s, ops);
    case DRIVE_MALLOC:
        return use_malloc(s, ops, NULL);
    case DRIVE_LIBRARY:
        return use_malloc(s, ops, value);
    case DRIVE_BERTH:
        return use_berth(s, ops, NULL);
    case DRIVE_SETTINGS:
        return use_berth(s, ops, value);
    }
    return child_fail(s, "no such kind of allocator");
}

/* ---- System calls ------------------------------------------------------------------------------------- */

static bool nothing_before(drive_script *s)
{
    (void)s;
    return true;
}
static void nothing_after(void)
{
}

/* From here on each system call stops us until the parent has counted it, in all threads. Yielding is the driver's own way to wait. */
static bool filter_calls(drive_script *s)
{
    /* As <linux/filter.h> and <linux/seccomp.h> have it, which come with no C library. */
    enum { LOAD_WORD = 0x20, JUMP_IF_EQUAL = 0x15, RETURN = 0x06, SET_MODE_FILTER = 1, ALL_THREADS = 1 };
    static const uint32_t allow = 0x7fff0000, trace = 0x7ff00000, number_at = 0;
    struct step {
        uint16_t code;
        uint8_t if_true, if_false;
        uint32_t value;
    } steps[] = {{LOAD_WORD, 0, 0, number_at},
                 {JUMP_IF_EQUAL, 0, 1, SYS_sched_yield},
                 {RETURN, 0, 0, allow},
                 {RETURN, 0, 0, trace}};
    const struct {
        unsigned short count;
        const struct step *steps;
    } filter = {sizeof steps / sizeof steps[0], steps};
    s->result.is_filtered = true; /* told before: the next call is counted */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SET_MODE_FILTER, ALL_THREADS, &filter) == 0)
        return true;
    s->result.is_filtered = false;
    return child_fail(s, "the system does not let us count system calls (seccomp)");
}

static void mark_end(void)
{
    (void)syscall(SYS_getpgid, DRIVE_MARK);
}

/* ---- The process -------------------------------------------------------------------------------------- */

int drive_main(int argc, char **argv)
{
    static drive_ops ops;
    struct stat about;
    if (argc != 6)
        return CLI_MISUSE;
    const int file = atoi(argv[2]);
    const bool counts = atoi(argv[3]) != 0;
    if (fstat(file, &about) != 0 || about.st_size < (off_t)sizeof(drive_script))
        return CLI_MISUSE;
    drive_script *s =
        mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (s == MAP_FAILED)
        return CLI_SURROUNDINGS;
    bool done =
        use_allocator(s, &ops, (drive_kind)atoi(argv[4]), argv[5]) &&
        drive_lanes(s, &ops, counts ? filter_calls : nothing_before, counts ? mark_end : nothing_after);
    s->result.done = done;
    _exit(done ? CLI_OK : CLI_SURROUNDINGS); /* what the allocator would do at the end is no part of it */
}
