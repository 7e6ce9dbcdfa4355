/* The bytes of a trace (docs/trace-format.md), for who writes and who reads them:
 *
 *     | file header, one page | chunk | chunk | chunk | ...
 *
 *     chunk:   | header, 80 bytes | events of one thread, or definitions | room to the next chunk |
 *
 * A chunk that is being written lies in the file already, since the file is mapped: its header says how many bytes of it
 * hold, and only the checksum is missing. All numbers have their lowest byte first. */
#ifndef BERTH_TRACE_FORMAT_H
#define BERTH_TRACE_FORMAT_H

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/checksum.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "traces are written in the order of this machine's bytes");

#define BERTH__TRACE_MAGIC UINT64_C(0x0a1a454341525442)       /* "BTRACE\x1a\n" */
#define BERTH__TRACE_CHUNK_MAGIC UINT64_C(0xf1c8b7d3434b4842) /* "BHKC" and four bytes that no text has */

enum {
    BERTH__TRACE_VERSION = 2, /* what is written; version 1, without names of threads, is read too */
    BERTH__TRACE_VERSION_FIRST = 1,
    BERTH__TRACE_PAGE = 4096,
    BERTH__TRACE_CHUNK_BYTES = 65536, /* of a live file; what a reader takes at once */
    BERTH__TRACE_CHUNK_MOST = 1 << 20,
    BERTH__TRACE_TEXT_MOST = 4095,
};

/* The first page. Processes that record together share it: it hands out places and numbers. */
typedef struct berth__trace_file_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;   /* where the first chunk is */
    uint64_t tick, clock_ns; /* one moment in ticks and of the clock, before all events */
    uint64_t wall_ns;        /* the same moment since 1970 */
    uint32_t flags;          /* bit 0: packed, nothing is added any more */
    uint32_t tick_ns;        /* a tick's length where it is known; 0: it follows from two moments */
    _Atomic uint64_t end;    /* where the next chunk goes */
    _Atomic uint32_t texts;  /* numbers given so far */
    _Atomic uint32_t frames;
    _Atomic uint32_t modules;
    _Atomic uint32_t devices;
    _Atomic uint32_t processes;
    _Atomic uint32_t paused; /* not 0: recorders leave events out */
    _Atomic uint64_t lost;   /* events that could not be written */
} berth__trace_file_header;

enum { BERTH__TRACE_DEFINITIONS = 1, BERTH__TRACE_EVENTS = 2 };
enum { BERTH__TRACE_PLAIN = 0, BERTH__TRACE_ZSTD = 1 };

typedef struct berth__trace_chunk_header {
    uint64_t magic;
    uint8_t type, codec;
    uint16_t header_bytes;
    uint32_t room_bytes; /* from this chunk's start to the next one's */
    uint32_t process, thread;
    uint32_t sequence;         /* of its thread, from 0: a gap is a chunk that got lost */
    uint32_t stored_bytes;     /* behind the header, once it is finished */
    uint64_t tick, clock_ns;   /* one moment in ticks and of the clock, when the chunk was begun */
    uint64_t tick_first;       /* events count from here */
    _Atomic uint64_t used;     /* events << 32 | bytes that hold; grows while it is written */
    uint64_t payload_checksum; /* 0: not finished */
    uint64_t
        header_checksum; /* of all above but `used`, `stored_bytes` and `payload_checksum` while unfinished: 0 */
} berth__trace_chunk_header;

_Static_assert(sizeof(berth__trace_chunk_header) == 80, "the layout is the format");

/* Never 0. */
static inline uint64_t berth__trace_checksum(const void *bytes, size_t size_bytes)
{
    return berth__checksum(bytes, size_bytes);
}

/* ---- Numbers: seven bits a byte, lowest first, the top bit says that more follow -------------------- */

enum { BERTH__TRACE_VARINT_MOST = 10 };

static inline unsigned char *berth__trace_put(unsigned char *to, uint64_t n)
{
    while (n >= 0x80) {
        *to++ = (unsigned char)(n | 0x80);
        n >>= 7;
    }
    *to++ = (unsigned char)n;
    return to;
}
/* NULL if it does not end before `end` or does not fit 64 bits. */
static inline const unsigned char *berth__trace_take(const unsigned char *from, const unsigned char *end,
                                                     uint64_t *n)
{
    uint64_t value = 0;
    for (unsigned shift = 0; from < end && shift < 64; shift += 7) {
        unsigned char byte = *from++;
        if (shift == 63 && byte > 1)
            return NULL;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *n = value;
            return from;
        }
    }
    return NULL;
}
static inline uint64_t berth__trace_zigzag(uint64_t difference)
{
    return difference << 1 ^ (0 - (difference >> 63));
}
static inline uint64_t berth__trace_unzigzag(uint64_t n)
{
    return n >> 1 ^ (0 - (n & 1));
}

/* ---- Time ------------------------------------------------------------------------------------------ */

static inline uint64_t berth__trace_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
/* A counter that all processors share, in steps of some ten nanoseconds: enough to tell a free from the
 * allocation that follows it on another thread, and one byte an event. It is read behind all that was loaded before: a processor that
 * reads it ahead, while it still waits for the word that the block is free, would put the allocation before the free. */
static inline uint64_t berth__trace_tick(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc() >> 5;
#elif defined(__aarch64__)
    uint64_t count;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return berth__trace_clock_ns() >> 4;
#endif
}

#endif
