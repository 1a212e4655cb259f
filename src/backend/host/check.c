/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/host.h"
#include "base/mem.h"

/* A node under examination. in, out: NULL where absent. `wrong` is the first thing found
 * that does not fit; once set, the other checks do nothing. */
typedef struct examination {
    const copse__node *node;
    const copse__tensor *in[COPSE__MAX_INPUTS];
    const copse__tensor *out[COPSE__MAX_OUTPUTS];
    const char *wrong;
} examination;

static void expect(examination *e, bool right, const char *wrong) {
    if (!e->wrong && !right)
        e->wrong = wrong;
}

/* Sizes are products of a fixed part and powers of the symbols: equal at these extents
 * means equal at all. */
static const copse__extents probes[] = {
    {{0, 1, 1}},
    {{0, 2, 1}},
    {{0, 1, 2}},
};

static bool same_rows(const copse__tensor *a, const copse__tensor *b) {
    for (size_t i = 0; i < COPSE__COUNT(probes); i++)
        if (copse__tensor_rows(a, &probes[i]) != copse__tensor_rows(b, &probes[i]))
            return false;
    return true;
}

static bool same_elements(const copse__tensor *a, const copse__tensor *b) {
    for (size_t i = 0; i < COPSE__COUNT(probes); i++)
        if (copse__tensor_elements(a, &probes[i]) !=
            copse__tensor_elements(b, &probes[i]))
            return false;
    return true;
}

static bool same_first(const copse__tensor *a, const copse__tensor *b) {
    return a->rank > 0 && b->rank > 0 && a->dim[0].size == b->dim[0].size &&
           a->dim[0].symbol == b->dim[0].symbol;
}

static bool is_float(const copse__tensor *tensor) {
    return !tensor || tensor->dtype == COPSE_F32;
}

/* A parameter-like operand: a fixed number of elements; absent is fine. */
static bool holds(const copse__tensor *tensor, size_t elements) {
    if (!tensor)
        return true;
    for (size_t d = 0; d < tensor->rank; d++)
        if (tensor->dim[d].symbol != COPSE__FIXED)
            return false;
    return copse__tensor_elements(tensor, NULL) == elements;
}

static bool is_matrix(const copse__tensor *tensor, size_t rows, size_t columns) {
    return holds(tensor, rows * columns) && copse__tensor_columns(tensor) == columns;
}

static void check_product(examination *e, const copse__tensor *narrow,
                          const copse__tensor *wide, const copse__tensor *weight) {
    expect(e, same_rows(narrow, wide), "the operands' rows differ");
    expect(e,
           is_matrix(weight, copse__tensor_columns(narrow), copse__tensor_columns(wide)),
           "the weights do not fit the operands' columns");
}

static void check_dense(examination *e) {
    check_product(e, e->in[0], e->out[0], e->in[1]);
    expect(e, holds(e->in[2], copse__tensor_columns(e->out[0])),
           "the bias does not fit the units");
}

static void check_dense_grad_input(examination *e) {
    check_product(e, e->out[0], e->in[0], e->in[1]);
    expect(e, !e->in[2] || same_elements(e->in[2], e->out[0]),
           "what the activation saved does not fit the gradient");
}

static void check_dense_grad_weight(examination *e) {
    check_product(e, e->in[0], e->in[1], e->out[0]);
    expect(e, holds(e->out[1], copse__tensor_columns(e->in[1])),
           "the bias does not fit the units");
}

static void check_bias_grad(examination *e) {
    expect(e, holds(e->out[0], copse__tensor_columns(e->in[0])),
           "the bias does not fit the columns");
}

static bool is_window(const copse__window *win) {
    return win->kernel_h && win->kernel_w && win->stride_h && win->stride_w &&
           win->dilation_h && win->dilation_w;
}

static void check_images(examination *e, const copse__tensor *image,
                         const copse__tensor *map) {
    expect(e, image->rank == 4 && map->rank == 4, "images must have rank 4");
    expect(e, same_first(image, map), "the numbers of images differ");
    for (size_t d = 1; d < 4 && !e->wrong; d++)
        expect(e,
               image->dim[d].symbol == COPSE__FIXED && map->dim[d].symbol == COPSE__FIXED,
               "an image's height, width and channels must be fixed");
    expect(e, is_window(&e->node->attrs.window),
           "kernel, stride and dilation must be at least 1");
}

