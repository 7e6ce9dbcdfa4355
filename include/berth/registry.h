/* The registry: named allocators with a priority and the attributes they satisfy. */
#ifndef BERTH_REGISTRY_H
#define BERTH_REGISTRY_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an allocator on first use; the registry owns the reference it returns. */
typedef berth_status (*berth_factory_fn)(void *context, berth_allocator **out);

typedef struct berth_registration {
    size_t struct_size;
    const char *name;            /* copied; not empty */
    int32_t priority;            /* not negative; the highest is the best */
    berth_attributes attributes; /* what it satisfies */
    berth_allocator *allocator;  /* retained; or NULL and a factory */
    berth_factory_fn factory;
    void *context;
    const char *file; /* where it was registered, kept by reference; BERTH_HERE fills both */
    int32_t line;
} berth_registration;

#define BERTH_REGISTRATION_INIT                                           \
    {                                                                     \
        sizeof(berth_registration), NULL, 0, 0, NULL, NULL, NULL, NULL, 0 \
    }

#define BERTH_HERE __FILE__, __LINE__

/* Adds an allocator. The same name and priority twice is BERTH_ALREADY_EXISTS with words that name both
 * places. Any thread, also before main. BERTH_OK, BERTH_INVALID_ARGUMENT (empty name, negative priority,
 * neither or both of allocator and factory), BERTH_ALREADY_EXISTS, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_registry_add(const berth_registration *registration);

/* Takes one out again, for modules that are unloaded; pointers borrowed from it must not be used afterwards.
 * BERTH_OK, BERTH_NOT_FOUND. */
BERTH_API berth_status berth_registry_remove(const char *name, int32_t priority);

/* All three lend a pointer that lives until its registration is removed. The first call may run the factory.
 * BERTH_OK, BERTH_NOT_FOUND, or what the factory answered. */
BERTH_API berth_status berth_registry_get(const char *name, int32_t priority, berth_allocator **out);
/* The highest priority; a tie goes to the first registered. One atomic load once known. */
BERTH_API berth_status berth_registry_best(berth_allocator **out);
/* The best among those that satisfy all of `attributes`; BERTH_UNSUPPORTED if nobody does, never plain
 * memory. */
BERTH_API berth_status berth_registry_best_for(berth_attributes attributes, berth_allocator **out);

/* Shows every registration, best first; returns false to end. Called without a lock, on a copy. */
typedef bool (*berth_registration_fn)(void *context, const berth_registration *registration);
BERTH_API berth_status berth_registry_visit(berth_registration_fn visit, void *context);

/* At file level: registers a factory when the program or module is loaded; a failure is logged.
 *     BERTH_REGISTER(my_pool, "my_pool", 200, BERTH_ON_HOST, my_pool_factory) */
#define BERTH_REGISTER(identifier, name_, priority_, attributes_, factory_)                         \
    __attribute__((constructor)) static void berth_register_##identifier(void)                      \
    {                                                                                               \
        berth_registry_add_factory((name_), (priority_), (attributes_), (factory_), NULL, __FILE__, \
                                   __LINE__);                                                       \
    }

/* What the macro calls, and what a statically linked program calls itself where constructors are dropped. A
 * failure is logged as well as returned. */
BERTH_API berth_status berth_registry_add_factory(const char *name, int32_t priority,
                                                  berth_attributes attributes, berth_factory_fn factory,
                                                  void *context, const char *file, int32_t line);

#ifdef __cplusplus
}
#endif
#endif
