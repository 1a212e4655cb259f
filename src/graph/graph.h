/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_GRAPH_GRAPH_H
#define COPSE_GRAPH_GRAPH_H

#include <copse/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "graph/op.h"

/* The device-free description of a network: tensors, the nodes that compute them, and the
 * parameters. Nodes stand in an order in which they can be executed. */

/* A dimension is fixed, or a symbol whose size of the moment comes with every run
 * (extents) and never passes `size`, for which everything is planned. */
typedef enum copse__symbol {
    COPSE__FIXED,
    COPSE__BATCH, /* samples in this replica's shard */
    COPSE__TIME,  /* positions in a sequence */
    COPSE__SYMBOL_COUNT
} copse__symbol;

typedef struct copse__dim {
    size_t size; /* exact where fixed, else the planned maximum */
    copse__symbol symbol;
} copse__dim;

/* The sizes of the moment. of[COPSE__FIXED] is not used. A symbol may be 0: an empty
 * shard. */
typedef struct copse__extents {
    size_t of[COPSE__SYMBOL_COUNT];
} copse__extents;

/* What a tensor is for decides where it lives (src/plan). */
typedef enum copse__role {
    COPSE__ROLE_INPUT,      /* features, as the data set stores them */
    COPSE__ROLE_LABEL,      /* int32 classes, or float32 targets */
    COPSE__ROLE_PARAMETER,  /* trained; lives as long as the model */
    COPSE__ROLE_STATE,      /* moving statistics: not trained, changed at commit only */
    COPSE__ROLE_ACTIVATION, /* lives from the node that writes it to its last reader */
    COPSE__ROLE_GRADIENT,   /* of one parameter; summed over replicas */
    COPSE__ROLE_STATS,      /* batch moments of one normalisation, merged over replicas */
    COPSE__ROLE_METRIC      /* per-row loss and hits, read by the host */
} copse__role;

typedef uint32_t copse__tensor_id;
#define COPSE__NO_TENSOR UINT32_MAX

typedef struct copse__tensor {
    char *name;
    copse_dtype dtype;
    copse__role role;
    size_t rank;
    copse__dim dim[COPSE_MAX_RANK]; /* row-major, last varies fastest; images are NHWC */
    copse__tensor_id
        storage;    /* itself, or the tensor whose bytes it shows in another shape */
    uint32_t index; /* PARAMETER, GRADIENT: of the parameter; STATE, STATS: of the state
                       pair */
} copse__tensor;

/* Inputs and outputs may be COPSE__NO_TENSOR where op.h calls them optional. */
#define COPSE__MAX_INPUTS 8
#define COPSE__MAX_OUTPUTS 4

typedef struct copse__node {
    char *name;     /* the layer's, with "/grad_…" for a backward node */
    char *absorbed; /* names of the nodes that became part of it; NULL: none */
    copse__op op;
    uint32_t call; /* unique in the model and equal in its training and inference graphs:
                      part of a random number's key */
    bool backward;
    size_t input_count, output_count;
    copse__tensor_id inputs[COPSE__MAX_INPUTS];
    copse__tensor_id outputs[COPSE__MAX_OUTPUTS];
    copse__attrs attrs;
} copse__node;

typedef enum copse__init_kind {
    COPSE__INIT_ZEROS,
    COPSE__INIT_ONES,
    COPSE__INIT_CONSTANT,        /* a */
    COPSE__INIT_UNIFORM,         /* in [a, b) */
    COPSE__INIT_NORMAL,          /* mean a, standard deviation b */
    COPSE__INIT_TRUNCATED_NORMAL /* the same, redrawn beyond two standard deviations */
} copse__init_kind;

/* Resolved: glorot_uniform has become UNIFORM with its limit. */
typedef struct copse__init {
    copse__init_kind kind;
    float a, b;
} copse__init;

typedef struct copse__parameter {
    copse__tensor_id tensor;
    copse__tensor_id
        gradient; /* COPSE__NO_TENSOR in an inference graph, or where none flows */
    copse__init init;
    bool decay; /* weight decay applies (kernels, not biases and scales), as optimizers
                   ask */
} copse__parameter;

