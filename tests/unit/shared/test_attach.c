/* Making arenas and attaching to them: offsets, labels, figures, and descriptors that are not what they should be. */
#include <sys/resource.h>

#include "shared/shared.h"
#include "shared_test.h"

static void test_every_handle_sees_the_same_bytes_at_the_same_offsets(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    berth_shared *reader = again(s, BERTH_SHARED_READ);
    berth_plan *plan = usual_plan();
    assert_int_equal(berth_shared_count(s), USUAL_COUNT);
    for (size_t id = 0; id < USUAL_COUNT; id++) {
        berth_plan_allocation planned = BERTH_PLAN_ALLOCATION_INIT;
        assert_int_equal(berth_plan_get(plan, id, &planned), BERTH_OK);
        if (planned.freed_at == BERTH_NEVER_FREED)
            continue;
        size_t size = 0;
        void *data = NULL;
        assert_int_equal(berth_shared_get(reader, id, &data, &size), BERTH_OK);
        assert_int_equal(size, planned.size_bytes);
        assert_int_equal((uintptr_t)data % planned.alignment, 0);
        assert_int_equal(data_of(s, id) - data_of(s, 0), (char *)data - data_of(reader, 0));
        assert_ptr_not_equal(data, data_of(s, id));
        assert_int_equal(*(char *)data, 0);
        memset(data_of(s, id), (int)id + 1, size);
        assert_int_equal(((char *)data)[size - 1], (char)(id + 1));
    }
    berth_shared_info info = info_of(reader);
    assert_int_equal(info.total_bytes, berth_plan_total_bytes(plan));
    assert_int_equal(info.fingerprint, berth_plan_fingerprint(plan));
    berth_plan_release(plan);
    berth_shared_release(reader);
    berth_shared_release(s);
}

static void test_buffers_are_found_by_label(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    for (size_t id = 0; id < USUAL_COUNT; id++) {
        size_t found = 99;
        if (usual_buffers[id].label)
            assert_int_equal(berth_shared_find(s, usual_buffers[id].label, &found), BERTH_OK);
        assert_int_equal(found, usual_buffers[id].label ? id : 99);
    }
    size_t found = 99;
    void *data = NULL;
    assert_int_equal(berth_shared_find(s, "weights", &found), BERTH_NOT_FOUND);
    assert_int_equal(berth_shared_find(s, "", &found), BERTH_NOT_FOUND);
    assert_int_equal(berth_shared_find(s, "zzz", &found), BERTH_NOT_FOUND);
    assert_int_equal(found, 99);
    assert_int_equal(berth_shared_get(s, 2, &data, NULL), BERTH_NOT_FOUND); /* outside the plan */
    assert_int_equal(berth_shared_get(s, USUAL_COUNT, &data, NULL), BERTH_NOT_FOUND);
    berth_shared_release(s);
}

static void test_of_equal_labels_the_first_is_found(void **state)
{
    (void)state;
    berth_plan_allocation list[7];
    for (size_t i = 0; i < 7; i++)
        list[i] = (berth_plan_allocation){sizeof list[i], 64, 64, 7, BERTH_NO_OFFSET, i < 3 ? "b" : "a"};
    berth_plan *plan = NULL;
    berth_shared *s = NULL;
    size_t id = 0;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_plan_set(plan, list, 7, NULL), BERTH_OK);
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OK);
    assert_int_equal(berth_shared_find(s, "a", &id), BERTH_OK);
    assert_int_equal(id, 3);
    assert_int_equal(berth_shared_find(s, "b", &id), BERTH_OK);
    assert_int_equal(id, 0);
    berth_plan_release(plan);
    berth_shared_release(s);
}

