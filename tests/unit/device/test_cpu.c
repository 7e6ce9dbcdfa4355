/* The CPU device: its kinds of memory, copies that may overlap, and address space in pieces. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "refuse_call.h"

static const berth_device cpu = {BERTH_DEVICE_CPU, 0};

static void memory_is_aligned_and_whole(void **state)
{
    (void)state;
    const berth_memory_kind kinds[] = {BERTH_MEMORY_DEVICE, BERTH_MEMORY_PINNED, BERTH_MEMORY_MANAGED};
    const size_t sizes[] = {1, 63, 4096, 4097, 300000};
    for (size_t k = 0; k < BERTH_COUNT_OF(kinds); k++)
        for (size_t s = 0; s < BERTH_COUNT_OF(sizes); s++)
            for (size_t alignment = 1; alignment <= (size_t)1 << 22; alignment *= 8) {
                unsigned char *p = NULL;
                assert_int_equal(berth_device_allocate(cpu, kinds[k], sizes[s], alignment, NULL, (void **)&p),
                                 BERTH_OK);
                assert_true((uintptr_t)p % alignment == 0);
                memset(p, 0xab, sizes[s]);
                assert_int_equal(berth_zero(cpu, p, sizes[s], NULL, false), BERTH_OK);
                assert_true(p[0] == 0 && p[sizes[s] - 1] == 0);
                assert_int_equal(berth_device_release(cpu, kinds[k], p, sizes[s], NULL), BERTH_OK);
            }
}

static int notes;
static void count_notes(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level;
    notes += strstr(line, "RLIMIT_MEMLOCK") != NULL;
}

static void pinned_memory_works_where_locking_is_forbidden(void **state)
{
    (void)state;
    /* The superuser may lock without limit; then there is nothing to say and the memory works all the same.
     */
    struct rlimit old, none = {0, 0};
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
    none.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    berth_log_set(count_notes, NULL, BERTH_LOG_DEBUG);
    for (int i = 0; i < 3; i++) {
        char *p = NULL;
        assert_int_equal(berth_device_allocate(cpu, BERTH_MEMORY_PINNED, 10000, 64, NULL, (void **)&p),
                         BERTH_OK);
        memset(p, 1, 10000);
        assert_int_equal(berth_device_release(cpu, BERTH_MEMORY_PINNED, p, 10000, NULL), BERTH_OK);
    }
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_true(notes <= 1);
    setrlimit(RLIMIT_MEMLOCK, &old);
}

static void overlapping_copies_move(void **state)
{
    (void)state;
    berth_stream *stream;
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    for (int on_stream = 0; on_stream < 2; on_stream++)
        for (int kind = BERTH_COPY_INFER; kind <= BERTH_COPY_DEVICE_TO_DEVICE; kind++) {
            char text[] = "0123456789";
            assert_int_equal(
                berth_copy(cpu, text + 2, text, 8, (berth_copy_kind)kind, on_stream ? stream : NULL, true),
                BERTH_OK);
            assert_string_equal(text, "0101234567");
        }
    berth_stream_destroy(stream);
}

static void address_space_is_mapped_in_pieces(void **state)
{
    (void)state;
    size_t piece = 0;
    assert_int_equal(berth__device_granularity(cpu, &piece), BERTH_OK);
    char *base = NULL;
    const size_t whole = piece * 1024;
    assert_int_equal(berth__device_reserve(cpu, whole, (void **)&base), BERTH_OK);
    assert_int_equal(berth__device_map(cpu, base + 2 * piece, 3 * piece), BERTH_OK);
    memset(base + 2 * piece, 7, 3 * piece);
    assert_int_equal(berth__device_map(cpu, base + 5 * piece, piece), BERTH_OK);
    memset(base + 5 * piece, 8, piece);
    assert_int_equal(base[5 * piece - 1], 7);
    assert_int_equal(berth__device_unmap(cpu, base + 2 * piece, 3 * piece), BERTH_OK);
    assert_int_equal(base[5 * piece], 8);
    assert_int_equal(berth__device_map(cpu, base + 2 * piece, 3 * piece), BERTH_OK);
    base[2 * piece] = 9;
    assert_int_equal(berth__device_map(cpu, base + 1, piece), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth__device_map(cpu, base, piece + 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth__device_unmap(cpu, base, 0), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth__device_unreserve(cpu, base, whole), BERTH_OK);
}

/* What the kernel refuses is told in its words. */
static void what_the_system_refuses_is_told(void **state)
{
    (void)state;
    char *inside = (char *)((uintptr_t)&notes & ~(uintptr_t)1) + 1; /* no page begins there */
    assert_int_equal(berth_device_release(cpu, BERTH_MEMORY_PINNED, inside, 4096, NULL), BERTH_BAD_FREE);
    assert_true(strlen(berth_last_error()->driver_words) > 0);
    size_t piece = 0;
    void *base = NULL;
    assert_int_equal(berth__device_granularity(cpu, &piece), BERTH_OK);
    size_t most = SIZE_MAX / 4 / piece * piece;
    assert_int_equal(berth__device_reserve(cpu, most, &base), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(base);
    assert_int_equal(berth__device_reserve(cpu, piece, &base), BERTH_OK);
    assert_int_equal(berth__device_unreserve(cpu, (char *)base, piece), BERTH_OK);
    assert_int_equal(berth__device_map(cpu, base, piece), BERTH_OUT_OF_HOST_MEMORY); /* nothing is there */
    assert_int_equal(berth_last_error()->driver_code, ENOMEM);
}

/* Where a filter forbids locking, pinned memory works, and it is said once. */
static int try_without_mlock(void)
{
    if (!refuse_call(SYS_mlock))
        return 77;
    notes = 0;
    berth_log_set(count_notes, NULL, BERTH_LOG_DEBUG);
    for (int i = 0; i < 3; i++) {
        char *p = NULL;
        if (berth_device_allocate(cpu, BERTH_MEMORY_PINNED, 10000, 64, NULL, (void **)&p) != BERTH_OK)
            return 1;
        memset(p, 1, 10000);
        if (berth_device_release(cpu, BERTH_MEMORY_PINNED, p, 10000, NULL) != BERTH_OK)
            return 2;
    }
    return notes == 1 ? 0 : 3;
}

static void a_refused_lock_is_said_once(void **state)
{
    (void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* those make mlock do nothing */
    pid_t child = fork();
    if (child == 0)
        _exit(try_without_mlock());
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
#else
    (void)try_without_mlock;
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_whole),
        cmocka_unit_test(pinned_memory_works_where_locking_is_forbidden),
        cmocka_unit_test(overlapping_copies_move),
        cmocka_unit_test(address_space_is_mapped_in_pieces),
        cmocka_unit_test(what_the_system_refuses_is_told),
        cmocka_unit_test(a_refused_lock_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