static void check_convolution(examination *e, const copse__tensor *image,
                              const copse__tensor *map, const copse__tensor *filter) {
    const copse__window *win = &e->node->attrs.window;
    check_images(e, image, map);
    if (e->wrong)
        return;
    size_t channels = image->dim[3].size, filters = map->dim[3].size;
    expect(e,
           filter->rank == 4 && filter->dim[0].size == win->kernel_h &&
               filter->dim[1].size == win->kernel_w && filter->dim[2].size == channels &&
               holds(filter, win->kernel_h * win->kernel_w * channels * filters),
           "the filter does not fit the kernel and the channels");
}

static void check_conv2d(examination *e) {
    check_convolution(e, e->in[0], e->out[0], e->in[1]);
    expect(e, e->wrong || holds(e->in[2], e->out[0]->dim[3].size),
           "the bias does not fit the filters");
}

static void check_conv2d_grad_input(examination *e) {
    check_convolution(e, e->out[0], e->in[0], e->in[1]);
}

static void check_conv2d_grad_filter(examination *e) {
    check_convolution(e, e->in[0], e->in[1], e->out[0]);
}

/* Whether each of `outputs` windows along one side has a place inside the image. */
static bool windows_meet(size_t outputs, size_t size, size_t kernel, size_t stride,
                         size_t dilation, size_t pad) {
    for (size_t at = 0; at < outputs; at++) {
        bool met = false;
        size_t place;
        for (size_t tap = 0; tap < kernel && !met; tap++)
            met = copse__host_tap(at, stride, tap, dilation, pad, size, &place);
        if (!met)
            return false;
    }
    return true;
}

static void check_pool(examination *e, const copse__tensor *image,
                       const copse__tensor *map) {
    const copse__window *win = &e->node->attrs.window;
    check_images(e, image, map);
    if (e->wrong)
        return;
    expect(e, image->dim[3].size == map->dim[3].size, "the channels differ");
    expect(e,
           windows_meet(map->dim[1].size, image->dim[1].size, win->kernel_h,
                        win->stride_h, win->dilation_h, win->pad_top) &&
               windows_meet(map->dim[2].size, image->dim[2].size, win->kernel_w,
                            win->stride_w, win->dilation_w, win->pad_left),
           "a pooling window lies outside the image");
}

static void check_index(examination *e, const copse__window *win,
                        const copse__tensor *index, const copse__tensor *map) {
    if (!index || e->wrong)
        return;
    expect(e, same_elements(index, map), "the index does not fit the map");
    expect(e,
           index->dtype == COPSE_I32 ||
               (index->dtype == COPSE_U8 && win->kernel_h * win->kernel_w <= 255),
           "the index must be u8, or i32 for more than 255 places");
}

static void check_max_pool(examination *e) {
    check_pool(e, e->in[0], e->out[0]);
    check_index(e, &e->node->attrs.window, e->out[1], e->out[0]);
}

static void check_max_pool_grad(examination *e) {
    check_pool(e, e->out[0], e->in[0]);
    check_index(e, &e->node->attrs.window, e->in[1], e->in[0]);
}

/* The map that is pooled has no tensor: whatever its windows see is computed. */
static void check_conv_pool(examination *e, const copse__tensor *image,
                            const copse__tensor *pooled, const copse__tensor *filter,
                            const copse__tensor *bias, const copse__tensor *index) {
    const copse__window *pool = &e->node->attrs.pool;
    check_convolution(e, image, pooled, filter);
    expect(e, is_window(pool), "kernel, stride and dilation must be at least 1");
    expect(e, pool->pad_top == 0 && pool->pad_left == 0, "pooling must have no padding");
    expect(e, e->wrong || holds(bias, pooled->dim[3].size),
           "the bias does not fit the filters");
    check_index(e, pool, index, pooled);
}

static void check_conv2d_max_pool(examination *e) {
    check_conv_pool(e, e->in[0], e->out[0], e->in[1], e->in[2], e->out[1]);
}

static void check_conv2d_max_pool_grad_input(examination *e) {
    check_conv_pool(e, e->out[0], e->in[0], e->in[2], NULL, e->in[1]);
}

