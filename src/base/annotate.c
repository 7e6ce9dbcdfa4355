/* Valgrind's client requests, kept out of line: they run under Valgrind only. */
#include "base/annotate.h"

#if defined(BERTH__ANNOTATE_VALGRIND)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <valgrind/memcheck.h>

bool berth__runs_on_valgrind;

/* Before main and before other constructors of ours may hand out memory. */
__attribute__((constructor(101))) static void look_for_valgrind(void)
{
    berth__runs_on_valgrind = RUNNING_ON_VALGRIND > 0;
}

void berth__valgrind_noaccess(const void *p, size_t size_bytes)
{
    (void)VALGRIND_MAKE_MEM_NOACCESS(p, size_bytes);
}

void berth__valgrind_undefined(const void *p, size_t size_bytes)
{
    (void)VALGRIND_MAKE_MEM_UNDEFINED(p, size_bytes);
}

void berth__valgrind_defined(const void *p, size_t size_bytes)
{
    (void)VALGRIND_MAKE_MEM_DEFINED(p, size_bytes);
}
#pragma GCC diagnostic pop

#endif
