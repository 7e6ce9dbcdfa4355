// The gate's slots, one a thread, and what happens around a fork.
#include "fork_gate.h"

#include <mutex>
#include <pthread.h>
#include <sched.h>

std::atomic<bool> fork_gate_closed{false};

namespace
{

std::atomic<fork_gate_slot *> all_slots{nullptr};
std::mutex forking;

thread_local fork_gate_slot *here = nullptr;

struct leaver {
    bool used = false;
    ~leaver()
    {
        if (here)
            here->taken.store(false, std::memory_order_release);
        here = nullptr;
    }
};
thread_local leaver at_thread_end;

fork_gate_slot *take_slot()
{
    for (fork_gate_slot *s = all_slots.load(std::memory_order_acquire); s; s = s->next) {
        bool free = false;
        if (s->taken.compare_exchange_strong(free, true))
            return s;
    }
    auto *s = new fork_gate_slot{};
    s->taken.store(true, std::memory_order_relaxed);
    s->next = all_slots.load(std::memory_order_relaxed);
    while (!all_slots.compare_exchange_weak(s->next, s))
        continue;
    return s;
}

void before_fork()
{
    forking.lock();
    fork_gate_closed.store(true);
    for (fork_gate_slot *s = all_slots.load(); s; s = s->next)
        while (s != here && s->inside.load() != 0)
            sched_yield();
}

void after_fork()
{
    fork_gate_closed.store(false);
    forking.unlock();
}

} // namespace

fork_gate_slot *fork_gate_here()
{
    if (__builtin_expect(!here, 0)) {
        at_thread_end.used = true; // so that it is made, and its end comes
        here = take_slot();
    }
    return here;
}

void fork_gate_wait(fork_gate_slot *slot)
{
    do {
        slot->inside.fetch_sub(1);
        forking.lock();
        forking.unlock();
        slot->inside.fetch_add(1);
    } while (fork_gate_closed.load());
}

fork_gate_shut::fork_gate_shut()
{
    before_fork();
}
fork_gate_shut::~fork_gate_shut()
{
    after_fork();
}

void fork_gate_watch()
{
    static const bool watching = pthread_atfork(before_fork, after_fork, after_fork) == 0;
    (void)watching;
}