static void check_conv2d_max_pool_grad_filter(examination *e) {
    check_conv_pool(e, e->in[0], e->in[1], e->out[0], e->out[1], e->in[2]);
}

static void check_avg_pool(examination *e) {
    check_pool(e, e->in[0], e->out[0]);
}

static void check_avg_pool_grad(examination *e) {
    check_pool(e, e->out[0], e->in[0]);
}

static void check_global(examination *e, const copse__tensor *image,
                         const copse__tensor *pooled) {
    expect(e, image->rank == 4 && pooled->rank == 2, "the ranks must be 4 and 2");
    expect(e, same_first(image, pooled), "the numbers of images differ");
    expect(e,
           e->wrong || (image->dim[1].symbol == COPSE__FIXED &&
                        image->dim[2].symbol == COPSE__FIXED &&
                        image->dim[1].size * image->dim[2].size > 0 &&
                        image->dim[3].size == pooled->dim[1].size),
           "the channels differ or the image is empty");
}

static void check_global_pool(examination *e) {
    check_global(e, e->in[0], e->out[0]);
}

static void check_global_pool_grad(examination *e) {
    check_global(e, e->out[0], e->in[0]);
}

static void check_equal(examination *e) {
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        expect(e, !e->in[i] || same_elements(e->in[i], e->out[0]),
               "the operands' sizes differ");
    expect(e, e->out[0]->rank > 0 && copse__tensor_columns(e->out[0]) > 0,
           "the rank must be at least 1 and the last dimension not empty");
}

static void check_softmax(examination *e) {
    check_equal(e);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        expect(e, !e->in[i] || same_rows(e->in[i], e->out[0]), "the rows differ");
}

static void check_dropout(examination *e) {
    float rate = e->node->attrs.dropout.rate;
    check_equal(e);
    expect(e, e->wrong || same_first(e->in[0], e->out[0]), "the samples differ");
    expect(e, rate >= 0 && rate < 1, "the rate must be in [0, 1)");
}

static bool is_step(copse__op op) {
    return op == COPSE__OP_ADD || op == COPSE__OP_ACTIVATION ||
           op == COPSE__OP_ACTIVATION_GRAD || op == COPSE__OP_DROPOUT;
}

/* Whether a value is there before step `at`. */
static bool has_value(const examination *e, size_t value, size_t at) {
    return value < COPSE__MAX_INPUTS ? e->in[value] != NULL
                                     : value < COPSE__MAX_INPUTS + at;
}

static void check_elementwise(examination *e) {
    const copse__expression *x = &e->node->attrs.expression;
    check_equal(e);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        expect(e, !e->in[i] || same_first(e->in[i], e->out[0]), "the samples differ");
    expect(e, x->term_count > 0 && x->term_count <= COPSE__MAX_TERMS,
           "the expression has no steps, or too many");
    for (size_t s = 0; s < x->term_count && !e->wrong; s++) {
        const copse__term *step = &x->terms[s];
        copse__op op = (copse__op)step->op;
        bool two = op == COPSE__OP_ADD || op == COPSE__OP_ACTIVATION_GRAD;
        bool acts = op == COPSE__OP_ACTIVATION || op == COPSE__OP_ACTIVATION_GRAD;
        expect(e,
               is_step(op) && step->act < COPSE__ACT_COUNT &&
                   (!acts || step->act != COPSE__ACT_NONE),
               "a step is no operation");
        expect(e, has_value(e, step->a, s) && (!two || has_value(e, step->b, s)),
               "a step uses a value that is not there");
        expect(e, op != COPSE__OP_DROPOUT || (step->rate >= 0 && step->rate < 1),
               "the rate must be in [0, 1)");
    }
    for (size_t o = 0; o < COPSE__MAX_OUTPUTS && !e->wrong; o++)
        expect(e,
               !e->out[o] || (same_elements(e->out[o], e->out[0]) &&
                              has_value(e, x->results[o], x->term_count)),
               "an output is of another size or of no value");
}

static void check_bn_moments(examination *e) {
    expect(e, holds(e->out[0], 2 * copse__tensor_columns(e->in[0])),
           "the statistics must be [2, C]");
}

