// A gate that a fork closes: no thread is in the middle of an allocation while the process is copied, so that
// no lock is held in the child by a thread which is not there. DataLoader forks its workers at any time.
#pragma once

#include <atomic>

struct fork_gate_slot {
    std::atomic<unsigned> inside; // how deep its thread is
    std::atomic<bool> taken;
    fork_gate_slot *next;
};

// The calling thread's slot. Slots are never freed, and reused when their thread has ended.
fork_gate_slot *fork_gate_here();
// Waits until the fork is done; called with the slot left.
void fork_gate_wait(fork_gate_slot *slot);
extern std::atomic<bool> fork_gate_closed;

// Once, before the first use.
void fork_gate_watch();

class fork_gate
{
  public:
    fork_gate() : slot_(fork_gate_here())
    {
        // Sequentially consistent on both sides: either we see the gate closed, or the fork sees us inside.
        if (slot_->inside.fetch_add(1) == 0 && __builtin_expect(fork_gate_closed.load(), 0))
            fork_gate_wait(slot_);
    }
    ~fork_gate()
    {
        slot_->inside.fetch_sub(1, std::memory_order_release);
    }
    fork_gate(const fork_gate &) = delete;
    fork_gate &operator=(const fork_gate &) = delete;

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
