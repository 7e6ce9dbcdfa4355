/* The requests that src/base/annotate.h declares itself are those of Valgrind's own headers. */
#pragma GCC diagnostic ignored "-Wconversion"
#include <stdio.h>
#include <valgrind/memcheck.h>

#include "base/annotate.h"

_Static_assert((int)BERTH__VALGRIND_RUNNING == (int)VG_USERREQ__RUNNING_ON_VALGRIND, "runs on Valgrind");
_Static_assert((int)BERTH__VALGRIND_NOACCESS == (int)VG_USERREQ__MAKE_MEM_NOACCESS, "no access");
_Static_assert((int)BERTH__VALGRIND_UNDEFINED == (int)VG_USERREQ__MAKE_MEM_UNDEFINED, "undefined");
_Static_assert((int)BERTH__VALGRIND_DEFINED == (int)VG_USERREQ__MAKE_MEM_DEFINED, "defined");

int main(void)
{
    /* Both ways of asking get the same answer, here and under Valgrind. */
    if (berth__runs_on_valgrind != (RUNNING_ON_VALGRIND > 0)) {
        fputs("annotate.c and valgrind.h disagree on whether Valgrind runs this\n", stderr);
        return 1;
    }
    return 0;
}
