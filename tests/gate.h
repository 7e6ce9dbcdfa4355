/* A gate for tests: a function on a stream that stops there until the test opens it. */
#ifndef BERTH_TESTS_GATE_H
#define BERTH_TESTS_GATE_H

#include <pthread.h>
#include <stdbool.h>

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached, open;
} gate;

#define GATE_INIT                                                         \
    {                                                                     \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false \
    }

/* For berth_stream_call: stays until the gate is open. */
static inline void gate_stop(void *context)
{
    gate *g = context;
    pthread_mutex_lock(&g->lock);
    g->reached = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* Waits until somebody stands at the gate. */
static inline void gate_wait_reached(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static inline void gate_open(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

#endif
