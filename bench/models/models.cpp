// A model of 30 MB, read and planned by the command as a user runs it: a process, a file, an answer.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

// Protobuf, as much as an ONNX model needs.
std::string varint(unsigned long long n)
{
    std::string out;
    for (; n > 127; n >>= 7)
        out += static_cast<char>((n & 127) | 128);
    return out + static_cast<char>(n);
}

std::string number(unsigned field, unsigned long long n)
{
    return varint(field << 3) + varint(n);
}

std::string data(unsigned field, const std::string &value)
{
    return varint(field << 3 | 2) + varint(value.size()) + value;
}

std::string node(const std::string &type, const std::string &a, const std::string &b, const std::string &y)
{
    return data(1, data(1, a) + data(1, b) + data(2, y) + data(4, type));
}

std::string value_info(const std::string &name, unsigned rows, unsigned columns)
{
    const std::string shape = data(1, number(1, rows)) + data(1, number(1, columns));
    return data(1, name) + data(2, data(1, number(1, 1) + data(2, shape)));
}

// Layers of an addition that reaches back and a product with weights of 100 KB.
std::string model(unsigned layers)
{
    constexpr unsigned width = 158, rows = 16;
    std::string graph;
    for (unsigned i = 0; i < layers; i++) {
        const std::string from = "t" + std::to_string(i), back = "t" + std::to_string(i < 5 ? 0 : i - 5);
        const std::string sum = "s" + std::to_string(i), weights = "w" + std::to_string(i);
        graph += node("Add", from, back, sum) + node("MatMul", sum, weights, "t" + std::to_string(i + 1));
        graph += data(5, number(1, width) + number(1, width) + number(2, 1) + data(8, weights) +
                             data(9, std::string(4 * width * width, 'w')));
    }
    graph += data(11, value_info("t0", rows, width)) + data(12, data(1, "t" + std::to_string(layers)));
    return number(1, 8) + data(7, graph) + data(8, number(2, 13));
}

// Flatbuffers, as much as a TFLite model needs: written forward, every field of four bytes.
class flatbuffer
{
  public:
    struct field {
        unsigned slot;
        std::uint32_t value; // 0 for what is patched to point at something
    };

    std::string out = std::string("\0\0\0\0TFL3", 8);

    void put(std::uint32_t n)
    {
        out.append(reinterpret_cast<const char *>(&n), 4);
    }
    void align(size_t to, size_t extra)
    {
        while ((out.size() + extra) % to)
            out += '\0';
    }
    // The place at `from` points at what is written next.
    void point(size_t from)
    {
        const auto distance = static_cast<std::uint32_t>(out.size() - from);
        out.replace(from, 4, reinterpret_cast<const char *>(&distance), 4);
    }
    // Where its fields stand, in their order.
    std::vector<size_t> table(size_t from, const std::vector<field> &fields)
    {
        const unsigned slots = fields.empty() ? 0 : fields.back().slot + 1,
                       bytes = 4 + 4 * unsigned(fields.size());
        std::vector<std::uint16_t> places(slots);
        for (size_t i = 0; i < fields.size(); i++)
            places[fields[i].slot] = static_cast<std::uint16_t>(4 + 4 * i);
        align(4, 4 + 2 * size_t(slots));
        const size_t vtable = out.size();
        const std::uint16_t head[] = {static_cast<std::uint16_t>(4 + 2 * slots),
                                      static_cast<std::uint16_t>(bytes)};
        out.append(reinterpret_cast<const char *>(head), 4);
        out.append(reinterpret_cast<const char *>(places.data()), 2 * places.size());
        point(from);
        std::vector<size_t> at;
        put(static_cast<std::uint32_t>(out.size() - vtable));
        for (const field &f : fields) {
            at.push_back(out.size());
            put(f.value);
        }
        return at;
    }
    // Of tables that are written later: where each is pointed at.
    std::vector<size_t> tables(size_t from, unsigned count)
    {
        align(4, 0);
        point(from);
        std::vector<size_t> at;
        put(count);
        for (unsigned i = 0; i < count; i++) {
            at.push_back(out.size());
            put(0);
        }
        return at;
    }
    void numbers(size_t from, const std::vector<std::uint32_t> &values)
    {
        align(4, 0);
        point(from);
        put(static_cast<std::uint32_t>(values.size()));
        for (const std::uint32_t n : values)
            put(n);
    }
    void bytes(size_t from, const std::string &value)
    {
        align(16, 4);
        point(from);
        put(static_cast<std::uint32_t>(value.size()));
        out += value + '\0';
    }
};

// The same in TFLite: convolutions with weights of 100 KB, each with an input that reaches back.
std::string tflite_model(unsigned layers)
{
    constexpr unsigned conv = 3, int8 = 9, weights = 100000;
    flatbuffer f;
    const auto root = f.table(0, {{0, 3}, {1, 0}, {2, 0}, {4, 0}});
    f.table(f.tables(root[1], 1)[0], {{0, conv}, {3, conv}});
    const auto graph = f.table(f.tables(root[2], 1)[0], {{0, 0}, {1, 0}, {2, 0}, {3, 0}});
    const auto tensors = f.tables(graph[0], 2 * layers + 1);
    for (unsigned i = 0; i <= 2 * layers; i++) {
        const bool is_weight = i > layers;
        const auto at = f.table(tensors[i], {{0, 0}, {1, int8}, {2, is_weight ? i - layers : 0}, {3, 0}});
        f.numbers(at[0], is_weight ? std::vector<std::uint32_t>{weights}
                                   : std::vector<std::uint32_t>{64 + i * 37 % 400, 16});
        f.bytes(at[3], (is_weight ? "w" : "t") + std::to_string(i));
    }
    f.numbers(graph[1], {0});
    f.numbers(graph[2], {layers});
    const auto operators = f.tables(graph[3], layers);
    for (unsigned i = 0; i < layers; i++) {
        const auto at = f.table(operators[i], {{0, 0}, {1, 0}, {2, 0}});
        f.numbers(at[1], {i, i < 5 ? 0 : i - 5, layers + 1 + i});
        f.numbers(at[2], {i + 1});
    }
    const auto buffers = f.tables(root[3], layers + 1);
    f.table(buffers[0], {});
    for (unsigned i = 1; i <= layers; i++)
        f.bytes(f.table(buffers[i], {{0, 0}})[0], std::string(weights, 'w'));
    return f.out;
}

void read_and_plan(benchmark::State &state, const char *ending, const std::string &bytes)
{
    std::string path = std::string("/tmp/berth-bench-XXXXXX") + ending;
    const int file = mkstemps(&path[0], static_cast<int>(std::string(ending).size()));
    if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        state.SkipWithError("the model cannot be written");
    const std::string command = std::string(BERTH_COMMAND " plan ") + path + " --json >/dev/null";
    for (auto _ : state)
        if (std::system(command.c_str()) != 0) {
            state.SkipWithError("the command fails");
            break;
        }
    close(file);
    unlink(path.c_str());
}

void read_onnx(benchmark::State &state)
{
    read_and_plan(state, ".onnx", model(300));
}

void read_tflite(benchmark::State &state)
{
    read_and_plan(state, ".tflite", tflite_model(300));
}

} // namespace

BENCHMARK(read_onnx)->Name("berth/onnx_30MB")->UseRealTime();
BENCHMARK(read_tflite)->Name("berth/tflite_30MB")->UseRealTime();
