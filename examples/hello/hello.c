/* The lines of the README; a test keeps the two the same. */
#include <berth/berth.h>
#include <stdio.h>

int main(void)
{
    berth_allocator *a;
    berth_tracking_options options = {.struct_size = sizeof options, .track_sizes = true};
    berth_tracking_create(berth_cpu_allocator(), &options, &a);
    float *weights = BERTH_NEW(a, float, 1000), *scratch = BERTH_NEW(a, float, 500);
    berth_deallocate(a, scratch, 0, NULL);
    berth_tracking_report_leaks(a, NULL);
    berth_deallocate(a, weights, 0, NULL);
    berth_tracking_sizes sizes = {.struct_size = sizeof sizes};
    berth_tracking_get_sizes_and_unref(a, &sizes);
    printf("peak %zu, live %zu bytes\n", (size_t)sizes.high_watermark_bytes, (size_t)sizes.live_bytes);
}
