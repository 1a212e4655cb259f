/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_CLBLAST_H
#define COPSE_BACKEND_OPENCL_CLBLAST_H

#include "backend/opencl/gemm.h"

/* CLBlast's GEMM. Its headers are included in clblast.c alone. */

/* Has CLBlast build its programs for this device (it keeps them): seconds the first time.
 * Thread-safe. */
copse_status copse__cl_clblast_ready(copse__device *device, copse_error *err);

/* Has CLBlast build its kernel "Xgemm", "XgemmDirect" or "GemmRoutine" with these parameters ("MWG=64 …", all that it
 * has) for this device from now on, in this process. COPSE_INVALID where it does not take them. */
copse_status copse__cl_clblast_override(copse__device *device, const char *kernel,
                                        const char *parameters, copse_error *err);

/* Bytes of temporary memory that a product of these sizes, or of any smaller m and k, is
 * best given. */
copse_status copse__cl_clblast_temporary(size_t *bytes, copse__device *device,
                                         copse__cl_layout layout, size_t m, size_t n,
                                         size_t k, copse_error *err);

/* Memory of one operand: offset in elements. Anything but 0 makes CLBlast copy it. */
typedef struct copse__cl_matrix {
    cl_mem memory;
    size_t offset;
} copse__cl_matrix;

/* Enqueues c = A B + beta c for m, n, k > 0. temporary may be absent: then CLBlast allocates
 * for itself. */
copse_status copse__cl_clblast_gemm(copse__launch *launch, copse__cl_layout layout,
                                    size_t m, size_t n, size_t k, copse__cl_matrix a,
                                    copse__cl_matrix b, copse__cl_matrix c, float beta,
                                    copse__view temporary, copse_error *err);

#endif