/* Moving mean and variance of one batch normalisation, and what feeds them. */
typedef struct copse__state {
    copse__tensor_id moving_mean, moving_variance; /* [C], STATE */
    copse__tensor_id stats;  /* [2, C], STATS; NO_TENSOR in inference */
    copse__tensor_id source; /* the normalised tensor: its rows are the sample count */
    float momentum;
} copse__state;

/* One row of `copse summary`. */
typedef struct copse__layer_info {
    char *name; /* "conv2d_1" */
    char *kind; /* "Conv2D" */
    copse__tensor_id output;
    size_t first_parameter, parameter_count;
    size_t first_state, state_count;
    size_t *inputs; /* indices of the layers it reads; SIZE_MAX: the network's input */
    size_t input_count;
} copse__layer_info;

typedef struct copse__graph {
    copse__tensor *tensors;
    size_t tensor_count, tensor_capacity;
    copse__node *nodes;
    size_t node_count, node_capacity;
    copse__parameter *parameters;
    size_t parameter_count, parameter_capacity;
    copse__state *states;
    size_t state_count, state_capacity;
    copse__layer_info *layers;
    size_t layer_count, layer_capacity;
    copse__tensor_id input;   /* ROLE_INPUT */
    copse__tensor_id label;   /* ROLE_LABEL; NO_TENSOR where no loss was asked for */
    copse__tensor_id output;  /* what `predict` writes */
    copse__tensor_id metrics; /* ROLE_METRIC, [rows, 2]; NO_TENSOR without a loss */
    bool training;
    size_t forward_count; /* nodes[0 .. forward_count) run forward, the rest backward */
} copse__graph;

copse_status copse__graph_new(copse__graph **out, copse_error *err);
void copse__graph_free(copse__graph *graph);

/* name is copied. The new tensor's storage is itself. */
copse_status copse__graph_tensor(copse__graph *graph, const char *name, copse_dtype dtype,
                                 copse__role role, size_t rank, const copse__dim *dim,
                                 copse__tensor_id *out, copse_error *err);

/* The same bytes in another shape: equal numbers of elements. */
copse_status copse__graph_view(copse__graph *graph, copse__tensor_id of, const char *name,
                               size_t rank, const copse__dim *dim, copse__tensor_id *out,
                               copse_error *err);

/* Appends a copy of node (its name too). */
copse_status copse__graph_node(copse__graph *graph, const copse__node *node,
                               copse_error *err);

/* Appends the backward nodes of everything that the metrics' loss depends on, and sets
 * parameters' `gradient`. A tensor that several nodes read gets the sum of their
 * gradients, added in reverse order of reading. Sets forward_count. */
copse_status copse__graph_backward(copse__graph *graph, copse_error *err);

/* Elements at these extents; extents NULL: at the planned maximum. Cannot overflow:
 * checked when the tensor was made. */
size_t copse__tensor_elements(const copse__tensor *tensor, const copse__extents *extents);
size_t copse__tensor_bytes(const copse__tensor *tensor, const copse__extents *extents);

/* Product of all dimensions but the last: the rows of the matrix it is to a GEMM. */
size_t copse__tensor_rows(const copse__tensor *tensor, const copse__extents *extents);
/* The last dimension; 1 for rank 0. */
size_t copse__tensor_columns(const copse__tensor *tensor);

/* Equal ranks, sizes and symbols. */
bool copse__tensor_same_shape(const copse__tensor *a, const copse__tensor *b);

static inline size_t copse__dim_at(copse__dim dim, const copse__extents *extents) {
    return dim.symbol == COPSE__FIXED || !extents ? dim.size : extents->of[dim.symbol];
}

/* Floating-point operations of a node at these extents (a multiply-add is 2), by the
 * usual formulas; for elementwise nodes one an element. */
double copse__node_flops(const copse__graph *graph, const copse__node *node,
                         const copse__extents *extents);

/* "(None, 26, 26, 32)", as Keras prints a shape. Returns buffer. */
const char *copse__tensor_shape_text(const copse__tensor *tensor, char *buffer,
                                     size_t capacity);

#endif
