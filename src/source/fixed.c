/* The fixed source: best fit inside a region that the caller owns, without any heap.
 *
 *      region:  | struct fixed | … to 32 mod 64 | block | block | … | last block |
 *      block:   | header, 32 bytes | payload, a multiple of 64 bytes less 32 |
 *
 * Blocks are multiples of 64 bytes and start 32 bytes after a multiple of 64, so that every payload is
 * aligned to 64; a larger alignment leaves a free block in front. Neighbours are found through the sizes in
 * the headers (boundary tags). Free blocks are the nodes of one treap, ordered by size and then by address, with
 * a hash of the address as priority: the best fit is found, taken out and put back in O(log n) expected, and
 * nothing is stored but two links in the free block itself. */
#include <string.h>

#include "base/annotate.h"
#include "base/lock.h"
#include "base/words.h"
#include "berth/source.h"
#include "core/allocator.h"

enum { granule = 64, state_free = 1, state_live = 2 };

/* Sizes count the header and are multiples of the granule. */
struct block {
    uint64_t size;
    uint64_t previous_size; /* 0: the first block */
    uint64_t id;            /* of a live block */
    uint32_t check;
    uint16_t slack; /* payload bytes that were not asked for */
    uint16_t state;
};

struct node {
    struct block block;
    struct node *left, *right;
};

struct fixed {
    berth_allocator base;
    berth__spin lock;  /* everything below, and the region */
    char *begin, *end; /* of the blocks; set once */
    uint64_t region_bytes;
    struct node *root;   /* the free blocks */
    uint64_t free_bytes; /* payload of the free blocks */
    uint64_t next_id;
    berth_stats stats;
};

_Static_assert(sizeof(struct block) == 32 && sizeof(struct node) <= granule, "the drawing above");

/* ---- Blocks -------------------------------------------------------------------------------------- */

static void *payload_of(struct block *b)
{
    return (char *)b + sizeof(struct block);
}

static uint64_t payload_bytes(const struct block *b)
{
    return b->size - sizeof(struct block);
}

