/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "graph/build.h"

bool copse__window_axis(size_t input, size_t kernel, size_t stride, size_t dilation,
                        copse__padding padding, size_t *output, size_t *pad_before) {
    size_t reach; /* pixels from the first to the last that one window sees */
    if (input == 0 || kernel == 0 || stride == 0 || dilation == 0 ||
        !copse__mul_size(kernel - 1, dilation, &reach) ||
        !copse__add_size(reach, 1, &reach))
        return false;
    if (padding == COPSE__PADDING_VALID) {
        if (reach > input)
            return false;
        *output = (input - reach) / stride + 1;
        *pad_before = 0;
        return true;
    }
    *output = input / stride + (input % stride != 0);
    size_t covered; /* (output - 1) * stride is less than input */
    if (!copse__add_size((*output - 1) * stride, reach, &covered))
        return false;
    *pad_before = covered > input ? (covered - input) / 2 : 0;
    return true;
}

copse_status copse__window_resolve(const copse__builder *b, copse__tensor_id x,
                                   const char *what, copse__padding padding,
                                   copse__window *window, size_t *p, size_t *q,
                                   copse_error *err) {
    const copse__tensor *image = &b->graph->tensors[x];
    char shape[COPSE__SHAPE_TEXT];
    if (image->rank != 4)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "layer '%s' works on images (None, height, width, channels), "
                           "but its input has the shape %s",
                           b->layer, copse__build_shape(b, x, shape));
    if (copse__window_axis(image->dim[1].size, window->kernel_h, window->stride_h,
                           window->dilation_h, padding, p, &window->pad_top) &&
        copse__window_axis(image->dim[2].size, window->kernel_w, window->stride_w,
                           window->dilation_w, padding, q, &window->pad_left))
        return COPSE_OK;
    bool dilated = window->dilation_h != 1 || window->dilation_w != 1;
    char dilation[64] = "";
    if (dilated)
        snprintf(dilation, sizeof dilation, ", dilated by (%zu, %zu),",
                 window->dilation_h, window->dilation_w);
    return copse__fail(err, COPSE_CONFIG, 0, b->place,
                       "layer '%s': a %s of (%zu, %zu)%s does not fit into its input of "
                       "shape %s: make it smaller, or use padding: same",
                       b->layer, what, window->kernel_h, window->kernel_w, dilation,
                       copse__build_shape(b, x, shape));
}
