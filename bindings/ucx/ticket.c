/* Tickets, on the side of the memory's owner. A block with tickets has a number in a table of registered memory; the
 * ticket tells the number and where it stands. When the block goes the number goes first, and what a peer then reads there is
 * another: numbers are never used twice. */
#include <stdlib.h>
#include <string.h>

#include "inside.h"

/* ---- Numbers ----------------------------------------------------------------------------------------- */

/* Under the lock, though it calls UCX: once in 8,192 blocks, and nothing of UCX's calls back. */
static berth_status add_table(berth_ucx *ucx)
{
    bucx_tickets *t = &ucx->tickets;
    bucx_table *table = calloc(1, sizeof *table);
    if (!table)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a table of tickets");
    berth_status status = bucx_memory_take(ucx, NULL, BUCX_TABLE_BYTES, &table->memory);
    if (status) {
        free(table);
        return status;
    }
    memset(table->memory.base, 0, table->memory.size_bytes);
    table->id = atomic_fetch_add(&ucx->next_number, 1);
    table->next = t->tables;
    t->tables = table;
    return BERTH_OK;
}

static berth_status take_lease(berth_ucx *ucx, bucx_lease **out)
{
    bucx_tickets *t = &ucx->tickets;
    berth_status status = BERTH_OK;
    if (t->spare) {
        *out = t->spare;
        t->spare = (*out)->next;
        return BERTH_OK;
    }
    if (!t->tables || t->tables->used == BUCX_TABLE_BYTES / sizeof(uint64_t))
        status = add_table(ucx);
    if (status)
        return status;
    bucx_lease *lease = malloc(sizeof *lease);
    if (!lease)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a ticket");
    lease->table = t->tables;
    lease->number = (_Atomic uint64_t *)(void *)t->tables->memory.base + t->tables->used++;
    *out = lease;
    return BERTH_OK;
}

static bucx_lease **lease_link(bucx_tickets *t, const void *block)
{
    bucx_lease **link = &t->chains[bucx_chain_of(block)];
    while (*link && (*link)->block != block)
        link = &(*link)->next;
    return link;
}

/* The lock is held. */
static berth_status find_or_make_lease(berth_ucx *ucx, const void *block, bucx_lease **out)
{
    bucx_tickets *t = &ucx->tickets;
    bucx_lease **link = lease_link(t, block);
    if (!*link) {
        berth_status status = take_lease(ucx, link);
        if (status) {
            *link = NULL;
            return status;
        }
        (*link)->next = NULL;
        (*link)->block = block;
        atomic_store((*link)->number, atomic_fetch_add(&ucx->next_number, 1));
        atomic_fetch_add(&t->filter[bucx_chain_of(block)], 1);
        t->count++;
    }
    *out = *link;
    return BERTH_OK;
}

bucx_lease *bucx_tickets_suspend(berth_ucx *ucx, const void *block, uint64_t *number)
{
    bucx_tickets *t = &ucx->tickets;
    pthread_mutex_lock(&t->lock);
    bucx_lease **link = lease_link(t, block), *lease = *link;
    if (lease) {
        *number = atomic_exchange(lease->number, 0);
        *link = lease->next;
        atomic_fetch_sub(&t->filter[bucx_chain_of(block)], 1);
        t->count--;
    }
    pthread_mutex_unlock(&t->lock);
    return lease;
}

void bucx_tickets_drop(berth_ucx *ucx, bucx_lease *lease)
{
    bucx_tickets *t = &ucx->tickets;
    pthread_mutex_lock(&t->lock);
    lease->next = t->spare;
    t->spare = lease;
    pthread_mutex_unlock(&t->lock);
}

void bucx_tickets_resume(berth_ucx *ucx, bucx_lease *lease, uint64_t number)
{
    bucx_tickets *t = &ucx->tickets;
    const size_t chain = bucx_chain_of(lease->block);
    pthread_mutex_lock(&t->lock);
    atomic_store(lease->number, number);
    lease->next = t->chains[chain];
    t->chains[chain] = lease;
    atomic_fetch_add(&t->filter[chain], 1);
    t->count++;
    pthread_mutex_unlock(&t->lock);
}