static uint32_t fixed_hash(const void *p)
{
    uint64_t x = (uintptr_t)p / granule * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

BERTH__NO_ASAN static uint32_t check_word(const struct block *b)
{
    return fixed_hash(b) ^ (uint32_t)b->size ^ (uint32_t)b->state << 16 ^ 0xf15edb10u;
}

static void fixed_seal(struct block *b, uint16_t state)
{
    b->state = state;
    b->check = check_word(b);
}

static struct block *next_of(struct fixed *f, struct block *b)
{
    char *next = (char *)b + b->size;
    return next < f->end ? (struct block *)(void *)next : NULL;
}

static struct block *previous_of(struct block *b)
{
    return b->previous_size ? (struct block *)(void *)((char *)b - b->previous_size) : NULL;
}

/* The live block whose payload starts at `p`, or NULL. What is no block may be hidden. */
BERTH__NO_ASAN static struct block *live_block(struct fixed *f, const void *p)
{
    uintptr_t at = (uintptr_t)p;
    if (at < (uintptr_t)f->begin + sizeof(struct block) || at >= (uintptr_t)f->end || at % granule != 0)
        return NULL;
    struct block *b = (struct block *)(at - sizeof(struct block));
    return b->state == state_live && b->check == check_word(b) ? b : NULL;
}

/* ---- The treap of free blocks -------------------------------------------------------------------- */

/* By size, then by address. */
struct fixed_key {
    uint64_t size;
    uintptr_t address;
};

static inline struct fixed_key fixed_key_of(const struct node *n)
{
    return (struct fixed_key){n->block.size, (uintptr_t)n};
}

static inline bool fixed_key_before(struct fixed_key a, struct fixed_key b)
{
    return a.size != b.size ? a.size < b.size : a.address < b.address;
}

#define TREAP(x) fixed_tree_##x
#define TREAP_REF struct node *
#define TREAP_NONE NULL
#define TREAP_BASE const struct fixed *
#define TREAP_AT(f, n) (*(n))
#define TREAP_KEY struct fixed_key
#define TREAP_KEY_OF(f, n) ((void)(f), fixed_key_of(n))
#define TREAP_BEFORE(a, b) fixed_key_before(a, b)
#define TREAP_PRIORITY(n) fixed_hash(n)
#include "base/treap.h"

/* Memory checkers see a free block's bytes as nobody's, but for its header and its links. */
static void fixed_hide(struct block *b)
{
    berth__annotate_noaccess((char *)b + sizeof(struct node), b->size - sizeof(struct node));
}

static void fixed_unhide(struct block *b)
{
    berth__annotate_defined(payload_of(b), payload_bytes(b));
}

/* Of a live block they see what was asked for. */
static void hide_slack(struct block *b)
{
    berth__annotate_noaccess((char *)payload_of(b) + payload_bytes(b) - b->slack, b->slack);
}

static void put_free(struct fixed *f, struct block *b)
{
    fixed_seal(b, state_free);
    f->free_bytes += payload_bytes(b);
    fixed_tree_insert(f, &f->root, (struct node *)b);
    fixed_hide(b);
}

static void take_free(struct fixed *f, struct block *b)
{
    f->free_bytes -= payload_bytes(b);
    fixed_tree_remove(f, &f->root, (struct node *)b);
    fixed_unhide(b);
}

/* The smallest free block of at least (size, address), NULL if there is none. */
static struct block *smallest_from(struct fixed *f, uint64_t size, const void *address)
{
    return (struct block *)fixed_tree_first_from(f, f->root, (struct fixed_key){size, (uintptr_t)address});
}

static struct block *largest_free(struct fixed *f)
{
    struct node *n = f->root;
    while (n && n->right)
        n = n->right;
    return (struct block *)n;
}

/* ---- Splitting and merging ----------------------------------------------------------------------- */

/* Cuts `b`, which is not in the treap, after `size` bytes; what is behind becomes a free block. */
static void fixed_cut(struct fixed *f, struct block *b, uint64_t size)
{
    if (b->size == size)
        return;
    struct block *rest = (struct block *)(void *)((char *)b + size);
    struct block *after = next_of(f, b);
    rest->size = b->size - size;
    rest->previous_size = size;
    b->size = size;
    if (after && after->state == state_free) {
        take_free(f, after);
        rest->size += after->size;
        after = next_of(f, rest);
    }
    if (after)
        after->previous_size = rest->size;
    put_free(f, rest);
}

/* Gives `b`, which is not in the treap, back, together with its free neighbours. */
static void fixed_merge(struct fixed *f, struct block *b)
{
    struct block *before = previous_of(b), *after = next_of(f, b);
    if (after && after->state == state_free) {
        take_free(f, after);
        b->size += after->size;
    }
    if (before && before->state == state_free) {
        take_free(f, before);
        before->size += b->size;
        b->state = 0; /* no longer a header */
        b = before;
    }
    after = next_of(f, b);
    if (after)
        after->previous_size = b->size;
    put_free(f, b);
}

static uint64_t gap_before(const struct block *b, size_t alignment)
{
    uintptr_t payload = (uintptr_t)b + sizeof(struct block);
    return ((payload + alignment - 1) & ~(uintptr_t)(alignment - 1)) - payload;
}

/* The best fit: of the smallest blocks that hold `size`, the first that holds it aligned. After a few that
 * do not, one that does wherever it lies; where there is none of that size, all the others before a refusal. */
static struct block *best_fit(struct fixed *f, uint64_t size, size_t alignment)
{
    struct block *b = smallest_from(f, size, NULL), *sure = NULL;
    for (uint64_t tries = 1; b; tries++) {
        if (gap_before(b, alignment) + size <= b->size)
            return b;
        if (tries == 8 && (sure = smallest_from(f, size + alignment, NULL)))
            return sure;
        b = smallest_from(f, b->size, (char *)b + 1);
    }
    return NULL;
}

/* ---- Operations ---------------------------------------------------------------------------------- */

static void fixed_lock(struct fixed *f)
{
    berth__spin_lock(&f->lock, BERTH__RANK_FIXED);
}

static void fixed_unlock(struct fixed *f)
{
    berth__spin_unlock(&f->lock, BERTH__RANK_FIXED);
}

static uint64_t block_bytes(size_t size_bytes)
{
    return ((uint64_t)size_bytes + sizeof(struct block) + granule - 1) & ~(uint64_t)(granule - 1);
}

static void count_alloc(struct fixed *f, struct block *b)
{
    uint64_t size = payload_bytes(b);
    f->stats.num_allocs++;
    f->stats.total_bytes += size;
    f->stats.bytes_in_use += size;
    if (f->stats.bytes_in_use > f->stats.max_bytes_in_use)
        f->stats.max_bytes_in_use = f->stats.bytes_in_use;
    if (size > f->stats.max_alloc_size)
        f->stats.max_alloc_size = size;
}

/* With the lock held: a live block for `size_bytes`, or NULL. */
static struct block *allocate_block(struct fixed *f, size_t size_bytes, size_t alignment)
{
    uint64_t size = block_bytes(size_bytes);
    struct block *b = best_fit(f, size, alignment);
    if (!b) {
        f->stats.num_failures++;
        return NULL;
    }
    take_free(f, b);
    uint64_t gap = gap_before(b, alignment);
    if (gap > 0) {
        struct block *front = b;
        b = (struct block *)(void *)((char *)b + gap);
        b->size = front->size - gap;
        b->previous_size = gap;
        front->size = gap;
        put_free(f, front);
        struct block *after = next_of(f, b);
        if (after)
            after->previous_size = b->size;
    }
    fixed_cut(f, b, size);
    b->id = ++f->next_id;
    b->slack = (uint16_t)(payload_bytes(b) - size_bytes);
    fixed_seal(b, state_live);
    count_alloc(f, b);
    berth__annotate_undefined(payload_of(b), size_bytes);
    hide_slack(b);
    return b;
}

static void free_block(struct fixed *f, struct block *b)
{
    f->stats.bytes_in_use -= payload_bytes(b);
    fixed_unhide(b);
    fixed_merge(f, b);
}

static berth_status no_room(struct fixed *f, size_t size_bytes, size_t alignment, uint64_t free_bytes,
                            uint64_t largest_bytes)
{
    uint64_t all = (uint64_t)(f->end - f->begin) - sizeof(struct block);
    if (size_bytes > all)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY,
                           "%s are more than the whole fixed region, which holds %s; give it a larger region",
                           BERTH__SIZE(size_bytes), BERTH__SIZE(all));
    if (size_bytes > free_bytes)
        return berth__fail(
            BERTH_OUT_OF_HOST_MEMORY,
            "the fixed region has %s free and not %s; free something or give it a larger region",
            BERTH__SIZE(free_bytes), BERTH__SIZE(size_bytes));
    return berth__fail(
        BERTH_OUT_OF_HOST_MEMORY,
        "the fixed region has no piece for %s at alignment %zu: %s are free, the largest piece is %s; "
        "free its neighbours or give it a larger region",
        BERTH__SIZE(size_bytes), alignment, BERTH__SIZE(free_bytes), BERTH__SIZE(largest_bytes));
}

