/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "graph/layer.h"

/* Kernel, then bias: Keras' order. w_rank - 1 and - 2 are the unit's outputs and inputs,
 * what comes before them its receptive field. */
static copse_status make_weights(copse__builder *b, const copse__layer_config *config,
                                 size_t w_rank, const copse__dim *w_dim,
                                 copse__tensor_id *w, copse__tensor_id *bias,
                                 copse_error *err) {
    double field = 1;
    for (size_t i = 0; i + 2 < w_rank; i++)
        field *= (double)w_dim[i].size;
    double fan_in = field * (double)w_dim[w_rank - 2].size;
    double fan_out = field * (double)w_dim[w_rank - 1].size;
    copse__init init =
        copse__initializer_resolve(config->kernel_initializer, fan_in, fan_out);
    *bias = COPSE__NO_TENSOR;
    copse_status status =
        copse__build_parameter(b, "kernel", w_rank, w_dim, init, true, w, err);
    if (status != COPSE_OK || !config->use_bias)
        return status;
    /* Keras counts a vector's fans as its length, both. */
    double length = (double)w_dim[w_rank - 1].size;
    init = copse__initializer_resolve(config->bias_initializer, length, length);
    return copse__build_parameter(b, "bias", 1, &w_dim[w_rank - 1], init, false, bias,
                                  err);
}

static bool is_linear(copse__layer_activation activation) {
    return activation.act == COPSE__ACT_NONE && !activation.softmax;
}

/* The activation inside a dense or convolutional layer: a node of its own, which a plan
 * may fuse into the one before. */
static copse_status finish(copse__builder *b, copse__layer_activation activation,
                           copse__tensor_id linear, copse__tensor_id *out,
                           copse_error *err) {
    if (activation.softmax)
        return copse__build_softmax(b, linear, "softmax", out, err);
    return copse__build_activation(b, activation.act, linear,
                                   copse__activation_name(activation.act), out, err);
}

copse_status copse__layer_dense(copse__builder *b, const copse__layer_config *config,
                                bool training, const copse__tensor_id *inputs,
                                size_t count, copse__tensor_id *out, copse_error *err) {
    (void)training, (void)count;
    const copse__tensor *x = &b->graph->tensors[inputs[0]];
    char shape[COPSE__SHAPE_TEXT];
    if (x->rank < 2)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "layer '%s' works on the last axis, but its input's shape %s "
                           "has none besides the batch: add a flatten layer before it",
                           b->layer, copse__build_shape(b, inputs[0], shape));
    copse__dim dim[] = {x->dim[x->rank - 1], copse__fixed(config->units)};
    copse__tensor_id w, bias, linear;
    copse_status status = make_weights(b, config, 2, dim, &w, &bias, err);
    if (status == COPSE_OK)
        status = copse__build_dense(b, inputs[0], w, bias,
                                    is_linear(config->activation) ? NULL : "linear",
                                    &linear, err);
    return status == COPSE_OK ? finish(b, config->activation, linear, out, err) : status;
}

static copse__window make_window(const size_t kernel[2], const size_t strides[2],
                                 size_t dilation_h, size_t dilation_w) {
    return (copse__window){.kernel_h = kernel[0],
                           .kernel_w = kernel[1],
                           .stride_h = strides[0],
                           .stride_w = strides[1],
                           .dilation_h = dilation_h,
                           .dilation_w = dilation_w};
}

copse_status copse__layer_conv2d(copse__builder *b, const copse__layer_config *config,
                                 bool training, const copse__tensor_id *inputs,
                                 size_t count, copse__tensor_id *out, copse_error *err) {
    (void)training, (void)count;
    copse__window window = make_window(config->kernel, config->strides,
                                       config->dilation[0], config->dilation[1]);
    copse__window checked = window; /* before parameters are made of a wrong shape */
    size_t p, q;
    copse_status status = copse__window_resolve(b, inputs[0], "kernel", config->padding,
                                                &checked, &p, &q, err);
    if (status != COPSE_OK)
        return status;
    copse__dim dim[] = {copse__fixed(config->kernel[0]), copse__fixed(config->kernel[1]),
                        b->graph->tensors[inputs[0]].dim[3],
                        copse__fixed(config->filters)};
    copse__tensor_id w, bias, linear;
    status = make_weights(b, config, 4, dim, &w, &bias, err);
    if (status == COPSE_OK)
        status = copse__build_conv2d(b, inputs[0], w, bias, window, config->padding,
                                     is_linear(config->activation) ? NULL : "linear",
                                     &linear, err);
    return status == COPSE_OK ? finish(b, config->activation, linear, out, err) : status;
}

static copse_status pool(copse__builder *b, const copse__layer_config *config,
                         copse__op op, copse__tensor_id x, copse__tensor_id *out,
                         copse_error *err) {
    const size_t *strides = config->strides[0] == 0 ? config->pool : config->strides;
    return copse__build_pool2d(b, op, x, make_window(config->pool, strides, 1, 1),
                               config->padding, out, err);
}

copse_status copse__layer_max_pool2d(copse__builder *b, const copse__layer_config *config,
                                     bool training, const copse__tensor_id *inputs,
                                     size_t count, copse__tensor_id *out,
                                     copse_error *err) {
    (void)training, (void)count;
    return pool(b, config, COPSE__OP_MAX_POOL2D, inputs[0], out, err);
}

