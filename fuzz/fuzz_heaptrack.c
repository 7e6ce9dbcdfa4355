/* Any bytes as a file of heaptrack. */
#include "fuzz/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_history(format_heaptrack_read, data, size);
    return 0;
}
