/* Allocates a little through berth_cpu_allocator, or does what its argument says: for check.sh. */
#include <berth/berth.h>
#include <stdio.h>
#include <string.h>

static bool print_key(void *context, const char *key, const char *values, const char *meaning)
{
    (void)context;
    printf("%s\t%s\t%s\n", key, values, meaning);
    return true;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "keys") == 0)
        return (int)berth_config_visit(print_key, NULL);
    berth_allocator *a = berth_cpu_allocator();
    void *p = NULL, *q = NULL;
    BERTH_SCOPE("first layer")
    {
        berth_status status = berth_allocate(a, 3000, BERTH_ALIGNMENT, NULL, &p);
        printf("3000: %s\n", berth_status_name(status));
        status = berth_allocate(a, 2000, BERTH_ALIGNMENT, NULL, &q);
        printf("2000: %s\n", berth_status_name(status));
        if (status != BERTH_OK)
            printf("because: %s\n", berth_last_error()->message);
    }
    berth_deallocate(a, p, 3000, NULL);
    berth_deallocate(a, q, 2000, NULL);
    if (argc > 1 && strcmp(argv[1], "leak") == 0) {
        berth_request request = BERTH_REQUEST_INIT;
        request.label = "forgotten";
        (void)berth_allocate(a, 100, BERTH_ALIGNMENT, &request, &p);
    }
    if (argc > 1 && strcmp(argv[1], "twice") == 0)
        printf("again: %s\n", berth_status_name(berth_deallocate(a, p, 3000, NULL)));
    return 0;
}