static void test_the_plan_comes_back(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    berth_shared *reader = again(s, BERTH_SHARED_READ);
    berth_plan *plan = usual_plan(), *copy = NULL;
    assert_int_equal(berth_shared_plan(reader, &copy), BERTH_OK);
    assert_int_equal(berth_plan_compare(plan, copy, NULL), BERTH_OK);
    assert_int_equal(berth_plan_fingerprint(plan), berth_plan_fingerprint(copy));
    for (size_t id = 0; id < USUAL_COUNT; id++) {
        berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT, b = BERTH_PLAN_ALLOCATION_INIT;
        assert_int_equal(berth_plan_get(plan, id, &a), BERTH_OK);
        assert_int_equal(berth_plan_get(copy, id, &b), BERTH_OK);
        assert_int_equal(a.offset, b.offset);
        assert_true(a.label == b.label || strcmp(a.label, b.label) == 0);
    }
    berth_plan_release(plan);
    berth_plan_release(copy);
    berth_shared_release(reader);
    berth_shared_release(s);
}

static void test_memory_goes_with_the_last_handle(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    berth_shared *reader = again(s, BERTH_SHARED_READ);
    int descriptor = descriptor_of(s, BERTH_SHARED_READ), watch = watch_memory(descriptor);
    close(descriptor);
    berth_shared_release(s);
    assert_false(has_gone(watch, 0));
    berth_shared_release(berth_shared_retain(reader));
    assert_false(has_gone(watch, 0));
    berth_shared_release(reader);
    assert_true(has_gone(watch, GONE_MS));
    close(watch);
}

static void test_names_and_reserved_memory(void **state)
{
    (void)state;
    berth_plan *plan = usual_plan();
    berth_shared *s = NULL;
    berth_shared_options options = BERTH_SHARED_OPTIONS_INIT;
    char name[300], path[40], link[300] = "";
    options.name = "seven";
    options.reserve = true;
    assert_int_equal(berth_shared_create(plan, &options, &s), BERTH_OK);
    int descriptor = descriptor_of(s, BERTH_SHARED_READ);
    struct stat file;
    assert_int_equal(fstat(descriptor, &file), 0);
    assert_true(file.st_blocks * 512 >= file.st_size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    assert_true(readlink(path, link, sizeof link - 1) > 0);
    assert_non_null(strstr(link, "memfd:seven"));
    close(descriptor);
    berth_shared_release(s);

    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    options.name = name;
    assert_int_equal(berth_shared_create(plan, &options, &s), BERTH_INVALID_ARGUMENT);
    assert_null(s);
    berth_plan_release(plan);
}

static void test_plans_that_cannot_be_shared(void **state)
{
    (void)state;
    berth_plan *plan = NULL;
    berth_shared *s = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_INVALID_ARGUMENT); /* empty */
    berth_plan_allocation outside = BERTH_PLAN_ALLOCATION_INIT;
    outside.size_bytes = 10;
    assert_int_equal(berth_plan_set(plan, &outside, 1, NULL), BERTH_OK);
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_INVALID_ARGUMENT);
    outside.size_bytes = UINT64_C(1) << 62;
    outside.freed_at = 1;
    assert_int_equal(berth_plan_set(plan, &outside, 1, NULL), BERTH_OK);
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OVERFLOW);
    assert_null(s);
    berth_plan_release(plan);
}

/* In a child, since there is no way back: SIGXFSZ would end it. */
static bool meet_the_limit(void *context)
{
    struct rlimit limit = {4096, 4096};
    berth_shared *s = NULL;
    return setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           berth_shared_create(context, NULL, &s) == BERTH_OVER_BUDGET;
}

static void test_a_limit_of_files_is_an_error_not_a_signal(void **state)
{
    (void)state;
    berth_plan *plan = usual_plan();
    expect_good(start_child(meet_the_limit, plan));
    berth_plan_release(plan);
}

