/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_SOURCE_H
#define COPSE_BACKEND_OPENCL_SOURCE_H

#include <stddef.h>

/* One kernel file of cl/, with its includes in place, as cl/embed.cmake made it. */
typedef struct copse__cl_source {
    const char *name; /* "basic" */
    const char *text; /* NUL-terminated */
    size_t bytes;     /* without the NUL */
    const char *hash; /* 32 hexadecimal digits over the text */
} copse__cl_source;

extern const copse__cl_source copse__cl_source_basic; /* what every run needs */
extern const copse__cl_source copse__cl_source_cast;
extern const copse__cl_source copse__cl_source_columns;
extern const copse__cl_source copse__cl_source_dropout;
extern const copse__cl_source copse__cl_source_expression;
extern const copse__cl_source copse__cl_source_conv;
extern const copse__cl_source copse__cl_source_conv_packed;
extern const copse__cl_source copse__cl_source_conv_pool_packed;
extern const copse__cl_source copse__cl_source_conv_winograd;
extern const copse__cl_source copse__cl_source_conv_tiled;
extern const copse__cl_source copse__cl_source_gemm;
extern const copse__cl_source copse__cl_source_gemm_packed;
extern const copse__cl_source copse__cl_source_gemm_small;
extern const copse__cl_source copse__cl_source_norm;
extern const copse__cl_source copse__cl_source_peak;
extern const copse__cl_source copse__cl_source_pool;

/* All of them, NULL-terminated, in alphabetical order. */
extern const copse__cl_source *const copse__cl_sources[];

#endif
