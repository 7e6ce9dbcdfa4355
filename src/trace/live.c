/* A trace file that is written in place. */
#include "trace/live.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIVE_FILE_FROM = 900 }; /* descriptors that programs do not count on */

/* ---- The file -------------------------------------------------------------------------------------- */

/* Away from the small numbers, which programs take for granted. */
static int live_move_up(int file)
{
    int moved = fcntl(file, F_DUPFD_CLOEXEC, LIVE_FILE_FROM);
    if (moved < 0)
        return file;
    close(file);
    return moved;
}

static int live_map_header(berth__trace_live *live)
{
    struct stat s;
    void *page = mmap(NULL, BERTH__TRACE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, live->file, 0);
    if (page == MAP_FAILED || fstat(live->file, &s)) {
        int code = errno;
        if (page != MAP_FAILED)
            munmap(page, BERTH__TRACE_PAGE);
        return code;
    }
    live->device = s.st_dev;
    live->inode = s.st_ino;
    live->header = page;
    return 0;
}

static int live_open_file(berth__trace_live *live, const char *path)
{
    *live = (berth__trace_live){.path = path, .file = open(path, O_RDWR | O_CLOEXEC)};
    if (live->file < 0)
        return errno;
    live->file = live_move_up(live->file);
    return 0;
}

/* ---- Who writes ------------------------------------------------------------------------------------ */

/* The lock belongs to the open file: the kernel drops it with the last descriptor, however a process ends. Everyone who writes
 * shares it; who begins anew must have it alone. Where a file system knows no locks there are none. */
static int live_lock(int file, short type)
{
    struct flock first = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(file, F_OFD_SETLK, &first) == 0 || (errno != EAGAIN && errno != EACCES))
        return 0;
    return EBUSY;
}

