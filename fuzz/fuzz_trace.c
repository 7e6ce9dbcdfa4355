/* Any bytes as a trace. What a fuzzer changes gets its checksums back, or nothing behind them would ever be reached. */
#include "fuzz/history.h"
#include "src/trace/live.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room) __attribute__((weak)); /* libFuzzer's */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

/* Makes the bytes behind `at` a chunk that holds, with as much payload as it says or there is. */
static void mend_chunk(uint8_t *at, size_t left)
{
    berth__trace_chunk_header h;
    memcpy(&h, at, sizeof h);
    size_t most = left - sizeof h;
    uint32_t stored = h.stored_bytes < most ? h.stored_bytes : (uint32_t)most;
    h.header_bytes = sizeof h;
    if (h.room_bytes < sizeof h + stored)
        h.room_bytes = (uint32_t)(sizeof h + stored);
    h.stored_bytes = stored;
    if (h.payload_checksum)
        h.payload_checksum = berth__checksum(at + sizeof h, stored);
    if (h.codec == BERTH__TRACE_PLAIN)
        atomic_store(&h.used, (atomic_load(&h.used) >> 32 << 32) | stored);
    h.header_checksum = berth__trace_header_checksum(&h);
    memcpy(at, &h, sizeof h);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    static const uint64_t magic = BERTH__TRACE_CHUNK_MAGIC;
    size = LLVMFuzzerMutate(data, size, room);
    for (size_t i = 0; seed % 8 && i + sizeof(berth__trace_chunk_header) <= size; i++)
        if (memcmp(data + i, &magic, sizeof magic) == 0)
            mend_chunk(data + i, size - i);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_history(format_trace_read, data, size);
    return 0;
}
