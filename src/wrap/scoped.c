/* The scope meter: counts every block for its label and for the thread that asked for it. */
#include "berth/scope.h"

#include "count/scope.h"
#include "wrap/noted.h"

/* Over a source with headers, the common case: the block bears the number of its account in its header. The
 * fast paths call nothing but the source, so that they keep little; everything else is out of line. */

BERTH__COLD static berth_status tag_and_add(void *block, size_t size_bytes, const berth_request *request)
{
    uint64_t tag = berth__account_find(request);
    berth__header_set_word(block, tag << BERTH__TAG_SHIFT | size_bytes);
    berth__account_add(tag, size_bytes);
    return BERTH_OK;
}

BERTH__COLD static berth_status add_to_account(uint64_t key, size_t size_bytes)
{
    berth__account_add(key >> BERTH__TAG_SHIFT, size_bytes);
    return BERTH_OK;
}

BERTH__COLD static berth_status add_to_holder(berth__holder *mine, size_t size_bytes)
{
    berth__holder_add_slow(mine, size_bytes);
    return BERTH_OK;
}

/* With a label of its own. */
static __attribute__((noinline)) berth_status labelled_allocate(berth__noted *w, size_t size_bytes,
                                                                size_t alignment,
                                                                const berth_request *request, void **out)
{
    berth_status status = berth__allocate(w->base.inner, size_bytes, alignment, request, out);
    if (BERTH_UNLIKELY(status))
        return status;
    berth__holder *mine = berth__holder_mine;
    size_t place = berth__label_place(request->label);
    if (BERTH_UNLIKELY(!mine || mine->cache[place].text != request->label || !mine->cache[place].tag))
        return tag_and_add(*out, size_bytes, request);
    uint64_t key = mine->cache[place].tag << BERTH__TAG_SHIFT;
    berth__header_set_word(*out, key + size_bytes);
    if (BERTH_UNLIKELY(!berth__quota_take_fast(&mine->cache[place].label->quota, size_bytes)))
        return add_to_account(key, size_bytes);
    berth__holder_add(mine, size_bytes);
    return BERTH_OK;
}

static berth_status tagged_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth__noted *w = self;
    if (BERTH_UNLIKELY(request->label))
        return labelled_allocate(w, size_bytes, alignment, request, out);
    berth_status status = berth__allocate(w->base.inner, size_bytes, alignment, request, out);
    if (BERTH_UNLIKELY(status))
        return status;
    const berth__memo *memo = &berth__thread_memos.scope;
    berth__slot *slot = memo->slot;
    if (BERTH_UNLIKELY(!slot))
        return tag_and_add(*out, size_bytes, &berth__plain_request);
    berth__header_set_word(*out, memo->key + size_bytes);
    if (BERTH_UNLIKELY(!berth__quota_take_at(slot, size_bytes)))
        return add_to_account(memo->key, size_bytes);
    berth__holder *mine = memo->value;
    int64_t room = atomic_load_explicit(&mine->room_bytes, memory_order_relaxed) - (int64_t)size_bytes;
    if (BERTH_UNLIKELY(room < 0))
        return add_to_holder(mine, size_bytes);
    atomic_store_explicit(&mine->room_bytes, room, memory_order_relaxed);
    return BERTH_OK;
}

/* Of another thread, another label, or none. */
static __attribute__((noinline)) berth_status sub_from_account(uint64_t word)
{
    berth__account_sub(word >> BERTH__TAG_SHIFT, berth__size_of_word(word));
    return BERTH_OK;
}

BERTH__COLD static berth_status tagged_not_freed(uint64_t word, berth_status status)
{
    if (berth__free_is_done(status))
        (void)sub_from_account(word);
    return status;
}

static berth_status tagged_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth__noted *w = self;
    uint64_t word = berth__header_word(p); /* before it is gone; the source itself tells whether it is live */
    berth_status status = berth__deallocate(w->base.inner, p, size_bytes, stream);
    if (BERTH_UNLIKELY(status))
        return tagged_not_freed(word, status);
    const berth__memo *memo = &berth__thread_memos.scope;
    uint64_t size = word - memo->key; /* if it bears the memo's tag */
    if (BERTH_UNLIKELY(size >> BERTH__TAG_SHIFT || !memo->slot))
        return sub_from_account(word);
    berth__quota_give_at(memo->slot, size);
    berth__holder_sub_own(memo->value, size);
    return BERTH_OK;
}