/* Another process may have removed the file between opening and locking it: then nobody finds what we write. */
static bool live_is_there(int file, const char *path)
{
    struct stat opened, named;
    return fstat(file, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

static bool live_is_ordinary(int file)
{
    struct stat s;
    return fstat(file, &s) == 0 && S_ISREG(s.st_mode);
}

int berth__trace_open_alone(const char *path, int flags, int *out)
{
    enum { TRIES = 16 };
    for (int i = 0; i < TRIES; i++) {
        int file = open(path, flags | O_CREAT | O_CLOEXEC, 0644), code = 0;
        if (file < 0)
            return errno;
        if (live_is_ordinary(file)) {
            code = live_lock(file, F_WRLCK);
            if (!code && !live_is_there(file, path)) {
                close(file);
                continue;
            }
            if (!code && ftruncate(file, 0))
                code = errno;
        }
        if (code)
            close(file);
        else
            *out = file;
        return code;
    }
    return EBUSY;
}

void berth__trace_live_release(berth__trace_live *live)
{
    struct stat s;
    if (live->file < 0 || fstat(live->file, &s))
        return;
    if (!live->header ||
        (s.st_dev == live->device && s.st_ino == live->inode)) /* the program's own by now? */
        (void)live_lock(live->file, F_UNLCK);
}

/* ---- Making and opening ---------------------------------------------------------------------------- */

int berth__trace_live_create(berth__trace_live *live, const char *path)
{
    *live = (berth__trace_live){.path = path, .file = -1};
    int code = berth__trace_open_alone(path, O_RDWR, &live->file);
    if (code)
        return code;
    live->file = live_move_up(live->file);
    code = posix_fallocate(live->file, 0, BERTH__TRACE_PAGE);
    if (!code)
        code = live_map_header(live);
    if (code) {
        berth__trace_live_close(live);
        return code;
    }
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    berth__trace_file_header *h = live->header;
    h->version = BERTH__TRACE_VERSION;
    h->header_bytes = BERTH__TRACE_PAGE;
    h->tick = berth__trace_tick();
    h->clock_ns = berth__trace_clock_ns();
    h->wall_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
    atomic_store_explicit(&h->end, BERTH__TRACE_PAGE, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    h->magic = BERTH__TRACE_MAGIC;
    (void)live_lock(live->file, F_RDLCK); /* others may join in from now on */
    return 0;
}

int berth__trace_live_open(berth__trace_live *live, const char *path, bool writes)
{
    struct stat s;
    int code = live_open_file(live, path);
    if (code)
        return code;
    if (writes && live_lock(live->file, F_RDLCK)) {
        berth__trace_live_close(live);
        return EBUSY; /* somebody is beginning it anew */
    }
    if (fstat(live->file, &s) || s.st_size < BERTH__TRACE_PAGE)
        code = EINVAL;
    else
        code = live_map_header(live);
    if (!code && (live->header->magic != BERTH__TRACE_MAGIC ||
                  live->header->version != BERTH__TRACE_VERSION || live->header->flags & 1))
        code = EINVAL;
    if (code)
        berth__trace_live_close(live);
    return code;
}

void berth__trace_live_close(berth__trace_live *live)
{
    if (live->header)
        munmap(live->header, BERTH__TRACE_PAGE);
    if (live->file >= 0)
        close(live->file);
    *live = (berth__trace_live){.file = -1};
}

/* The descriptor may be closed by now, or be another file's. */
static int live_file(berth__trace_live *live)
{
    struct stat s;
    if (live->file >= 0 && fstat(live->file, &s) == 0 && s.st_dev == live->device && s.st_ino == live->inode)
        return live->file;
    int file = open(live->path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return -1;
    if (fstat(file, &s) || s.st_dev != live->device || s.st_ino != live->inode) {
        close(file);
        errno = ESTALE;
        return -1;
    }
    live->file = live_move_up(file);
    (void)live_lock(live->file, F_RDLCK); /* closing the old descriptor has dropped it */
    return live->file;
}

/* ---- Chunks ---------------------------------------------------------------------------------------- */

uint64_t berth__trace_header_checksum(const berth__trace_chunk_header *h)
{
    berth__trace_chunk_header fixed = *h;
    atomic_store_explicit(&fixed.used, 0, memory_order_relaxed);
    fixed.stored_bytes = 0;
    fixed.payload_checksum = 0;
    fixed.header_checksum = 0;
    return berth__trace_checksum(&fixed, sizeof fixed);
}

void berth__trace_chunk_head(berth__trace_chunk_header *h, uint32_t type, uint32_t process, uint32_t thread,
                             uint32_t sequence, uint32_t room_bytes)
{
    /* Who reads meanwhile sees no chunk until it is whole: never the rows of the last one under the name of this one. */
    h->header_checksum = 0;
    atomic_thread_fence(memory_order_release);
    h->type = (uint8_t)type;
    h->codec = BERTH__TRACE_PLAIN;
    h->header_bytes = sizeof *h;
    h->room_bytes = room_bytes;
    h->process = process;
    h->thread = thread;
    h->sequence = sequence;
    h->stored_bytes = 0;
    h->tick = berth__trace_tick();
    h->clock_ns = berth__trace_clock_ns();
    h->tick_first = h->tick;
    atomic_store_explicit(&h->used, 0, memory_order_relaxed);
    h->payload_checksum = 0;
    h->magic = BERTH__TRACE_CHUNK_MAGIC;
    uint64_t checksum = berth__trace_header_checksum(h);
    atomic_thread_fence(memory_order_release);
    h->header_checksum = checksum;
    atomic_thread_fence(memory_order_release); /* before any row */
}

/* The next place in the file for a chunk of this size. False: the process may not write files so long, and would get a signal
 * (SIGXFSZ) for trying. */
static bool live_place(berth__trace_live *live, uint64_t *place)
{
    struct rlimit most;
    *place = atomic_fetch_add_explicit(&live->header->end, BERTH__TRACE_CHUNK_BYTES, memory_order_relaxed);
    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
           (most.rlim_cur >= BERTH__TRACE_CHUNK_BYTES && *place <= most.rlim_cur - BERTH__TRACE_CHUNK_BYTES);
}

static void chunk_start(berth__trace_chunk *chunk, uint32_t type, uint32_t process, uint32_t thread,
                        uint32_t sequence)
{
    berth__trace_chunk_head(chunk->header, type, process, thread, sequence, BERTH__TRACE_CHUNK_BYTES);
    chunk->at = (unsigned char *)(chunk->header + 1);
    chunk->end = (unsigned char *)chunk->header + BERTH__TRACE_CHUNK_BYTES;
    chunk->events = 0;
    berth__trace_state_begin(&chunk->state, chunk->header->tick_first);
}

static int chunk_map(berth__trace_live *live, berth__trace_chunk *chunk)
{
    uint64_t place;
    int file = live_file(live);
    if (file < 0)
        return errno;
    if (!live_place(live, &place))
        return EFBIG;
    /* With its blocks on the disk: a store into a hole of a full disk would be a SIGBUS. */
    int code = posix_fallocate(file, (off_t)place, BERTH__TRACE_CHUNK_BYTES);
    if (code)
        return code;
    void *pages =
        mmap(NULL, BERTH__TRACE_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)place);
    if (pages == MAP_FAILED)
        return errno;
    chunk->header = pages;
    return 0;
}

int berth__trace_chunk_begin(berth__trace_live *live, berth__trace_chunk *chunk, uint32_t type,
                             uint32_t process, uint32_t thread)
{
    int cancel;
    chunk->header = NULL;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int code = chunk_map(live, chunk);
    pthread_setcancelstate(cancel, NULL);
    if (chunk->header) /* where code is 0 */
        chunk_start(chunk, type, process, thread, 0);
    return code;
}

/* Makes the header of a chunk that nothing is added to any more. */
static void chunk_finish_header(const berth__trace_chunk *chunk, berth__trace_chunk_header *h)
{
    h->stored_bytes = (uint32_t)(chunk->at - (unsigned char *)(chunk->header + 1));
    h->tick = berth__trace_tick(); /* a later moment tells better how long ticks are */
    h->clock_ns = berth__trace_clock_ns();
    h->header_checksum = berth__trace_header_checksum(h);
    h->payload_checksum = berth__trace_checksum(chunk->header + 1, h->stored_bytes);
}

static int write_at(int file, const void *bytes, size_t size_bytes, uint64_t place)
{
    for (const char *at = bytes; size_bytes;) {
        ssize_t written = pwrite(file, at, size_bytes, (off_t)place);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : ENOSPC;
        at += written;
        place += (uint64_t)written;
        size_bytes -= (size_t)written;
    }
    return 0;
}

static int chunk_copy(berth__trace_live *live, const berth__trace_chunk *chunk)
{
    uint64_t place;
    int file = live_file(live);
    if (file < 0)
        return errno;
    if (!live_place(live, &place))
        return EFBIG;
    berth__trace_chunk_header finished = *chunk->header;
    chunk_finish_header(chunk, &finished);
    /* The header last: a copy that is cut off is none, and what the map holds still counts. */
    int code = write_at(file, chunk->header + 1, finished.stored_bytes, place + sizeof finished);
    return code ? code : write_at(file, &finished, sizeof finished, place);
}

/* Mapping a new part of the file for every chunk would cost four times as much as copying it there: the pages of a file are
 * made one by one, with the file system's journal behind them. */
int berth__trace_chunk_turn(berth__trace_live *live, berth__trace_chunk *chunk)
{
    const berth__trace_chunk_header *h = chunk->header;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int code = chunk_copy(live, chunk);
    pthread_setcancelstate(cancel, NULL);
    if (!code)
        chunk_start(chunk, h->type, h->process, h->thread, h->sequence + 1);
    return code;
}

void berth__trace_chunk_end(berth__trace_chunk *chunk)
{
    berth__trace_chunk_header *h = chunk->header;
    if (!h)
        return;
    berth__trace_chunk_publish(chunk);
    chunk_finish_header(chunk, h);
    munmap(h, BERTH__TRACE_CHUNK_BYTES);
    chunk->header = NULL;
}

bool berth__trace_thread_renamed(char name[BERTH__TRACE_THREAD_NAME])
{
    char now[BERTH__TRACE_THREAD_NAME] = {0};
    if (prctl(PR_GET_NAME, now) != 0 || !now[0] || strncmp(now, name, sizeof now) == 0)
        return false;
    memcpy(name, now, sizeof now);
    return true;
}
