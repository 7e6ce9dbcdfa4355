/* Any bytes as a memory snapshot of PyTorch. */
#include "fuzz/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_history(format_snapshot_read, data, size);
    return 0;
}
