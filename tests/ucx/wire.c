#include "wire.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void expect_wire(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s failed\n", what);
    abort();
}

/* ---- The socket --------------------------------------------------------------------------------------- */

static void write_bytes(wire *w, const void *data, size_t size_bytes)
{
    for (const char *at = data; size_bytes;) {
        ssize_t done = send(w->socket, at, size_bytes, MSG_NOSIGNAL);
        expect_wire(done > 0 || errno == EINTR, "writing to the socket");
        at += done > 0 ? done : 0;
        size_bytes -= done > 0 ? (size_t)done : 0;
    }
}

static void read_bytes(wire *w, void *data, size_t size_bytes)
{
    for (char *at = data; size_bytes;) {
        ssize_t done = recv(w->socket, at, size_bytes, w->worker ? MSG_DONTWAIT : 0);
        if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (w->worker && !ucp_worker_progress(w->worker))
                sched_yield();
            continue;
        }
        expect_wire(done > 0, "reading from the socket (is the other side gone?)");
        at += done;
        size_bytes -= (size_t)done;
    }
}

void wire_send(wire *w, const void *data, size_t size_bytes)
{
    write_bytes(w, &size_bytes, sizeof size_bytes);
    write_bytes(w, data, size_bytes);
}

size_t wire_receive(wire *w, void *data, size_t room)
{
    size_t size_bytes = 0;
    read_bytes(w, &size_bytes, sizeof size_bytes);
    expect_wire(size_bytes <= room, "receiving a message of that size");
    read_bytes(w, data, size_bytes);
    return size_bytes;
}

/* ---- UCX ---------------------------------------------------------------------------------------------- */

/* The requests tell it, too. */
static void note_failure(void *context, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)context, (void)endpoint, (void)status;
}

static void open_both(wire *w, ucp_context_h context, int socket, uint64_t watched)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_address_t *own = NULL;
    size_t own_bytes = 0;
    char other[4096];
    *w = (wire){.socket = socket};
    expect_wire(ucp_worker_create(context, &params, &w->worker) == UCS_OK, "ucp_worker_create");
    expect_wire(ucp_worker_get_address(w->worker, &own, &own_bytes) == UCS_OK, "ucp_worker_get_address");
    wire_send(w, own, own_bytes);
    ucp_worker_release_address(w->worker, own);
    (void)wire_receive(w, other, sizeof other);
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | watched,
                          .address = (const ucp_address_t *)(const void *)other,
                          .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                          .err_handler = {.cb = note_failure}};
    expect_wire(ucp_ep_create(w->worker, &ep, &w->endpoint) == UCS_OK, "ucp_ep_create");
}

void wire_open(wire *w, ucp_context_h context, int socket)
{
    open_both(w, context, socket, 0);
}

void wire_open_watched(wire *w, ucp_context_h context, int socket)
{
    open_both(w, context, socket, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER);
}

static ucs_status_t finish_request(wire *w, void *request)
{
    ucs_status_t code = UCS_INPROGRESS;
    if (!request)
        return UCS_OK;
    if (UCS_PTR_IS_ERR(request))
        return UCS_PTR_RAW_STATUS(request);
    while ((code = ucp_request_check_status(request)) == UCS_INPROGRESS)
        if (!ucp_worker_progress(w->worker))
            sched_yield();
    ucp_request_free(request);
    return code;
}

ucs_status_t wire_put(wire *w, const void *from, size_t size_bytes, uint64_t address, ucp_rkey_h rkey)
{
    const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucs_status_t code = finish_request(w, ucp_put_nbx(w->endpoint, from, size_bytes, address, rkey, &plain));
    return code == UCS_OK ? finish_request(w, ucp_ep_flush_nbx(w->endpoint, &plain)) : code;
}

ucs_status_t wire_get(wire *w, void *to, size_t size_bytes, uint64_t address, ucp_rkey_h rkey)
{
    const ucp_request_param_t plain = {.op_attr_mask = 0};
    return finish_request(w, ucp_get_nbx(w->endpoint, to, size_bytes, address, rkey, &plain));
}

void wire_close(wire *w)
{
    const ucp_request_param_t plain = {.op_attr_mask = 0};
    char bye = 0;
    wire_send(w, &bye, 1);
    (void)wire_receive(w, &bye, 1);
    (void)finish_request(w, ucp_ep_close_nbx(w->endpoint, &plain));
    /* The other side's close may need this worker. */
    wire_send(w, &bye, 1);
    (void)wire_receive(w, &bye, 1);
    ucp_worker_destroy(w->worker);
    *w = (wire){.socket = w->socket};
}