static berth_status fixed_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    struct fixed *f = self;
    fixed_lock(f);
    struct block *b = allocate_block(f, size_bytes, alignment);
    const struct block *largest = b ? NULL : largest_free(f);
    uint64_t left = f->free_bytes, piece = largest ? payload_bytes(largest) : 0;
    fixed_unlock(f);
    if (!b)
        return no_room(f, size_bytes, alignment, left, piece);
    *out = payload_of(b);
    if (request->flags & BERTH_ZEROED)
        memset(*out, 0, size_bytes);
    return BERTH_OK;
}

static berth_status bad_pointer(berth_status status, const void *p)
{
    return berth__fail(status, "%p is not a live block of this fixed allocator", p);
}

static berth_status fixed_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    struct fixed *f = self;
    fixed_lock(f);
    struct block *b = live_block(f, p);
    if (b)
        free_block(f, b);
    fixed_unlock(f);
    return b ? BERTH_OK : bad_pointer(BERTH_BAD_FREE, p);
}

/* In place where the block is large enough, or its free neighbour makes it so. Counted as a free and an
 * allocation, as if it had moved. */
static bool resize_in_place(struct fixed *f, struct block *b, size_t new_bytes)
{
    uint64_t size = block_bytes(new_bytes);
    struct block *after = next_of(f, b);
    bool absorbs = size > b->size && after && after->state == state_free && b->size + after->size >= size;
    if (size > b->size && !absorbs)
        return false;
    f->stats.bytes_in_use -= payload_bytes(b);
    fixed_unhide(b);
    if (absorbs) {
        take_free(f, after);
        b->size += after->size;
        struct block *behind = next_of(f, b);
        if (behind)
            behind->previous_size = b->size;
    }
    fixed_cut(f, b, size);
    b->id = ++f->next_id;
    b->slack = (uint16_t)(payload_bytes(b) - new_bytes);
    fixed_seal(b, state_live);
    count_alloc(f, b);
    hide_slack(b);
    return true;
}

