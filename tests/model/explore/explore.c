/* The search: threads as coroutines, a list of choices that one run makes, and the next list in order, until all
 * within the bound have been tried.
 *
 *     PROGRAM [NAME] [--preemptions N] [--old-loads N] [--seconds N] [--enough] [--expect-fault] [--choices 0,1,...]
 *
 * Without a name all programs of the file run. A fault is printed as a short run that shows it, with the choices that
 * repeat it. --expect-fault is for programs built with a seeded one: finding none is then the failure. A search that
 * is not done after --seconds fails, or with --enough is left at that, as the deep ones are. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "inside.h"

enum {
    CHOICES_MAX = 1 << 14,
    STACK_BYTES = 256 << 10,
    STEPS_MAX = 20000,
    IDLE_MAX = 20,
    NOTES_MAX = 1 << 12
};

/* _Thread_local variables, and the program's static storage: the linker's names for them. */
extern char __start_explore_threads[], __stop_explore_threads[];
extern char __data_start[], _end[];

typedef enum thread_state { READY, WAITING, BLOCKED, DONE } thread_state;

typedef struct coroutine {
    ucontext_t context;
    char *stack, *locals;
    thread_state state;
    const void *blocked_on;
    uint64_t stores_seen; /* WAITING: how many there were */
    void (*at_exit)(void *);
    void *at_exit_argument;
} coroutine;

typedef struct choice {
    uint16_t made, count;
} choice;

typedef struct note {
    int thread;
    const void *pc;
    char words[100];
} note;

typedef enum verdict { FINE, FAULT, AGAIN } verdict;

static struct search {
    const explore_program *program;
    coroutine threads[EXPLORE_THREADS];
    int current, thread_count;
    int unready; /* threads that are still preparing: until then there is nothing to choose */
    uint32_t run;
    /* the choices of this run, and the bound that is left */
    choice *choices;
    uint32_t length, next;
    int preemptions, old_loads;
    uint64_t steps, stores, idle;
    verdict verdict;
    char words[300];
    note *notes;
    uint32_t note_count;
    bool noting;
    int statics; /* a file with static storage as it was before the first run */
    char *statics_begin;
    size_t statics_bytes;
} * s;

int explore_thread(void)
{
    return s ? s->current : 0;
}

bool explore_alone(void)
{
    return !s || s->current == 0; /* constructors come before everything */
}

uint32_t explore_run(void)
{
    return s->run;
}

void explore_stored(void)
{
    s->stores++;
    s->idle = 0;
}

/* ---- Choices -------------------------------------------------------------------------------------------------- */

static uint32_t choose(uint32_t count)
{
    if (count < 2 || s->unready)
        return 0;
    if (s->next == s->length) {
        if (s->length == CHOICES_MAX) {
            fprintf(stderr, "explore: more than %d choices in a run\n", CHOICES_MAX);
            exit(1);
        }
        s->choices[s->length++] = (choice){0, (uint16_t)count};
    }
    choice *c = &s->choices[s->next++];
    c->count = (uint16_t)count;
    return c->made < count ? c->made : 0;
}

/* To the next list of choices; false if that was the last. */
static bool advance(void)
{
    while (s->length && s->choices[s->length - 1].made + 1 >= s->choices[s->length - 1].count)
        s->length--;
    if (!s->length)
        return false;
    s->choices[s->length - 1].made++;
    return true;
}

uint32_t explore_choose_store(uint32_t count)
{
    if (explore_alone() || s->unready || s->old_loads == 0 || count < 2)
        return 0;
    uint32_t made = choose(count);
    s->old_loads -= made != 0;
    return made;
}

/* ---- Threads -------------------------------------------------------------------------------------------------- */

static size_t locals_bytes(void)
{
    return (size_t)(__stop_explore_threads - __start_explore_threads);
}

bool explore_is_local(const void *address)
{
    return (const char *)address >= __start_explore_threads && (const char *)address < __stop_explore_threads;
}

static void go_to(int to)
{
    int from = s->current;
    if (from == to)
        return;
    memcpy(s->threads[from].locals, __start_explore_threads, locals_bytes());
    memcpy(__start_explore_threads, s->threads[to].locals, locals_bytes());
    s->current = to;
    swapcontext(&s->threads[from].context, &s->threads[to].context);
}

static bool may_run(const coroutine *t)
{
    return t->state == READY || (t->state == WAITING && t->stores_seen != s->stores);
}

