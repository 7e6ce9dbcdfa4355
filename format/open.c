/* Segments that are not given back yet. */
#include "format/open.h"

#include <stdlib.h>

static uint32_t space_of(uint16_t process, uint16_t device)
{
    return (uint32_t)process << 16 | device;
}

/* Whether a node stands before a place; of equal places the older ones do. */
static bool is_before(const struct format_open_node *n, uint32_t space, uint64_t address)
{
    return n->space != space ? n->space < space : n->address <= address;
}

static void node_update(struct format_open *open, uint32_t at)
{
    struct format_open_node *n = &open->nodes[at - 1];
    n->farthest = n->end;
    if (n->left && open->nodes[n->left - 1].farthest > n->farthest)
        n->farthest = open->nodes[n->left - 1].farthest;
    if (n->right && open->nodes[n->right - 1].farthest > n->farthest)
        n->farthest = open->nodes[n->right - 1].farthest;
}

/* What stands before a place, and the rest. */
static void open_split(struct format_open *open, uint32_t at, uint32_t space, uint64_t address,
                       uint32_t *before, uint32_t *rest)
{
    if (!at) {
        *before = *rest = 0;
        return;
    }
    struct format_open_node *n = &open->nodes[at - 1];
    if (is_before(n, space, address)) {
        open_split(open, n->right, space, address, &n->right, rest);
        *before = at;
    } else {
        open_split(open, n->left, space, address, before, &n->left);
        *rest = at;
    }
    node_update(open, at);
}

static uint32_t open_join(struct format_open *open, uint32_t a, uint32_t b)
{
    if (!a || !b)
        return a ? a : b;
    if (open->nodes[a - 1].priority > open->nodes[b - 1].priority) {
        open->nodes[a - 1].right = open_join(open, open->nodes[a - 1].right, b);
        node_update(open, a);
        return a;
    }
    open->nodes[b - 1].left = open_join(open, a, open->nodes[b - 1].left);
    node_update(open, b);
    return b;
}

/* A node's number + 1; 0: no memory. */
static uint32_t node_make(struct format_open *open)
{
    uint32_t at = open->vacant;
    if (at) {
        open->vacant = open->nodes[at - 1].right;
        return at;
    }
    if (open->count == open->room) {
        uint32_t room = open->room ? open->room * 2 : 64;
        struct format_open_node *grown =
            room > UINT32_MAX / 4 ? NULL : realloc(open->nodes, room * sizeof *grown);
        if (!grown)
            return 0;
        open->nodes = grown;
        open->room = room;
    }
    return ++open->count;
}

bool format_open_add(struct format_open *open, uint16_t process, uint16_t device, uint64_t address,
                     uint64_t size_bytes, uint32_t segment)
{
    uint32_t at = node_make(open), before, rest, space = space_of(process, device);
    if (!at)
        return false;
    /* Priorities are by number, which no file chooses. */
    uint64_t mixed = at * UINT64_C(0x9e3779b97f4a7c15);
    open->nodes[at - 1] =
        (struct format_open_node){.address = address,
                                  .end = address + size_bytes < address ? UINT64_MAX : address + size_bytes,
                                  .space = space,
                                  .segment = segment,
                                  .priority = (uint32_t)(mixed >> 32 ^ mixed >> 13)};
    node_update(open, at);
    open_split(open, open->root, space, address, &before, &rest);
    open->root = open_join(open, open_join(open, before, at), rest);
    return true;
}

/* Takes the lowest node of a subtree that reaches behind `address`, of which there is one; what is left. */
static uint32_t open_take(struct format_open *open, uint32_t at, uint64_t address, uint32_t *taken)
{
    struct format_open_node *n = &open->nodes[at - 1];
    if (n->left && open->nodes[n->left - 1].farthest > address) {
        n->left = open_take(open, n->left, address, taken);
    } else if (n->end > address) {
        *taken = at;
        return open_join(open, n->left, n->right);
    } else {
        n->right = open_take(open, n->right, address, taken);
    }
    node_update(open, at);
    return at;
}

uint32_t format_open_take(struct format_open *open, uint16_t process, uint16_t device, uint64_t address,
                          uint64_t end)
{
    uint32_t space = space_of(process, device), lower = 0, here, higher, taken = 0;
    if (end <= address)
        return UINT32_MAX;
    /* lower | of this space and below the end | higher */
    open_split(open, open->root, space, end - 1, &here, &higher);
    if (space)
        open_split(open, here, space - 1, UINT64_MAX, &lower, &here);
    if (here && open->nodes[here - 1].farthest > address)
        here = open_take(open, here, address, &taken);
    open->root = open_join(open, open_join(open, lower, here), higher);
    if (!taken)
        return UINT32_MAX;
    open->nodes[taken - 1].right = open->vacant;
    open->vacant = taken;
    return open->nodes[taken - 1].segment;
}

bool format_open_begins(const struct format_open *open, uint16_t process, uint16_t device, uint64_t address)
{
    uint32_t space = space_of(process, device), at = open->root;
    while (at) {
        const struct format_open_node *n = &open->nodes[at - 1];
        if (n->space == space && n->address == address)
            return true;
        at = is_before(n, space, address) ? n->right : n->left;
    }
    return false;
}

void format_open_finish(struct format_open *open)
{
    free(open->nodes);
    *open = (struct format_open){0};
}