static void test_attaching_asks_for_what_it_needs(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *other = NULL;
    int reading = descriptor_of(s, BERTH_SHARED_READ), writing = descriptor_of(s, BERTH_SHARED_WRITE);
    berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    o.fingerprint = info_of(s).fingerprint ^ 1;
    assert_int_equal(berth_shared_attach(reading, &o, &other), BERTH_MISMATCH);
    o.fingerprint ^= 1;
    o.generation = 1;
    assert_int_equal(berth_shared_attach(reading, &o, &other), BERTH_MISMATCH);
    assert_non_null(strstr(berth_last_error()->message, "stale"));
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_attach(reading, &o, &other), BERTH_OK);
    berth_shared_release(other);
    o.seals = BERTH_SHARED_SEAL_CONTENT;
    assert_int_equal(berth_shared_attach(reading, &o, &other), BERTH_MISMATCH);
    o.seals = BERTH_SHARED_SEAL_SIZE;
    o.access = BERTH_SHARED_WRITE;
    assert_int_equal(berth_shared_attach(reading, &o, &other), BERTH_UNSUPPORTED);
    assert_int_equal(berth_shared_attach(writing, &o, &other), BERTH_OK);
    berth_shared_release(other);
    assert_int_equal(berth_shared_retire(s), BERTH_OK);
    assert_int_equal(berth_shared_attach(writing, &o, &other), BERTH_CANCELLED);
    assert_null(other);
    close(reading), close(writing);
    berth_shared_release(s);
}

/* ---- Descriptors that are not what they should be ---------------------------------------------------- */

static berth_status try_attach(int descriptor)
{
    berth_shared *s = NULL;
    berth_status status = berth_shared_attach(descriptor, NULL, &s);
    if (status != BERTH_OK)
        assert_null(s);
    berth_shared_release(s);
    return status;
}

static int memory_of(const void *bytes, size_t count, uint64_t size, int seals)
{
    int descriptor = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, (off_t)size), 0);
    assert_int_equal(pwrite(descriptor, bytes, count, 0), (ssize_t)count);
    assert_int_equal(fcntl(descriptor, F_ADD_SEALS, seals), 0);
    return descriptor;
}

