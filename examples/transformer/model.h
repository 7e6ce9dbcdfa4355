/* A small decoder: what it is made of, and one run of it. */
#ifndef TRANSFORMER_MODEL_H
#define TRANSFORMER_MODEL_H

#include <stdbool.h>

#include <berth/berth.h>

enum {
    LAYERS = 4,
    WIDTH = 256,
    HEADS = 4,
    HEAD = WIDTH / HEADS,
    HIDDEN = 4 * WIDTH,
    VOCABULARY = 1000,
    PROMPT = 24, /* tokens given */
    TOKENS = 56, /* with those generated */
};

/* A matrix of floats whose memory is Berth's. */
typedef struct tensor {
    float *data;
    int rows, columns;
} tensor;

typedef struct layer {
    tensor query, key, value, output; /* WIDTH x WIDTH */
    tensor up, down;                  /* the feed-forward part */
} layer;

typedef struct model {
    berth_allocator *allocator; /* of the weights */
    tensor embedding;           /* VOCABULARY x WIDTH */
    tensor positions;           /* TOKENS x WIDTH */
    layer layers[LAYERS];
} model;

/* A run takes all its tensors from `allocator`. `dry`: it allocates and frees, but computes nothing. */
typedef struct run {
    const model *model;
    berth_allocator *allocator;
    bool dry;
} run;

void model_create(model *m, berth_allocator *allocator);
void model_destroy(model *m);

/* Reads the prompt, then generates token by token. Returns the scores of every generated token, a tensor that
 * the caller frees with tensor_free: it outlives the run. */
tensor model_run(const run *r, int tokens[TOKENS]);

void tensor_free(berth_allocator *allocator, tensor *t);
void expect_ok(berth_status status, const char *what);

#endif
