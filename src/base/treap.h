/* One treap for every ordered set of free memory: a template, included once for each kind of node.
 *
 * A treap is a search tree by key whose nodes are also a heap by priority. Priorities are hashes that the node
 * keeps for life, so that the depth is logarithmic whatever the order of calls (expected, not guaranteed), nothing
 * is rebalanced, and the same calls give the same tree.
 *
 * Nodes are named by pointers or by numbers into an array that may move: the includer says how to get at one.
 * Before the include it defines, and the end of this file undefines,
 *
 *     TREAP(x)               the name of function x, such as span_tree_##x
 *     TREAP_REF, TREAP_NONE  the type that names a node, and the value that names none
 *     TREAP_BASE             the type of what leads from a name to a node, such as an array
 *     TREAP_AT(base, n)      the node, an lvalue with fields `left` and `right` of type TREAP_REF
 *     TREAP_KEY              the type of keys; no two nodes of one tree have the same
 *     TREAP_KEY_OF(base, n)  the key of a node
 *     TREAP_BEFORE(a, b)     whether key a comes before key b
 *     TREAP_PRIORITY(n)      a hash of the name
 *
 * and, where every node also keeps a summary of all nodes below it (the size of the largest, say),
 *
 *     TREAP_SUMMARY(n)       the summary, an lvalue
 *     TREAP_SUMMARIZE(n)     its value, worked out from the node and its children. Nodes then need a field
 *                            `parent` too, TREAP_NONE at the root, so that changes climb without a stack. */
#include "base/base.h"

typedef TREAP_REF TREAP(ref);

/* ---- Summaries ------------------------------------------------------------------------------------- */

#ifdef TREAP_SUMMARIZE
/* Brings the summary of `n` up to date; true if it changed. */
static inline bool TREAP(summarize)(TREAP(ref) n)
{
    bool changes = TREAP_SUMMARY(n) != TREAP_SUMMARIZE(n);
    if (changes)
        TREAP_SUMMARY(n) = TREAP_SUMMARIZE(n);
    return changes;
}

/* The summary of `n` may have changed: works it out, and those above as far as they change. */
static inline void TREAP(climb)(TREAP_BASE base, TREAP(ref) n)
{
    (void)base;
    while (n != TREAP_NONE && TREAP(summarize)(n))
        n = TREAP_AT(base, n).parent;
}

/* Works out every summary from `n` up to, but without, `top`. */
static inline void TREAP(summarize_to)(TREAP_BASE base, TREAP(ref) n, TREAP(ref) top)
{
    (void)base;
    for (; n != top; n = TREAP_AT(base, n).parent)
        (void)TREAP(summarize)(n);
}
#endif

/* Points `*link`, which is in `parent`, to `n`. */
static inline void TREAP(link)(TREAP_BASE base, TREAP(ref) * link, TREAP(ref) parent, TREAP(ref) n)
{
    (void)base, (void)parent;
    *link = n;
#ifdef TREAP_SUMMARIZE
    if (n != TREAP_NONE)
        TREAP_AT(base, n).parent = parent;
#endif
}

/* ---- Changing -------------------------------------------------------------------------------------- */

/* Makes the tree `at` the two sides of `n`: what comes before its key, and the rest. */
static inline void TREAP(split)(TREAP_BASE base, TREAP(ref) at, TREAP(ref) n)
{
    TREAP_KEY key = TREAP_KEY_OF(base, n);
    TREAP(ref) *left = &TREAP_AT(base, n).left, *right = &TREAP_AT(base, n).right;
    TREAP(ref) left_end = n, right_end = n; /* where `left` and `right` are */
    while (at != TREAP_NONE) {
        if (TREAP_BEFORE(TREAP_KEY_OF(base, at), key)) {
            TREAP(link)(base, left, left_end, at);
            left_end = at;
            left = &TREAP_AT(base, at).right;
            at = *left;
        } else {
            TREAP(link)(base, right, right_end, at);
            right_end = at;
            right = &TREAP_AT(base, at).left;
            at = *right;
        }
    }
    *left = *right = TREAP_NONE;
#ifdef TREAP_SUMMARIZE
    TREAP(summarize_to)(base, left_end, n);
    TREAP(summarize_to)(base, right_end, n);
#endif
}

/* Puts a node in that is in no tree. */
static inline void TREAP(insert)(TREAP_BASE base, TREAP(ref) * root, TREAP(ref) n)
{
    TREAP_KEY key = TREAP_KEY_OF(base, n);
    TREAP(ref) *link = root, parent = TREAP_NONE;
    while (*link != TREAP_NONE && TREAP_PRIORITY(*link) >= TREAP_PRIORITY(n)) {
        parent = *link;
        link = TREAP_BEFORE(key, TREAP_KEY_OF(base, parent)) ? &TREAP_AT(base, parent).left
                                                             : &TREAP_AT(base, parent).right;
    }
    TREAP(split)(base, *link, n);
    TREAP(link)(base, link, parent, n);
#ifdef TREAP_SUMMARIZE
    TREAP_AT(base, n).parent = parent;
    (void)TREAP(summarize)(n);
    TREAP(climb)(base, parent);
#endif
}

