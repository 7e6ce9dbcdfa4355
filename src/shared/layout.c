/* The image of an arena: made of a plan, and checked word by word before it is believed. */
#include <string.h>

#include "base/checksum.h"
#include "base/sort.h"
#include "shared/shared.h"

static const char shared_magic[8] = {'b', 'e', 'r', 't', 'h', 's', 'h', 'm'};

static const char *labels_of(const char *image, uint32_t count)
{
    return image + BERTH__SHARED_TABLE + (size_t)count * sizeof(berth__shared_entry);
}

static uint32_t count_of(const char *image)
{
    return ((const berth__shared_head *)(const void *)image)->count;
}

const char *berth__shared_label(const char *image, uint32_t id)
{
    uint32_t at = berth__shared_entries(image)[id].label;
    return at == UINT32_MAX ? NULL : labels_of(image, count_of(image)) + at;
}

uint64_t berth__shared_checksum(const char *image)
{
    berth__shared_head head;
    memcpy(&head, image, sizeof head);
    uint64_t rest = berth__checksum(image + BERTH__SHARED_TABLE, head.image_bytes - BERTH__SHARED_TABLE);
    head.checksum = 0;
    return berth__checksum(&head, sizeof head) ^ rest * 31;
}

/* ---- Making ------------------------------------------------------------------------------------------ */

static int label_order(const void *context, uint32_t a, uint32_t b)
{
    const char *image = context;
    const char *left = berth__shared_label(image, a), *right = berth__shared_label(image, b);
    if (!left || !right)
        return (left == NULL) - (right == NULL);
    return strcmp(left, right);
}

static berth_status sort_labels(char *image)
{
    uint32_t count = count_of(image);
    uint32_t *ids = berth__heap_zalloc((size_t)count * 2, sizeof *ids);
    if (!ids)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to sort %u labels", count);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = i;
    berth__sort_indices(ids, ids + count, count, label_order, image);
    berth__shared_entry *entries = (berth__shared_entry *)(void *)(image + BERTH__SHARED_TABLE);
    for (uint32_t i = 0; i < count; i++)
        entries[i].by_label = ids[i];
    berth__heap_free(ids);
    return BERTH_OK;
}

static void fill_image(const berth__plan_content *plan, char *image)
{
    berth__shared_entry *entries = (berth__shared_entry *)(void *)(image + BERTH__SHARED_TABLE);
    char *labels = image + (labels_of(image, plan->count) - image);
    size_t used = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const berth__plan_entry *e = &plan->entries[i];
        entries[i] = (berth__shared_entry){.size_bytes = e->size_bytes,
                                           .offset = e->offset,
                                           .alignment = e->alignment,
                                           .freed_at = e->freed_at,
                                           .label = e->label ? (uint32_t)used : UINT32_MAX};
        if (e->label) {
            size_t bytes = strlen(e->label) + 1;
            memcpy(labels + used, e->label, bytes);
            used += bytes;
        }
    }
}

static uint64_t image_size(const berth__plan_content *plan)
{
    uint64_t bytes = BERTH__SHARED_TABLE + plan->count * (uint64_t)sizeof(berth__shared_entry);
    for (uint32_t i = 0; i < plan->count; i++)
        bytes += plan->entries[i].label ? strlen(plan->entries[i].label) + 1 : 0;
    return bytes;
}

berth_status berth__shared_image_make(const berth__plan_content *plan, char **out)
{
    uint64_t bytes = image_size(plan);
    *out = NULL;
    if (bytes > BERTH__SHARED_IMAGE_MAX || plan->total_bytes > (uint64_t)PTRDIFF_MAX / 2)
        return berth__fail(BERTH_OVERFLOW,
                           "a plan of %u allocations and %llu bytes is more than an arena can describe",
                           plan->count, (unsigned long long)plan->total_bytes);
    char *image = berth__heap_zalloc(1, bytes);
    if (!image)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to describe %u allocations", plan->count);
    berth__shared_head *head = (berth__shared_head *)(void *)image;
    memcpy(head->magic, shared_magic, sizeof head->magic);
    head->version = BERTH__SHARED_VERSION;
    head->count = plan->count;
    head->image_bytes = bytes;
    head->arena_offset = berth__align_up(bytes, BERTH__SHARED_PAGE);
    head->arena_bytes = plan->total_bytes;
    head->alignment = plan->alignment > BERTH_ALIGNMENT ? plan->alignment : BERTH_ALIGNMENT;
    head->fingerprint = plan->fingerprint;
    fill_image(plan, image);
    berth_status status = sort_labels(image);
    if (status) {
        berth__heap_free(image);
        return status;
    }
    head->checksum = berth__shared_checksum(image);
    *out = image;
    return BERTH_OK;
}

