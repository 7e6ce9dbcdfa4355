/* A berth_ucx: its ucp_context, made here or the program's; its life; and the one that the registry knows. */
#include <berth/registry.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

_Atomic uint32_t bucx_generation;

/* ---- Forks ------------------------------------------------------------------------------------------- */

static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;
static berth_ucx *default_ucx; /* guard: default_lock */

/* Nothing is locked before a fork: a thread that holds one of our locks may be waiting inside UCX. The child starts anew. */
static void in_child(void)
{
    atomic_fetch_add(&bucx_generation, 1);
    bucx_slabs_forget();
    default_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    default_ucx = NULL;
}

static void watch_now(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

void bucx_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_now);
}

berth_status bucx_lost(void)
{
    return berth_fail(
        BERTH_DEVICE_LOST,
        "UCX and its memory stayed with the parent of this process; start programs by exec (a new "
        "berth_ucx may hang here if other threads of the parent used UCX or mapped memory)");
}

/* ---- Its context ------------------------------------------------------------------------------------- */

void bucx_calls_begin(berth_ucx *ucx)
{
    if (ucx->serial)
        pthread_mutex_lock(&ucx->calls);
}

void bucx_calls_end(berth_ucx *ucx)
{
    if (ucx->serial)
        pthread_mutex_unlock(&ucx->calls);
}

/* Whole mappings only, unless the environment says otherwise: UCX would also take slabs from the C heap, and where such a
 * slab was the heap puts something else. */
static ucs_status_t read_settings(ucp_config_t **config)
{
    ucs_status_t code = bucx_call.ucp_config_read(NULL, NULL, config);
    if (code != UCS_OK || getenv("UCX_ALLOC_PRIO"))
        return code;
    code = bucx_call.ucp_config_modify(*config, "ALLOC_PRIO", "md:sysv,md:posix,mmap");
    if (code != UCS_OK)
        bucx_call.ucp_config_release(*config);
    return code;
}

static berth_status make_context(berth_ucx *ucx, uint64_t features)
{
    ucp_config_t *config = NULL;
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
        .features = features
                        ? features
                        : (uint64_t)(UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG | UCP_FEATURE_AM),
        .mt_workers_shared = 1,
        .name = "berth",
    };
    ucs_status_t code = read_settings(&config);
    if (code != UCS_OK)
        return bucx_fail(code, "reading UCX's settings");
    code = bucx_call.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &ucx->context);
    bucx_call.ucp_config_release(config);
    if (code != UCS_OK)
        return bucx_fail(code, "making a UCX context (ucp_init; is UCX_TLS right?)");
    ucx->owns_context = true;
    return BERTH_OK;
}

/* What this memory is to UCX, and whether its context can register that. An address that only stands for memory must not
 * get there: UCX would copy from it. */
static berth_status find_type(berth_ucx *ucx, uint64_t types)
{
    berth_device_info info = BERTH_DEVICE_INFO_INIT;
    bool own = ucx->kind == BERTH_MEMORY_DEVICE, managed = ucx->kind == BERTH_MEMORY_MANAGED;
    if (ucx->device.kind == BERTH_DEVICE_CUDA && (own || managed))
        ucx->type = managed ? UCS_MEMORY_TYPE_CUDA_MANAGED : UCS_MEMORY_TYPE_CUDA;
    else if (ucx->device.kind == BERTH_DEVICE_HIP && (own || managed))
        ucx->type = managed ? UCS_MEMORY_TYPE_ROCM_MANAGED : UCS_MEMORY_TYPE_ROCM;
    else if (ucx->device.kind == BERTH_DEVICE_CPU || !own ||
             (berth_device_describe(ucx->device, &info) == BERTH_OK && info.host_accessible))
        ucx->type = UCS_MEMORY_TYPE_HOST;
    else
        return berth_fail(BERTH_UNSUPPORTED,
                          "UCX cannot reach memory of \"%s\": the host has no pointers to it",
                          berth_allocator_name(ucx->memory));
    if (types >> ucx->type & 1)
        return BERTH_OK;
    static const char *const names[] = {"host", "CUDA", "CUDA managed", "HIP", "HIP managed"};
    return berth_fail(BERTH_UNSUPPORTED,
                      "this UCX context has no transport for %s memory; UCX_TLS or UCX's build "
                      "leaves it out",
                      names[ucx->type]);
}

static berth_status look_at_context(berth_ucx *ucx)
{
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_THREAD_MODE | UCP_ATTR_FIELD_MEMORY_TYPES};
    ucs_status_t code = bucx_call.ucp_context_query(ucx->context, &attributes);
    if (code != UCS_OK)
        return bucx_fail(code, "looking at the context");
    ucx->serial = attributes.thread_mode != UCS_THREAD_MODE_MULTI;
    return find_type(ucx, attributes.memory_types);
}

/* ---- Life -------------------------------------------------------------------------------------------- */

/* Numbers of slabs and tickets: an old ticket must not meet an equal number in a later process at the same address. */
static uint64_t first_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        struct timespec now = {0, 0};
        clock_gettime(CLOCK_REALTIME, &now);
        number = ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) * UINT64_C(0x9e3779b97f4a7c15) +
                 (uint64_t)getpid();
    }
    return number >> 1 | 1; /* never 0, and does not reach 0 */
}

/* Everything but the object itself, which the source's handle may outlive. */
static void close_ucx(berth_ucx *ucx)
{
    if (!bucx_is_lost(ucx)) {
        bucx_tickets_finish(ucx);
        if (ucx->owns_context)
            bucx_call.ucp_cleanup(ucx->context);
    }
    for (bucx_range *range = ucx->retired, *next; range; range = next) {
        next = range->next;
        munmap(range->base, range->size_bytes);
        free(range);
    }
    ucx->retired = NULL;
    berth_allocator_release(ucx->memory);
    ucx->memory = NULL;
}

