// The thread that gives idle memory back.
#include "idle.h"

#include <chrono>
#include <system_error>
#include <thread>

std::atomic<bool> idle_used{false};

namespace
{

std::atomic<void (*)()> idle_trim{nullptr};
std::atomic<bool> idle_runs{false};

constexpr int looks = 5;
constexpr std::chrono::seconds between{2};

void idle_run()
{
    int quiet = looks; // nothing to give back before the first tensor
    for (;;) {
        std::this_thread::sleep_for(between);
        if (idle_used.exchange(false, std::memory_order_relaxed)) {
            quiet = 0;
        } else if (quiet < looks && ++quiet == looks) {
            void (*trim)() = idle_trim.load(std::memory_order_acquire);
            if (trim)
                trim();
        }
    }
}

} // namespace

void idle_watch(void (*trim)())
{
    idle_trim.store(trim, std::memory_order_release);
    if (!trim || idle_runs.exchange(true))
        return;
    try {
        std::thread(idle_run).detach();
    } catch (const std::system_error &) { // then memory goes back with later calls only
        idle_runs.store(false);
    }
}
