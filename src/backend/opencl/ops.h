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

/* update.c */
extern const copse__cl_provider copse__cl_update_sgd;
extern const copse__cl_provider copse__cl_update_adam;
extern const copse__cl_provider copse__cl_update_rmsprop;

/* check.c */
extern const copse__cl_provider copse__cl_finite_check;
extern const copse__cl_provider copse__cl_parameter_hash;

#endif
