/* Memory that UCX knows: taken, registered, its key packed once; and given back so that no old key meets what comes next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "inside.h"

/* A refused registration is told as memory that is not to be had, so that a pool tries a smaller slab and then says so. */
static berth_status refuse_registration(ucs_status_t code, size_t size_bytes, bool is_host)
{
    struct rlimit locked = {0, 0};
    char limit[48] = "unlimited";
    const char *words = bucx_call.ucs_status_string(code);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    if (locked.rlim_cur != RLIM_INFINITY)
        snprintf(limit, sizeof limit, "%llu bytes", (unsigned long long)locked.rlim_cur);
    return berth_fail_driver(is_host ? BERTH_OUT_OF_HOST_MEMORY : BERTH_OUT_OF_DEVICE_MEMORY, code, words,
                             "UCX does not register %zu bytes: \"%s\" (%d); a NIC locks what it reaches, and "
                             "RLIMIT_MEMLOCK (ulimit -l) is %s",
                             size_bytes, words, (int)code, limit);
}

static berth_status pack_key(berth_ucx *ucx, bucx_memory *m)
{
    ucs_status_t code = bucx_call.ucp_rkey_pack(ucx->context, m->handle, &m->key, &m->key_bytes);
    return code == UCS_OK ? BERTH_OK : bucx_fail(code, "packing a slab's remote key");
}

/* Calls of UCX only; what they answer is in *code. */
static berth_status register_memory(berth_ucx *ucx, bucx_memory *m)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .length = m->size_bytes,
        .flags = m->block ? 0 : UCP_MEM_MAP_ALLOCATE,
        .memory_type = m->block ? ucx->type : UCS_MEMORY_TYPE_HOST,
    };
    ucp_mem_attr_t attributes = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    if (m->block) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address = m->base;
    }
    ucs_status_t code = bucx_call.ucp_mem_map(ucx->context, &params, &m->handle);
    if (code != UCS_OK)
        return refuse_registration(code, m->size_bytes, params.memory_type == UCS_MEMORY_TYPE_HOST);
    code = bucx_call.ucp_mem_query(m->handle, &attributes);
    berth_status status = code == UCS_OK ? pack_key(ucx, m) : bucx_fail(code, "asking for a slab's address");
    if (status) {
        (void)bucx_call.ucp_mem_unmap(ucx->context, m->handle);
        return status;
    }
    if (!m->block) {
        m->base = attributes.address;
        m->size_bytes = attributes.length;
    }
    return BERTH_OK;
}

berth_status bucx_memory_take(berth_ucx *ucx, berth_allocator *from, size_t size_bytes, bucx_memory *out)
{
    bucx_memory m = {.size_bytes = size_bytes};
    berth_status status = BERTH_OK;
    if (from) {
        status = berth_allocate(from, size_bytes, ucx->page_bytes, NULL, &m.block);
        if (status)
            return status;
        m.base = m.block;
        m.block_bytes = size_bytes;
    }
    bucx_calls_begin(ucx);
    status = register_memory(ucx, &m);
    bucx_calls_end(ucx);
    if (status) {
        if (from)
            (void)berth_deallocate(from, m.block, m.block_bytes, NULL);
        return status;
    }
    /* The memory is shared with peers, so a child would share it with its parent: it does not get it at all. */
    if (!from)
        (void)madvise(m.base, m.size_bytes, MADV_DONTFORK);
    *out = m;
    return BERTH_OK;
}

/* Nobody's memory where a slab was: readable and writable, since UCX's tcp writes from within this process, and would end it. */
static void keep_back(berth_ucx *ucx, char *base, size_t size_bytes)
{
    bucx_range *range = malloc(sizeof *range);
    void *kept = range ? mmap(base, size_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0)
                       : MAP_FAILED;
    if (kept != MAP_FAILED && kept != base) { /* kernels before 4.17 take the flag for a hint */
        munmap(kept, size_bytes);
        kept = MAP_FAILED;
    }
    pthread_mutex_lock(&ucx->lock);
    if (kept == MAP_FAILED) {
        ucx->figures.lost_bytes += size_bytes;
    } else {
        *range = (bucx_range){.next = ucx->retired, .base = base, .size_bytes = size_bytes};
        ucx->retired = range;
        range = NULL;
        ucx->figures.retired_bytes += size_bytes;
    }
    pthread_mutex_unlock(&ucx->lock);
    free(range);
}

void bucx_memory_give(berth_ucx *ucx, berth_allocator *from, bucx_memory *memory)
{
    bucx_calls_begin(ucx);
    bucx_call.ucp_rkey_buffer_release(memory->key);
    (void)bucx_call.ucp_mem_unmap(ucx->context, memory->handle);
    bucx_calls_end(ucx);
    if (memory->block)
        (void)berth_deallocate(from, memory->block, memory->block_bytes, NULL);
    else
        keep_back(ucx, memory->base, memory->size_bytes);
}
