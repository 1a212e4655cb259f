/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/window.h"

static bool is_gradient_of_image(copse__op op) {
    return op == COPSE__OP_CONV2D_GRAD_INPUT ||
           op == COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT ||
           op == COPSE__OP_MAX_POOL2D_GRAD || op == COPSE__OP_AVG_POOL2D_GRAD;
}

/* The image is what the forward operation reads, the map what it writes. */
static void image_and_map(const copse__graph *graph, const copse__node *node,
                          const copse__tensor **image, const copse__tensor **map) {
    if (is_gradient_of_image(node->op)) {
        *image = copse__cl_output(graph, node, 0);
        *map = copse__cl_input(graph, node, 0);
    } else if (node->op == COPSE__OP_CONV2D_GRAD_FILTER ||
               node->op == COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER) {
        *image = copse__cl_input(graph, node, 0);
        *map = copse__cl_input(graph, node, 1);
    } else {
        *image = copse__cl_input(graph, node, 0);
        *map = copse__cl_output(graph, node, 0);
    }
}

copse_window copse__cl_window(const copse__graph *graph, const copse__node *node) {
    const copse__tensor *image, *map;
    const copse__window *w = &node->attrs.window;
    image_and_map(graph, node, &image, &map);
    return (copse_window){.h = (uint32_t)image->dim[1].size,
                          .w = (uint32_t)image->dim[2].size,
                          .c = (uint32_t)image->dim[3].size,
                          .p = (uint32_t)map->dim[1].size,
                          .q = (uint32_t)map->dim[2].size,
                          .f = (uint32_t)map->dim[3].size,
                          .r = (uint32_t)w->kernel_h,
                          .s = (uint32_t)w->kernel_w,
                          .stride_h = (uint32_t)w->stride_h,
                          .stride_w = (uint32_t)w->stride_w,
                          .dilation_h = (uint32_t)w->dilation_h,
                          .dilation_w = (uint32_t)w->dilation_w,
                          .pad_top = (uint32_t)w->pad_top,
                          .pad_left = (uint32_t)w->pad_left};
}

size_t copse__cl_images(const copse__graph *graph, const copse__node *node,
                        const copse__extents *extents) {
    return copse__dim_at(copse__cl_input(graph, node, 0)->dim[0], extents);
}

copse__conv_pass copse__cl_conv_pass(const copse__node *node) {
    switch (node->op) {
    case COPSE__OP_CONV2D:
    case COPSE__OP_CONV2D_MAX_POOL:
        return COPSE__CONV_FORWARD;
    case COPSE__OP_CONV2D_GRAD_INPUT:
    case COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT:
        return COPSE__CONV_GRAD_INPUT;
    default:
        return COPSE__CONV_GRAD_FILTER;
    }
}

copse__conv_size copse__cl_conv_size(const copse__graph *graph, const copse__node *node,
                                     const copse__extents *extents) {
    copse_window w = copse__cl_window(graph, node);
    bool pooled = node->op == COPSE__OP_CONV2D_MAX_POOL ||
                  node->op == COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT ||
                  node->op == COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER;
    size_t fold = pooled ? 2 : 1;
    return (copse__conv_size){.images = copse__cl_images(graph, node, extents),
                              .h = w.h,
                              .w = w.w,
                              .c = w.c,
                              .p = fold * w.p,
                              .q = fold * w.q,
                              .f = w.f,
                              .kernel_h = w.r,
                              .kernel_w = w.s,
                              .stride_h = w.stride_h,
                              .stride_w = w.stride_w,
                              .dilation_h = w.dilation_h,
                              .dilation_w = w.dilation_w,
                              .pad_top = w.pad_top,
                              .pad_left = w.pad_left,
                              .pooled = pooled};
}

bool copse__cl_window_fits(const copse__graph *graph, const copse__node *node,
                           const char **reason) {
    const copse__tensor *image, *map;
    const copse__window *w = &node->attrs.window;
    image_and_map(graph, node, &image, &map);
    *reason = "an image or filter of more than 2^30 pixels";
    const size_t sizes[][2] = {
        {image->dim[1].size, image->dim[2].size},
        {map->dim[1].size, map->dim[2].size},
        {w->kernel_h, w->kernel_w},
        {w->kernel_h, w->dilation_h},
        {w->kernel_w, w->dilation_w},
        {map->dim[1].size, w->stride_h},
        {map->dim[2].size, w->stride_w},
        {image->dim[3].size, 1},
        {map->dim[3].size, 1},
        {w->pad_top, 1},
        {w->pad_left, 1},
    };
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++) {
        size_t product;
        if (!copse__mul_size(sizes[i][0], sizes[i][1], &product) || product > (size_t)1
                                                                                  << 30)
            return false;
    }
    return true;
}

static copse_status set_struct(copse__launch *launch, size_t kernel, unsigned index,
                               const void *value, size_t bytes, copse_error *err) {
    cl_int code = clSetKernelArg(launch->kernels[kernel].kernel, index, bytes, value);
    return code == CL_SUCCESS
               ? COPSE_OK
               : copse__cl_fail(err, launch->device, code, "clSetKernelArg");
}

bool copse__cl_pools_by_2(const copse__graph *graph, const copse__node *node,
                          const char **reason) {
    const copse__window *w = &node->attrs.pool;
    copse__conv_pass pass = copse__cl_conv_pass(node);
    const copse__tensor *index =
        pass == COPSE__CONV_FORWARD
            ? copse__cl_output(graph, node, 1)
            : copse__cl_input(graph, node, pass == COPSE__CONV_GRAD_INPUT ? 1 : 2);
    *reason = "pooling is not by 2 x 2";
    if (w->kernel_h != 2 || w->kernel_w != 2 || w->stride_h != 2 || w->stride_w != 2 ||
        w->dilation_h != 1 || w->dilation_w != 1 || w->pad_top != 0 || w->pad_left != 0)
        return false;
    *reason = "the places are not bytes";
    return !index || index->dtype == COPSE_U8;
}

copse_status copse__cl_arg_window(copse__launch *launch, size_t kernel, unsigned index,
                                  const copse_window *window, copse_error *err) {
    return set_struct(launch, kernel, index, window, sizeof *window, err);
}

copse_status copse__cl_arg_conv_shape(copse__launch *launch, size_t kernel,
                                      const copse_conv_shape *shape, copse_error *err) {
    return set_struct(launch, kernel, 0, shape, sizeof *shape, err);
}

size_t copse__cl_vector(const copse__device *device) {
    return device->base.caps.cpu ? 16 : 4;
}
