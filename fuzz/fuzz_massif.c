/* Any bytes as a file of massif. */
#include "fuzz/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_history(format_massif_read, data, size);
    return 0;
}
