/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"
#include "backend/opencl/window.h"

/* Channels that an item takes: as LANES in pool.cl. */
static size_t lanes(const copse__device *device) {
    return device->base.caps.cpu ? copse__cl_vector(device) : 1;
}

static size_t blocks(const copse__device *device, size_t channels) {
    return (channels + lanes(device) - 1) / lanes(device);
}

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    (void)device;
    return copse__cl_window_fits(graph, node, reason);
}

static bool is_wide(const copse__tensor *index) {
    return index && index->dtype == COPSE_I32;
}

static copse_status pool_kernel(copse__launch *launch, const char *name,
                                copse_error *err) {
    return copse__cl_kernel_add(launch, NULL, &copse__cl_source_pool, "", name, err);
}

static copse_status max_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    const copse__tensor *index = copse__cl_output(launch->graph, launch->node, 1);
    copse_window g = copse__cl_window(launch->graph, launch->node);
    copse__view places = {0};
    if (index)
        places = o->outputs[1];
    copse_status status = pool_kernel(
        launch, is_wide(index) ? "max_pool2d_i32_f32" : "max_pool2d_u8_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvv", &o->inputs[0], &o->outputs[0],
                                &places);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, 0, 3, &g, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 5, err, "u", (uint32_t)(index != NULL));
    return status;
}

#define STRIP 32 /* as in pool.cl */

/* All kernels that walk over the places of images of height x width (FOR_PLACES): argument
 * `at` is the number of images. */
static copse_status places_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, unsigned at, size_t height, size_t width,
                                   size_t channels, size_t taps, copse_error *err) {
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, at, err, "z", images);
    if (status != COPSE_OK)
        return status;
    if (!launch->device->base.caps.cpu)
        return copse__cl_enqueue_flat(launch, 0, images * height * width * channels, taps,
                                      err);
    /* channels that fill no vector are taken one by one */
    size_t single = channels % lanes(launch->device);
    size_t steps = copse__min_size(width, STRIP) *
                   (channels / lanes(launch->device) + single) * (taps + 1);
    return copse__cl_enqueue_flat(
        launch, 0, images * height * ((width + STRIP - 1) / STRIP), steps, err);
}

static copse_status max_enqueue(copse__launch *launch, const copse__extents *extents,
                                bool changed, copse_error *err) {
    copse_window g = copse__cl_window(launch->graph, launch->node);
    return places_enqueue(launch, extents, changed, 4, g.p, g.q, g.c, (size_t)g.r * g.s,
                          err);
}

/* Windows that neither overlap nor leave gaps. */
static bool tiles(const copse_window *g) {
    return g->stride_h == g->r && g->stride_w == g->s && g->dilation_h == 1 &&
           g->dilation_w == 1 && g->pad_top == 0 && g->pad_left == 0;
}

static copse_status max_grad_prepare(copse__launch *launch, copse_error *err) {
    static const char *const grad_names[2][2] = {
        {"max_pool2d_grad_u8_f32", "max_pool2d_grad_i32_f32"},
        {"max_pool2d_grad_tiles_u8_f32", "max_pool2d_grad_tiles_i32_f32"},
    };
    const copse__operands *o = &launch->operands;
    copse_window g = copse__cl_window(launch->graph, launch->node);
    bool wide = is_wide(copse__cl_input(launch->graph, launch->node, 1));
    copse_status status = pool_kernel(launch, grad_names[tiles(&g)][wide], err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvv", &o->inputs[0], &o->inputs[1],
                                &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, 0, 3, &g, err);
    return status;
}

static copse_status max_grad_enqueue(copse__launch *launch, const copse__extents *extents,
                                     bool changed, copse_error *err) {
    copse_window g = copse__cl_window(launch->graph, launch->node);
    size_t height = g.h, width = g.w;
    if (tiles(&g)) {
        height = (height + g.r - 1) / g.r;
        width = (width + g.s - 1) / g.s;
    }
    return places_enqueue(launch, extents, changed, 4, height, width, g.c,
                          (size_t)g.r * g.s, err);
}

static copse_status avg_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_window g = copse__cl_window(launch->graph, launch->node);
    bool forward = launch->node->op == COPSE__OP_AVG_POOL2D;
    copse_status status =
        pool_kernel(launch, forward ? "avg_pool2d_f32" : "avg_pool2d_grad_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &o->inputs[0], &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, 0, 2, &g, err);
    return status;
}

static copse_status avg_enqueue(copse__launch *launch, const copse__extents *extents,
                                bool changed, copse_error *err) {
    copse_window g = copse__cl_window(launch->graph, launch->node);
    bool forward = launch->node->op == COPSE__OP_AVG_POOL2D;
    return places_enqueue(launch, extents, changed, 3, forward ? g.p : g.h,
                          forward ? g.q : g.w, g.c, (size_t)g.r * g.s * 16, err);
}

/* The image [N,H,W,C] of a global pooling. */
static const copse__tensor *global_image(const copse__launch *launch) {
    return launch->node->op == COPSE__OP_GLOBAL_AVG_POOL
               ? copse__cl_input(launch->graph, launch->node, 0)
               : copse__cl_output(launch->graph, launch->node, 0);
}

static bool global_fits(const copse__device *device, const copse__graph *graph,
                        const copse__node *node, const char **reason) {
    (void)device;
    const copse__tensor *image = node->op == COPSE__OP_GLOBAL_AVG_POOL
                                     ? copse__cl_input(graph, node, 0)
                                     : copse__cl_output(graph, node, 0);
    size_t places;
    *reason = "an image of more than 2^30 pixels";
    return copse__mul_size(image->dim[1].size, image->dim[2].size, &places) &&
           places <= (size_t)1 << 30 && image->dim[3].size <= (size_t)1 << 30;
}

static copse_status global_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    const copse__tensor *image = global_image(launch);
    bool forward = launch->node->op == COPSE__OP_GLOBAL_AVG_POOL;
    copse_status status = pool_kernel(
        launch, forward ? "global_avg_pool_f32" : "global_avg_pool_grad_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &o->inputs[0], &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 3, err, "uu",
                                (uint32_t)(image->dim[1].size * image->dim[2].size),
                                (uint32_t)image->dim[3].size);
    return status;
}

static copse_status global_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, copse_error *err) {
    const copse__tensor *image = global_image(launch);
    size_t places = image->dim[1].size * image->dim[2].size;
    size_t channels = image->dim[3].size, wide = lanes(launch->device);
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 2, err, "z", images);
    if (status != COPSE_OK)
        return status;
    if (launch->node->op == COPSE__OP_GLOBAL_AVG_POOL_GRAD)
        return copse__cl_enqueue_flat(
            launch, 0, images * places * blocks(launch->device, channels), wide, err);
    return copse__cl_enqueue_flat(launch, 0, images * (channels / wide + channels % wide),
                                  places, err);
}

const copse__cl_provider copse__cl_max_pool2d = {
    .name = "plain", .fits = fits, .prepare = max_prepare, .enqueue = max_enqueue};
const copse__cl_provider copse__cl_max_pool2d_grad = {.name = "plain",
                                                      .fits = fits,
                                                      .prepare = max_grad_prepare,
                                                      .enqueue = max_grad_enqueue};
const copse__cl_provider copse__cl_avg_pool2d = {
    .name = "plain", .fits = fits, .prepare = avg_prepare, .enqueue = avg_enqueue};
const copse__cl_provider copse__cl_global_avg_pool = {.name = "plain",
                                                      .fits = global_fits,
                                                      .prepare = global_prepare,
                                                      .enqueue = global_enqueue};
