/* Descriptors on their way: a new one to hand on, and over a Unix socket. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shared/shared.h"

/* Travels with the descriptor, which must come with at least one byte. */
static const char shared_message[8] = {'b', 'e', 'r', 't', 'h', 's', 'h', '1'};

enum { DESCRIPTORS_MOST = 2 }; /* what the room for one holds with its padding */

/* ---- Sending ----------------------------------------------------------------------------------------- */

berth_status berth_shared_descriptor(berth_shared *shared, berth_shared_access access, int *out)
{
    if (!shared || !out || (uint32_t)access > BERTH_SHARED_WRITE)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "there is no arena, no such access, or no place for the descriptor");
    berth__shared_enter(shared);
    berth_status status = berth__shared_has_descriptor(shared);
    if (!status && access == BERTH_SHARED_WRITE && !shared->may_write)
        status = berth__fail(BERTH_UNSUPPORTED, "the handle is for reading, and so is what it hands on");
    int descriptor = !status ? berth__shared_reopen(shared->descriptor, access == BERTH_SHARED_WRITE) : -1;
    if (!status && descriptor < 0)
        status = berth__shared_refused("the arena's descriptor cannot be opened again");
    berth__shared_leave(shared);
    if (!status)
        *out = descriptor;
    return status;
}

static berth_status socket_refused(const char *what)
{
    int code = errno;
    berth_status status = code == EAGAIN || code == EWOULDBLOCK                     ? BERTH_NOT_READY
                          : code == EBADF || code == ENOTSOCK || code == EOPNOTSUPP ? BERTH_INVALID_ARGUMENT
                                                                                    : BERTH_IO;
    return berth__fail(status, "%s: %s", what, strerror(code));
}

static bool is_unix_socket(int socket)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    return getsockname(socket, (struct sockaddr *)&address, &bytes) == 0 && address.ss_family == AF_UNIX;
}

static berth_status send_descriptor(int socket, int descriptor)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char text[sizeof shared_message];
    memcpy(text, shared_message, sizeof text);
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    memset(&control, 0, sizeof control);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)sizeof text)
        return BERTH_OK;
    return sent < 0 ? socket_refused("the arena cannot be sent")
                    : berth__fail(BERTH_IO, "the socket took half a message");
}

berth_status berth_shared_send(berth_shared *shared, int socket, berth_shared_access access)
{
    int descriptor = -1;
    berth_status status = berth_shared_descriptor(shared, access, &descriptor);
    if (status)
        return status;
    status = is_unix_socket(socket)
                 ? send_descriptor(socket, descriptor)
                 : berth__fail(BERTH_INVALID_ARGUMENT, "descriptor %d is not a Unix socket", socket);
    close(descriptor);
    return status;
}

/* ---- Receiving --------------------------------------------------------------------------------------- */

/* The only descriptor that came; -1 for none or several, which are closed. There is room for one header. */
static int take_descriptor(struct msghdr *message)
{
    const struct cmsghdr *h = CMSG_FIRSTHDR(message);
    if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
        return -1;
    int came[DESCRIPTORS_MOST] = {-1, -1};
    size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > DESCRIPTORS_MOST)
        count = DESCRIPTORS_MOST;
    memcpy(came, CMSG_DATA(h), count * sizeof(int));
    if (count == 1 && !(message->msg_flags & MSG_CTRUNC))
        return came[0];
    for (size_t i = 0; i < count; i++)
        close(came[i]);
    return -1;
}

static berth_status receive_descriptor(int socket, int *out)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char text[sizeof shared_message] = {0};
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return socket_refused("no arena can be received");
    if (got == 0)
        return berth__fail(BERTH_IO, "the other side has closed the socket, and sent no arena");
    bool is_lost = !CMSG_FIRSTHDR(&message) && (message.msg_flags & MSG_CTRUNC);
    int descriptor = take_descriptor(&message);
    bool good = got == (ssize_t)sizeof text && memcmp(text, shared_message, sizeof text) == 0 &&
                !(message.msg_flags & MSG_TRUNC);
    if (good && descriptor >= 0) {
        *out = descriptor;
        return BERTH_OK;
    }
    if (good && is_lost) /* the kernel drops a descriptor that it finds no number for */
        return berth__fail(
            BERTH_IO,
            "an arena came over the socket, and this process could not take its descriptor: have it sent "
            "again when there is room (RLIMIT_NOFILE, ulimit -n)");
    if (descriptor >= 0)
        close(descriptor);
    return berth__fail(BERTH_BAD_DATA, "what came over the socket is not a shared arena");
}

berth_status berth_shared_receive(int socket, const berth_shared_attach_options *options, berth_shared **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the arena: out is NULL");
    *out = NULL;
    if (!is_unix_socket(socket))
        return berth__fail(BERTH_INVALID_ARGUMENT, "descriptor %d is not a Unix socket", socket);
    int descriptor = -1;
    berth_status status = receive_descriptor(socket, &descriptor);
    if (status)
        return status;
    status = berth_shared_attach(descriptor, options, out);
    close(descriptor);
    return status;
}
