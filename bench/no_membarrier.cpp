// Linked into a program, refuses membarrier(2) before anything else of it runs, as a container's filter may: what
// Berth costs where every thread must make its own fences.
#include <sys/syscall.h>

#include <cstdio>
#include <cstdlib>

#include "refuse_call.h"

namespace
{

__attribute__((constructor(101))) void refuse_membarrier()
{
    if (refuse_call(SYS_membarrier))
        return;
    std::fputs("the kernel takes no filter, so membarrier cannot be refused\n", stderr);
    std::exit(1);
}

} // namespace
