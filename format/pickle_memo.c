/* The memo of a pickle: what was kept, by its number. Values that were dropped leave it, so that it grows with what is shared and
 * not with the events: that is why it is no array, though the numbers follow each other. */
#include "format/pickle_machine.h"

#include <stdlib.h>

enum { MEMO_FIRST_BITS = 8 };

static bool memo_grow(format_pickle *p)
{
    struct pickle_memo *m = &p->memo, grown = *m;
    size_t size = m->shelves ? (m->mask + 1) * 2 : (size_t)1 << MEMO_FIRST_BITS;
    size_t more = (size - (m->shelves ? m->mask + 1 : 0)) * sizeof *m->shelves;
    if (more > PICKLE_BYTES_MOST - p->bytes)
        return pickle_refuse(p);
    grown.shelves = calloc(size, sizeof *grown.shelves);
    if (!grown.shelves)
        return pickle_refuse(p);
    grown.mask = size - 1;
    grown.shift = m->shelves ? m->shift - 1 : 64 - MEMO_FIRST_BITS;
    for (size_t i = 0; m->shelves && i <= m->mask; i++)
        if (m->shelves[i].page)
            *pickle_memo_shelf(&grown, m->shelves[i].number) = m->shelves[i];
    p->bytes += more;
    free(m->shelves);
    *m = grown;
    return true;
}

static struct pickle_page *page_make(format_pickle *p)
{
    struct pickle_page *page = p->memo.spare;
    if (page) {
        p->memo.spare = page->next;
        return page;
    }
    page = sizeof *page > PICKLE_BYTES_MOST - p->bytes ? NULL : calloc(1, sizeof *page);
    if (!page) {
        (void)pickle_refuse(p);
        return NULL;
    }
    p->bytes += sizeof *page;
    for (size_t i = 0; i < PICKLE_PAGE_SIZE; i++)
        page->values[i].type = FORMAT_PICKLE_MARK;
    return page;
}

/* The page of a key, new if need be; NULL: no memory. */
static struct pickle_page *page_of(format_pickle *p, uint64_t key)
{
    struct pickle_memo *m = &p->memo;
    uint64_t number = key >> PICKLE_PAGE_BITS;
    struct pickle_shelf *shelf = m->shelves ? pickle_memo_shelf(m, number) : NULL;
    if (shelf && shelf->page)
        return shelf->page;
    if ((!m->shelves || m->count > m->mask / 2) && !memo_grow(p))
        return NULL;
    struct pickle_page *page = page_make(p);
    if (page) {
        *pickle_memo_shelf(m, number) = (struct pickle_shelf){number, page};
        m->count++;
    }
    return page;
}

void format_pickle_memo_put(format_pickle *p, uint64_t key)
{
    if (p->depth == p->fence) {
        pickle_fail(p, "it keeps a value where there is none");
        return;
    }
    if (key == UINT64_MAX) { /* an object notes its key + 1 */
        pickle_fail(p, "it keeps a value under a number that is too large");
        return;
    }
    struct pickle_page *page = page_of(p, key);
    if (!page)
        return;
    format_pickle_value *kept = &page->values[key % PICKLE_PAGE_SIZE];
    page->count += kept->type == FORMAT_PICKLE_MARK;
    *kept = p->stack[p->depth - 1];
    if (pickle_is_object(kept)) {
        struct format_pickle_object *o = kept->as.object;
        o->shared |= o->memo_plus_one && o->memo_plus_one != key + 1; /* forgetting one would not do */
        o->memo_plus_one = key + 1;
    }
    if (key >= p->memo.next)
        p->memo.next = key + 1;
}

void format_pickle_memo_miss(format_pickle *p, uint64_t key)
{
    if (key < p->memo.next) /* it was dropped */
        (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
    else
        pickle_fail(p, "it takes a value that was not kept");
}

/* Takes an empty page out: those behind it that would not be found any more move up. */
static void page_remove(struct pickle_memo *m, struct pickle_shelf *shelf)
{
    size_t hole = (size_t)(shelf - m->shelves);
    shelf->page->next = m->spare;
    m->spare = shelf->page;
    for (size_t i = (hole + 1) & m->mask; m->shelves[i].page; i = (i + 1) & m->mask) {
        size_t home = pickle_memo_home(m, m->shelves[i].number);
        if (((i - home) & m->mask) >= ((i - hole) & m->mask)) {
            m->shelves[hole] = m->shelves[i];
            hole = i;
        }
    }
    m->shelves[hole].page = NULL;
    m->count--;
}

void format_pickle_memo_forget(struct pickle_memo *m, uint64_t key)
{
    struct pickle_shelf *shelf = m->shelves ? pickle_memo_shelf(m, key >> PICKLE_PAGE_BITS) : NULL;
    if (!shelf || !shelf->page)
        return;
    format_pickle_value *kept = &shelf->page->values[key % PICKLE_PAGE_SIZE];
    if (kept->type == FORMAT_PICKLE_MARK)
        return;
    kept->type = FORMAT_PICKLE_MARK;
    if (--shelf->page->count == 0)
        page_remove(m, shelf);
}

void format_pickle_memo_finish(struct pickle_memo *m)
{
    for (size_t i = 0; m->shelves && i <= m->mask; i++)
        free(m->shelves[i].page);
    for (struct pickle_page *page = m->spare, *next; page; page = next) {
        next = page->next;
        free(page);
    }
    free(m->shelves);
}
