/* The heavy side of the asymmetric barrier: makes every thread of the process pass a full fence. */
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

/* The kernel's numbers, which are its ABI: not every libc brings linux/membarrier.h. */
enum { private_expedited = 1 << 3, register_private_expedited = 1 << 4 };

static int membarrier(int command)
{
#ifdef SYS_membarrier
    return (int)syscall(SYS_membarrier, command, 0, 0);
#else
    (void)command;
    return -1;
#endif
}

bool berth__barrier_register(void)
{
    return membarrier(register_private_expedited) == 0;
}

/* Runs on every processor in turn. To let us run there the kernel takes whoever runs off it, and a switch between
 * threads is a full fence; a thread that does not run has been taken off before. A processor that is not there, or not
 * for this process, runs none of our threads. Some twenty microseconds a processor. False: we may not move. */
static bool visit_processors(void)
{
    cpu_set_t usual, one;
    if (sched_getaffinity(0, sizeof usual, &usual) != 0)
        return false;
    long count = sysconf(_SC_NPROCESSORS_CONF);
    bool moved = count > 0 && count <= CPU_SETSIZE;
    for (long i = 0; moved && i < count; i++) {
        CPU_ZERO(&one);
        CPU_SET((size_t)i, &one);
        moved = sched_setaffinity(0, sizeof one, &one) == 0 || errno == EINVAL;
    }
    return sched_setaffinity(0, sizeof usual, &usual) == 0 && moved;
}

/* Threads have been told that fences are not theirs to make, and cannot be told otherwise while one is in the middle:
 * so there must always be a way. A registration that got lost (a checkpoint restored elsewhere) is renewed; where a
 * filter came later that refuses membarrier, the processors are visited. (Changing a page's protection, which
 * interrupts all processors, was turned down: ARM and new x86 do that without an interrupt.) */
void berth__barrier_everywhere(void)
{
    if (membarrier(private_expedited) == 0)
        return;
    (void)BERTH_ASSERT((berth__barrier_register() && membarrier(private_expedited) == 0) ||
                           visit_processors(),
                       "[B5] other threads can be made to pass a fence");
}
