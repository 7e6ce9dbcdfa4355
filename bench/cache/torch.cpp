// A stand-in for PyTorch's caching host allocator: sizes rounded to powers of two, a free list with a mutex
// for each, a hash map from pointer to block under a mutex of its own, a mutex in every block, a set of
// streams in every block, and one queue of events under one mutex that stops at its first unready one. The
// ticket is the block.
#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/cases.hpp"

namespace
{

struct block {
    std::mutex lock;
    void *address = nullptr;
    std::size_t log2 = 0;
    bool allocated = false;
    std::unordered_set<berth_stream *> streams;
    std::size_t events = 0;
};

struct torch_like {
    struct list {
        std::mutex lock;
        std::vector<block *> blocks;
    };
    list free_lists[64];
    std::mutex blocks_lock;
    std::unordered_map<void *, block *> blocks;
    std::mutex events_lock;
    std::deque<std::pair<berth_event *, block *>> events;
    std::mutex pool_lock;
    std::vector<berth_event *> pool;

    static std::size_t log2_of(std::size_t bytes)
    {
        return static_cast<std::size_t>(bytes > 1 ? 64 - __builtin_clzll(bytes - 1) : 0);
    }

    berth_event *take_event()
    {
        {
            std::lock_guard<std::mutex> guard(pool_lock);
            if (!pool.empty()) {
                berth_event *event = pool.back();
                pool.pop_back();
                return event;
            }
        }
        berth_event *event = nullptr;
        bench::expect_ok(berth_event_create(berth_device_cpu(), &event));
        return event;
    }

    void put(block *b)
    {
        list &l = free_lists[b->log2];
        std::lock_guard<std::mutex> guard(l.lock);
        l.blocks.push_back(b);
    }

    void process_events()
    {
        for (;;) {
            std::pair<berth_event *, block *> head;
            {
                std::lock_guard<std::mutex> guard(events_lock);
                if (events.empty())
                    return;
                head = events.front();
                events.pop_front();
            }
            if (berth_event_query(head.first) != BERTH_OK) {
                std::lock_guard<std::mutex> guard(events_lock);
                events.push_front(head);
                return;
            }
            {
                std::lock_guard<std::mutex> guard(pool_lock);
                pool.push_back(head.first);
            }
            bool last;
            {
                std::lock_guard<std::mutex> guard(head.second->lock);
                last = --head.second->events == 0;
            }
            if (last)
                put(head.second);
        }
    }

    void *allocate(std::size_t bytes, std::uint64_t *ticket)
    {
        process_events();
        std::size_t log2 = log2_of(bytes);
        block *b = nullptr;
        {
            std::lock_guard<std::mutex> guard(free_lists[log2].lock);
            if (!free_lists[log2].blocks.empty()) {
                b = free_lists[log2].blocks.back();
                free_lists[log2].blocks.pop_back();
            }
        }
        if (!b) {
            b = new block;
            b->log2 = log2;
            bench::expect_ok(berth_device_allocate(berth_device_cpu(), BERTH_MEMORY_PINNED,
                                                   std::size_t{1} << log2, 4096, nullptr, &b->address));
            std::lock_guard<std::mutex> guard(blocks_lock);
            blocks[b->address] = b;
        }
        b->allocated = true;
        *ticket = reinterpret_cast<std::uint64_t>(b);
        return b->address;
    }

    void record(void *p, std::uint64_t ticket, berth_stream *stream)
    {
        block *b = reinterpret_cast<block *>(ticket);
        {
            // The ticket is believed only after it was found among the blocks.
            std::lock_guard<std::mutex> guard(blocks_lock);
            auto found = blocks.find(p);
            if (found == blocks.end())
                return;
            b = found->second;
        }
        std::lock_guard<std::mutex> guard(b->lock);
        b->streams.insert(stream);
    }

    void free(void *, std::uint64_t ticket)
    {
        block *b = reinterpret_cast<block *>(ticket);
        std::vector<berth_event *> recorded;
        {
            std::lock_guard<std::mutex> guard(b->lock);
            b->allocated = false;
            for (berth_stream *stream : b->streams) {
                berth_event *event = take_event();
                berth_event_record(event, stream);
                recorded.push_back(event);
            }
            b->streams.clear();
            b->events = recorded.size();
        }
        if (recorded.empty()) {
            put(b);
            return;
        }
        std::lock_guard<std::mutex> guard(events_lock);
        for (berth_event *event : recorded)
            events.emplace_back(event, b);
    }
};

const int registered = [] {
    bench::add_cache<torch_like>("torch");
    return 0;
}();

} // namespace
