/* Valgrind's client requests, kept out of line: they run under Valgrind only.
 *
 * A request is a sequence of instructions that changes nothing and that no compiler writes; Valgrind recognises it and
 * reads the request from a register. It is Valgrind's published interface and has not changed since it was made, so
 * we speak it ourselves: with <valgrind/memcheck.h> what is in the library would depend on which packages the machine
 * had when each file was compiled. tests/annotate compares the numbers below with the header where that is. */
#include "base/annotate.h"

#if defined(BERTH__ANNOTATE_VALGRIND)

#include <stdint.h>

bool berth__runs_on_valgrind;

/* Answers 0 where nobody listens. */
static uint64_t request_send(uint64_t request, uint64_t first, uint64_t second)
{
    const uint64_t words[6] = {request, first, second, 0, 0, 0};
#if defined(__x86_64__)
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi\n\t"
                     "rolq $13, %%rdi\n\t"
                     "rolq $61, %%rdi\n\t"
                     "rolq $51, %%rdi\n\t" /* 128 bits in all: rdi is what it was */
                     "xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(words)
                     : "cc", "memory");
    return answer;
#else
    register uint64_t answer __asm__("x3") = 0;
    register const uint64_t *where __asm__("x4") = words;
    __asm__ volatile("ror x12, x12, #3\n\t"
                     "ror x12, x12, #13\n\t"
                     "ror x12, x12, #51\n\t"
                     "ror x12, x12, #61\n\t"
                     "orr x10, x10, x10"
                     : "+r"(answer)
                     : "r"(where)
                     : "cc", "memory");
    return answer;
#endif
}

/* Before main and before other constructors of ours may hand out memory. */
__attribute__((constructor(101))) static void look_for_valgrind(void)
{
    berth__runs_on_valgrind = request_send(BERTH__VALGRIND_RUNNING, 0, 0) > 0;
}

void berth__valgrind_noaccess(const void *p, size_t size_bytes)
{
    (void)request_send(BERTH__VALGRIND_NOACCESS, (uintptr_t)p, size_bytes);
}

void berth__valgrind_undefined(const void *p, size_t size_bytes)
{
    (void)request_send(BERTH__VALGRIND_UNDEFINED, (uintptr_t)p, size_bytes);
}

void berth__valgrind_defined(const void *p, size_t size_bytes)
{
    (void)request_send(BERTH__VALGRIND_DEFINED, (uintptr_t)p, size_bytes);
}

#endif