static void test_other_descriptors_are_refused(void **state)
{
    (void)state;
    int pipes[2], file = open("/proc/self/exe", O_RDONLY), plain = memfd_create("plain", 0);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(try_attach(-1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(try_attach(9999), BERTH_INVALID_ARGUMENT);
    assert_int_equal(try_attach(pipes[0]), BERTH_BAD_DATA);
    assert_int_equal(try_attach(file), BERTH_BAD_DATA);
    assert_int_equal(try_attach(plain), BERTH_BAD_DATA);
    int sealed = memory_of("", 0, 0, F_SEAL_SHRINK | F_SEAL_GROW);
    assert_int_equal(try_attach(sealed), BERTH_BAD_DATA);
    close(pipes[0]), close(pipes[1]), close(file), close(plain), close(sealed);
}

typedef struct forged {
    char *image;
    size_t image_bytes; /* whatever the head says */
    berth__shared_head *head;
    berth__shared_entry *entries;
} forged;

static forged forge(void)
{
    berth_plan *plan = usual_plan();
    berth__plan_content *content = NULL;
    forged f = {0};
    assert_int_equal(berth__plan_content_of(plan, &content), BERTH_OK);
    assert_int_equal(berth__shared_image_make(content, &f.image), BERTH_OK);
    f.head = (berth__shared_head *)(void *)f.image;
    f.image_bytes = f.head->image_bytes;
    f.entries = (berth__shared_entry *)(void *)(f.image + BERTH__SHARED_TABLE);
    berth__plan_content_release(content);
    berth_plan_release(plan);
    return f;
}

static berth_status try_image(const forged *f, uint64_t file_bytes, int seals)
{
    int descriptor =
        memory_of(f->image, f->image_bytes < file_bytes ? f->image_bytes : file_bytes, file_bytes, seals);
    berth_status status = try_attach(descriptor);
    close(descriptor);
    return status;
}

static void test_only_memory_that_cannot_be_cut_short_is_mapped(void **state)
{
    (void)state;
    forged f = forge();
    uint64_t bytes = berth__shared_file_bytes(f.head);
    assert_int_equal(try_image(&f, bytes, F_SEAL_SHRINK | F_SEAL_GROW), BERTH_OK);
    assert_int_equal(try_image(&f, bytes, F_SEAL_SHRINK), BERTH_BAD_DATA);
    assert_int_equal(try_image(&f, bytes, F_SEAL_GROW), BERTH_BAD_DATA);
    assert_int_equal(try_image(&f, bytes, 0), BERTH_BAD_DATA);
    assert_int_equal(try_image(&f, bytes - 1, F_SEAL_SHRINK | F_SEAL_GROW), BERTH_BAD_DATA);
    assert_int_equal(try_image(&f, bytes + 1, F_SEAL_SHRINK | F_SEAL_GROW), BERTH_BAD_DATA);
    for (uint64_t cut = 0; cut < f.head->image_bytes; cut += 7)
        assert_int_equal(try_image(&f, cut, F_SEAL_SHRINK | F_SEAL_GROW), BERTH_BAD_DATA);
    berth__heap_free(f.image);
}

static void test_every_damaged_bit_is_noticed(void **state)
{
    (void)state;
    forged f = forge();
    uint64_t bytes = berth__shared_file_bytes(f.head), image_bytes = f.head->image_bytes;
    for (size_t at = 0; at < image_bytes; at++) {
        if (at >= sizeof(berth__shared_head) && at < BERTH__SHARED_TABLE)
            continue; /* live words, and nothing */
        f.image[at] = (char)(f.image[at] ^ (1 << at % 8));
        berth_status status = try_image(&f, bytes, F_SEAL_SHRINK | F_SEAL_GROW);
        assert_true(status == BERTH_BAD_DATA || status == BERTH_UNSUPPORTED);
        f.image[at] = (char)(f.image[at] ^ (1 << at % 8));
    }
    assert_int_equal(try_image(&f, bytes, F_SEAL_SHRINK | F_SEAL_GROW), BERTH_OK);
    berth__heap_free(f.image);
}

/* What a forger with a good checksum may write: a field of the head or of entry 1 or 2, and a value that it must not have. */
typedef struct forgery {
    size_t at, bytes;
    uint64_t value;
} forgery;

#define HEAD(field, value)                                                                   \
    {                                                                                        \
        offsetof(berth__shared_head, field), sizeof(((berth__shared_head *)0)->field), value \
    }
#define ENTRY(id, field, value)                                                                          \
    {                                                                                                    \
        BERTH__SHARED_TABLE + (id) * sizeof(berth__shared_entry) + offsetof(berth__shared_entry, field), \
            sizeof(((berth__shared_entry *)0)->field), value                                             \
    }

static const forgery forgeries[] = {
    HEAD(arena_offset, 0),
    HEAD(arena_offset, 65537),
    HEAD(arena_offset, UINT64_MAX - 65535),
    HEAD(arena_bytes, 0),
    HEAD(arena_bytes, UINT64_MAX),
    HEAD(arena_bytes, UINT64_C(1) << 63),
    HEAD(alignment, 0),
    HEAD(alignment, 32),
    HEAD(alignment, 65537),
    HEAD(alignment, UINT64_C(1) << 31),
    HEAD(alignment, UINT64_C(1) << 63),
    HEAD(count, 0),
    HEAD(count, 100),
    HEAD(count, UINT32_MAX),
    ENTRY(1, offset, 8),
    ENTRY(1, offset, UINT64_C(1) << 32),
    ENTRY(1, offset, UINT64_MAX - 65535),
    ENTRY(1, offset, BERTH_NO_OFFSET),
    ENTRY(1, size_bytes, 0),
    ENTRY(1, size_bytes, UINT64_MAX),
    ENTRY(1, size_bytes, UINT64_C(1) << 32),
    ENTRY(1, alignment, 0),
    ENTRY(1, alignment, 3),
    ENTRY(1, alignment, 131072),
    ENTRY(1, alignment, UINT64_C(1) << 63),
    ENTRY(1, label, 1000),
    ENTRY(1, label, UINT32_MAX - 1),
    ENTRY(1, by_label, USUAL_COUNT),
    ENTRY(1, by_label, UINT32_MAX),
    ENTRY(1, freed_at, UINT32_MAX), /* never freed, and has a place */
    ENTRY(2, freed_at, 5),          /* freed, and has none */
};

static void expect_refused(forged *f, uint64_t file_bytes, size_t which)
{
    f->head->checksum = berth__shared_checksum(f->image);
    berth_status status = try_image(f, file_bytes, F_SEAL_SHRINK | F_SEAL_GROW);
    if (status != BERTH_BAD_DATA)
        fail_msg("forgery %zu: %s", which, berth_status_name(status));
    berth__heap_free(f->image);
}

static void test_a_forger_with_a_good_checksum_leads_nowhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < BERTH_COUNT_OF(forgeries); i++) {
        forged f = forge();
        uint64_t bytes = berth__shared_file_bytes(f.head);
        memcpy(f.image + forgeries[i].at, &forgeries[i].value, forgeries[i].bytes);
        expect_refused(&f, bytes, i);
    }
    forged f = forge();
    f.image[f.head->image_bytes - 1] = 'x'; /* a label without an end */
    expect_refused(&f, berth__shared_file_bytes(f.head), BERTH_COUNT_OF(forgeries));
}

