/* The decoder: embedding, attention with a key-value cache, feed-forward, greedy choice of the next token.
 * Plain loops, no cleverness; what matters here is that every tensor, however short its life, comes from
 * Berth. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An example stops at the first surprise and says what berth said. */
void expect_ok(berth_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, berth_status_name(status), berth_last_error()->message);
    exit(1);
}

/* ---- Tensors ----------------------------------------------------------------------------------------- */

static tensor tensor_new(berth_allocator *a, int rows, int columns, const char *label)
{
    tensor t = {NULL, rows, columns};
    berth_request request = BERTH_REQUEST_INIT;
    request.label = label;
    size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
    void *p;
    expect_ok(berth_allocate(a, bytes, BERTH_ALIGNMENT, &request, &p), label);
    t.data = p;
    return t;
}

void tensor_free(berth_allocator *a, tensor *t)
{
    expect_ok(berth_deallocate(a, t->data, 0, NULL), "freeing a tensor");
    t->data = NULL;
}

static float *row(const tensor *t, int i)
{
    return t->data + (size_t)i * (size_t)t->columns;
}

/* ---- Arithmetic -------------------------------------------------------------------------------------- */

/* out = x w: rows of x times the columns of w. */
static void multiply(const tensor *x, const tensor *w, tensor *out)
{
    for (int i = 0; i < x->rows; i++) {
        float *to = row(out, i);
        memset(to, 0, (size_t)w->columns * sizeof *to);
        for (int k = 0; k < x->columns; k++) {
            float scale = row(x, i)[k];
            const float *from = row(w, k);
            for (int j = 0; j < w->columns; j++)
                to[j] += scale * from[j];
        }
    }
}

static void add(tensor *x, const tensor *y)
{
    for (int i = 0; i < x->rows * x->columns; i++)
        x->data[i] += y->data[i];
}

static void normalise(const tensor *x, tensor *out)
{
    for (int i = 0; i < x->rows; i++) {
        float squares = 0;
        for (int j = 0; j < x->columns; j++)
            squares += row(x, i)[j] * row(x, i)[j];
        float scale = 1.0f / sqrtf(squares / (float)x->columns + 1e-5f);
        for (int j = 0; j < x->columns; j++)
            row(out, i)[j] = row(x, i)[j] * scale;
    }
}

static void rectify(tensor *x)
{
    for (int i = 0; i < x->rows * x->columns; i++)
        x->data[i] = x->data[i] > 0 ? x->data[i] : 0;
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* One head: row i of `query` looks at all keys up to its own position, `past` + i. */
static void attend(const tensor *query, const tensor *keys, const tensor *values, int head, int past,
                   tensor *weights, tensor *out)
{
    int first = head * HEAD;
    for (int i = 0; i < query->rows; i++) {
        float *weight = row(weights, i), largest = -INFINITY, total = 0;
        int seen = past + i + 1;
        for (int t = 0; t < seen; t++) {
            weight[t] = dot(row(query, i) + first, row(keys, t) + first, HEAD) / sqrtf(HEAD);
            largest = weight[t] > largest ? weight[t] : largest;
        }
        for (int t = 0; t < seen; t++)
            total += weight[t] = expf(weight[t] - largest);
        float *to = row(out, i) + first;
        memset(to, 0, HEAD * sizeof *to);
        for (int t = 0; t < seen; t++)
            for (int j = 0; j < HEAD; j++)
                to[j] += weight[t] / total * row(values, t)[first + j];
    }
}

/* ---- Weights ----------------------------------------------------------------------------------------- */

static float random_weight(void)
{
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / 2147483648.0f;
}

static tensor weights_new(berth_allocator *a, int rows, int columns, float scale)
{
    tensor t = tensor_new(a, rows, columns, "weights");
    for (int i = 0; i < rows * columns; i++)
        t.data[i] = random_weight() * scale;
    return t;
}

void model_create(model *m, berth_allocator *a)
{
    float scale = sqrtf(3.0f / WIDTH);
    m->allocator = a;
    m->embedding = weights_new(a, VOCABULARY, WIDTH, 1);
    m->positions = weights_new(a, TOKENS, WIDTH, 1);
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &m->layers[i];
        l->query = weights_new(a, WIDTH, WIDTH, scale);
        l->key = weights_new(a, WIDTH, WIDTH, scale);
        l->value = weights_new(a, WIDTH, WIDTH, scale);
        l->output = weights_new(a, WIDTH, WIDTH, scale);
        l->up = weights_new(a, WIDTH, HIDDEN, scale);
        l->down = weights_new(a, HIDDEN, WIDTH, scale / 2);
    }
}

void model_destroy(model *m)
{
    tensor_free(m->allocator, &m->embedding);
    tensor_free(m->allocator, &m->positions);
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &m->layers[i];
        tensor *all[] = {&l->query, &l->key, &l->value, &l->output, &l->up, &l->down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            tensor_free(m->allocator, all[k]);
    }
}

