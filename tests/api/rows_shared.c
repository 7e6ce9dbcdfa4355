/* Rows of shared.h. */
#include <sys/socket.h>
#include <unistd.h>

#include "api.h"

static berth_shared *new_shared(void)
{
    static const berth_plan_allocation buffers[] = {
        {sizeof(berth_plan_allocation), 100, 64, 2, BERTH_NO_OFFSET, "a"},
        {sizeof(berth_plan_allocation), 9, 1, BERTH_NEVER_FREED, BERTH_NO_OFFSET, NULL},
    };
    berth_plan *plan = NULL;
    berth_shared *s = NULL;
    (void)berth_plan_create(&plan);
    (void)berth_plan_set(plan, buffers, 2, NULL);
    api_check(berth_shared_create(plan, NULL, &s) == BERTH_OK, "an arena is made");
    berth_plan_release(plan);
    return s;
}

/* NULL, or one that is being written, published, retired or sealed; the row lets go of it. */
static berth_shared *pick_shared(void)
{
    size_t which = api_pick(5);
    if (which == 0)
        return NULL;
    berth_shared *s = new_shared();
    if (which > 1)
        (void)berth_shared_publish(s, NULL);
    if (which == 3)
        (void)berth_shared_retire(s);
    if (which == 4)
        (void)berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT);
    return s;
}

/* No descriptor, one of something else, and one of an arena. `close` what is not negative. */
static int pick_descriptor(void)
{
    static const int none[] = {-1, 100000, INT32_MIN, INT32_MAX};
    int descriptor = -1, pair[2];
    switch (api_pick(3)) {
    case 0:
        return PICK(none);
    case 1:
        if (pipe(pair) == 0)
            close(pair[1]), descriptor = pair[0];
        return descriptor;
    default: {
        berth_shared *s = new_shared();
        (void)berth_shared_descriptor(s, BERTH_SHARED_WRITE, &descriptor);
        berth_shared_release(s);
        return descriptor;
    }
    }
}

static void close_picked(int descriptor)
{
    if (descriptor >= 0 && descriptor < 100000)
        close(descriptor);
}

static const berth_shared_attach_options *pick_attach(void)
{
    static berth_shared_attach_options o;
    if (api_pick(2))
        return NULL;
    o = (berth_shared_attach_options){.struct_size = api_struct_size(sizeof o)};
    static const int choices[] = {0, 1, 2, -1};
    o.access = (berth_shared_access)PICK(choices);
    o.seals = (berth_shared_seals)PICK(choices);
    o.fingerprint = api_bool() ? UINT64_MAX : 0;
    o.generation = api_bool() ? UINT64_MAX : 0;
    return &o;
}

ROW(berth_shared_create)
{
    static const char *const names[] = {NULL, "", "name"};
    berth_shared_options o = {
        .struct_size = api_struct_size(sizeof o), .name = PICK(names), .reserve = api_bool()};
    GIVES(berth_shared_create(api_bool() ? api_plan : NULL, api_bool() ? &o : NULL, OUT(shared)),
          berth_shared_release(api_out.shared));
}

ROW(berth_shared_attach)
{
    int descriptor = pick_descriptor();
    GIVES(berth_shared_attach(descriptor, pick_attach(), OUT(shared)), berth_shared_release(api_out.shared));
    close_picked(descriptor);
}

ROW(berth_shared_retain)
{
    berth_shared *s = pick_shared();
    api_check(berth_shared_retain(s) == s, "the same handle");
    berth_shared_release(s);
    berth_shared_release(s);
}

ROW(berth_shared_release)
{
    berth_shared_release(pick_shared());
}

ROW(berth_shared_descriptor)
{
    berth_shared *s = pick_shared();
    int descriptor = -1;
    api_answer(berth_shared_descriptor(s, (berth_shared_access)api_enum(), api_bool() ? &descriptor : NULL));
    close_picked(descriptor);
    berth_shared_release(s);
}

ROW(berth_shared_send)
{
    berth_shared *s = pick_shared();
    int pair[2] = {-1, -1};
    bool sockets = api_bool() && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0;
    int other = sockets ? -1 : pick_descriptor();
    api_answer(berth_shared_send(s, sockets ? pair[0] : other, (berth_shared_access)api_enum()));
    close_picked(pair[0]), close_picked(pair[1]), close_picked(other);
    berth_shared_release(s);
}