/* The others that may run, from the next one on. */
static int others(int *list)
{
    int count = 0;
    for (int i = 1; i < s->thread_count; i++) {
        int t = (s->current - 1 + i) % (s->thread_count - 1) + 1;
        if (t != s->current && may_run(&s->threads[t]))
            list[count++] = t;
    }
    return count;
}

static void run_on(int thread)
{
    s->threads[thread].state = READY;
    go_to(thread);
}

void explore_step(void)
{
    if (explore_alone() || s->unready)
        return;
    if (++s->steps > STEPS_MAX)
        explore_fail("the run does not end: %d steps", STEPS_MAX);
    int list[EXPLORE_THREADS], count = s->preemptions ? others(list) : 0;
    uint32_t made = choose((uint32_t)count + 1);
    if (made) {
        s->preemptions--;
        run_on(list[made - 1]);
    }
}

/* Somebody else goes on, since the running thread cannot, or is over. */
static void hand_over(void)
{
    int list[EXPLORE_THREADS], count = others(list);
    if (count) {
        run_on(list[choose((uint32_t)count)]);
        return;
    }
    /* Nothing was stored since those that wait have looked, but what they saw may have been old: they look again,
     * in turn. */
    bool over = true;
    for (int i = 1; i < s->thread_count; i++) {
        int t = (s->current - 1 + i) % (s->thread_count - 1) + 1;
        over = over && s->threads[t].state == DONE;
        if (s->threads[t].state == WAITING && s->idle < IDLE_MAX) {
            s->idle++;
            run_on(t);
            return;
        }
    }
    if (s->threads[s->current].state == WAITING && s->idle < IDLE_MAX) {
        s->idle++;
        s->threads[s->current].state = READY;
    } else if (over && s->threads[s->current].state == DONE)
        go_to(0);
    else
        explore_fail("nobody can go on: every thread waits for another");
}

void explore_yield(void)
{
    if (explore_alone())
        return;
    if (++s->steps > STEPS_MAX)
        explore_fail("the run does not end: %d steps", STEPS_MAX);
    s->threads[s->current].state = WAITING;
    s->threads[s->current].stores_seen = s->stores;
    hand_over();
}

void explore_block(const void *on)
{
    if (explore_alone()) {
        fprintf(stderr, "explore: thread 0 would wait for itself\n");
        exit(1);
    }
    s->threads[s->current].state = BLOCKED;
    s->threads[s->current].blocked_on = on;
    hand_over();
}

void explore_wake(const void *on)
{
    for (int t = 1; t < s->thread_count; t++)
        if (s->threads[t].state == BLOCKED && s->threads[t].blocked_on == on)
            s->threads[t].state = READY;
    explore_stored();
}

void explore_ready(void)
{
    memory_lock_given(&s->unready);
    if (--s->unready) {
        explore_block(&s->unready);
    } else {
        explore_wake(&s->unready);
        int list[EXPLORE_THREADS], count = others(list);
        uint32_t first = choose((uint32_t)count + 1);
        if (first)
            run_on(list[first - 1]);
    }
    memory_lock_taken(&s->unready);
}

void explore_wait(const bool *flag)
{
    while (!*(const volatile bool *)flag)
        explore_yield();
}

void explore_at_exit(void (*function)(void *), void *argument)
{
    s->threads[s->current].at_exit = function;
    s->threads[s->current].at_exit_argument = argument;
}

static void thread_main(void)
{
    coroutine *t = &s->threads[s->current];
    s->program->threads[s->current - 1]();
    if (s->program->exits && t->at_exit && t->at_exit_argument)
        t->at_exit(t->at_exit_argument);
    t->state = DONE;
    explore_stored();
    hand_over();
}

/* ---- One run -------------------------------------------------------------------------------------------------- */

static void end_run(verdict how)
{
    s->verdict = how;
    if (!explore_alone())
        go_to(0);
}

void explore_fail(const char *format, ...)
{
    if (s->verdict != FINE)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->words, sizeof s->words, format, arguments);
    va_end(arguments);
    end_run(FAULT);
}

void explore_again(void)
{
    end_run(AGAIN);
}

void explore_check(bool holds, const char *what)
{
    if (!holds)
        explore_fail("%s", what);
}

void explore_note(const void *pc, const char *format, ...)
{
    if (!s->noting || explore_alone() || s->unready || s->note_count == NOTES_MAX)
        return;
    note *n = &s->notes[s->note_count++];
    n->thread = s->current;
    n->pc = pc;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(n->words, sizeof n->words, format, arguments);
    va_end(arguments);
}

