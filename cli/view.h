/* What berth view shows of a history: memory by space (a device of a process), its addresses folded together, its live bytes,
 * a plan beside it, and which blocks are told one by one.
 *
 *     history -> spaces -> plans -> detail -> the document (docs/view-format.md) -> a page, a picture, JSON */
#ifndef BERTH_CLI_VIEW_H
#define BERTH_CLI_VIEW_H

#include <stdio.h>

#include "berth/problem.h"
#include "cli/progress.h"
#include "format/history.h"

enum {
    VIEW_SPACES = 16,    /* told; those with the highest peaks */
    VIEW_BUCKETS = 8192, /* of the curve of live bytes */
    VIEW_COLUMNS = 512,  /* of the picture of what is not told one by one */
    VIEW_ROWS = 256,
    VIEW_PLAN_MOST = 2000000, /* blocks of a space that are planned unasked: a few seconds */
};

#define VIEW_NO_SPACE 0xff

/* A range of addresses in use; what lies between ranges is folded away. */
typedef struct view_region {
    uint64_t address, size_bytes;
    uint64_t at; /* where it begins in the folded addresses */
} view_region;

typedef struct view_space {
    uint16_t process, device;
    uint32_t *blocks; /* of the history, in its order */
    uint32_t block_count;

    view_region *regions;
    uint32_t region_count, region_room;
    uint64_t extent_bytes; /* of the folded addresses */
    uint64_t range_bytes;  /* the regions together */

    format_peak peak;
    uint64_t *high, *low; /* live bytes in each bucket of events */
    uint64_t bound_bytes; /* no placement takes less */

    uint64_t *planned; /* for each of blocks[]; NULL: not planned */
    berth_certificate certificate;
    const char *not_planned; /* why */

    bool *kept; /* for each of blocks[]: told one by one */
    uint32_t kept_count;
    uint64_t left_bytes; /* the largest size that is not */
} view_space;

typedef struct view {
    const format_history *h;
    const char *name;  /* of the input */
    uint8_t *space_of; /* for each block of the history; VIEW_NO_SPACE */
    view_space *spaces;
    uint32_t space_count;
    uint32_t spaces_left; /* not told */
    uint32_t bucket_count;
} view;

/* Divides a history. False: no memory; finish is right either way. The history stays the caller's. */
bool view_init(view *v, const format_history *h, const char *name);
void view_finish(view *v);

/* Where a block's address stands among the folded ones. */
uint64_t view_folded(const view_space *s, uint64_t address);

/* A plan for each space. `path`: of the CSV file that the history was read from, whose alignments, gaps and aliases hold; NULL:
 * none, and `alignment` holds. */
berth_status view_plan(view *v, const char *path, uint32_t alignment, cli_progress *progress);

/* Chooses the blocks that are told one by one, so that they take about `budget_bytes`. False: no memory. */
bool view_choose(view *v, uint64_t budget_bytes);
/* How full each cell of VIEW_COLUMNS × VIEW_ROWS is with blocks that are not kept, 0 to 255, `high` bytes from top to bottom. The
 * caller frees it; NULL: no memory. */
unsigned char *view_density(const view *v, const view_space *s, bool planned);
/* How high the picture of a space is, in bytes. */
static inline uint64_t view_height(const view_space *s, bool planned)
{
    return planned ? s->certificate.peak_bytes : s->extent_bytes;
}

/* The document as JSON. False: writing failed or no memory. */
bool view_write_json(const view *v, FILE *out, cli_progress *progress);
/* The page before and after the document; made from viewer/ when the command is built. */
extern const unsigned char view_page_head[], view_page_tail[];
extern const size_t view_page_head_bytes, view_page_tail_bytes;

/* The page with the document in it. */
bool view_write_page(const view *v, FILE *out, cli_progress *progress);
/* A picture of a space: SVG. */
bool view_write_svg(const view *v, const view_space *s, FILE *out);

/* The name of a space, "cuda:0" or "host, process 2 (python3)", into `text`. */
enum { VIEW_NAME_ROOM = 160 };
const char *view_space_name(const view *v, const view_space *s, char text[VIEW_NAME_ROOM]);

/* Text for JSON inside a page: what could end a script or is no UTF-8 is written otherwise. */
void view_write_text(FILE *out, const char *text);

#endif
