/* Two processes that talk UCX: a worker and an endpoint on a berth_ucx, and a socket beside them for everything else. */
#ifndef BERTH_TESTS_UCX_WIRE_H
#define BERTH_TESTS_UCX_WIRE_H

#include <berth_ucx.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wire {
    int socket;
    ucp_worker_h worker;
    ucp_ep_h endpoint;
} wire;

/* Both sides call it, with the ends of one socket pair. Failures end the process with words: there is nothing to go on with. */
void wire_open(wire *w, ucp_context_h context, int socket);
/* The same with an endpoint that is told when the other process has gone; not every transport can. */
void wire_open_watched(wire *w, ucp_context_h context, int socket);
/* Both sides call it; none leaves before the other has come. */
void wire_close(wire *w);

/* A message with its length, over the socket. While it waits it progresses the worker: UCX over tcp needs the owner's help. */
void wire_send(wire *w, const void *data, size_t size_bytes);
size_t wire_receive(wire *w, void *data, size_t room);

/* One-sided, done at the target too on return. */
ucs_status_t wire_put(wire *w, const void *from, size_t size_bytes, uint64_t address, ucp_rkey_h rkey);
ucs_status_t wire_get(wire *w, void *to, size_t size_bytes, uint64_t address, ucp_rkey_h rkey);

#ifdef __cplusplus
}
#endif
#endif