/* ---- A run ------------------------------------------------------------------------------------------- */

/* The keys and values of all tokens so far, a tensor each, one row longer with every token. */
typedef struct cache {
    tensor keys, values;
} cache;

static tensor product(const run *r, const tensor *x, const tensor *w, const char *label)
{
    tensor out = tensor_new(r->allocator, x->rows, w->columns, label);
    if (!r->dry)
        multiply(x, w, &out);
    return out;
}

/* A longer tensor with the rows of both; the old one is freed. */
static void append(const run *r, tensor *all, tensor *more, const char *label)
{
    tensor longer = tensor_new(r->allocator, all->rows + more->rows, WIDTH, label);
    if (!r->dry) {
        if (all->rows)
            memcpy(longer.data, all->data, (size_t)all->rows * WIDTH * sizeof(float));
        memcpy(row(&longer, all->rows), more->data, (size_t)more->rows * WIDTH * sizeof(float));
    }
    if (all->rows)
        tensor_free(r->allocator, all);
    tensor_free(r->allocator, more);
    *all = longer;
}

static tensor attention(const run *r, const layer *l, const tensor *x, cache *c)
{
    int past = c->keys.rows;
    tensor query = product(r, x, &l->query, "query");
    tensor key = product(r, x, &l->key, "key");
    tensor value = product(r, x, &l->value, "value");
    append(r, &c->keys, &key, "key cache");
    append(r, &c->values, &value, "value cache");
    tensor mixed = tensor_new(r->allocator, x->rows, WIDTH, "mixed");
    for (int head = 0; head < HEADS; head++) {
        tensor weights = tensor_new(r->allocator, x->rows, c->keys.rows, "attention weights");
        if (!r->dry)
            attend(&query, &c->keys, &c->values, head, past, &weights, &mixed);
        tensor_free(r->allocator, &weights);
    }
    tensor_free(r->allocator, &query);
    tensor out = product(r, &mixed, &l->output, "attention");
    tensor_free(r->allocator, &mixed);
    return out;
}

static tensor feed_forward(const run *r, const layer *l, const tensor *x)
{
    tensor hidden = product(r, x, &l->up, "hidden");
    if (!r->dry)
        rectify(&hidden);
    tensor out = product(r, &hidden, &l->down, "feed-forward");
    tensor_free(r->allocator, &hidden);
    return out;
}

/* x + f(normalised x), in place. */
static void add_part(const run *r, tensor *x, const layer *l, cache *c)
{
    tensor normal = tensor_new(r->allocator, x->rows, WIDTH, "normalised");
    if (!r->dry)
        normalise(x, &normal);
    tensor part = c ? attention(r, l, &normal, c) : feed_forward(r, l, &normal);
    tensor_free(r->allocator, &normal);
    if (!r->dry)
        add(x, &part);
    tensor_free(r->allocator, &part);
}

static tensor embed(const run *r, const int *tokens, int first, int count)
{
    tensor x = tensor_new(r->allocator, count, WIDTH, "embedded");
    for (int i = 0; i < count && !r->dry; i++)
        for (int j = 0; j < WIDTH; j++)
            row(&x, i)[j] =
                row(&r->model->embedding, tokens[first + i])[j] + row(&r->model->positions, first + i)[j];
    return x;
}

/* The likeliest next token; its scores go to a row of `scores`. */
static int choose(const run *r, const tensor *x, float *scores)
{
    tensor last = tensor_new(r->allocator, 1, WIDTH, "last");
    int best = 0;
    if (!r->dry) {
        tensor end = {row(x, x->rows - 1), 1, WIDTH};
        normalise(&end, &last);
        for (int i = 0; i < VOCABULARY; i++) {
            scores[i] = dot(last.data, row(&r->model->embedding, i), WIDTH);
            best = scores[i] > scores[best] ? i : best;
        }
    }
    tensor_free(r->allocator, &last);
    return best;
}

tensor model_run(const run *r, int tokens[TOKENS])
{
    cache caches[LAYERS] = {0};
    tensor scores = tensor_new(r->allocator, TOKENS - PROMPT, VOCABULARY, "scores");
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (i * 37 + 11) % VOCABULARY;
    for (int done = 0, next = PROMPT; next < TOKENS; next++) {
        tensor x = embed(r, tokens, done, next - done);
        for (int i = 0; i < LAYERS; i++) {
            add_part(r, &x, &r->model->layers[i], &caches[i]);
            add_part(r, &x, &r->model->layers[i], NULL);
        }
        tokens[next] = choose(r, &x, row(&scores, next - PROMPT));
        tensor_free(r->allocator, &x);
        done = next;
    }
    for (int i = 0; i < LAYERS; i++) {
        tensor_free(r->allocator, &caches[i].keys);
        tensor_free(r->allocator, &caches[i].values);
    }
    return scores;
}