static void free_leases(bucx_lease *lease)
{
    for (bucx_lease *next; lease; lease = next) {
        next = lease->next;
        free(lease);
    }
}

void bucx_tickets_finish(berth_ucx *ucx)
{
    bucx_tickets *t = &ucx->tickets;
    for (size_t i = 0; i < BUCX_FILTER; i++)
        free_leases(t->chains[i]);
    free_leases(t->spare);
    for (bucx_table *table = t->tables, *next; table; table = next) {
        next = table->next;
        bucx_memory_give(ucx, NULL, &table->memory);
        free(table);
    }
}

/* ---- The public side --------------------------------------------------------------------------------- */

static berth_status check_block(berth_allocator *pool, const void *block, size_t offset, size_t size)
{
    size_t has = 0;
    if (!pool || !block)
        return berth_fail(BERTH_INVALID_ARGUMENT, "the pool or the block is NULL");
    if (berth_allocator_name(pool) != bucx_pool_name)
        return berth_fail(
            BERTH_UNSUPPORTED,
            "\"%s\" does not tell when a block is freed: tickets are for pools of berth_ucx_pool_create",
            berth_allocator_name(pool));
    berth_status status = berth_allocated_size(pool, block, &has);
    if (status)
        return berth_fail(BERTH_NOT_FOUND, "%p is not where a live block of the pool begins", block);
    if (offset > has || size > has - offset)
        return berth_fail(BERTH_INVALID_ARGUMENT, "%zu bytes at %zu are not in a block of %zu bytes", size,
                          offset, has);
    return BERTH_OK;
}

static void write_ticket(const bucx_ticket_head *head, const bucx_slab *slab, const bucx_table *table,
                         char *out)
{
    memcpy(out, head, sizeof *head);
    memcpy(out + sizeof *head, slab->memory.key, slab->memory.key_bytes);
    memcpy(out + sizeof *head + slab->memory.key_bytes, table->memory.key, table->memory.key_bytes);
}

berth_status berth_ucx_publish(berth_allocator *pool, const void *block, size_t offset_bytes,
                               size_t size_bytes, void *ticket, size_t *ticket_bytes)
{
    bucx_slab slab;
    bucx_lease *lease = NULL;
    if (!ticket_bytes || (!ticket && *ticket_bytes))
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no room for a ticket: a pointer is NULL");
    berth_status status = check_block(pool, block, offset_bytes, size_bytes);
    if (!status)
        status = bucx_slab_find(block, &slab);
    if (status)
        return status;
    berth_ucx *ucx = slab.ucx;
    if (bucx_is_lost(ucx))
        return bucx_lost();
    pthread_mutex_lock(&ucx->tickets.lock);
    status = find_or_make_lease(ucx, block, &lease);
    if (status)
        goto unlock;
    bucx_table *table = lease->table;
    bucx_ticket_head head = {.magic = BUCX_MAGIC,
                             .address = (uint64_t)(uintptr_t)block + offset_bytes,
                             .size_bytes = size_bytes,
                             .slab = slab.number,
                             .number = atomic_load(lease->number),
                             .number_address = (uint64_t)(uintptr_t)lease->number,
                             .table = table->id,
                             .key_bytes = (uint32_t)slab.memory.key_bytes,
                             .table_key_bytes = (uint32_t)table->memory.key_bytes};
    size_t needed = sizeof head + slab.memory.key_bytes + table->memory.key_bytes;
    if (!ticket || *ticket_bytes < needed)
        status = berth_fail(BERTH_OVERFLOW, "a ticket takes %zu bytes here, there is room for %zu", needed,
                            *ticket_bytes);
    else
        write_ticket(&head, &slab, table, ticket);
    *ticket_bytes = needed;
unlock:
    pthread_mutex_unlock(&ucx->tickets.lock);
    return status;
}

berth_status berth_ucx_withdraw(const void *block)
{
    bucx_slab slab;
    uint64_t number = 0;
    berth_status status = bucx_slab_find(block, &slab);
    if (status)
        return status;
    bucx_lease *lease = bucx_tickets_suspend(slab.ucx, block, &number);
    if (!lease)
        return berth_fail(BERTH_NOT_FOUND, "no ticket of %p is out", block);
    bucx_tickets_drop(slab.ucx, lease);
    return BERTH_OK;
}