/* ---- Checking ---------------------------------------------------------------------------------------- */

uint64_t berth__shared_file_bytes(const berth__shared_head *head)
{
    uint64_t bytes = 0;
    if (berth__add_overflows(head->arena_offset, head->arena_bytes, &bytes) ||
        bytes > (uint64_t)PTRDIFF_MAX / 2)
        return 0;
    return bytes;
}

static bool is_alignment(uint64_t alignment)
{
    return berth__is_power_of_two(alignment) && alignment <= BERTH_ALIGNMENT_MAX;
}

berth_status berth__shared_head_check(const berth__shared_head *head, uint64_t file_bytes)
{
    if (memcmp(head->magic, shared_magic, sizeof head->magic) != 0)
        return berth__fail(BERTH_BAD_DATA, "the descriptor is memory, but not a shared arena of berth");
    if (head->version != BERTH__SHARED_VERSION)
        return berth__fail(BERTH_UNSUPPORTED,
                           "the arena has format %u, this library reads %d: use one version on both sides",
                           head->version, BERTH__SHARED_VERSION);
    uint64_t table_end = BERTH__SHARED_TABLE + head->count * (uint64_t)sizeof(berth__shared_entry);
    bool holds = head->count > 0 && head->image_bytes >= table_end &&
                 head->image_bytes <= BERTH__SHARED_IMAGE_MAX && head->image_bytes <= head->arena_offset &&
                 head->arena_offset % BERTH__SHARED_PAGE == 0 && head->arena_bytes > 0 &&
                 is_alignment(head->alignment) && head->alignment >= BERTH_ALIGNMENT;
    if (!holds || berth__shared_file_bytes(head) == 0)
        return berth__fail(BERTH_BAD_DATA, "the arena's head is damaged");
    if (berth__shared_file_bytes(head) != file_bytes)
        return berth__fail(BERTH_BAD_DATA, "the arena says that it has %llu bytes, and has %llu",
                           (unsigned long long)berth__shared_file_bytes(head),
                           (unsigned long long)file_bytes);
    return BERTH_OK;
}

static bool entry_holds(const berth__shared_head *head, const berth__shared_entry *e, uint64_t label_bytes)
{
    uint64_t end = 0;
    bool placed = e->offset != BERTH_NO_OFFSET;
    if (!is_alignment(e->alignment) || e->alignment > head->alignment || e->size_bytes == 0)
        return false;
    if (placed && (berth__add_overflows(e->offset, e->size_bytes, &end) || end > head->arena_bytes ||
                   e->offset % e->alignment != 0))
        return false;
    return placed == (e->freed_at != UINT32_MAX) && e->by_label < head->count &&
           (e->label == UINT32_MAX || e->label < label_bytes);
}

berth_status berth__shared_image_check(const char *image)
{
    const berth__shared_head *head = (const berth__shared_head *)(const void *)image;
    if (berth__shared_checksum(image) != head->checksum)
        return berth__fail(BERTH_BAD_DATA,
                           "the arena's description does not match its checksum: it is damaged");
    const char *labels = labels_of(image, head->count);
    uint64_t label_bytes = (uint64_t)(image + head->image_bytes - labels);
    if (label_bytes > 0 && labels[label_bytes - 1] != 0)
        return berth__fail(BERTH_BAD_DATA, "the arena's last label does not end");
    for (uint32_t i = 0; i < head->count; i++)
        if (!entry_holds(head, &berth__shared_entries(image)[i], label_bytes))
            return berth__fail(BERTH_BAD_DATA, "allocation %u of the arena lies outside it, or is damaged",
                               i);
    return BERTH_OK;
}
