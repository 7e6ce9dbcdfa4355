/* What the tests of shared arenas have in common: a small plan, an arena of it, and other processes. */
#ifndef BERTH_TESTS_SHARED_TEST_H
#define BERTH_TESTS_SHARED_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/berth.h"

enum { CHILD_SECONDS = 60, GONE_MS = 10000 };

/* Four buffers that live together, one with a stricter alignment than a page has, and one outside the plan. */
static const berth_plan_allocation usual_buffers[] = {
    {sizeof(berth_plan_allocation), 1000, 64, 5, BERTH_NO_OFFSET, "weights.0"},
    {sizeof(berth_plan_allocation), 70000, 65536, 5, BERTH_NO_OFFSET, "weights.1"},
    {sizeof(berth_plan_allocation), 64, 1, BERTH_NEVER_FREED, BERTH_NO_OFFSET, "outside"},
    {sizeof(berth_plan_allocation), 64, 64, 5, BERTH_NO_OFFSET, "bias"},
    {sizeof(berth_plan_allocation), 8, 8, 5, BERTH_NO_OFFSET, NULL},
};
enum { USUAL_COUNT = sizeof usual_buffers / sizeof usual_buffers[0] };

static inline berth_plan *usual_plan(void)
{
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_plan_set(plan, usual_buffers, USUAL_COUNT, NULL), BERTH_OK);
    return plan;
}

static inline berth_shared *usual_arena(void)
{
    berth_plan *plan = usual_plan();
    berth_shared *s = NULL;
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OK);
    berth_plan_release(plan);
    return s;
}

static inline int descriptor_of(berth_shared *s, berth_shared_access access)
{
    int descriptor = -1;
    assert_int_equal(berth_shared_descriptor(s, access, &descriptor), BERTH_OK);
    return descriptor;
}

/* Attaches for `access`; NULL on failure, since children use it too. */
static inline berth_shared *attached(int descriptor, berth_shared_access access)
{
    berth_shared_attach_options options = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    options.access = access;
    berth_shared *s = NULL;
    return berth_shared_attach(descriptor, &options, &s) == BERTH_OK ? s : NULL;
}

static inline berth_shared *again(berth_shared *s, berth_shared_access access)
{
    int descriptor = descriptor_of(s, access);
    berth_shared *other = attached(descriptor, access);
    assert_non_null(other);
    close(descriptor);
    return other;
}

static inline char *data_of(berth_shared *s, size_t id)
{
    void *data = NULL;
    return berth_shared_get(s, id, &data, NULL) == BERTH_OK ? data : NULL;
}

static inline berth_shared_info info_of(berth_shared *s)
{
    berth_shared_info info = BERTH_SHARED_INFO_INIT;
    assert_int_equal(berth_shared_info_get(s, &info), BERTH_OK);
    return info;
}

/* ---- Room for descriptors ---------------------------------------------------------------------------- */

static inline int next_descriptor(void)
{
    int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(descriptor);
    return descriptor;
}

/* No new descriptors until the limit that it answers is set again. */
static inline struct rlimit forbid_descriptors(void)
{
    struct rlimit was, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = (rlim_t)next_descriptor();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return was;
}

/* ---- Other processes --------------------------------------------------------------------------------- */

typedef bool (*child_fn)(void *context);

/* In a child an assertion of cmocka would go astray: `run` answers whether all was well. */
static inline pid_t start_child(child_fn run, void *context)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        _exit(run(context) ? 0 : 1);
    }
    assert_true(child > 0);
    return child;
}

static inline void expect_good(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static inline void kill_child(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

/* ---- Memory that goes -------------------------------------------------------------------------------- */

/* The kernel tells when the memory behind a descriptor has really gone. */
static inline int watch_memory(int descriptor)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    assert_true(watch >= 0);
    assert_true(inotify_add_watch(watch, path, IN_DELETE_SELF) >= 0);
    return watch;
}

static inline bool has_gone(int watch, int timeout_ms)
{
    struct pollfd p = {.fd = watch, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

#endif