static void check_bn_act(examination *e) {
    expect(e, e->node->attrs.act <= COPSE__ACT_RELU,
           "an activation other than relu is no part of it");
}

static void check_bn_normalize(examination *e) {
    size_t columns = copse__tensor_columns(e->in[0]);
    check_bn_act(e);
    expect(e, same_rows(e->in[0], e->out[0]) && same_elements(e->in[0], e->out[0]),
           "the operands' sizes differ");
    expect(e, holds(e->in[1], 2 * columns), "the statistics must be [2, C]");
    expect(e, holds(e->in[2], columns) && holds(e->in[3], columns),
           "gamma and beta must be [C]");
}

static void check_bn_infer(examination *e) {
    size_t columns = copse__tensor_columns(e->in[0]);
    check_bn_act(e);
    expect(e, same_rows(e->in[0], e->out[0]) && same_elements(e->in[0], e->out[0]),
           "the operands' sizes differ");
    for (size_t i = 1; i < 5; i++)
        expect(e, holds(e->in[i], columns), "statistics, gamma and beta must be [C]");
}

static void check_bn_fold(examination *e) {
    size_t columns = copse__tensor_columns(e->in[0]);
    size_t elements = copse__tensor_elements(e->in[0], NULL);
    expect(e, holds(e->in[0], elements) && holds(e->out[0], elements),
           "the operands' sizes differ");
    expect(e, copse__tensor_columns(e->out[0]) == columns && holds(e->out[1], columns),
           "the results must be [..,C] and [C]");
    for (size_t i = 1; i < 6; i++)
        expect(e, holds(e->in[i], columns),
               "bias, statistics, gamma and beta must be [C]");
}

static void check_bn_grad(examination *e) {
    check_bn_act(e);
    expect(e, same_rows(e->in[0], e->in[1]) && same_elements(e->in[0], e->in[1]),
           "the operands' sizes differ");
    expect(e, holds(e->in[2], 2 * copse__tensor_columns(e->in[0])),
           "the statistics must be [2, C]");
}

static void check_bn_grad_reduce(examination *e) {
    size_t columns = copse__tensor_columns(e->in[0]);
    check_bn_grad(e);
    expect(e, holds(e->out[0], 2 * columns), "the sums must be [2, C]");
    expect(e, holds(e->out[1], columns) && holds(e->out[2], columns),
           "the gradients of gamma and beta must be [C]");
    expect(e, holds(e->in[3], columns) && holds(e->in[4], columns),
           "gamma and beta must be [C]");
}

static void check_bn_grad_input(examination *e) {
    size_t columns = copse__tensor_columns(e->in[0]);
    check_bn_grad(e);
    expect(e, same_elements(e->in[0], e->out[0]), "the operands' sizes differ");
    expect(e, holds(e->in[3], 2 * columns), "the sums must be [2, C]");
    expect(e, holds(e->in[4], columns) && holds(e->in[5], columns),
           "gamma and beta must be [C]");
}

static void check_cross_entropy(examination *e) {
    const copse__tensor *x = e->in[0], *label = e->in[1], *metrics = e->out[0];
    expect(e, copse__tensor_columns(x) > 0, "there must be a class");
    bool soft = label->dtype == COPSE_F32;
    expect(e, soft || label->dtype == COPSE_I32, "labels must be i32 or f32");
    for (size_t i = 0; i < COPSE__COUNT(probes); i++)
        expect(e,
               copse__tensor_elements(label, &probes[i]) ==
                   (soft ? copse__tensor_elements(x, &probes[i])
                         : copse__tensor_rows(x, &probes[i])),
               "the labels do not fit the rows");
    expect(e, same_rows(x, metrics) && copse__tensor_columns(metrics) == 2,
           "the metrics must be [rows, 2]");
    expect(e, !e->out[1] || same_elements(x, e->out[1]), "the gradient's size differs");
}

static void check_squared_error(examination *e) {
    const copse__tensor *x = e->in[0], *metrics = e->out[0];
    expect(e, same_elements(x, e->in[1]) && same_first(x, e->in[1]),
           "the targets' size differs");
    expect(e, metrics->rank == 2 && same_first(x, metrics) && metrics->dim[1].size == 2,
           "the metrics must be [N, 2]");
    expect(e, !e->out[1] || same_elements(x, e->out[1]), "the gradient's size differs");
}

