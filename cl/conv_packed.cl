/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of any geometry by cl/conv_packed.clh. Must equal the host's conv2d, conv2d_grad_input and
 * conv2d_grad_filter within the tolerance of a float sum.
 */
#include "conv_packed.clh"

/* target = act(gather(source) * packed + bias). Launch: groups of one item, (ceil(blocks / group_blocks),
 * phases, ceil(panels / group_panels)), blocks of the largest phase. */
__kernel ONE_ITEM void conv_packed_f32(copse_conv_shape g,
                                       __global const float *restrict source,
                                       __global const float *restrict packed,
                                       __global const float *restrict bias,
                                       __global float *restrict target, int act,
                                       int has_bias) {
    COPSE_TABLES(t);
    convolve(g, t, source, 0, 0, packed, bias, target, act, has_bias);
}

/* dw[R,S,C,F] = sum over dy's pixels of patch(x) * dy; source is x, target dy. Launch: groups of one item,
 * (splits, ceil(C / channels), ceil(panels / group_panels)): split z sums its group_blocks blocks into
 * part[z][R,S,C,F]; packed_sum_f32 adds the splits in their order. A split without blocks writes zeros. */
__kernel ONE_ITEM void conv_packed_grad_filter_f32(copse_conv_shape g,
                                                   __global const float *restrict source,
                                                   __global const float *restrict dy,
                                                   __global float *restrict part) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    __local float panels[COPSE_PANELS] __attribute__((aligned(64)));
    correlate(g, slab, panels, source, dy, 0, 0, part, 0);
}

#include "packed_sum.clh"
