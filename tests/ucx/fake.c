/* A stand-in for libucp that registers nothing and fails on demand, so that a machine without UCX's library can try what the
 * binding does when UCX says no. Puts and gets move data within this process. FAKE_MINOR is its version; FAKE_PART leaves a call out. */
#include "fake.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#ifndef FAKE_MINOR
#define FAKE_MINOR UCP_API_MINOR
#endif
#define EXPORT __attribute__((visibility("default")))

EXPORT fake_ucx_controls fake_ucx;
static int a_context, a_config, a_key; /* handles need only be addresses */
static void *put_to;                   /* a put that was not flushed */
static const void *put_from;
static size_t put_bytes;
static int *newest; /* the request that is under way: one at a time is all that is asked for */

struct ucp_mem {
    void *address;
    size_t length;
    int is_mapped; /* here, not by the caller */
};

static int is_refused(void)
{
    return __atomic_add_fetch(&fake_ucx.calls, 1, __ATOMIC_SEQ_CST) == fake_ucx.fail_at;
}

static void count_live(int *what, int change)
{
    (void)__atomic_add_fetch(what, change, __ATOMIC_SEQ_CST);
}

EXPORT void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = UCP_API_MAJOR, *minor = FAKE_MINOR, *release = 0;
}

EXPORT const char *ucs_status_string(ucs_status_t status)
{
    return status == UCS_ERR_IO_ERROR ? "Input/output error (fake)" : "No memory (fake)";
}

EXPORT ucs_status_t ucp_config_read(const char *prefix, const char *file, ucp_config_t **out)
{
    (void)prefix, (void)file;
    if (is_refused())
        return UCS_ERR_IO_ERROR;
    count_live(&fake_ucx.configs, 1);
    *out = (ucp_config_t *)(void *)&a_config;
    return UCS_OK;
}

EXPORT ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value)
{
    (void)config, (void)name, (void)value;
    return is_refused() ? UCS_ERR_IO_ERROR : UCS_OK;
}

EXPORT void ucp_config_release(ucp_config_t *config)
{
    (void)config;
    count_live(&fake_ucx.configs, -1);
}

EXPORT ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
                                     const ucp_config_t *config, ucp_context_h *out)
{
    (void)major, (void)minor, (void)params, (void)config;
    if (is_refused())
        return UCS_ERR_IO_ERROR;
    count_live(&fake_ucx.contexts, 1);
    *out = (ucp_context_h)(void *)&a_context;
    return UCS_OK;
}

EXPORT void ucp_cleanup(ucp_context_h context)
{
    (void)context;
    count_live(&fake_ucx.contexts, -1);
}

EXPORT ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes)
{
    (void)context;
    if (is_refused())
        return UCS_ERR_IO_ERROR;
    attributes->thread_mode = UCS_THREAD_MODE_SINGLE;
    attributes->memory_types = 1u << UCS_MEMORY_TYPE_HOST;
    return UCS_OK;
}

EXPORT ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *out)
{
    (void)context;
    if (is_refused())
        return UCS_ERR_NO_MEMORY;
    if (fake_ucx.max_bytes && params->length > fake_ucx.max_bytes)
        return UCS_ERR_IO_ERROR; /* as UCX tells a refused ibv_reg_mr */
    struct ucp_mem *m = calloc(1, sizeof *m);
    if (!m)
        return UCS_ERR_NO_MEMORY;
    m->length = params->length;
    m->is_mapped = (params->flags & UCP_MEM_MAP_ALLOCATE) != 0;
    m->address = m->is_mapped
                     ? mmap(NULL, m->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
                     : params->address;
    if (m->address == MAP_FAILED) {
        free(m);
        return UCS_ERR_NO_MEMORY;
    }
    count_live(&fake_ucx.memories, 1);
    *out = (ucp_mem_h)m;
    return UCS_OK;
}

EXPORT ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h handle)
{
    struct ucp_mem *m = (struct ucp_mem *)handle;
    (void)context;
    if (m->is_mapped)
        munmap(m->address, m->length);
    free(m);
    count_live(&fake_ucx.memories, -1);
    return UCS_OK;
}

