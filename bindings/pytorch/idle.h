// Memory that lies idle goes back by itself: a thread looks every few seconds whether a tensor came or went since.
#pragma once

#include <atomic>

extern std::atomic<bool> idle_used;

// A tensor is made or goes. One load, and a store after each look of the thread's.
inline void idle_note_use()
{
    if (__builtin_expect(!idle_used.load(std::memory_order_relaxed), 0))
        idle_used.store(true, std::memory_order_relaxed);
}

// Has `trim` called once whenever ten seconds went by in which no tensor came or went; nullptr: never more. Starts the thread on first
// use. A forked child has no such thread.
void idle_watch(void (*trim)());