static void make_threads(void)
{
    for (int t = 1; t < s->thread_count; t++) {
        coroutine *made = &s->threads[t];
        made->state = READY;
        made->at_exit = NULL;
        memcpy(made->locals, s->threads[0].locals, locals_bytes());
        getcontext(&made->context);
        made->context.uc_stack.ss_sp = made->stack;
        made->context.uc_stack.ss_size = STACK_BYTES;
        made->context.uc_link = NULL;
        makecontext(&made->context, thread_main, 0);
        memory_spawn(t);
    }
}

/* Static storage is put back before every run, by mapping it again from a copy: few of its pages change, and scopes
 * alone have megabytes. The copy is by whole pages; what shares the first and last one is constant or ours. */
static void keep_statics(void)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    s->statics_begin = (char *)((uintptr_t)__data_start / page * page);
    s->statics_bytes = ((uintptr_t)_end - (uintptr_t)s->statics_begin + page - 1) / page * page;
    s->statics = memfd_create("statics", MFD_CLOEXEC);
    if (s->statics < 0 ||
        write(s->statics, s->statics_begin, s->statics_bytes) != (ssize_t)s->statics_bytes) {
        perror("explore: static storage is not kept");
        exit(1);
    }
}

static void put_statics_back(void)
{
    void *at = mmap(s->statics_begin, s->statics_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                    s->statics, 0);
    if (at != s->statics_begin) {
        perror("explore: static storage is not put back");
        exit(1);
    }
}

static verdict run_once(int preemptions, int old_loads)
{
    put_statics_back();
    s->run++;
    s->next = s->note_count = 0;
    s->steps = s->stores = s->idle = 0;
    s->preemptions = preemptions;
    s->old_loads = old_loads;
    s->verdict = FINE;
    s->unready = s->thread_count - 1;
    memory_begin();
    hooks_begin();
    memcpy(s->threads[0].locals, __start_explore_threads, locals_bytes()); /* fresh ones, for the others */
    make_threads();
    if (s->program->begin)
        s->program->begin();
    for (int t = 1; t < s->thread_count; t++)
        memory_spawn(t);
    run_on(1);
    for (int t = 1; t < s->thread_count; t++)
        memory_join(t);
    if (s->verdict == FINE && s->program->end)
        s->program->end();
    return s->verdict;
}

/* ---- Printing ------------------------------------------------------------------------------------------------- */

/* Addresses become functions and lines, as far as addr2line is there. */
static void print_notes(void)
{
    char command[200];
    snprintf(command, sizeof command, "addr2line -s -f -p -e /proc/%d/exe 2>/dev/null", (int)getpid());
    for (uint32_t i = 0; i < s->note_count;) {
        char words[8000];
        size_t used = (size_t)snprintf(words, sizeof words, "%s", command);
        uint32_t end = i;
        for (; end < s->note_count && used < sizeof words - 40; end++)
            used += (size_t)snprintf(words + used, sizeof words - used, " %p",
                                     (const void *)((const char *)s->notes[end].pc - 1));
        FILE *lines = popen(words, "r");
        for (; i < end; i++) {
            char line[300] = "?";
            if (lines && fgets(line, sizeof line, lines))
                line[strcspn(line, "\n")] = 0;
            fprintf(stderr, "  %*s%d %-52s %s\n", s->notes[i].thread * 2, "", s->notes[i].thread,
                    s->notes[i].words, line);
        }
        if (lines)
            pclose(lines);
    }
}

static void print_fault(int preemptions, int old_loads)
{
    s->noting = true;
    run_once(preemptions, old_loads);
    fprintf(stderr, "%s: %s\n", s->program->name, s->words);
    print_notes();
    fprintf(stderr, "again by: %s --preemptions %d --old-loads %d --choices ", s->program->name, preemptions,
            old_loads);
    for (uint32_t i = 0; i < s->next; i++)
        fprintf(stderr, "%s%d", i ? "," : "", s->choices[i].made);
    fprintf(stderr, "\n");
    s->noting = false;
}

/* ---- The search ----------------------------------------------------------------------------------------------- */

