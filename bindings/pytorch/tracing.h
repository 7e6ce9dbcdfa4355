// The trace of CPU tensors (berth_torch_trace_begin): what is allocated, freed and refused goes to a file.
//
// All below but tracing_is_on and tracing_prepare is called inside the fork gate; a trace begins and ends while the gate
// is shut, so that none is pulled away from under an event and no block is told twice or not at all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <berth/berth.h>

extern std::atomic<berth_trace *> tracing_now; // nullptr: none

inline bool tracing_is_on()
{
    return tracing_now.load(std::memory_order_acquire) != nullptr;
}

// Before the gate, since it takes the GIL and who forks may hold that: remembers the calling thread's Python frames for
// its next allocation.
void tracing_prepare();

void tracing_allocated(berth_allocator *top, const void *p, std::size_t bytes);
void tracing_refused(std::size_t bytes);
// Before the free: afterwards another thread's allocation of the same place could come first.
void tracing_freed(const void *p);
// The free was refused: the block is there again.
void tracing_not_freed(berth_allocator *top, const void *p);
// What CPU tensors may take together.
void tracing_limit(std::uint64_t bytes);

// berth_torch.cpp: the stacks of allocators in the order in which they were made; nullptr past the last.
berth_allocator *tracing_stack(std::size_t place);
