/* The pool as the CPU's best allocator in the registry, and the way there. berth_cpu_allocator is here and
 * not in the registry so that a statically linked program that asks for the best gets the pool's code too. */
#include <pthread.h>

#include "berth/pool.h"
#include "berth/source.h"

#include "base/base.h"
#include "core/environment.h"
#include "core/registry.h"

/* Above "system", which is 0, with room for a program's own between and above. */
enum { POOL_PRIORITY = 100 };

static berth_status make_pool(void *context, berth_allocator **out)
{
    (void)context;
    return berth_pool_create(NULL, out);
}

berth_status berth_pool_register(void)
{
    const berth_registration pool = {.struct_size = sizeof pool,
                                     .name = "pool",
                                     .priority = POOL_PRIORITY,
                                     .attributes = BERTH_ON_HOST | BERTH_TRACK_SIZES,
                                     .factory = make_pool,
                                     .file = __FILE__,
                                     .line = __LINE__};
    berth_status status = berth_registry_add(&pool);
    return status == BERTH_ALREADY_EXISTS ? BERTH_OK : status;
}

static void register_once(void)
{
    if (berth_pool_register() != BERTH_OK)
        berth__log(BERTH_LOG_WARNING, "the pool could not be registered: %s", berth_last_error()->message);
}

/* Once: a program that takes the pool out again does not find it back. */
static pthread_once_t registered = PTHREAD_ONCE_INIT;

__attribute__((constructor)) static void register_at_start(void)
{
    pthread_once(&registered, register_once);
}

const bool berth__pool_is_registered = true;

berth_allocator *berth_cpu_allocator(void)
{
    berth_allocator *kept = atomic_load_explicit(&berth__kept_for_host, memory_order_acquire);
    if (BERTH_LIKELY(kept != NULL))
        return kept;
    pthread_once(&registered, register_once); /* another constructor may come before ours */
    return berth__registry_find_for_host();
}
