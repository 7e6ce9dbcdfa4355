// Buffers that free themselves, a copy on a stream, and a part that keeps the whole alive.
#include <cstdio>
#include <cstring>

#include "berth/berth.hpp"

int main()
{
    berth::stream stream;
    berth::buffer from(berth::cpu(), 1000), to(berth::cpu(), 1000);
    std::memset(from.data(), 7, from.size());
    to.copy_from(from, stream.get());
    stream.synchronize();
    berth::buffer tail = to.sub(900, 100);
    to = berth::buffer(); // the part still holds it
    std::printf("the last byte is %d\n", static_cast<unsigned char *>(tail.data())[99]);
    return static_cast<unsigned char *>(tail.data())[99] != 7;
}