static void check_cast(examination *e) {
    static const copse_dtype known[] = {COPSE_U8,  COPSE_I8,  COPSE_U16, COPSE_I16,
                                        COPSE_I32, COPSE_F16, COPSE_F32, COPSE_F64};
    bool found = false;
    for (size_t i = 0; i < COPSE__COUNT(known); i++)
        found |= e->in[0]->dtype == known[i];
    expect(e, found, "this type cannot be cast");
    expect(e, same_elements(e->in[0], e->out[0]), "the operands' sizes differ");
}

/* An absent one too. */
static bool is_count(const copse__tensor *tensor) {
    return !tensor || (tensor->dtype == COPSE_U32 && holds(tensor, 1));
}

/* Inputs w, g, slots, held; outputs w, slots. */
static void check_update(examination *e) {
    const copse__node *node = e->node;
    size_t elements = copse__tensor_elements(e->in[0], NULL);
    expect(e, node->inputs[0] == node->outputs[0], "an update must be in place");
    for (size_t i = 0; i < 5; i++)
        expect(e, holds(e->in[i], elements), "the operands' sizes differ");
    for (size_t i = 0; i < 3; i++)
        expect(e,
               e->in[2 + i] == e->out[1 + i] &&
                   (!e->in[2 + i] || node->inputs[2 + i] == node->outputs[1 + i]),
               "an update's slots must be in place");
    bool momentum = node->attrs.update.momentum > 0;
    bool needed[3] = {true, true, false};
    if (node->op == COPSE__OP_UPDATE_SGD) {
        needed[0] = momentum;
        needed[1] = false;
    } else if (node->op == COPSE__OP_UPDATE_RMSPROP) {
        needed[1] = node->attrs.update.centered;
        needed[2] = momentum;
    }
    for (size_t i = 0; i < 3; i++)
        expect(e, needed[i] == (e->in[2 + i] != NULL),
               "the slots do not fit the optimizer");
    expect(e, is_count(e->in[5]), "the count must be u32[1]");
}

static void check_finite(examination *e) {
    expect(e, holds(e->in[0], copse__tensor_elements(e->in[0], NULL)),
           "the buffer's size must be fixed");
    expect(e, is_count(e->in[1]) && is_count(e->out[0]), "the counts must be u32[1]");
}

static void check_hash(examination *e) {
    expect(e, holds(e->in[0], copse__tensor_elements(e->in[0], NULL)),
           "the buffer's size must be fixed");
    expect(e, e->out[0]->dtype == COPSE_U64 && holds(e->out[0], 256),
           "the partial hashes must be u64[256]");
}

/* What must hold beyond the operands' number. Bit i: operand i may have another type than
 * float32. */
