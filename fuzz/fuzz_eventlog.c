/* Any bytes as an event log. */
#include "fuzz/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_history(format_eventlog_read, data, size);
    return 0;
}