static void test_a_forged_plan_is_told_when_it_is_asked_for(void **state)
{
    (void)state;
    forged f = forge();
    uint64_t offset = f.entries[3].offset;
    f.entries[3].offset = f.entries[0].offset; /* inside the arena, aligned, and not alone there */
    f.head->checksum = berth__shared_checksum(f.image);
    int descriptor = memory_of(f.image, f.head->image_bytes, berth__shared_file_bytes(f.head),
                               F_SEAL_SHRINK | F_SEAL_GROW);
    berth_shared *s = attached(descriptor, BERTH_SHARED_READ);
    berth_plan *plan = NULL;
    assert_non_null(s);
    assert_int_equal(berth_shared_plan(s, &plan), BERTH_MISMATCH);
    assert_null(plan);
    berth_shared_release(s);
    close(descriptor);

    f.entries[3].offset = offset;
    f.entries[3].freed_at = 1;
    f.head->checksum = berth__shared_checksum(f.image);
    descriptor = memory_of(f.image, f.head->image_bytes, berth__shared_file_bytes(f.head),
                           F_SEAL_SHRINK | F_SEAL_GROW);
    s = attached(descriptor, BERTH_SHARED_READ);
    assert_non_null(s);
    assert_int_equal(berth_shared_plan(s, &plan), BERTH_BAD_DATA);
    berth_shared_release(s);
    close(descriptor);
    berth__heap_free(f.image);
}

static void test_what_others_write_over_the_description_changes_nothing(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    berth_shared *reader = again(s, BERTH_SHARED_READ);
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    char noise[BERTH__SHARED_TABLE + 400];
    memset(noise, 0xff, sizeof noise);
    assert_int_equal(pwrite(descriptor, noise, sizeof noise, 0), (ssize_t)sizeof noise);
    size_t id = 0, size = 0;
    void *data = NULL;
    assert_int_equal(berth_shared_find(reader, "bias", &id), BERTH_OK);
    assert_int_equal(berth_shared_get(reader, id, &data, &size), BERTH_OK);
    assert_int_equal(size, 64);
    assert_int_equal(*(char *)data, 0);
    assert_int_equal(try_attach(descriptor), BERTH_BAD_DATA);
    close(descriptor);
    berth_shared_release(reader);
    berth_shared_release(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_handle_sees_the_same_bytes_at_the_same_offsets),
        cmocka_unit_test(test_buffers_are_found_by_label),
        cmocka_unit_test(test_of_equal_labels_the_first_is_found),
        cmocka_unit_test(test_the_plan_comes_back),
        cmocka_unit_test(test_memory_goes_with_the_last_handle),
        cmocka_unit_test(test_names_and_reserved_memory),
        cmocka_unit_test(test_plans_that_cannot_be_shared),
        cmocka_unit_test(test_a_limit_of_files_is_an_error_not_a_signal),
        cmocka_unit_test(test_attaching_asks_for_what_it_needs),
        cmocka_unit_test(test_other_descriptors_are_refused),
        cmocka_unit_test(test_only_memory_that_cannot_be_cut_short_is_mapped),
        cmocka_unit_test(test_every_damaged_bit_is_noticed),
        cmocka_unit_test(test_a_forger_with_a_good_checksum_leads_nowhere),
        cmocka_unit_test(test_a_forged_plan_is_told_when_it_is_asked_for),
        cmocka_unit_test(test_what_others_write_over_the_description_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
