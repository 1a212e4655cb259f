/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_PACKED_H
#define COPSE_BACKEND_OPENCL_PACKED_H

#include <conv_shape.clh>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the packed kernels (cl/gemm_packed.cl, cl/conv_packed.cl) cut their work. Pure
 * arithmetic: no device is called, so that the cuts can be tested by themselves. */

/* The kernels' tunables, as they are compiled in. */
typedef struct copse__packed_sizes {
    size_t vw, nv, mr; /* floats in a vector; the register tile is mr x (vw * nv) */
    size_t kc, mc, nc; /* a packed block of the GEMM */
    size_t slab;       /* floats of source in a convolution's local memory */
    size_t pixels;     /* target pixels of a convolution's block */
    size_t panels;     /* floats of packed dy in the filter gradient's local memory */
    /* Not compiled in: how a GEMM is cut. 0: by rule. */
    size_t parts, tile_m, tile_n;
} copse__packed_sizes;

/* The largest kernel_h * kernel_w: COPSE_TAPS of cl/conv_packed.cl. */
#define COPSE__PACKED_TAPS 256

/* Where measuring has not chosen yet: for a device whose vectors hold `width` floats and
 * that has local_bytes of local memory. false: too little of it. */
bool copse__packed_sizes_default(copse__packed_sizes *out, size_t width,
                                 size_t local_bytes);

/* Takes what tuning has chosen: "mr=4 nv=3 parts=2". false, and nothing is taken: those are
 * none of its, or the kernels cannot be built so for this much local memory. */
bool copse__packed_sizes_set(copse__packed_sizes *sizes, const char *parameters,
                             size_t local_bytes);

/* Those sizes as such parameters, of a GEMM or of a convolution. Returns buffer. */
const char *copse__packed_parameters(const copse__packed_sizes *sizes, bool gemm,
                                     char *buffer, size_t capacity);

/* Neighbours of these sizes that are worth timing, each different in one respect, as far as the kernels can
 * be built so: compiled: in what is compiled in; else in how a product [m,k] [k,n] is cut, for this many
 * units (m 0: none). Numbered from 0; false: there is none of this number, nor of a higher one. */
bool copse__packed_neighbour(copse__packed_sizes *out, const copse__packed_sizes *sizes,
                             size_t number, bool gemm, size_t local_bytes);
bool copse__gemm_cut_neighbour(copse__packed_sizes *out, const copse__packed_sizes *sizes,
                               size_t number, size_t m, size_t n, size_t k, size_t units);

/* "-DCOPSE_VW=8 -DCOPSE_NV=2 …" into buffer; returns buffer. */
const char *copse__packed_options(const copse__packed_sizes *sizes, char *buffer,
                                  size_t capacity);

/* Floats of local memory that a packed block of the GEMM takes. */
size_t copse__gemm_local_floats(const copse__packed_sizes *sizes);

/* A product [m,k] [k,n]: groups of one item, groups[0] along n, [1] along m, [2] ranges of
 * k ("parts"), each `tile` long. */
typedef struct copse__gemm_cut {
    size_t tile_m, tile_n, tile_k;
    size_t groups[3];
} copse__gemm_cut;

/* m, n > 0. units: compute units. parts <= max_parts; the same bits for every m, n and
 * unit count as long as k and parts are the same. */
copse__gemm_cut copse__gemm_cut_at(const copse__packed_sizes *sizes, size_t m, size_t n,
                                   size_t k, size_t units, size_t max_parts);

/* Ranges of k that a product of this planned size is cut into. */
size_t copse__gemm_parts(const copse__packed_sizes *sizes, size_t m, size_t n, size_t k,
                         size_t units);

typedef enum copse__conv_pass {
    COPSE__CONV_FORWARD,
    COPSE__CONV_GRAD_INPUT,
    COPSE__CONV_GRAD_FILTER
} copse__conv_pass;

/* One convolution, by the forward pass' names. */
typedef struct copse__conv_size {
    size_t images, h, w, c; /* x */
    size_t p, q, f;         /* y */
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    size_t pad_top, pad_left;
    bool
        pooled; /* y is pooled by 2 x 2: p and q are even, and so are the sides of blocks */
} copse__conv_size;

typedef struct copse__conv_cut {
    copse_conv_shape shape;
    size_t groups[3];
    size_t pack_groups[2]; /* conv_pack_f32; 0 for the filter's gradient */
    size_t packed_floats;  /* its result */
    size_t parts;          /* filter's gradient: sums to be added; each k_rows x f */
} copse__conv_cut;

/* false: the convolution is outside what the kernels can do (a window larger than the
 * slab, too many taps, a size beyond int). images may be 0: then groups[0] is 0. */
bool copse__conv_cut_at(copse__conv_cut *out, const copse__packed_sizes *sizes,
                        copse__conv_pass pass, const copse__conv_size *size, size_t units,
                        size_t max_parts);

/* Sums that a filter gradient of this planned size is cut into. */
size_t copse__conv_parts(const copse__conv_size *size, size_t units);

/* Floats of transformed tiles that a block should have: more would crowd the second-level cache. */
#define COPSE__WINOGRAD_SLAB 81920

/* Likewise by Winograd's algorithm with tiles of outputs x outputs (2 or 4), 3 x 3 with stride 1:
 * shape.block_columns are tiles of a block. false also where channels are no whole vectors. */
bool copse__winograd_cut_at(copse__conv_cut *out, const copse__packed_sizes *sizes,
                            copse__conv_pass pass, const copse__conv_size *size,
                            size_t outputs, size_t units, size_t max_parts);

#endif
