/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_OPS_H
#define COPSE_BACKEND_OPENCL_OPS_H

#include "backend/opencl/provider.h"

/* The providers, one file a family. */

/* elementwise.c */
extern const copse__cl_provider copse__cl_activation;
extern const copse__cl_provider copse__cl_activation_grad;
extern const copse__cl_provider copse__cl_add;
extern const copse__cl_provider copse__cl_dropout;
extern const copse__cl_provider copse__cl_cast;

/* expression.c */
extern const copse__cl_provider copse__cl_elementwise;

/* gemm.c */
extern const copse__cl_provider copse__cl_dense_rows;
extern const copse__cl_provider copse__cl_dense_tiled;

/* clblast.c */
extern const copse__cl_provider copse__cl_dense_clblast;

/* columns.c: serves all three */
extern const copse__cl_provider copse__cl_conv2d_columns;

/* conv.c */
extern const copse__cl_provider copse__cl_conv2d_direct;
extern const copse__cl_provider copse__cl_conv2d_grad_input_direct;
extern const copse__cl_provider copse__cl_conv2d_grad_filter_direct;

/* gemm_packed.c, conv_packed.c; the latter serves all three directions */
extern const copse__cl_provider copse__cl_dense_packed;
extern const copse__cl_provider copse__cl_conv2d_packed;

/* conv_winograd.c: all three directions of 3 x 3 with stride 1 */
extern const copse__cl_provider copse__cl_conv2d_winograd;
extern const copse__cl_provider copse__cl_conv2d_winograd4;

/* gemm_small.c */
extern const copse__cl_provider copse__cl_dense_small;

/* conv_pool_packed.c and, for GPUs, conv_pool_tiled.c: serves CONV2D_MAX_POOL and its gradients */
extern const copse__cl_provider copse__cl_conv2d_max_pool_packed;
extern const copse__cl_provider copse__cl_conv2d_max_pool_tiled;

/* pool.c: the average ones serve both directions */
extern const copse__cl_provider copse__cl_max_pool2d;
extern const copse__cl_provider copse__cl_max_pool2d_grad;
extern const copse__cl_provider copse__cl_avg_pool2d;
extern const copse__cl_provider copse__cl_global_avg_pool;

/* reduce.c */
extern const copse__cl_provider copse__cl_bias_grad;

/* norm.c: copse__cl_bn_apply serves BN_NORMALIZE and BN_INFER */
extern const copse__cl_provider copse__cl_bn_moments;
extern const copse__cl_provider copse__cl_bn_apply;
extern const copse__cl_provider copse__cl_bn_fold;
extern const copse__cl_provider copse__cl_bn_grad_reduce;
extern const copse__cl_provider copse__cl_bn_grad_input;

/* loss.c: copse__cl_loss serves both losses */
extern const copse__cl_provider copse__cl_loss;
extern const copse__cl_provider copse__cl_softmax;
extern const copse__cl_provider copse__cl_softmax_grad;

/* update.c */
extern const copse__cl_provider copse__cl_update_sgd;
extern const copse__cl_provider copse__cl_update_adam;
extern const copse__cl_provider copse__cl_update_rmsprop;

/* check.c */
extern const copse__cl_provider copse__cl_finite_check;
extern const copse__cl_provider copse__cl_parameter_hash;

#endif
