/* The mapped source: the kernel itself is asked whether the pages are as they were ordered. */
#include "unit/wrap/wrap_test.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static berth_allocator *make(bool huge, bool prefault, bool lock)
{
    berth_mapped_options options = BERTH_MAPPED_OPTIONS_INIT;
    options.huge_pages = huge;
    options.prefault = prefault;
    options.lock_pages = lock;
    berth_allocator *a = NULL;
    assert_int_equal(berth_mapped_allocator_create(&options, &a), BERTH_OK);
    return a;
}

/* What /proc says of the mapping that `p` lies in: a line's words, "Locked:" for instance. */
static bool smaps_of(const void *p, const char *line_start, char *out, size_t capacity)
{
    FILE *smaps = fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false, found = false;
    while (smaps && !found && fgets(line, sizeof line, smaps)) {
        unsigned long from = 0, to = 0;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (inside && strncmp(line, line_start, strlen(line_start)) == 0)
            found = snprintf(out, capacity, "%s", line + strlen(line_start)) > 0;
    }
    if (smaps)
        fclose(smaps);
    return found;
}

static size_t resident_pages(const void *p, size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = (size_bytes + page - 1) / page, resident = 0;
    unsigned char *vector = malloc(count);
    assert_int_equal(mincore((void *)(uintptr_t)p, size_bytes, vector), 0);
    for (size_t i = 0; i < count; i++)
        resident += vector[i] & 1;
    free(vector);
    return resident;
}

enum { SIZE = 1 << 20 };

static void prefaulted_pages_are_there(void **state)
{
    (void)state;
    berth_allocator *lazy = make(false, false, false), *eager = make(false, true, false);
    void *p = take(lazy, SIZE), *q = take(eager, SIZE);
    size_t pages = SIZE / (size_t)sysconf(_SC_PAGESIZE);
    assert_true(resident_pages(p, SIZE) < pages);
    assert_int_equal(resident_pages(q, SIZE), pages);
    give(lazy, p);
    give(eager, q);
    berth_allocator_release(lazy);
    berth_allocator_release(eager);
}

static void locked_pages_are_locked(void **state)
{
    (void)state;
    berth_allocator *a = make(false, false, true);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    void *p = NULL;
    berth_status status = berth_allocate(a, 65536, 64, NULL, &p);
    if (status != BERTH_OK) { /* no allowance at all: then the message says what to raise */
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_non_null(strstr(berth_last_error()->message, "RLIMIT_MEMLOCK"));
    } else {
        char words[64];
        assert_true(smaps_of(p, "Locked:", words, sizeof words));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* those make mlock do nothing */
        assert_true(strtoul(words, NULL, 10) > 0);
#endif
        give(a, p);
    }
    berth_allocator_release(a);
}

static void huge_pages_are_asked_for(void **state)
{
    (void)state;
    berth_allocator *a = make(true, false, false);
    void *p = take(a, (size_t)5 << 20), *small = take(a, 100);
    assert_int_equal((uintptr_t)p % (2 << 20), 0);
    memset(p, 1, (size_t)5 << 20);
    char words[256];
    assert_true(smaps_of(p, "VmFlags:", words, sizeof words));
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0)
        assert_non_null(strstr(words, " hg")); /* MADV_HUGEPAGE */
    give(a, p);
    give(a, small);
    berth_allocator_release(a);
}

static void a_node_can_be_chosen(void **state)
{
    (void)state;
    berth_mapped_options options = BERTH_MAPPED_OPTIONS_INIT;
    berth_allocator *a = NULL;
    options.numa_node = 0;
    options.prefault = true;
    berth_status status = berth_mapped_allocator_create(&options, &a);
    if (status == BERTH_UNSUPPORTED) {
        assert_non_null(strstr(berth_last_error()->message, "libnuma"));
        skip();
    }
    assert_int_equal(status, BERTH_OK);
    void *p = take(a, SIZE);
    char words[512] = "";
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    char line[512], start[32];
    snprintf(start, sizeof start, "%lx ", (unsigned long)(uintptr_t)p);
    while (maps && fgets(line, sizeof line, maps))
        if (strncmp(line, start, strlen(start)) == 0)
            snprintf(words, sizeof words, "%s", line);
    if (maps) {
        fclose(maps);
        assert_true(strstr(words, "bind:0") || strstr(words, "prefer"));
        assert_non_null(strstr(words, "N0="));
    }
    give(a, p);
    berth_allocator_release(a);
    options.numa_node = 100000;
    assert_int_equal(berth_mapped_allocator_create(&options, &a), BERTH_NOT_FOUND);
    assert_non_null(strstr(berth_last_error()->message, "100000"));
    options.numa_node = -7;
    assert_int_equal(berth_mapped_allocator_create(&options, &a), BERTH_INVALID_ARGUMENT);
}

/* Every page of a freed block is gone: the kernel knows nothing at its address. */
static void a_free_unmaps_all_of_it(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    berth_allocator *a = NULL;
    assert_int_equal(berth_mapped_allocator_create(NULL, &a), BERTH_OK);
    char *p = take(a, 5 * page);
    unsigned char resident[5];
    assert_int_equal(mincore(p, 5 * page, resident), 0);
    give(a, p);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(mincore(p + i * page, page, resident), -1);
    berth_allocator_release(a);
}

static void blocks_are_mappings(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_mapped_allocator_create(NULL, &a), BERTH_OK);
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 100, 1 << 16, NULL, &p), BERTH_OK);
    assert_int_equal((uintptr_t)p % (1 << 16), 0);
    size_t size = 0;
    assert_int_equal(berth_requested_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, 100);
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, (size_t)sysconf(_SC_PAGESIZE));
    give(a, p);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_allocate(a, (size_t)1 << 60, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefaulted_pages_are_there), cmocka_unit_test(locked_pages_are_locked),
        cmocka_unit_test(huge_pages_are_asked_for),   cmocka_unit_test(a_node_can_be_chosen),
        cmocka_unit_test(blocks_are_mappings),        cmocka_unit_test(a_free_unmaps_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
