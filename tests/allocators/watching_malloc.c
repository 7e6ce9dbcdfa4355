/* A malloc that watches those who use it. Blocks from 100,000 bytes on are the test's: how often they come and go, on which threads, and
 * whether they were written to, goes to the file that WATCHING_FILE names. Nothing is ever given back. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WATCHED = 100000, PAGE = 4096, THREADS = 1024 };

#define HOOK __attribute__((visibility("default")))

typedef struct figures {
    _Atomic uint64_t allocations, frees, foreign_frees, untouched, twice, bytes, threads;
} figures;

typedef struct head {
    uint64_t size, thread;
    _Atomic uint64_t freed;
    uint64_t pad;
} head;

static figures *_Atomic here;
static figures nowhere;
static _Atomic uint64_t seen[THREADS];

static figures *find_figures(void)
{
    figures *f = atomic_load(&here);
    if (f)
        return f;
    const char *path = getenv("WATCHING_FILE");
    const int file = path ? open(path, O_RDWR) : -1;
    void *p =
        file >= 0 ? mmap(NULL, sizeof(figures), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0)
        close(file);
    f = p == MAP_FAILED ? &nowhere : p;
    atomic_store(&here, f);
    return f;
}

static uint64_t note_thread(figures *f)
{
    const uint64_t thread = (uint64_t)syscall(SYS_gettid);
    for (int i = 0; i < THREADS; i++) {
        uint64_t none = 0;
        if (atomic_load(&seen[i]) == thread)
            return thread;
        if (atomic_compare_exchange_strong(&seen[i], &none, thread)) {
            f->threads++;
            return thread;
        }
        if (none == thread)
            return thread;
    }
    return thread;
}

HOOK void *malloc(size_t size)
{
    head *h = mmap(NULL, sizeof *h + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (h == MAP_FAILED)
        return NULL;
    h->size = size;
    if (size >= WATCHED) {
        figures *f = find_figures();
        h->thread = note_thread(f);
        f->allocations++;
        f->bytes += size;
    }
    return h + 1;
}

static int is_touched(const char *p, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += PAGE)
        if (p[i] != 1)
            return 0;
    return p[size - 1] == 1;
}

HOOK void free(void *p)
{
    head *h = p;
    if (!p || (--h)->size < WATCHED)
        return;
    figures *f = find_figures();
    f->frees++;
    f->foreign_frees += note_thread(f) != h->thread;
    f->twice += atomic_exchange(&h->freed, 1) != 0;
    f->untouched += !is_touched(p, h->size);
}

HOOK void *calloc(size_t count, size_t size)
{
    return malloc(count * size); /* fresh pages are zero */
}

HOOK void *realloc(void *p, size_t size)
{
    void *q = malloc(size);
    if (q && p) {
        const uint64_t old = ((head *)p - 1)->size;
        memcpy(q, p, old < size ? old : size);
    }
    return q;
}

HOOK void *memalign(size_t alignment, size_t size)
{
    const uintptr_t mask = alignment > 32 ? alignment : 32;
    char *p = malloc(size + 2 * mask + sizeof(head));
    if (!p)
        return NULL;
    char *aligned = (char *)(((uintptr_t)p + mask + sizeof(head)) / mask * mask);
    ((head *)(void *)aligned)[-1] = (head){.size = 0};
    return aligned;
}
HOOK void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}
HOOK int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