static const struct {
    void (*shapes)(examination *e);
    uint8_t other_inputs, other_outputs;
} rules[COPSE__OP_COUNT] = {
    [COPSE__OP_DENSE] = {check_dense, 0, 0},
    [COPSE__OP_DENSE_GRAD_INPUT] = {check_dense_grad_input, 0, 0},
    [COPSE__OP_DENSE_GRAD_WEIGHT] = {check_dense_grad_weight, 0, 0},
    [COPSE__OP_BIAS_GRAD] = {check_bias_grad, 0, 0},
    [COPSE__OP_CONV2D] = {check_conv2d, 0, 0},
    [COPSE__OP_CONV2D_GRAD_INPUT] = {check_conv2d_grad_input, 0, 0},
    [COPSE__OP_CONV2D_GRAD_FILTER] = {check_conv2d_grad_filter, 0, 0},
    [COPSE__OP_CONV2D_MAX_POOL] = {check_conv2d_max_pool, 0, 2},
    [COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT] = {check_conv2d_max_pool_grad_input, 2, 0},
    [COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER] = {check_conv2d_max_pool_grad_filter, 4, 0},
    [COPSE__OP_MAX_POOL2D] = {check_max_pool, 0, 2},
    [COPSE__OP_MAX_POOL2D_GRAD] = {check_max_pool_grad, 2, 0},
    [COPSE__OP_AVG_POOL2D] = {check_avg_pool, 0, 0},
    [COPSE__OP_AVG_POOL2D_GRAD] = {check_avg_pool_grad, 0, 0},
    [COPSE__OP_GLOBAL_AVG_POOL] = {check_global_pool, 0, 0},
    [COPSE__OP_GLOBAL_AVG_POOL_GRAD] = {check_global_pool_grad, 0, 0},
    [COPSE__OP_ACTIVATION] = {check_equal, 0, 0},
    [COPSE__OP_ACTIVATION_GRAD] = {check_equal, 0, 0},
    [COPSE__OP_SOFTMAX] = {check_softmax, 0, 0},
    [COPSE__OP_SOFTMAX_GRAD] = {check_softmax, 0, 0},
    [COPSE__OP_DROPOUT] = {check_dropout, 0, 0},
    [COPSE__OP_ADD] = {check_equal, 0, 0},
    [COPSE__OP_ELEMENTWISE] = {check_elementwise, 0, 0},
    [COPSE__OP_BN_MOMENTS] = {check_bn_moments, 0, 0},
    [COPSE__OP_BN_NORMALIZE] = {check_bn_normalize, 0, 0},
    [COPSE__OP_BN_INFER] = {check_bn_infer, 0, 0},
    [COPSE__OP_BN_FOLD] = {check_bn_fold, 0, 0},
    [COPSE__OP_BN_GRAD_REDUCE] = {check_bn_grad_reduce, 0, 0},
    [COPSE__OP_BN_GRAD_INPUT] = {check_bn_grad_input, 0, 0},
    [COPSE__OP_CROSS_ENTROPY] = {check_cross_entropy, 2, 0},
    [COPSE__OP_MEAN_SQUARED_ERROR] = {check_squared_error, 0, 0},
    [COPSE__OP_CAST] = {check_cast, 1, 0},
    [COPSE__OP_UPDATE_SGD] = {check_update, 1u << 5, 0},
    [COPSE__OP_UPDATE_ADAM] = {check_update, 1u << 5, 0},
    [COPSE__OP_UPDATE_ADAMW] = {check_update, 1u << 5, 0},
    [COPSE__OP_UPDATE_RMSPROP] = {check_update, 1u << 5, 0},
    [COPSE__OP_FINITE_CHECK] = {check_finite, 1u << 1, 1},
    [COPSE__OP_PARAMETER_HASH] = {check_hash, 0, 1},
    [COPSE__OP_ACCUMULATE] = {check_equal, 0, 0},
};

static void gather(examination *e, const copse__graph *graph, const copse__tensor **found,
                   const copse__tensor_id *ids, size_t count, unsigned optional,
                   unsigned other) {
    for (size_t i = 0; i < count && !e->wrong; i++) {
        if (ids[i] == COPSE__NO_TENSOR) {
            expect(e, optional >> i & 1u, "a needed operand is missing");
            continue;
        }
        expect(e, ids[i] < graph->tensor_count, "an operand is not in the graph");
        if (e->wrong)
            return;
        found[i] = &graph->tensors[ids[i]];
        expect(e, is_float(found[i]) || (other >> i & 1u), "an operand must be f32");
    }
}

copse_status copse__host_check(const copse__graph *graph, const copse__node *node,
                               copse_error *err) {
    if ((size_t)node->op >= COPSE__OP_COUNT || !rules[node->op].shapes)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, node->name,
                           "the host has no loop for operation %d", (int)node->op);
    const copse__op_arity *arity = copse__op_arity_of(node->op);
    examination e = {.node = node};
    expect(&e, node->input_count == arity->inputs && node->output_count == arity->outputs,
           "there are too many or too few operands");
    if (!e.wrong)
        gather(&e, graph, e.in, node->inputs, node->input_count, arity->optional_inputs,
               rules[node->op].other_inputs);
    if (!e.wrong)
        gather(&e, graph, e.out, node->outputs, node->output_count,
               arity->optional_outputs, rules[node->op].other_outputs);
    if (!e.wrong)
        rules[node->op].shapes(&e);
    if (e.wrong)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, node->name, "%s: %s",
                           copse__op_name(node->op), e.wrong);
    return COPSE_OK;
}