typedef struct options {
    const char *name, *choices;
    int preemptions, old_loads, seconds;
    bool expect_fault, enough;
} options;

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All runs within one bound. */
static verdict explore_bound(int preemptions, int old_loads, double until, bool enough, uint64_t *runs)
{
    s->length = 0;
    for (;;) {
        verdict v = run_once(preemptions, old_loads);
        ++*runs;
        if (v == FAULT) {
            print_fault(preemptions, old_loads);
            return v;
        }
        if (v == AGAIN) {
            s->length = 0;
            continue;
        }
        if (*runs % 1024 == 0 && until > 0 && now_seconds() > until) {
            fprintf(stderr, "%s: not done in time, with %d preemptions and %d old loads\n", s->program->name,
                    preemptions, old_loads);
            return enough ? FINE : FAULT;
        }
        if (!advance())
            return FINE;
    }
}

static verdict explore(const options *o)
{
    int preemptions = o->preemptions >= 0 ? o->preemptions : s->program->preemptions;
    int old_loads = o->old_loads >= 0 ? o->old_loads : s->program->old_loads;
    double began = now_seconds(), until = o->seconds ? began + o->seconds : 0;
    uint64_t runs = 0;
    verdict v = FINE;
    /* Small bounds first, so that what is found is short. */
    for (int p = 0; p <= preemptions && v == FINE; p++)
        for (int l = 0; l <= old_loads && v == FINE; l++)
            if (p == preemptions || l <= p)
                v = explore_bound(p, l, until, o->enough, &runs);
    fprintf(stderr, "%s: %llu runs, at most %d preemptions and %d old loads, %.1f s: %s\n", s->program->name,
            (unsigned long long)runs, preemptions, old_loads, now_seconds() - began,
            v == FINE ? "no fault" : "a fault");
    return v;
}

/* One run by its choices. */
static verdict repeat(const options *o)
{
    s->length = 0;
    for (const char *at = o->choices; *at; at += strspn(at, ","))
        s->choices[s->length++] = (choice){(uint16_t)strtoul(at, (char **)&at, 10), UINT16_MAX};
    verdict v;
    while ((v = run_once(o->preemptions, o->old_loads)) == AGAIN)
        ;
    if (v == FAULT)
        print_fault(o->preemptions, o->old_loads);
    return v;
}

static void set_up(void)
{
    s = calloc(1, sizeof *s);
    s->choices = calloc(CHOICES_MAX, sizeof *s->choices);
    s->notes = calloc(NOTES_MAX, sizeof *s->notes);
    for (int t = 0; t < EXPLORE_THREADS; t++) {
        s->threads[t].stack =
            mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        s->threads[t].locals = calloc(1, locals_bytes());
    }
    memory_begin();
    hooks_begin();
    keep_statics();
}

static bool read_options(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--expect-fault") == 0)
            o->expect_fault = true;
        else if (strcmp(argv[i], "--enough") == 0)
            o->enough = true;
        else if (argv[i][0] != '-')
            o->name = argv[i];
        else if (!value)
            return false;
        else if (strcmp(argv[i], "--preemptions") == 0)
            o->preemptions = atoi(argv[++i]);
        else if (strcmp(argv[i], "--old-loads") == 0)
            o->old_loads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0)
            o->seconds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--choices") == 0)
            o->choices = argv[++i];
        else
            return false;
    }
    return !o->choices || (o->name && o->preemptions >= 0 && o->old_loads >= 0);
}

int explore_main(int argc, char **argv, const explore_program *programs, size_t count)
{
    static options given = {.preemptions = -1, .old_loads = -1};
    if (!read_options(argc, argv, &given)) {
        fprintf(
            stderr,
            "usage: %s [NAME] [--preemptions N] [--old-loads N] [--seconds N] [--enough] [--expect-fault]\n"
            "       %s NAME --preemptions N --old-loads N --choices 0,1,...\n",
            argv[0], argv[0]);
        return 2;
    }
    options o = given;
    set_up();
    bool any = false, fault = false;
    for (size_t i = 0; i < count; i++) {
        if (o.name && strcmp(o.name, programs[i].name) != 0)
            continue;
        any = true;
        s->program = &programs[i];
        memory_forget();
        for (s->thread_count = 1;
             s->thread_count < EXPLORE_THREADS && programs[i].threads[s->thread_count - 1];)
            s->thread_count++;
        fault = (o.choices ? repeat(&o) : explore(&o)) != FINE || fault;
        if (fault)
            break;
    }
    if (!any) {
        fprintf(stderr, "%s: there is no program '%s'\n", argv[0], o.name);
        return 2;
    }
    return fault == o.expect_fault ? 0 : 1;
}