/* Where the tree points to `n`, which is in it. */
static inline TREAP(ref) * TREAP(find_link)(TREAP_BASE base, TREAP(ref) * root, TREAP(ref) n)
{
#ifdef TREAP_SUMMARIZE
    TREAP(ref) parent = TREAP_AT(base, n).parent;
    (void)base;
    if (parent == TREAP_NONE)
        return root;
    return TREAP_AT(base, parent).left == n ? &TREAP_AT(base, parent).left : &TREAP_AT(base, parent).right;
#else
    TREAP_KEY key = TREAP_KEY_OF(base, n);
    TREAP(ref) *link = root;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the caller promises that it is there */
    while (*link != n)
        link = TREAP_BEFORE(key, TREAP_KEY_OF(base, *link)) ? &TREAP_AT(base, *link).left
                                                            : &TREAP_AT(base, *link).right;
    return link;
#endif
}

/* Takes a node out; its links are none afterwards. */
static inline void TREAP(remove)(TREAP_BASE base, TREAP(ref) * root, TREAP(ref) n)
{
    TREAP(ref) *link = TREAP(find_link)(base, root, n);
    TREAP(ref) low = TREAP_AT(base, n).left, high = TREAP_AT(base, n).right;
    TREAP(ref) end = TREAP_NONE; /* the node that `link` is in */
#ifdef TREAP_SUMMARIZE
    TREAP(ref) top = end = TREAP_AT(base, n).parent;
#endif
    while (low != TREAP_NONE && high != TREAP_NONE) {
        bool low_on_top = TREAP_PRIORITY(low) >= TREAP_PRIORITY(high);
        TREAP(ref) upper = low_on_top ? low : high;
        TREAP(link)(base, link, end, upper);
        end = upper;
        link = low_on_top ? &TREAP_AT(base, upper).right : &TREAP_AT(base, upper).left;
        *(low_on_top ? &low : &high) = *link;
    }
    TREAP(link)(base, link, end, low != TREAP_NONE ? low : high);
    TREAP_AT(base, n).left = TREAP_AT(base, n).right = TREAP_NONE;
#ifdef TREAP_SUMMARIZE
    TREAP_AT(base, n).parent = TREAP_NONE;
    TREAP(summarize_to)(base, end, top);
    TREAP(climb)(base, top);
#endif
}

/* ---- Searching ------------------------------------------------------------------------------------- */

/* The first node whose key does not come before `key`, TREAP_NONE if there is none. */
static inline TREAP(ref) TREAP(first_from)(TREAP_BASE base, TREAP(ref) root, TREAP_KEY key)
{
    TREAP(ref) found = TREAP_NONE;
    for (TREAP(ref) at = root; at != TREAP_NONE;) {
        if (TREAP_BEFORE(TREAP_KEY_OF(base, at), key)) {
            at = TREAP_AT(base, at).right;
        } else {
            found = at;
            at = TREAP_AT(base, at).left;
        }
    }
    return found;
}

/* ---- Invariants ------------------------------------------------------------------------------------ */

/* Counts the nodes below and with `n`, in order; `*previous` is the one before them, then the last of them.
 * SIZE_MAX if something is wrong. */
static inline size_t TREAP(count_from)(TREAP_BASE base, TREAP(ref) n, TREAP(ref) * previous)
{
    if (n == TREAP_NONE)
        return 0;
    TREAP(ref) low = TREAP_AT(base, n).left, high = TREAP_AT(base, n).right;
    bool heaped = (low == TREAP_NONE || TREAP_PRIORITY(low) <= TREAP_PRIORITY(n)) &&
                  (high == TREAP_NONE || TREAP_PRIORITY(high) <= TREAP_PRIORITY(n));
#ifdef TREAP_SUMMARIZE
    heaped = heaped && (low == TREAP_NONE || TREAP_AT(base, low).parent == n) &&
             (high == TREAP_NONE || TREAP_AT(base, high).parent == n) &&
             TREAP_SUMMARY(n) == TREAP_SUMMARIZE(n);
#endif
    size_t before = TREAP(count_from)(base, low, previous);
    bool ordered =
        *previous == TREAP_NONE || TREAP_BEFORE(TREAP_KEY_OF(base, *previous), TREAP_KEY_OF(base, n));
    *previous = n;
    size_t behind = TREAP(count_from)(base, high, previous);
    return heaped && ordered && before != SIZE_MAX && behind != SIZE_MAX ? before + 1 + behind : SIZE_MAX;
}

/* How many nodes the tree has; SIZE_MAX if keys, priorities, parents or summaries are not in order. */
static inline size_t TREAP(count)(TREAP_BASE base, TREAP(ref) root)
{
    TREAP(ref) previous = TREAP_NONE;
    return TREAP(count_from)(base, root, &previous);
}

#undef TREAP
#undef TREAP_REF
#undef TREAP_NONE
#undef TREAP_BASE
#undef TREAP_AT
#undef TREAP_KEY
#undef TREAP_KEY_OF
#undef TREAP_BEFORE
#undef TREAP_PRIORITY
#undef TREAP_SUMMARIZE
#undef TREAP_SUMMARY
