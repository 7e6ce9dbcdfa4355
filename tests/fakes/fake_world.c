/* The stand-in's world: who may call what, and when. A lock around everything, the contexts of threads, failures on
 * demand, devices that break, captures, a fork, and the driver's own end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_memory.h"

enum { RULES = 16, COUNTERS = 96 };

typedef struct rule {
    char function[64];
    int countdown, code;
    bool persist;
} rule;

typedef struct counter {
    const char *address; /* of the name in the driver's own code: compared first */
    char function[64];
    long calls;
} counter;

static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static rule rules[RULES]; /* guard: world, like all that follows */
static counter counters[COUNTERS];
static bool initialized, forked, gone;
static int misuses, live;
static char misuse_words[200];
static int contexts[FAKE_CONTEXTS] = {0, 1, -1, -1, -1, -1, -1, -1}; /* the device of each; -1: not made */
static int broken[FAKE_DEVICES], breaks_next[FAKE_DEVICES];
static int global_captures;

static _Thread_local int current_stack[16], current_depth;
static _Thread_local unsigned
    capture_mode;                      /* what this thread's unsafe calls respect: 0 global ... 2 nothing */
static _Thread_local int own_captures; /* begun by this thread and not relaxed */
static _Thread_local int own_global_captures; /* of these, global ones */
_Thread_local bool fake_in_callback;

void fake_lock(void)
{
    pthread_mutex_lock(&world);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&world);
}

void fake_wait_for_progress(void)
{
    pthread_cond_wait(&progress, &world);
}

void fake_progress(void)
{
    pthread_cond_broadcast(&progress);
}

int fake_misuse(int code, const char *words)
{
    misuses++;
    snprintf(misuse_words, sizeof misuse_words, "%s", words);
    fprintf(stderr, "fake driver: misuse: %s\n", words);
    return code;
}

void fake_count_live(int change)
{
    live += change;
}

/* ---- Fork and exit ----------------------------------------------------------------------------------- */

/* A driver does not survive a fork: the child is told that nothing is initialized. */
static void in_child(void)
{
    pthread_mutex_init(&world, NULL);
    pthread_cond_init(&progress, NULL);
    forked = initialized;
    fake_streams_after_fork();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(fake_lock, fake_unlock, in_child);
}

/* The driver may be gone before those who use it. */
__attribute__((destructor)) static void leave_first(void)
{
    fake_lock();
    gone = true;
    fake_unlock();
}

/* ---- Entry ------------------------------------------------------------------------------------------- */

static counter *counter_of(const char *function)
{
    for (int i = 0; i < COUNTERS && counters[i].address; i++)
        if (counters[i].address == function)
            return &counters[i];
    for (int i = 0; i < COUNTERS; i++) {
        if (!counters[i].function[0]) {
            counters[i].address = function;
            snprintf(counters[i].function, sizeof counters[i].function, "%s", function);
        }
        if (strcmp(counters[i].function, function) == 0)
            return &counters[i];
    }
    return &counters[COUNTERS - 1];
}

static int strike(const char *function)
{
    for (int i = 0; i < RULES; i++) {
        rule *r = &rules[i];
        if (r->countdown == 0 || (strcmp(r->function, function) != 0 && strcmp(r->function, "*") != 0))
            continue;
        if (r->countdown > 1) {
            r->countdown--;
            continue;
        }
        if (!r->persist)
            r->countdown = 0;
        return r->code;
    }
    return FAKE_OK;
}

/* Whether an unsafe call of this thread would disturb a capture, by the rules of cuThreadExchangeStreamCaptureMode. */
static bool disturbs_capture(void)
{
    if (capture_mode == 2)
        return false;
    if (own_captures > 0)
        return true;
    return capture_mode == 0 && global_captures > own_global_captures;
}

static int check_rules(const char *function, unsigned needs)
{
    char words[200];
    if (fake_in_callback) {
        snprintf(words, sizeof words, "%s is called from a function that a stream runs", function);
        return fake_misuse(FAKE_NOT_PERMITTED, words);
    }
    if (needs & FAKE_INIT && !initialized) {
        snprintf(words, sizeof words, "%s is called before the driver is initialized", function);
        return fake_misuse(FAKE_NOT_INITIALIZED, words);
    }
    if (needs & FAKE_CURRENT && current_depth == 0) {
        snprintf(words, sizeof words, "%s is called while no device is current", function);
        return fake_misuse(FAKE_INVALID_CONTEXT, words);
    }
    if (needs & FAKE_WORKS && broken[fake_current()])
        return broken[fake_current()];
    if (needs & FAKE_UNSAFE && disturbs_capture()) {
        snprintf(words, sizeof words, "%s is called while a stream is captured, and ends the capture",
                 function);
        return fake_misuse(FAKE_CAPTURE_UNSUPPORTED, words);
    }
    return FAKE_OK;
}

int fake_enter(const char *function, unsigned needs)
{
    fake_lock();
    counter_of(function)->calls++;
    int code = gone                          ? FAKE_DEINITIALIZED
               : forked && needs & FAKE_INIT ? FAKE_NOT_INITIALIZED
                                             : strike(function);
    if (code == FAKE_OK)
        code = check_rules(function, needs);
    fake_unlock();
    return code;
}

void fake_init(void)
{
    fake_lock();
    initialized = true;
    fake_unlock();
}

/* ---- Contexts ---------------------------------------------------------------------------------------- */

