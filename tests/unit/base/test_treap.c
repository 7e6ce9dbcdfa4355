/* The treap as its users have it, by pointers with summaries and by numbers without, against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/random.h"

enum { node_count = 257, no_node = -1 };

static uint32_t priority_of(uint32_t key)
{
    uint64_t state = key;
    return (uint32_t)berth__random(&state) % 64; /* equal ones happen too */
}

/* ---- By pointers, each with the largest weight below it -------------------------------------------- */

struct heavy {
    struct heavy *left, *right, *parent;
    uint32_t key, weight, heaviest;
    bool is_in;
};

static uint32_t heaviest_below(const struct heavy *n)
{
    uint32_t heaviest = n->weight;
    if (n->left && n->left->heaviest > heaviest)
        heaviest = n->left->heaviest;
    if (n->right && n->right->heaviest > heaviest)
        heaviest = n->right->heaviest;
    return heaviest;
}

#define TREAP(x) heavy_##x
#define TREAP_REF struct heavy *
#define TREAP_NONE NULL
#define TREAP_BASE const void *
#define TREAP_AT(base, n) (*(n))
#define TREAP_KEY uint32_t
#define TREAP_KEY_OF(base, n) ((void)(base), (n)->key)
#define TREAP_BEFORE(a, b) ((a) < (b))
#define TREAP_PRIORITY(n) priority_of((n)->key)
#define TREAP_SUMMARY(n) (n)->heaviest
#define TREAP_SUMMARIZE(n) heaviest_below(n)
#include "base/treap.h"

/* ---- By numbers ------------------------------------------------------------------------------------ */

struct light {
    int32_t left, right;
    bool is_in;
};

#define TREAP(x) light_##x
#define TREAP_REF int32_t
#define TREAP_NONE no_node
#define TREAP_BASE struct light *
#define TREAP_AT(base, n) (base)[n]
#define TREAP_KEY int32_t
#define TREAP_KEY_OF(base, n) ((void)(base), node_count - (n)) /* the other way round */
#define TREAP_BEFORE(a, b) ((a) < (b))
#define TREAP_PRIORITY(n) priority_of((uint32_t)(n))
#include "base/treap.h"

/* -------------------------------------------------------------------------------------------------- */

static void see_heavy(struct heavy *nodes, struct heavy *root, size_t count)
{
    uint32_t heaviest = 0;
    struct heavy *next = NULL;
    for (size_t i = node_count; i-- > 0;) {
        if (nodes[i].is_in) {
            next = &nodes[i];
            heaviest = nodes[i].weight > heaviest ? nodes[i].weight : heaviest;
        }
        assert_ptr_equal(heavy_first_from(NULL, root, (uint32_t)i), next);
    }
    assert_int_equal(heavy_count(NULL, root), count);
    assert_int_equal(root ? root->heaviest : 0, heaviest);
}

static void nodes_with_summaries_agree_with_an_array(void **state)
{
    (void)state;
    static struct heavy nodes[node_count];
    struct heavy *root = NULL;
    uint64_t seed = 1;
    size_t count = 0;
    for (uint32_t i = 0; i < node_count; i++)
        nodes[i].key = i;
    for (int step = 0; step < 4000; step++) {
        struct heavy *n = &nodes[berth__random(&seed) % node_count];
        if (!n->is_in) {
            n->weight = (uint32_t)berth__random(&seed) % 1000;
            heavy_insert(NULL, &root, n);
            count++;
        } else if (step % 3 == 0) { /* grows or shrinks where it is */
            n->weight = (uint32_t)berth__random(&seed) % 1000;
            heavy_climb(NULL, n);
            n->is_in = false;
        } else {
            heavy_remove(NULL, &root, n);
            assert_true(!n->left && !n->right && !n->parent);
            count--;
        }
        n->is_in = !n->is_in;
        if (step % 16 == 0)
            see_heavy(nodes, root, count);
    }
}

static void nodes_by_number_agree_with_an_array(void **state)
{
    (void)state;
    struct light nodes[node_count] = {{0}};
    int32_t root = no_node;
    uint64_t seed = 2;
    size_t count = 0;
    for (int step = 0; step < 4000; step++) {
        int32_t n = (int32_t)(berth__random(&seed) % node_count);
        if (nodes[n].is_in)
            light_remove(nodes, &root, n);
        else
            light_insert(nodes, &root, n);
        nodes[n].is_in = !nodes[n].is_in;
        count = nodes[n].is_in ? count + 1 : count - 1;
        if (step % 16 != 0)
            continue;
        int32_t next = no_node;
        for (int32_t i = 0; i < node_count; i++) {
            next = nodes[i].is_in ? i : next;
            assert_int_equal(light_first_from(nodes, root, node_count - i), next);
        }
        assert_int_equal(light_count(nodes, root), count);
    }
}

/* Rising keys are the worst order of a tree without priorities: 257 deep. */
static int depth_of(const struct heavy *n)
{
    int left = n ? depth_of(n->left) : 0, right = n ? depth_of(n->right) : 0;
    return n ? 1 + (left > right ? left : right) : 0;
}

static void rising_keys_do_not_make_it_deep(void **state)
{
    (void)state;
    static struct heavy nodes[node_count];
    struct heavy *root = NULL;
    for (uint32_t i = 0; i < node_count; i++) {
        nodes[i].key = i;
        heavy_insert(NULL, &root, &nodes[i]);
    }
    assert_in_range(depth_of(root), 8, 40);
}

static void the_count_notices_what_is_out_of_order(void **state)
{
    (void)state;
    static struct heavy nodes[node_count];
    struct heavy *root = NULL;
    for (uint32_t i = 0; i < node_count; i++) {
        nodes[i] = (struct heavy){.key = 2 * i, .weight = i};
        heavy_insert(NULL, &root, &nodes[i]);
    }
    struct heavy *left = root->left;
    uint32_t key = left->key;
    left->key = root->key + 1; /* on the wrong side */
    assert_true(heavy_count(NULL, root) == SIZE_MAX);
    left->key = key;
    root->heaviest++;
    assert_true(heavy_count(NULL, root) == SIZE_MAX);
    root->heaviest--;
    assert_int_equal(heavy_count(NULL, root), node_count);
    left->parent = NULL;
    assert_true(heavy_count(NULL, root) == SIZE_MAX);
    left->parent = root;
    root->left = NULL; /* lost */
    assert_true(heavy_count(NULL, root) < node_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_with_summaries_agree_with_an_array),
        cmocka_unit_test(nodes_by_number_agree_with_an_array),
        cmocka_unit_test(rising_keys_do_not_make_it_deep),
        cmocka_unit_test(the_count_notices_what_is_out_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
