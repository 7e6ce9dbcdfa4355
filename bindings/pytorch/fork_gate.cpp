// The gate's slots, one a thread, and what happens around a fork.
#include "fork_gate.h"

#include <linux/membarrier.h>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

std::atomic<bool> fork_gate_closed{false};
std::atomic<bool> fork_gate_fences{false};
__thread fork_gate_slot *fork_gate_mine = nullptr;

namespace
{

std::atomic<fork_gate_slot *> all_slots{nullptr};
std::mutex forking;

struct leaver {
    bool used = false;
    ~leaver()
    {
        if (fork_gate_mine)
            fork_gate_mine->taken.store(false, std::memory_order_release);
        fork_gate_mine = nullptr;
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

bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

// What membarrier does, where a sandbox that came later refuses it: a processor on which we have run has switched from whatever
// thread ran there, and its stores are seen.
void visit_processors()
{
    cpu_set_t usual;
    if (sched_getaffinity(0, sizeof usual, &usual) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        (void)sched_setaffinity(0, sizeof one, &one); // refused where there is no such processor
    }
    (void)sched_setaffinity(0, sizeof usual, &usual);
}

void before_fork()
{
    forking.lock();
    fork_gate_closed.store(true);
    // Who is not inside yet sees the gate closed.
    if (fork_gate_fences.load(std::memory_order_relaxed) && !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
        fork_gate_fences.store(false);
        visit_processors();
    }
    for (fork_gate_slot *s = all_slots.load(); s; s = s->next)
        while (s != fork_gate_mine && s->inside.load() != 0)
            sched_yield();
}

void after_fork()
{
    fork_gate_closed.store(false);
    forking.unlock();
}

// Old kernels, emulators and sandboxes have none. A fork's child may have to say it again.
void find_fences()
{
    fork_gate_fences.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED), std::memory_order_relaxed);
}

void after_fork_in_child()
{
    find_fences();
    after_fork();
}

} // namespace

fork_gate_slot *fork_gate_take()
{
    at_thread_end.used = true; // so that it is made, and its end comes
    return fork_gate_mine = take_slot();
}

void fork_gate_wait(fork_gate_slot *slot)
{
    do {
        slot->inside.store(0, std::memory_order_release);
        forking.lock();
        forking.unlock();
        fork_gate::step_in(slot);
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
    static const bool watching = [] {
        find_fences();
        return pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0;
    }();
    (void)watching;
}