static berth_status fixed_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                     size_t alignment, const berth_request *request, void **out)
{
    (void)old_bytes;
    struct fixed *f = self;
    fixed_lock(f);
    struct block *b = live_block(f, p);
    size_t held = b ? (size_t)payload_bytes(b) - b->slack : 0;
    bool stays = b && (uintptr_t)p % alignment == 0 && resize_in_place(f, b, new_bytes);
    fixed_unlock(f);
    if (!b)
        return bad_pointer(BERTH_BAD_FREE, p);
    void *moved = p;
    if (!stays) {
        berth_status status = fixed_allocate(self, new_bytes, alignment, request, &moved);
        if (status)
            return status;
        memcpy(moved, p, held < new_bytes ? held : new_bytes);
        (void)fixed_deallocate(self, p, 0, NULL);
    }
    *out = moved;
    if ((request->flags & BERTH_ZEROED) && new_bytes > held)
        memset((char *)*out + held, 0, new_bytes - held);
    return BERTH_OK;
}

static void fixed_destroy(void *self)
{
    struct fixed *f = self; /* the region is the caller's, all of it */
    berth__annotate_defined(f, (size_t)(f->end - (char *)f));
}

/* ---- Questions ----------------------------------------------------------------------------------- */

static const char *fixed_name(void *self)
{
    (void)self;
    return "fixed";
}

static bool fixed_yes(void *self)
{
    (void)self;
    return true;
}

/* A pointer into the middle is looked for from the front; nothing on an allocation's way does that. */
static berth_status fixed_owns(void *self, const void *p)
{
    struct fixed *f = self;
    uintptr_t at = (uintptr_t)p;
    if (at < (uintptr_t)f->begin || at >= (uintptr_t)f->end)
        return BERTH_NOT_FOUND;
    fixed_lock(f);
    struct block *b = live_block(f, p);
    for (struct block *i = (struct block *)(void *)f->begin; !b && i; i = next_of(f, i))
        if (at < (uintptr_t)i + i->size) {
            b = i->state == state_live && at >= (uintptr_t)payload_of(i) ? i : NULL;
            break;
        }
    fixed_unlock(f);
    return b ? BERTH_OK : BERTH_NOT_FOUND;
}

struct facts {
    size_t requested, allocated;
    uint64_t id;
};

static berth_status look_up(struct fixed *f, const void *p, struct facts *facts)
{
    fixed_lock(f);
    struct block *b = live_block(f, p);
    if (b)
        *facts = (struct facts){(size_t)payload_bytes(b) - b->slack, (size_t)payload_bytes(b), b->id};
    fixed_unlock(f);
    return b ? BERTH_OK : bad_pointer(BERTH_NOT_FOUND, p);
}

static berth_status fixed_requested_size(void *self, const void *p, size_t *out)
{
    struct facts facts = {0};
    berth_status status = look_up(self, p, &facts);
    *out = facts.requested;
    return status;
}

static berth_status fixed_allocated_size(void *self, const void *p, size_t *out)
{
    struct facts facts = {0};
    berth_status status = look_up(self, p, &facts);
    *out = facts.allocated;
    return status;
}

static berth_status fixed_id(void *self, const void *p, uint64_t *out)
{
    struct facts facts = {0};
    berth_status status = look_up(self, p, &facts);
    *out = facts.id;
    return status;
}

