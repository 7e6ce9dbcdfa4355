/* What shared arenas ask of Linux: sealed memory without a name, locks that end with their holder, and sleeping on a word that
 * other processes change. Elsewhere everything answers ENOSYS. */
#include <errno.h>
#include <string.h>

#include "shared/shared.h"

berth_status(berth__shared_refused)(const char *what)
{
    int code = errno;
    berth_status status = code == ENOMEM || code == ENOSPC   ? BERTH_OUT_OF_HOST_MEMORY
                          : code == ENOSYS || code == ENOENT ? BERTH_UNSUPPORTED
                                                             : BERTH_IO;
    return berth__fail(status, "%s: %s%s", what, strerror(code),
                       code == ENOENT ? " (shared arenas need /proc)" : "");
}

#if defined(__linux__)

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Younger than some C libraries' headers. */
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#define MFD_ALLOW_SEALING 0x0002U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* musl's compiler does not find <linux/futex.h>; the two are part of the kernel's interface. */
enum { futex_wait = 0, futex_wake = 1 };
enum { seal_size = F_SEAL_SHRINK | F_SEAL_GROW, tmpfs_magic = 0x01021994 };

/* Memory that cannot be executed where the kernel knows that, as some are set to insist. By number: older C libraries lack it. */
static int memory_open(const char *name)
{
    long descriptor = syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (descriptor < 0 && errno == EINVAL)
        descriptor = syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return (int)descriptor;
}

static bool memory_size(int descriptor, uint64_t size_bytes, bool reserve)
{
    if (ftruncate(descriptor, (off_t)size_bytes) != 0)
        return false;
    if (!reserve)
        return true;
    int answer;
    do
        answer = fallocate(descriptor, 0, 0, (off_t)size_bytes);
    while (answer != 0 && errno == EINTR);
    return answer == 0;
}

int berth__shared_memory(const char *name, uint64_t size_bytes, bool reserve)
{
    int descriptor = memory_open(name);
    if (descriptor < 0)
        return -1;
    /* Other users who are sent a descriptor for reading cannot open it again for writing. */
    if (fchmod(descriptor, 0644) == 0 && memory_size(descriptor, size_bytes, reserve))
        return descriptor;
    int code = errno;
    close(descriptor);
    errno = code;
    return -1;
}

int berth__shared_reopen(int descriptor, bool for_writing)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, (for_writing ? O_RDWR : O_RDONLY) | O_CLOEXEC);
}

int berth__shared_seals_of(int descriptor)
{
    return fcntl(descriptor, F_GET_SEALS);
}

bool berth__shared_seal_add(int descriptor, berth_shared_seals seals)
{
    static const int bits[] = {
        [BERTH_SHARED_SEAL_SIZE] = seal_size,
        [BERTH_SHARED_SEAL_WRITERS] = F_SEAL_FUTURE_WRITE,
        [BERTH_SHARED_SEAL_CONTENT] = F_SEAL_WRITE | F_SEAL_SEAL,
    };
    return fcntl(descriptor, F_ADD_SEALS, bits[seals]) == 0;
}

bool berth__shared_seals_read(int kernel_seals, berth_shared_seals *out)
{
    *out = kernel_seals & F_SEAL_WRITE          ? BERTH_SHARED_SEAL_CONTENT
           : kernel_seals & F_SEAL_FUTURE_WRITE ? BERTH_SHARED_SEAL_WRITERS
                                                : BERTH_SHARED_SEAL_SIZE;
    return (kernel_seals & seal_size) == seal_size;
}

bool berth__shared_is_plain_memory(int descriptor)
{
    struct statfs system;
    return fstatfs(descriptor, &system) == 0 && system.f_type == tmpfs_magic;
}

static const short lock_types[] = {[BERTH__SHARED_UNLOCK] = F_UNLCK,
                                   [BERTH__SHARED_LOCK_READ] = F_RDLCK,
                                   [BERTH__SHARED_LOCK_WRITE] = F_WRLCK};

bool berth__shared_lock_set(int descriptor, berth__shared_byte byte, berth__shared_lock lock)
{
    struct flock range = {.l_type = lock_types[lock], .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(descriptor, F_OFD_SETLK, &range) == 0;
}

bool berth__shared_is_locked(int descriptor, berth__shared_byte byte, berth__shared_lock lock)
{
    struct flock range = {.l_type = lock_types[lock], .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(descriptor, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

bool berth__shared_replace(int from, int to)
{
    int answer;
    do
        answer = dup3(from, to, O_CLOEXEC);
    while (answer < 0 && (errno == EINTR || errno == EBUSY));
    int code = errno;
    close(from);
    errno = code;
    return answer >= 0;
}

/* The kernel compares 32 bits. */
static uint32_t *low_half(_Atomic uint64_t *word)
{
    return (uint32_t *)(void *)word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void berth__shared_sleep(_Atomic uint64_t *word, uint64_t seen, uint64_t timeout_ns)
{
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                            .tv_nsec = (long)(timeout_ns % 1000000000)};
    (void)syscall(SYS_futex, low_half(word), futex_wait, (uint32_t)seen, &time, NULL, 0);
}

void berth__shared_wake(_Atomic uint64_t *word)
{
    (void)syscall(SYS_futex, low_half(word), futex_wake, INT32_MAX, NULL, NULL, 0);
}

#else

static int no_linux(void)
{
    errno = ENOSYS;
    return -1;
}
int berth__shared_memory(const char *name, uint64_t size_bytes, bool reserve)
{
    (void)name, (void)size_bytes, (void)reserve;
    return no_linux();
}
int berth__shared_reopen(int descriptor, bool for_writing)
{
    (void)descriptor, (void)for_writing;
    return no_linux();
}
int berth__shared_seals_of(int descriptor)
{
    (void)descriptor;
    return no_linux();
}
bool berth__shared_seal_add(int descriptor, berth_shared_seals seals)
{
    (void)descriptor, (void)seals;
    return no_linux() == 0;
}
bool berth__shared_seals_read(int kernel_seals, berth_shared_seals *out)
{
    (void)kernel_seals;
    *out = BERTH_SHARED_SEAL_SIZE;
    return false;
}
bool berth__shared_is_plain_memory(int descriptor)
{
    (void)descriptor;
    return false;
}
bool berth__shared_lock_set(int descriptor, berth__shared_byte byte, berth__shared_lock lock)
{
    (void)descriptor, (void)byte, (void)lock;
    return no_linux() == 0;
}
bool berth__shared_is_locked(int descriptor, berth__shared_byte byte, berth__shared_lock lock)
{
    (void)descriptor, (void)byte, (void)lock;
    return false;
}
bool berth__shared_replace(int from, int to)
{
    (void)from, (void)to;
    return no_linux() == 0;
}
void berth__shared_sleep(_Atomic uint64_t *word, uint64_t seen, uint64_t timeout_ns)
{
    (void)word, (void)seen, (void)timeout_ns;
}
void berth__shared_wake(_Atomic uint64_t *word)
{
    (void)word;
}

#endif
