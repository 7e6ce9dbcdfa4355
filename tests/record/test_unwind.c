/* The recorder's own unwinder says what the compiler's says, frame by frame, or that it does not know. */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include <cmocka.h>

#include "preload/recorder.h"
#include "preload/unwind.h"

void *recorder_pages(size_t size_bytes)
{
    return calloc(1, size_bytes);
}
void recorder_pages_give(void *pages, size_t size_bytes)
{
    (void)size_bytes;
    free(pages);
}

/* ---- Comparing ---------------------------------------------------------------------------------------- */

static uint64_t drawn = 1;
static uint32_t draw(uint32_t below)
{
    drawn = drawn * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)((drawn >> 32) * below >> 32);
}

static uint32_t known, unknown; /* stacks */

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *argument)
{
    recorder_walk *w = argument;
    uint64_t address = _Unwind_GetIP(context);
    if (!address)
        return _URC_END_OF_STACK;
    if (w->skipped++ == 0)
        return _URC_NO_REASON;
    w->slots[w->depth] = (const uint64_t *)_Unwind_GetCFA(context) - 1;
    w->frames[w->depth++] = address;
    return w->depth == w->most ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static __attribute__((noinline)) void compare(uint32_t most)
{
    recorder_walk mine = {.most = most}, theirs = {.most = most};
    if (!recorder_unwind(&mine, 1)) {
        unknown++;
        return;
    }
    known++;
    _Unwind_Backtrace(take_frame, &theirs);
    assert_int_equal(mine.depth, theirs.depth);
    assert_memory_equal(mine.frames, theirs.frames, mine.depth * sizeof mine.frames[0]);
    assert_memory_equal(mine.slots, theirs.slots, mine.depth * sizeof mine.slots[0]);
}

/* ---- Frames of all kinds ------------------------------------------------------------------------------ */

static void (*const kinds[])(uint32_t depth);
enum { KINDS = 7 };

static __attribute__((noinline)) void go_on(uint32_t depth)
{
    if (depth)
        kinds[draw(KINDS)](depth - 1);
    else
        compare(1 + draw(RECORDER_DEPTH_MOST));
    __asm__ volatile(""); /* no tail call */
}

static __attribute__((noinline)) void plain(uint32_t depth)
{
    volatile char room[100];
    room[0] = (char)depth;
    go_on(depth);
    room[1] = room[0];
}

/* As large as it likes: found by rbp. */
static __attribute__((noinline)) void flexible(uint32_t depth)
{
    volatile char *room = alloca(1 + draw(3000));
    room[0] = (char)depth;
    go_on(depth);
    room[0] = 1;
}

static __attribute__((noinline)) void aligned(uint32_t depth)
{
    _Alignas(64) volatile char room[128];
    room[0] = (char)depth;
    go_on(depth);
    room[1] = room[0];
}

static __attribute__((noinline)) void large(uint32_t depth)
{
    volatile char room[70000];
    room[0] = (char)depth;
    go_on(depth);
    room[69999] = room[0];
}

static uint32_t deep;
static int through(const void *a, const void *b)
{
    uint32_t depth = deep;
    (void)a, (void)b;
    go_on(depth);
    return 0;
}
/* Through functions of another library. */
static __attribute__((noinline)) void foreign(uint32_t depth)
{
    int two[2] = {1, 2};
    deep = depth;
    qsort(two, 2, sizeof two[0], through);
}

static __attribute__((noinline)) void crowded(uint32_t depth, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                              uint64_t e, uint64_t f, uint64_t g)
{
    volatile uint64_t sum = a + b + c + d + e + f + g;
    go_on(depth);
    sum = sum + 1;
}
/* With arguments on the stack, and a second half that is pushed while the call is prepared. */
static __attribute__((noinline)) void crowding(uint32_t depth)
{
    crowded(depth, draw(9), draw(9), draw(9), draw(9), draw(9), draw(9), draw(9));
}

static __attribute__((noinline)) void early(uint32_t depth)
{
    if (draw(2)) { /* the frame is made on one way only */
        volatile char room[300];
        room[0] = (char)depth;
        go_on(depth);
        room[1] = room[0];
        return;
    }
    go_on(depth);
}

static void (*const kinds[])(uint32_t depth) = {plain, flexible, aligned, large, foreign, crowding, early};

/* ---- Tests -------------------------------------------------------------------------------------------- */

static void *many(void *unused)
{
    for (int i = 0; i < 500; i++)
        go_on(draw(25));
    return unused;
}

static void test_frames(void **state)
{
    (void)state;
    known = unknown = 0;
    many(NULL);
#if defined(__x86_64__)
    assert_true(known > 400);
#else
    assert_int_equal(known, 0);
#endif
}

/* A thread's stack ends where the system began it. */
static void test_thread(void **state)
{
    pthread_t thread;
    known = 0;
    assert_int_equal(pthread_create(&thread, NULL, many, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
#if defined(__x86_64__)
    assert_true(known > 400);
#endif
    (void)state;
}

static void handler(int number)
{
    (void)number;
    compare(RECORDER_DEPTH_MOST);
}

/* What a signal has interrupted is a frame of another kind: nothing is said, or the same. */
static void test_signal(void **state)
{
    struct sigaction action = {.sa_handler = handler};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    unknown = 0;
    assert_int_equal(raise(SIGUSR1), 0);
#if defined(__x86_64__)
    assert_int_equal(unknown, 1);
#endif
    (void)state;
}

static __attribute__((noinline)) void huge(void)
{
    volatile char room[3 << 20];
    room[0] = 1;
    go_on(0);
    room[1] = room[0];
}

/* More than a word of the table can say. */
static void test_huge(void **state)
{
    known = unknown = 0;
    huge();
    assert_int_equal(known + unknown, 1);
    for (int i = 0; i < 100; i++)
        compare(RECORDER_DEPTH_MOST);
    (void)state;
}

static void test_forget(void **state)
{
    known = 0;
    many(NULL);
    recorder_unwind_forget();
    many(NULL);
#if defined(__x86_64__)
    assert_true(known > 800);
#endif
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_frames), cmocka_unit_test(test_thread),
                                       cmocka_unit_test(test_signal), cmocka_unit_test(test_huge),
                                       cmocka_unit_test(test_forget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
