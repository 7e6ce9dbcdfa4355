/* The pool as the CPU's best allocator in the registry. */
#include "berth/pool.h"
#include "berth/registry.h"

#include "base/base.h"

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

__attribute__((constructor)) static void register_at_start(void)
{
    if (berth_pool_register() != BERTH_OK)
        berth__log(BERTH_LOG_WARNING, "the pool could not be registered: %s", berth_last_error()->message);
}