int fake_current_context(void)
{
    return current_depth > 0 ? current_stack[current_depth - 1] : -1;
}

int fake_device_of_context(int context)
{
    return context < 0 ? -1 : contexts[context];
}

int fake_current(void)
{
    return fake_device_of_context(fake_current_context());
}

void fake_push(int context)
{
    if (current_depth < 16)
        current_stack[current_depth++] = context;
}

int fake_pop(void)
{
    return current_depth > 0 ? current_stack[--current_depth] : -1;
}

void fake_set_current(int context)
{
    current_depth = 1;
    current_stack[0] = context;
}

void *fake_gpu_foreign_context(int device)
{
    void *found = NULL;
    fake_lock();
    for (int i = FAKE_DEVICES; i < FAKE_CONTEXTS && !found; i++)
        if (contexts[i] < 0) {
            contexts[i] = device;
            found = (void *)(uintptr_t)(i + 1);
        }
    fake_unlock();
    return found;
}

int fake_gpu_current(int *depth)
{
    if (depth)
        *depth = current_depth;
    return fake_current();
}

/* ---- Captures: the thread's side --------------------------------------------------------------------- */

int fake_capture_exchange(unsigned *mode)
{
    if (*mode > 2)
        return FAKE_INVALID_VALUE;
    unsigned before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return FAKE_OK;
}

/* Call under the lock, on the thread that begins or ends the capture. */
void fake_count_capture(int mode, int change);
void fake_count_capture(int mode, int change)
{
    if (mode != 2)
        own_captures += change;
    if (mode == 0) {
        own_global_captures += change;
        global_captures += change;
    }
}

/* ---- Peers ------------------------------------------------------------------------------------------- */

static bool peers_can = true, peer_enabled[FAKE_DEVICES][FAKE_DEVICES];

bool fake_peers(void)
{
    fake_lock();
    bool can = peers_can;
    fake_unlock();
    return can;
}

void fake_gpu_peers(bool can)
{
    fake_lock();
    peers_can = can;
    fake_unlock();
}

int fake_peer_enable(int from, int to)
{
    fake_lock();
    int code = from == to || !peers_can ? 217 /* unsupported */
               : peer_enabled[from][to] ? FAKE_PEER_ALREADY_ENABLED
                                        : FAKE_OK;
    if (code == FAKE_OK)
        peer_enabled[from][to] = true;
    fake_unlock();
    return code;
}

unsigned fake_peer_copy(void *dst, int dst_device, const void *src, int src_device, size_t size_bytes,
                        void *stream)
{
    fake_lock();
    bool named = fake_owner(dst) == dst_device && fake_owner(src) == src_device;
    if (!named)
        (void)fake_misuse(FAKE_INVALID_VALUE, "a copy between devices names the wrong ones");
    fake_unlock();
    return named ? (unsigned)fake_copy(dst, src, size_bytes, stream, true) : FAKE_INVALID_VALUE;
}

/* ---- Broken devices ---------------------------------------------------------------------------------- */

int fake_broken(int device)
{
    return broken[device];
}

void fake_break_if_due(int device)
{
    if (breaks_next[device]) {
        broken[device] = breaks_next[device];
        breaks_next[device] = 0;
    }
}

void fake_gpu_break(int device, int code)
{
    fake_lock();
    breaks_next[device] = code;
    if (code == 0)
        broken[device] = 0;
    fake_unlock();
}

/* ---- For tests --------------------------------------------------------------------------------------- */

void fake_gpu_fail(const char *function, int n, int code, bool persist)
{
    fake_lock();
    rule *free_rule = NULL;
    for (int i = 0; i < RULES; i++) {
        if (strcmp(rules[i].function, function) == 0)
            rules[i].countdown = 0;
        if (!free_rule && rules[i].countdown == 0)
            free_rule = &rules[i];
    }
    if (n > 0 && free_rule) {
        snprintf(free_rule->function, sizeof free_rule->function, "%s", function);
        free_rule->countdown = n;
        free_rule->code = code;
        free_rule->persist = persist;
    }
    fake_unlock();
}

int fake_gpu_misuses(char *words, size_t words_bytes)
{
    fake_lock();
    int count = misuses;
    if (words)
        snprintf(words, words_bytes, "%s", misuse_words);
    fake_unlock();
    return count;
}

int fake_gpu_live(void)
{
    fake_lock();
    int count = live;
    fake_unlock();
    return count;
}

long fake_gpu_calls(const char *function)
{
    fake_lock();
    long calls = counter_of(function)->calls;
    fake_unlock();
    return calls;
}

const char *fake_error_name(int code)
{
    switch (code) {
    case FAKE_OK:
        return "FAKE_SUCCESS";
    case FAKE_OUT_OF_MEMORY:
        return "FAKE_OUT_OF_MEMORY";
    case FAKE_NOT_INITIALIZED:
        return "FAKE_NOT_INITIALIZED";
    case FAKE_UNAVAILABLE:
        return "FAKE_DEVICE_UNAVAILABLE";
    case FAKE_NOT_READY:
        return "FAKE_NOT_READY";
    case FAKE_ILLEGAL_ADDRESS:
        return "FAKE_ILLEGAL_ADDRESS";
    case FAKE_LOST:
        return "FAKE_LAUNCH_FAILED";
    case FAKE_NOT_PERMITTED:
        return "FAKE_NOT_PERMITTED";
    default:
        return "FAKE_ERROR";
    }
}
