/* Starting the process that drives an allocator, and counting its system calls. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/drive.h"

static bool run_fail(drive_script *s, const char *words, int number)
{
    if (!s->result.words[0])
        snprintf(s->result.words, sizeof s->result.words, "%s%s%s", words, number ? ": " : "",
                 number ? strerror(number) : "");
    return false;
}

/* ---- Counting ----------------------------------------------------------------------------------------- */

static bool is_memory_call(uint64_t number)
{
    static const uint64_t memory[] = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk, SYS_madvise, SYS_mprotect};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (number == memory[i])
            return true;
    return false;
}

/* A thread has stopped before a system call. False: it was the mark of the end. */
static bool count_call(pid_t thread, drive_calls *calls)
{
    struct __ptrace_syscall_info about = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof about, &about) <= 0 ||
        about.op != PTRACE_SYSCALL_INFO_SECCOMP)
        return true;
    if (about.seccomp.nr == SYS_getpgid && about.seccomp.args[0] == DRIVE_MARK)
        return false;
    calls->all++;
    calls->memory += is_memory_call(about.seccomp.nr);
    return true;
}

/* Follows all threads of the child until it ends; how it did. */
static int follow(pid_t child, drive_calls *calls)
{
    int status = 0, ended = 0;
    bool counting = true;
    for (;;) {
        const pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR)
            continue;
        if (thread < 0)
            return ended;
        if (!WIFSTOPPED(status)) {
            if (thread == child)
                ended = status;
            continue;
        }
        const int event = status >> 16, number = WSTOPSIG(status);
        if (event == PTRACE_EVENT_SECCOMP && counting)
            counting = count_call(thread, calls);
        /* A thread begins with a stop, an exec is a trap: neither is a signal for it. */
        const bool hand_on = !event && number != SIGTRAP && number != SIGSTOP;
        ptrace(PTRACE_CONT, thread, NULL, hand_on ? (void *)(long)number : NULL);
    }
}

/* ---- Running ------------------------------------------------------------------------------------------ */

static _Noreturn void become_driver(int file, const drive_allocator *a, bool counts)
{
    char number[16], kind[16];
    snprintf(number, sizeof number, "%d", file);
    snprintf(kind, sizeof kind, "%d", (int)a->kind);
    char *const argv[] = {(char *)"berth",
                          (char *)DRIVE_WORD,
                          number,
                          (char *)(counts ? "1" : "0"),
                          kind,
                          (char *)(a->value ? a->value : ""),
                          NULL};
    /* Settings of the surroundings would be measured under another name. */
    unsetenv("BERTH_CONF");
    unsetenv("BERTH_SHOW_STATS");
    unsetenv("LD_PRELOAD");
    if (a->kind == DRIVE_LIBRARY && a->value)
        setenv("LD_PRELOAD", a->value, 1);
    if (counts && (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0))
        _exit(126);
    execv("/proc/self/exe", argv);
    _exit(127);
}

bool drive_run(drive_script *script, int file, const drive_allocator *allocator, drive_calls *calls)
{
    script->result = (drive_result){0};
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        return run_fail(script, "no process can be started", errno);
    if (child == 0)
        become_driver(file, allocator, calls != NULL);
    while (waitpid(child, &status, calls ? WUNTRACED : 0) < 0 && errno == EINTR)
        ;
    if (calls && WIFSTOPPED(status)) {
        *calls = (drive_calls){0};
        const long options =
            PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
        if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) != 0 ||
            ptrace(PTRACE_CONT, child, NULL, NULL) != 0) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            return run_fail(script, "the system does not let us count system calls (ptrace)", 0);
        }
        status = follow(child, calls);
        calls->is_known = script->result.done && script->result.is_filtered;
    }
    if (WIFSIGNALED(status))
        return run_fail(script, strsignal(WTERMSIG(status)), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 126)
        return run_fail(script, "the system does not let us count system calls (ptrace)", 0);
    return script->result.done || run_fail(script, "the driver ended too early", 0);
}
