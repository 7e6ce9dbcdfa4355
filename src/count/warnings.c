/* The thresholds and words of warnings about memory. */
#include "count/warnings.h"

#include <unistd.h>

#include "base/words.h"

static uint64_t part_of_memory(double fraction)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (fraction < 0 || pages <= 0 || page_bytes <= 0)
        return UINT64_MAX;
    double bytes = (double)pages * (double)page_bytes * fraction;
    return bytes < 1 ? 1 : bytes < 1e18 ? (uint64_t)bytes : UINT64_MAX;
}

/* Worked out at the first question, since built-in sources have no creation. */
static void find_thresholds(berth__warnings *w)
{
    if (atomic_load(&w->large_bytes) != 0)
        return;
    atomic_store(&w->total_bytes, part_of_memory(w->total_fraction));
    atomic_store(&w->large_bytes, part_of_memory(w->large_fraction));
}

/* The 1st, 2nd, 4th, 8th … is said, so that a program that does it always is not flooded. */
static bool is_worth_saying(_Atomic uint64_t *count, uint64_t *number)
{
    *number = atomic_fetch_add(count, 1) + 1;
    return (*number & (*number - 1)) == 0;
}

void berth__warn_of_large(berth__warnings *w, uint64_t size_bytes)
{
    uint64_t number = 0;
    find_thresholds(w);
    if (size_bytes > atomic_load(&w->large_bytes) && is_worth_saying(&w->large_count, &number))
        berth__log(BERTH_LOG_WARNING,
                   "an allocation of %s exceeds %.4g%% of memory; this is a warning and not a limit (number "
                   "%llu of its kind)",
                   BERTH__SIZE(size_bytes), w->large_fraction * 100, (unsigned long long)number);
}

void berth__warn_of_total(berth__warnings *w, uint64_t in_use_bytes)
{
    uint64_t number = 0;
    find_thresholds(w);
    if (in_use_bytes > atomic_load(&w->total_bytes) && is_worth_saying(&w->total_count, &number))
        berth__log(BERTH_LOG_WARNING,
                   "%s in use exceed %.4g%% of memory; this is a warning and not a limit (number %llu of its "
                   "kind)",
                   BERTH__SIZE(in_use_bytes), w->total_fraction * 100, (unsigned long long)number);
}