copse_status copse__layer_avg_pool2d(copse__builder *b, const copse__layer_config *config,
                                     bool training, const copse__tensor_id *inputs,
                                     size_t count, copse__tensor_id *out,
                                     copse_error *err) {
    (void)training, (void)count;
    return pool(b, config, COPSE__OP_AVG_POOL2D, inputs[0], out, err);
}

copse_status copse__layer_global_avg_pool2d(copse__builder *b,
                                            const copse__layer_config *config,
                                            bool training, const copse__tensor_id *inputs,
                                            size_t count, copse__tensor_id *out,
                                            copse_error *err) {
    (void)config, (void)training, (void)count;
    return copse__build_global_avg_pool(b, inputs[0], out, err);
}

/* All fixed dimensions in one, in row-major order; symbols before them stay. */
copse_status copse__layer_flatten(copse__builder *b, const copse__layer_config *config,
                                  bool training, const copse__tensor_id *inputs,
                                  size_t count, copse__tensor_id *out, copse_error *err) {
    (void)config, (void)training, (void)count;
    const copse__tensor x = b->graph->tensors[inputs[0]];
    copse__dim dim[] = {x.dim[0], copse__fixed(1)};
    for (size_t i = 1; i < x.rank; i++)
        dim[1].size *= x.dim[i].size; /* a part of what the tensor's own check allowed */
    *out = inputs[0];
    if (x.rank == 2)
        return COPSE_OK;
    return copse__build_view(b, NULL, inputs[0], 2, dim, out, err);
}

copse_status copse__layer_reshape(copse__builder *b, const copse__layer_config *config,
                                  bool training, const copse__tensor_id *inputs,
                                  size_t count, copse__tensor_id *out, copse_error *err) {
    (void)training, (void)count;
    const copse__tensor x = b->graph->tensors[inputs[0]];
    size_t elements = 1, given = 1, open = COPSE_MAX_RANK;
    for (size_t i = 1; i < x.rank; i++)
        elements *= x.dim[i].size;
    copse__dim dim[COPSE_MAX_RANK] = {x.dim[0]};
    for (size_t i = 0; i < config->shape_rank; i++) {
        dim[i + 1] = copse__fixed((size_t)config->shape[i]);
        if (config->shape[i] == -1)
            open = i + 1;
        else if (!copse__mul_size(given, dim[i + 1].size, &given))
            given = SIZE_MAX; /* the product of no tensor's dimensions */
    }
    if (open != COPSE_MAX_RANK)
        dim[open].size = elements / given;
    bool fits = open == COPSE_MAX_RANK ? elements == given : elements % given == 0;
    if (fits)
        return copse__build_view(b, NULL, inputs[0], config->shape_rank + 1, dim, out,
                                 err);
    char shape[COPSE__SHAPE_TEXT], wanted[COPSE__SHAPE_TEXT];
    copse__tensor to = {.rank = config->shape_rank + 1};
    for (size_t i = 0; i < to.rank; i++)
        to.dim[i] = dim[i];
    if (open != COPSE_MAX_RANK)
        to.dim[open].symbol = COPSE__BATCH; /* shown as None */
    return copse__fail(err, COPSE_CONFIG, 0, b->place,
                       "layer '%s': a sample of its input %s has %zu elements, which do "
                       "not go into the shape %s",
                       b->layer, copse__build_shape(b, inputs[0], shape), elements,
                       copse__tensor_shape_text(&to, wanted, sizeof wanted));
}

copse_status copse__layer_add(copse__builder *b, const copse__layer_config *config,
                              bool training, const copse__tensor_id *inputs, size_t count,
                              copse__tensor_id *out, copse_error *err) {
    (void)config, (void)training;
    return copse__build_add(b, inputs, count, out, err);
}

copse_status copse__layer_activate(copse__builder *b, const copse__layer_config *config,
                                   bool training, const copse__tensor_id *inputs,
                                   size_t count, copse__tensor_id *out,
                                   copse_error *err) {
    (void)training, (void)count;
    if (config->activation.softmax)
        return copse__build_softmax(b, inputs[0], NULL, out, err);
    return copse__build_activation(b, config->activation.act, inputs[0], NULL, out, err);
}

copse_status copse__layer_dropout(copse__builder *b, const copse__layer_config *config,
                                  bool training, const copse__tensor_id *inputs,
                                  size_t count, copse__tensor_id *out, copse_error *err) {
    (void)count;
    return copse__build_dropout(b, (float)config->rate, training, inputs[0], out, err);
}

copse_status copse__layer_batch_norm(copse__builder *b, const copse__layer_config *config,
                                     bool training, const copse__tensor_id *inputs,
                                     size_t count, copse__tensor_id *out,
                                     copse_error *err) {
    (void)count;
    const copse__tensor *x = &b->graph->tensors[inputs[0]];
    int64_t axis = config->axis < 0 ? config->axis + (int64_t)x->rank : config->axis;
    char shape[COPSE__SHAPE_TEXT];
    if (axis != (int64_t)x->rank - 1)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, b->place,
                           "layer '%s': only the last axis (-1) can be normalised; the "
                           "input's shape is %s: leave 'axis' out",
                           b->layer, copse__build_shape(b, inputs[0], shape));
    if (config->sync)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, b->place,
                           "layer '%s': batch moments over all replicas (sync: true) are "
                           "not supported; with sync: false each replica normalises its "
                           "own shard",
                           b->layer);
    copse__norm_options options = {.momentum = (float)config->momentum,
                                   .epsilon = (float)config->epsilon,
                                   .center = config->center,
                                   .scale = config->scale};
    return copse__build_batch_norm(b, &options, training, inputs[0], out, err);
}