/* ---- Over others whose blocks have a word: it is the account's number ------------------------------- */

BERTH__COLD static berth_status word_and_add(uint64_t *word, size_t size_bytes, const berth_request *request)
{
    *word = berth__account_find(request);
    berth__account_add(*word, size_bytes);
    return BERTH_OK;
}

static berth_status worded_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth__noted *w = self;
    berth_allocator *inner = w->base.inner;
    size_t asked = 0;
    berth_status status = berth__allocate(inner, size_bytes, alignment, request, out);
    if (BERTH_UNLIKELY(status))
        return status;
    uint64_t *word = inner->word_of(inner->word_self, *out, &asked);
    if (!BERTH_ASSERT(word, "[M10] what was just handed out is live"))
        return BERTH_OK;
    const berth__memo *memo = &berth__thread_memos.scope;
    if (BERTH_UNLIKELY(request->label || !memo->slot))
        return word_and_add(word, size_bytes, request);
    *word = memo->key >> BERTH__TAG_SHIFT;
    if (BERTH_UNLIKELY(!berth__quota_take_at(memo->slot, size_bytes)))
        return add_to_account(memo->key, size_bytes);
    berth__holder_add(memo->value, size_bytes);
    return BERTH_OK;
}

/* What is refused and stays live, as where the size is not the block's, keeps its account; it may be another's by now. */
BERTH__COLD static berth_status worded_not_freed(berth_allocator *inner, const void *p, uint64_t tag,
                                                 size_t asked, berth_status status)
{
    if (berth__free_is_done(status)) {
        berth__account_sub(tag, asked);
        return status;
    }
    uint64_t *word = inner->word_of(inner->word_self, p, &asked);
    if (word && *word == 0)
        *word = tag;
    return status;
}

static berth_status worded_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth__noted *w = self;
    berth_allocator *inner = w->base.inner;
    size_t asked = 0;
    uint64_t *word = inner->word_of(inner->word_self, p, &asked), tag = word ? *word : 0;
    if (word) /* nobody's, should it be allocated past us */
        *word = 0;
    berth_status status = berth__deallocate(inner, p, size_bytes, stream);
    if (BERTH_UNLIKELY(status))
        return worded_not_freed(inner, p, tag, asked, status);
    const berth__memo *memo = &berth__thread_memos.scope;
    if (BERTH_UNLIKELY(tag << BERTH__TAG_SHIFT != memo->key || !memo->slot)) {
        berth__account_sub(tag, asked);
        return BERTH_OK;
    }
    berth__quota_give_at(memo->slot, asked);
    berth__holder_sub_own(memo->value, asked);
    return BERTH_OK;
}

/* ---- Over others: a note tells the account ---------------------------------------------------------- */

static berth_status scoped_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    uint64_t tag = berth__account_find(request);
    berth_status status = berth__noted_allocate(self, size_bytes, alignment, request, tag, out);
    if (BERTH_LIKELY(!status))
        berth__account_add(tag, size_bytes);
    return status;
}

static berth_status scoped_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth__note note = {0};
    berth_status status = berth__noted_deallocate(self, p, size_bytes, stream, &note);
    if (berth__free_is_done(status))
        berth__account_sub(note.whom, note.size_bytes);
    return status;
}

static void scoped_destroy(void *self)
{
    berth__noted_finish(self);
    berth__heap_free(self);
}

berth_status berth_scope_meter_create(berth_allocator *inner, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    berth__noted *w = berth__heap_aligned(sizeof *w, 64);
    if (!w)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a scope meter's handle");
    bool tags = inner->header == BERTH__HEADER_PLAIN, words = !tags && inner->word_of;
    berth_allocator_ops ops = {
        .allocate = tags    ? tagged_allocate
                    : words ? worded_allocate
                            : scoped_allocate,
        .deallocate = tags    ? tagged_deallocate
                      : words ? worded_deallocate
                              : scoped_deallocate,
        .destroy = scoped_destroy,
    };
    if (!berth__noted_init(w, &ops, inner, tags || words)) {
        berth__heap_free(w);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a scope meter's map");
    }
    w->base.base.header = tags ? BERTH__HEADER_TAGGED : BERTH__HEADER_NONE;
    w->base.base.metered = true;
    *out = &w->base.base;
    return BERTH_OK;
}
