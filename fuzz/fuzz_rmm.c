/* Any bytes as a log of RMM. */
#include "fuzz/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_history(format_rmm_read, data, size);
    return 0;
}
