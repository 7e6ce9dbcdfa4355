// Reads traces through the problem reader, and makes one that needs no file.
#include "replay/traces.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <berth/problem_file.h>

namespace bench
{
namespace
{

struct life {
    std::uint64_t upper, size_bytes;
};

// A free at time t comes before an allocation at t.
trace order(const std::string &name, const std::vector<life> &lives, bool is_recorded)
{
    trace t{name, {}, lives.size(), is_recorded};
    std::vector<std::vector<std::uint32_t>> freed(lives.size() + 1);
    for (std::size_t i = 0; i < lives.size(); i++)
        freed[std::min<std::uint64_t>(lives[i].upper, lives.size())].push_back(static_cast<std::uint32_t>(i));
    for (std::size_t i = 0; i <= lives.size(); i++) {
        for (std::uint32_t id : freed[i])
            t.events.push_back({id, 64, 0});
        if (i < lives.size())
            t.events.push_back({static_cast<std::uint32_t>(i), 64, lives[i].size_bytes});
    }
    return t;
}

// Forty layers of a small network: long-lived activations, short-lived work space.
trace layers()
{
    std::vector<life> lives;
    for (std::uint64_t layer = 0; layer < 40; layer++) {
        std::uint64_t at = layer * 6;
        lives.push_back({at + 12, 65536});
        for (std::uint64_t k = 1; k < 6; k++)
            lives.push_back({at + k + 1 + k % 3, 4096 * k});
    }
    return order("layers", lives, false);
}

bool read(const std::filesystem::path &path, trace &out)
{
    berth_problem_file *file = nullptr;
    if (berth_problem_file_read(path.c_str(), &file) != BERTH_OK) {
        std::fprintf(stderr, "%s: %s\n", path.c_str(), berth_last_error()->message);
        return false;
    }
    const berth_problem *problem = berth_problem_file_problem(file);
    std::vector<life> lives;
    for (std::size_t i = 0; i < problem->buffer_count; i++)
        lives.push_back(
            {static_cast<std::uint64_t>(problem->buffers[i].upper), problem->buffers[i].size_bytes});
    out = order(path.stem(), lives, true);
    berth_problem_file_destroy(file);
    return true;
}

} // namespace

std::vector<trace> load_traces()
{
    std::vector<trace> traces{layers()};
    const char *data = std::getenv("BERTH_DATA");
    std::filesystem::path folder =
        std::filesystem::path(data ? data : "../shared/data") / "planner" / "traces";
    std::error_code error;
    std::vector<std::filesystem::path> files;
    for (const auto &entry : std::filesystem::directory_iterator(folder, error))
        if (entry.path().extension() == ".csv")
            files.push_back(entry.path());
    if (error)
        std::fprintf(stderr, "no traces in %s (set BERTH_DATA): only the made one is measured\n",
                     folder.c_str());
    std::sort(files.begin(), files.end());
    for (const auto &path : files) {
        trace t;
        if (read(path, t))
            traces.push_back(std::move(t));
    }
    return traces;
}

} // namespace bench
