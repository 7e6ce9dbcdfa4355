/* Making, stopping and emptying the threads' stocks. */
#include "cache/stock.h"

#include <sched.h>
#include <string.h>

berth__stock *berth__stock_make(berth__stocks *stocks, uint32_t piece, uint32_t thread)
{
    size_t size = ((size_t)8 << piece) * sizeof(berth__stock);
    /* Most threads never come here: the pages of their stocks are not touched, so they are not there. */
    berth__stock *made = berth__heap_zalloc(1, size);
    if (!made)
        return NULL;
    berth__stock *present = NULL;
    if (!atomic_compare_exchange_strong(&stocks->pieces[piece], &present, made)) {
        berth__heap_free(made);
        made = present;
    }
    return &made[thread - ((8u << piece) - 8u)];
}

typedef void (*stock_fn)(void *context, berth__stock *stock);

static void for_each_stock(berth__stocks *stocks, stock_fn each, void *context)
{
    for (uint32_t piece = 0; piece < BERTH__STOCK_PIECES; piece++) {
        berth__stock *first = atomic_load(&stocks->pieces[piece]);
        for (uint32_t i = 0; first && i < 8u << piece; i++)
            each(context, &first[i]);
    }
}

static void wait_for(void *context, berth__stock *stock)
{
    (void)context;
    uint32_t generation = berth__generation();
    for (unsigned turn = 1; atomic_load_explicit(&stock->busy, memory_order_acquire) == generation; turn++) {
        if (turn % 64 == 0)
            sched_yield();
        else
            berth__pause();
    }
}

void berth__stocks_stop(berth__stocks *stocks)
{
    atomic_fetch_add(&stocks->stopped, 1);
    berth__barrier_heavy();
    for_each_stock(stocks, wait_for, NULL);
}

void berth__stocks_resume(berth__stocks *stocks)
{
    atomic_fetch_sub_explicit(&stocks->stopped, 1, memory_order_release);
}

struct emptying {
    void (*each)(void *context, berth__span *span);
    void *context;
};

static void empty_stock(void *context, berth__stock *stock)
{
    struct emptying *job = context;
    for (uint32_t i = 0; i < BERTH__STOCK_BINS; i++) {
        berth__bin *bin = &stock->bins[i];
        for (uint32_t k = 0; k < bin->count; k++)
            job->each(job->context, bin->spans[k]);
        bin->count = 0;
    }
    for (uint32_t i = 0; i < stock->recent_count; i++)
        job->each(job->context, stock->recent[i]);
    stock->recent_count = 0;
}

void berth__stocks_empty(berth__stocks *stocks, void (*each)(void *context, berth__span *span), void *context)
{
    struct emptying job = {each, context};
    for_each_stock(stocks, empty_stock, &job);
}

void berth__stocks_finish(berth__stocks *stocks)
{
    for (uint32_t piece = 0; piece < BERTH__STOCK_PIECES; piece++)
        berth__heap_free(atomic_load(&stocks->pieces[piece]));
    memset(stocks, 0, sizeof *stocks);
}
