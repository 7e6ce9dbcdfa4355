// A model of 30 MB, read and planned by the command as a user runs it: a process, a file, an answer.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

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

void read_and_plan(benchmark::State &state)
{
    char path[] = "/tmp/berth-bench-XXXXXX.onnx";
    const int file = mkstemps(path, 5);
    const std::string bytes = model(300);
    if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        state.SkipWithError("the model cannot be written");
    const std::string command = std::string(BERTH_COMMAND " plan ") + path + " --json >/dev/null";
    for (auto _ : state)
        if (std::system(command.c_str()) != 0) {
            state.SkipWithError("the command fails");
            break;
        }
    close(file);
    unlink(path);
}

} // namespace

BENCHMARK(read_and_plan)->Name("berth/onnx_30MB")->UseRealTime();