void bucx_drop(berth_ucx *ucx)
{
    if (atomic_fetch_sub(&ucx->holders, 1) == 1)
        free(ucx);
}

static berth_status fill_ucx(berth_ucx *ucx, const berth_ucx_options *options)
{
    ucx->generation = atomic_load(&bucx_generation);
    ucx->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    ucx->slab_bytes = options->slab_bytes ? options->slab_bytes : BERTH_UCX_SLAB_BYTES;
    ucx->device = berth_device_cpu();
    ucx->kind = BERTH_MEMORY_DEVICE;
    ucx->memory = berth_allocator_retain(options->memory);
    if (ucx->memory) {
        ucx->device = berth_allocator_device(ucx->memory);
        ucx->kind = berth_allocator_memory_kind(ucx->memory);
    }
    atomic_init(&ucx->holders, 1);
    atomic_init(&ucx->next_number, first_number());
    pthread_mutex_init(&ucx->calls, NULL);
    pthread_mutex_init(&ucx->lock, NULL);
    pthread_mutex_init(&ucx->tickets.lock, NULL);
    ucx->context = options->context;
    berth_status status = ucx->context ? BERTH_OK : make_context(ucx, options->features);
    if (!status)
        status = look_at_context(ucx);
    return !status ? berth_allocator_create(&bucx_source_ops, ucx, &ucx->source) : status;
}

berth_status berth_ucx_create(const berth_ucx_options *options, berth_ucx **out)
{
    static const berth_ucx_options defaults = BERTH_UCX_OPTIONS_INIT;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no place for the result: out is NULL");
    *out = NULL;
    options = options ? options : &defaults;
    if (options->struct_size < sizeof *options)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "the options' struct_size is %zu: start from BERTH_UCX_OPTIONS_INIT",
                          options->struct_size);
    if (options->slab_bytes > SIZE_MAX / 4)
        return berth_fail(BERTH_OVERFLOW, "no slab holds %zu bytes", options->slab_bytes);
    berth_status status = bucx_load();
    if (status)
        return status;
    bucx_watch_forks();
    berth_ucx *ucx = calloc(1, sizeof *ucx);
    if (!ucx)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a berth_ucx");
    status = fill_ucx(ucx, options);
    if (status) {
        close_ucx(ucx);
        bucx_drop(ucx);
        return status;
    }
    atomic_fetch_add(&ucx->holders, 1); /* the source */
    *out = ucx;
    return BERTH_OK;
}

berth_status berth_ucx_destroy(berth_ucx *ucx)
{
    if (!ucx)
        return BERTH_OK;
    pthread_mutex_t *lock = bucx_is_lost(ucx) ? NULL : &ucx->lock; /* in a child it may be held by nobody */
    if (lock)
        pthread_mutex_lock(lock);
    unsigned long long slabs = ucx->figures.slabs, bytes = ucx->figures.slab_bytes, pools = ucx->pools;
    bool busy = lock && slabs + pools > 0;
    ucx->closed = !busy;
    if (lock)
        pthread_mutex_unlock(lock);
    if (busy)
        return berth_fail(BERTH_BUSY,
                          "%llu slabs with %llu bytes and %llu pools of this berth_ucx live; free their "
                          "blocks and release the pools first",
                          slabs, bytes, pools);
    close_ucx(ucx);
    berth_allocator_release(ucx->source);
    bucx_drop(ucx);
    return BERTH_OK;
}

ucp_context_h berth_ucx_context(berth_ucx *ucx)
{
    return ucx ? ucx->context : NULL;
}

berth_allocator *berth_ucx_source(berth_ucx *ucx)
{
    return ucx ? ucx->source : NULL;
}

berth_status berth_ucx_figures_get(berth_ucx *ucx, berth_ucx_figures *out)
{
    if (!ucx || !out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "figures need a berth_ucx and their struct_size");
    if (bucx_is_lost(ucx))
        return bucx_lost();
    pthread_mutex_lock(&ucx->lock);
    *out = ucx->figures;
    pthread_mutex_unlock(&ucx->lock);
    out->struct_size = sizeof *out;
    pthread_mutex_lock(&ucx->tickets.lock);
    out->tickets = ucx->tickets.count;
    pthread_mutex_unlock(&ucx->tickets.lock);
    return BERTH_OK;
}

/* ---- The registry's ---------------------------------------------------------------------------------- */

berth_status berth_ucx_default(berth_ucx **out)
{
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no place for the result: out is NULL");
    pthread_mutex_lock(&default_lock);
    berth_status status = default_ucx ? BERTH_OK : berth_ucx_create(NULL, &default_ucx);
    *out = default_ucx;
    pthread_mutex_unlock(&default_lock);
    return status;
}

static berth_status make_registered_pool(void *context, berth_allocator **out)
{
    berth_ucx *ucx = NULL;
    (void)context;
    berth_status status = berth_ucx_default(&ucx);
    return !status ? berth_ucx_pool_create(ucx, NULL, out) : status;
}

/* Of priority 0, behind "system": it is nobody's best unless the attribute is asked for. */
berth_status berth_ucx_register(void)
{
    berth_registration r = BERTH_REGISTRATION_INIT;
    r.name = "ucx";
    r.attributes = BERTH_ON_HOST | BERTH_NIC_COMPATIBLE | BERTH_TRACK_SIZES;
    r.factory = make_registered_pool;
    r.file = __FILE__;
    r.line = __LINE__;
    berth_status status = berth_registry_add(&r);
    return status == BERTH_ALREADY_EXISTS ? BERTH_OK : status;
}

__attribute__((constructor)) static void register_at_load(void)
{
    (void)berth_ucx_register();
}