EXPORT ucs_status_t ucp_mem_query(const ucp_mem_h handle, ucp_mem_attr_t *attributes)
{
    const struct ucp_mem *m = (const struct ucp_mem *)handle;
    if (is_refused())
        return UCS_ERR_IO_ERROR;
    attributes->address = m->address;
    attributes->length = m->length;
    return UCS_OK;
}

#ifndef FAKE_PART
EXPORT ucs_status_t ucp_rkey_pack(ucp_context_h context, ucp_mem_h handle, void **out, size_t *size_bytes)
{
    (void)context, (void)handle;
    char *key = is_refused() ? NULL : malloc(8);
    if (!key)
        return UCS_ERR_NO_MEMORY;
    memset(key, 1, 8);
    count_live(&fake_ucx.keys, 1);
    *out = key;
    *size_bytes = 8;
    return UCS_OK;
}
#endif

EXPORT void ucp_rkey_buffer_release(void *key)
{
    count_live(&fake_ucx.keys, -1);
    free(key);
}

/* ---- The peer's side --------------------------------------------------------------------------------- */

EXPORT ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h endpoint, const void *key, ucp_rkey_h *out)
{
    (void)endpoint, (void)key;
    if (!fake_ucx.reaches || is_refused())
        return UCS_ERR_IO_ERROR;
    count_live(&fake_ucx.rkeys, 1);
    *out = (ucp_rkey_h)(void *)&a_key;
    return UCS_OK;
}

EXPORT void ucp_rkey_destroy(ucp_rkey_h rkey)
{
    (void)rkey;
    count_live(&fake_ucx.rkeys, -1);
}

/* A request that is done after some progress; NULL: done already. */
static ucs_status_ptr_t start_request(void)
{
    if (is_refused())
        return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
    if (!fake_ucx.done_after)
        return NULL;
    int *left = malloc(sizeof *left);
    if (!left)
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    *left = fake_ucx.done_after;
    count_live(&fake_ucx.requests, 1);
    newest = left;
    return left;
}

static ucs_status_ptr_t move_bytes(void *to, const void *from, size_t count)
{
    memcpy(to, from, count);
    if (fake_ucx.between && count != sizeof(uint64_t))
        fake_ucx.between(fake_ucx.between_context);
    return start_request();
}

EXPORT ucs_status_ptr_t ucp_get_nbx(ucp_ep_h endpoint, void *buffer, size_t count, uint64_t address,
                                    ucp_rkey_h rkey, const ucp_request_param_t *params)
{
    (void)endpoint, (void)rkey, (void)params;
    return move_bytes(buffer, (const void *)(uintptr_t)address, count);
}

/* Where nothing of a put is at the owner before a flush, a put without one is seen. */
EXPORT ucs_status_ptr_t ucp_put_nbx(ucp_ep_h endpoint, const void *buffer, size_t count, uint64_t address,
                                    ucp_rkey_h rkey, const ucp_request_param_t *params)
{
    (void)endpoint, (void)rkey, (void)params;
    put_to = (void *)(uintptr_t)address, put_from = buffer, put_bytes = count;
    return start_request();
}

EXPORT ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h endpoint, const ucp_request_param_t *params)
{
    (void)endpoint, (void)params;
    const size_t count = put_bytes;
    put_bytes = 0;
    return count ? move_bytes(put_to, put_from, count) : start_request();
}

EXPORT ucs_status_t ucp_request_check_status(void *request)
{
    return *(int *)request > 0 ? UCS_INPROGRESS : UCS_OK;
}

EXPORT void ucp_request_free(void *request)
{
    newest = newest == request ? NULL : newest;
    free(request);
    count_live(&fake_ucx.requests, -1);
}

EXPORT unsigned ucp_worker_progress(ucp_worker_h worker)
{
    (void)worker;
    if (newest && *newest > 0)
        --*newest;
    return (unsigned)fake_ucx.progress;
}
