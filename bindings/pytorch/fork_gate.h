// A gate that a fork closes: no thread is in the middle of an allocation while the process is copied, so that
// no lock is held in the child by a thread which is not there. DataLoader forks its workers at any time.
#pragma once

#include <atomic>

struct fork_gate_slot {
    std::atomic<unsigned> inside; // how deep its thread is; written by that thread alone
    std::atomic<bool> taken;
    fork_gate_slot *next;
};

// The calling thread's slot; nullptr before its first use. Slots are never freed, and reused when their thread has ended. Not
// thread_local: that is a call in a shared library, once for every tensor.
extern __thread fork_gate_slot *fork_gate_mine
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
fork_gate_slot *fork_gate_take();
// Waits until the fork is done; called with the slot left.
void fork_gate_wait(fork_gate_slot *slot);
extern std::atomic<bool> fork_gate_closed;
// Whether who closes the gate makes every thread pass a fence (membarrier). Else each pays for one of its own at each entry.
extern std::atomic<bool> fork_gate_fences;

// Once, before the first use.
void fork_gate_watch();

class fork_gate
{
  public:
    fork_gate() : slot_(fork_gate_mine)
    {
        if (__builtin_expect(!slot_, 0))
            slot_ = fork_gate_take();
        step_in(slot_);
        if (__builtin_expect(fork_gate_closed.load(), 0) &&
            slot_->inside.load(std::memory_order_relaxed) == 1)
            fork_gate_wait(slot_);
    }
    ~fork_gate()
    {
        slot_->inside.store(slot_->inside.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }
    fork_gate(const fork_gate &) = delete;
    fork_gate &operator=(const fork_gate &) = delete;

    // Either the caller sees the gate closed afterwards, or the fork sees it inside: its store comes before its load, by the
    // fence that the fork sends or by the order of the store. The latter is a locked instruction, of twenty cycles.
    static void step_in(fork_gate_slot *slot)
    {
        const unsigned inside = slot->inside.load(std::memory_order_relaxed) + 1;
        if (__builtin_expect(fork_gate_fences.load(std::memory_order_relaxed), 1)) {
            slot->inside.store(inside, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
        } else {
            slot->inside.store(inside);
        }
    }

  private:
    fork_gate_slot *slot_;
};

// Shuts the gate while it lives: no other thread is in the middle of an allocation or a free, and no fork is under
// way. Not inside itself. What is changed meanwhile is seen by everybody who enters afterwards.
class fork_gate_shut
{
  public:
    fork_gate_shut();
    ~fork_gate_shut();
    fork_gate_shut(const fork_gate_shut &) = delete;
    fork_gate_shut &operator=(const fork_gate_shut &) = delete;
};
