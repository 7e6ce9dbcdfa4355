// A stand-in for TensorFlow's best-fit allocator with coalescing, as it serves pinned host memory: one
// region, chunks in sets ordered by size, a set for each doubling, a table from 256-byte pieces to chunks,
// one mutex around everything. It knows no events; in the case with a stream the host waits for it before the
// free.
#include <mutex>
#include <set>
#include <vector>

#include "cache/cases.hpp"

namespace
{

constexpr std::size_t piece = 256;
constexpr std::size_t region_bytes = std::size_t{256} << 20;

struct chunk {
    std::size_t offset, size;
    bool used;
    chunk *before, *after;
};

struct by_size {
    bool operator()(const chunk *a, const chunk *b) const
    {
        return a->size != b->size ? a->size < b->size : a->offset < b->offset;
    }
};

struct bfc {
    std::mutex lock;
    char *base = nullptr;
    std::set<chunk *, by_size> bins[32];
    std::vector<chunk *> pieces;
    std::uint64_t in_use = 0, peak = 0, count = 0;

    bfc()
    {
        void *p = nullptr;
        bench::expect_ok(
            berth_device_allocate(berth_device_cpu(), BERTH_MEMORY_PINNED, region_bytes, 4096, nullptr, &p));
        base = static_cast<char *>(p);
        pieces.resize(region_bytes / piece);
        insert(new chunk{0, region_bytes, false, nullptr, nullptr});
    }

    static unsigned bin_of(std::size_t size)
    {
        unsigned bin = static_cast<unsigned>(64 - __builtin_clzll(size / piece)) - 1;
        return bin < 31 ? bin : 31;
    }
    void insert(chunk *c)
    {
        bins[bin_of(c->size)].insert(c);
    }
    void take_out(chunk *c)
    {
        bins[bin_of(c->size)].erase(c);
    }

    void *allocate(std::size_t bytes, std::uint64_t *)
    {
        std::size_t size = (bytes + piece - 1) / piece * piece;
        std::lock_guard<std::mutex> guard(lock);
        chunk key{0, size, false, nullptr, nullptr};
        for (unsigned bin = bin_of(size); bin < 32; bin++) {
            auto found = bins[bin].lower_bound(&key);
            if (found == bins[bin].end())
                continue;
            chunk *c = *found;
            bins[bin].erase(found);
            if (c->size >= size * 2) {
                chunk *rest = new chunk{c->offset + size, c->size - size, false, c, c->after};
                if (c->after)
                    c->after->before = rest;
                c->after = rest;
                c->size = size;
                insert(rest);
            }
            c->used = true;
            pieces[c->offset / piece] = c;
            in_use += c->size;
            peak = in_use > peak ? in_use : peak;
            count++;
            return base + c->offset;
        }
        return nullptr;
    }

    void record(void *, std::uint64_t, berth_stream *stream)
    {
        berth_stream_synchronize(stream);
    }

    chunk *join(chunk *left, chunk *right)
    {
        left->size += right->size;
        left->after = right->after;
        if (right->after)
            right->after->before = left;
        delete right;
        return left;
    }

    void free(void *p, std::uint64_t)
    {
        std::lock_guard<std::mutex> guard(lock);
        chunk *c = pieces[static_cast<std::size_t>(static_cast<char *>(p) - base) / piece];
        in_use -= c->size;
        c->used = false;
        if (c->after && !c->after->used) {
            take_out(c->after);
            c = join(c, c->after);
        }
        if (c->before && !c->before->used) {
            take_out(c->before);
            c = join(c->before, c);
        }
        insert(c);
    }
};

const int registered = [] {
    bench::add_cache<bfc>("bfc");
    return 0;
}();

} // namespace