ROW(berth_shared_receive)
{
    int pair[2] = {-1, -1};
    bool sockets = api_bool() && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0;
    int other = sockets ? -1 : pick_descriptor();
    if (sockets && api_bool()) {
        berth_shared *s = new_shared();
        (void)berth_shared_send(s, pair[1], BERTH_SHARED_WRITE);
        berth_shared_release(s);
    }
    GIVES(berth_shared_receive(sockets ? pair[0] : other, pick_attach(), OUT(shared)),
          berth_shared_release(api_out.shared));
    close_picked(pair[0]), close_picked(pair[1]), close_picked(other);
}

ROW(berth_shared_count)
{
    berth_shared *s = pick_shared();
    api_check(berth_shared_count(s) == (s ? 2 : 0), "as many as the plan has");
    berth_shared_release(s);
}

ROW(berth_shared_get)
{
    berth_shared *s = pick_shared();
    size_t bytes;
    GIVES(berth_shared_get(s, api_size(), OUT(any), api_bool() ? &bytes : NULL), (void)0);
    berth_shared_release(s);
}

ROW(berth_shared_find)
{
    static const char *const labels[] = {NULL, "", "a", "no such label"};
    berth_shared *s = pick_shared();
    size_t id;
    api_answer(berth_shared_find(s, PICK(labels), api_bool() ? &id : NULL));
    berth_shared_release(s);
}

ROW(berth_shared_plan)
{
    berth_shared *s = pick_shared();
    GIVES(berth_shared_plan(s, OUT(plan)), berth_plan_release(api_out.plan));
    berth_shared_release(s);
}

ROW(berth_shared_info_get)
{
    berth_shared *s = pick_shared();
    berth_shared_info info = {.struct_size = api_struct_size(sizeof info)};
    api_answer(berth_shared_info_get(s, api_bool() ? &info : NULL));
    berth_shared_release(s);
}

/* What takes a handle and nothing else, twice, since the second time is another state. */
#define SHARED_ROW(function, ...)            \
    ROW(function)                            \
    {                                        \
        berth_shared *s = pick_shared();     \
        api_answer(function(s __VA_ARGS__)); \
        api_answer(function(s __VA_ARGS__)); \
        berth_shared_release(s);             \
    }

SHARED_ROW(berth_shared_own)
SHARED_ROW(berth_shared_disown)
SHARED_ROW(berth_shared_write_begin)
SHARED_ROW(berth_shared_retire)
SHARED_ROW(berth_shared_read_end)

ROW(berth_shared_publish)
{
    berth_shared *s = pick_shared();
    uint64_t generation;
    api_answer(berth_shared_publish(s, api_bool() ? &generation : NULL));
    berth_shared_release(s);
}

ROW(berth_shared_seal)
{
    berth_shared *s = pick_shared();
    api_answer(berth_shared_seal(s, (berth_shared_seals)api_enum()));
    berth_shared_release(s);
}

/* These two keep no words for what readers ask all the time. */
ROW(berth_shared_generation)
{
    berth_shared *s = pick_shared();
    uint64_t generation;
    berth_status status = berth_shared_generation(s, api_bool() ? &generation : NULL);
    if (status != BERTH_NOT_READY)
        api_answer(status);
    berth_shared_release(s);
}

ROW(berth_shared_check)
{
    static const uint64_t generations[] = {0, 1, UINT64_MAX};
    berth_shared *s = pick_shared();
    berth_status status = berth_shared_check(s, PICK(generations));
    if (status != BERTH_MISMATCH)
        api_answer(status);
    berth_shared_release(s);
}

ROW(berth_shared_read_begin)
{
    berth_shared *s = pick_shared();
    uint64_t generation;
    api_answer(berth_shared_read_begin(s, api_bool() ? &generation : NULL));
    berth_shared_release(s);
}

ROW(berth_shared_wait)
{
    static const uint64_t generations[] = {0, 1, UINT64_MAX};
    berth_shared *s = pick_shared();
    uint64_t generation, after = PICK(generations);
    api_answer(berth_shared_wait(s, after, 0, api_bool() ? &generation : NULL));
    berth_shared_release(s);
}

ROW(berth_shared_allocator_create)
{
    berth_shared *s = pick_shared();
    GIVES(berth_shared_allocator_create(s, api_allocator(), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
    berth_shared_release(s);
}