static berth_status fixed_stats(void *self, berth_stats *out)
{
    struct fixed *f = self;
    fixed_lock(f);
    size_t struct_size = out->struct_size;
    *out = f->stats;
    out->struct_size = struct_size;
    const struct block *largest = largest_free(f);
    out->bytes_limit = (uint64_t)(f->end - f->begin) - sizeof(struct block);
    out->bytes_reserved = out->max_bytes_reserved = f->region_bytes;
    out->largest_free_bytes = largest ? payload_bytes(largest) : 0;
    out->fragmentation = f->free_bytes ? 1.0 - (double)out->largest_free_bytes / (double)f->free_bytes : 0.0;
    fixed_unlock(f);
    return BERTH_OK;
}

static berth_status fixed_clear_stats(void *self)
{
    struct fixed *f = self;
    fixed_lock(f);
    uint64_t in_use = f->stats.bytes_in_use;
    f->stats = (berth_stats){.bytes_in_use = in_use, .max_bytes_in_use = in_use};
    fixed_unlock(f);
    return BERTH_OK;
}

/* The visitor runs without the lock and there is no heap for a copy: a handful is copied at a time, and the
 * walk starts over for the next. Blocks that change meanwhile are seen as they are then. */
static berth_status fixed_snapshot(void *self, berth_block_fn visit, void *context)
{
    struct fixed *f = self;
    const char *from = f->begin;
    for (;;) {
        berth_block found[32];
        size_t n = 0;
        fixed_lock(f);
        for (struct block *b = (struct block *)(void *)f->begin; b && n < BERTH_COUNT_OF(found);
             b = next_of(f, b)) {
            if ((const char *)b < from)
                continue;
            bool live = b->state == state_live;
            found[n++] = (berth_block){.struct_size = sizeof(berth_block),
                                       .address = payload_of(b),
                                       .size_bytes = payload_bytes(b),
                                       .requested_bytes = live ? payload_bytes(b) - b->slack : 0,
                                       .allocation_id = live ? b->id : 0,
                                       .segment = 1,
                                       .state = live ? BERTH_BLOCK_LIVE : BERTH_BLOCK_IDLE};
            from = (const char *)b + b->size;
        }
        fixed_unlock(f);
        for (size_t i = 0; i < n; i++)
            if (!visit(context, &found[i]))
                return BERTH_OK;
        if (n < BERTH_COUNT_OF(found))
            return BERTH_OK;
    }
}

static const berth_allocator_ops fixed_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = fixed_allocate,
    .deallocate = fixed_deallocate,
    .destroy = fixed_destroy,
    .reallocate = fixed_reallocate,
    .name = fixed_name,
    .owns = fixed_owns,
    .tracks_sizes = fixed_yes,
    .requested_size = fixed_requested_size,
    .allocated_size = fixed_allocated_size,
    .allocation_id = fixed_id,
    .stats = fixed_stats,
    .clear_stats = fixed_clear_stats,
    .snapshot = fixed_snapshot,
};

berth_status berth_fixed_allocator_create(void *region, size_t region_bytes, berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    if (!region || region_bytes > (size_t)PTRDIFF_MAX || (uintptr_t)region > UINTPTR_MAX - region_bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the region of %zu bytes at %p is not one", region_bytes,
                           region);
    uintptr_t end = (uintptr_t)region + region_bytes;
    uintptr_t at = ((uintptr_t)region + granule - 1) & ~(uintptr_t)(granule - 1);
    uintptr_t begin = berth__align_up(at + sizeof(struct fixed) - 32, granule) + 32;
    if (end < begin || end - begin < granule)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "a region of %zu bytes cannot hold the bookkeeping and one block; %zu are needed",
                           region_bytes, (size_t)(begin - (uintptr_t)region) + granule);
    struct fixed *f = (struct fixed *)at;
    berth__annotate_defined(region,
                            region_bytes); /* another allocator may have been there, and not released */
    memset(f, 0, sizeof *f);
    berth__allocator_init(&f->base, &fixed_ops, f);
    f->base.knows_blocks = true;
    f->begin = (char *)begin;
    f->end = f->begin + (end - begin) / granule * granule;
    f->region_bytes = region_bytes;
    struct block *whole = (struct block *)(void *)f->begin;
    *whole = (struct block){.size = (uint64_t)(f->end - f->begin)};
    put_free(f, whole);
    *out = &f->base;
    return BERTH_OK;
}
