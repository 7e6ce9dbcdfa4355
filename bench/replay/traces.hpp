// Programs to replay: recorded traces where BERTH_DATA has them, and one made here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench
{

// One event: an allocation (size above 0) or a free.
struct event {
    std::uint32_t id;
    std::uint32_t alignment;
    std::uint64_t size_bytes;
};

struct trace {
    std::string name;
    std::vector<event> events;
    std::size_t allocations;
    bool is_recorded; // false: made here
};

// The folder is $BERTH_DATA/planner/traces (default ../shared/data); its absence is said on stderr.
std::vector<trace> load_traces();

} // namespace bench
