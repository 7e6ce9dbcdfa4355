/* Drivers that are not there, not whole, or find no device: berth says which and what to do. Arguments: the
 * kind, and words that must appear in the message. */
#include <stdio.h>
#include <string.h>

#include "berth/berth.h"

int main(int argc, char **argv)
{
    int32_t count = 7;
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    for (int i = BERTH_DEVICE_CPU; i <= BERTH_DEVICE_VIRTUAL && argc > 2; i++)
        if (strcmp(berth_device_kind_name((berth_device_kind)i), argv[1]) == 0)
            kind = (berth_device_kind)i;
    for (int round = 0; round < 2; round++) { /* the second time from memory */
        berth_clear_last_error();
        berth_status status = berth_device_count(kind, &count);
        printf("%s: %s\n", berth_status_name(status), berth_last_error()->message);
        if (status != BERTH_UNSUPPORTED || count != 0 || !strstr(berth_last_error()->message, argv[2]))
            return 1;
    }
    berth_stream *stream = NULL;
    return berth_stream_create((berth_device){(int32_t)kind, 0}, &stream) == BERTH_UNSUPPORTED ? 0 : 1;
}
