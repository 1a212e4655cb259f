/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/clblast.h"

#include <clblast_c.h>
#include <string.h>

#include "backend/clblast_sizes.h"
#include "backend/opencl/ops.h"

/* Row-major C = A B is column-major C' = B' A': the operands change places, and what is
 * stored row-major needs no transposition there. */
typedef struct call {
    CLBlastTranspose first, second; /* of b, of a */
    size_t ld_a, ld_b;
} call;

static call call_of(copse__cl_layout layout, size_t m, size_t n, size_t k) {
    switch (layout) {
    case COPSE__CL_NT:
        return (call){CLBlastTransposeYes, CLBlastTransposeNo, k, k};
    case COPSE__CL_TN:
        return (call){CLBlastTransposeNo, CLBlastTransposeYes, m, n};
    default:
        return (call){CLBlastTransposeNo, CLBlastTransposeNo, k, n};
    }
}

static copse_status clblast_failed(copse_error *err, const copse__device *device,
                                   CLBlastStatusCode code, const char *what) {
    if (code == CLBlastTempBufferAllocFailure || code == CLBlastOpenCLOutOfHostMemory)
        return copse__cl_fail(err, device, (cl_int)code, what);
    if (code == CLBlastOpenCLBuildProgramFailure || code == CLBlastInvalidLocalMemUsage ||
        code == CLBlastInvalidLocalThreadsTotal || code == CLBlastInvalidLocalThreadsDim)
        return copse__fail(err, COPSE_KERNEL, (int)code, device->place,
                           "CLBlast's kernels do not run here (%s, %d); use the provider "
                           "\"tiled\"",
                           what, (int)code);
    return copse__fail(err, COPSE_DEVICE, (int)code, device->place,
                       "CLBlast failed in %s: %s (%d)", what,
                       copse__cl_code_name((cl_int)code), (int)code);
}

/* A product of one element builds the one program that all sizes share. On a queue of its
 * own, as any thread may prepare a launch. */
static copse_status build(copse__device *device, copse_error *err) {
    copse_status status = COPSE_OK;
    cl_command_queue queue = NULL;
    copse__buffer *scratch = NULL;
    cl_int code;
    COPSE__TRY(copse__cl_buffer_new(&scratch, device, 64, COPSE__MEMORY_DEVICE, err),
               out);
    queue = clCreateCommandQueue(device->context, device->id, 0, &code);
    COPSE__CL_TRY(device, code, "clCreateCommandQueue", out);
    CLBlastStatusCode blas =
        CLBlastSgemm(CLBlastLayoutColMajor, CLBlastTransposeNo, CLBlastTransposeNo, 1, 1,
                     1, 0.0f, scratch->memory, 0, 1, scratch->memory, 4, 1, 0.0f,
                     scratch->memory, 8, 1, &queue, NULL);
    if (blas != CLBlastSuccess) {
        status = clblast_failed(err, device, blas, "building");
        goto out;
    }
    COPSE__CL_TRY(device, clFinish(queue), "clFinish", out);
out:
    if (queue)
        clReleaseCommandQueue(queue);
    copse__cl_buffer_free(scratch);
    return status;
}

copse_status copse__cl_clblast_ready(copse__device *device, copse_error *err) {
    copse_status status = COPSE_OK;
    pthread_mutex_lock(&device->clblast_lock);
    if (!device->clblast_ready) {
        device->clblast_used = true;
        status = build(device, err);
        device->clblast_ready = status == COPSE_OK;
    }
    pthread_mutex_unlock(&device->clblast_lock);
    return status;
}

/* The kernels of a product, and what CLBlast calls their parameters. */
enum { MOST_PARAMETERS = 16 };
static const struct {
    const char *kernel, *names[MOST_PARAMETERS + 1];
    bool (*can_be)(const size_t *values); /* NULL: with any */
} kernels[] = {
    {"Xgemm",
     {"GEMMK", "KREG", "KWG", "KWI", "MDIMA", "MDIMC", "MWG", "NDIMB", "NDIMC", "NWG",
      "SA", "SB", "STRM", "STRN", "VWM", "VWN"},
     copse__clblast_xgemm_can_be},
    {"XgemmDirect",
     {"KWID", "MDIMAD", "MDIMCD", "NDIMBD", "NDIMCD", "PADA", "PADB", "VWMD", "VWND",
      "WGD"},
     copse__clblast_direct_can_be},
    {"GemmRoutine", {"XGEMM_MIN_INDIRECT_SIZE"}, NULL},
};

static copse_status read_override(size_t *kernel, size_t *count,
                                  size_t values[MOST_PARAMETERS], const char *name,
                                  const char *parameters, copse_error *err) {
    *count = 0;
    for (*kernel = 0; *kernel < COPSE__COUNT(kernels); ++*kernel)
        if (strcmp(kernels[*kernel].kernel, name) == 0)
            break;
    if (*kernel == COPSE__COUNT(kernels))
        return copse__fail(err, COPSE_INVALID, 0, NULL, "CLBlast has no such kernel");
    while (kernels[*kernel].names[*count])
        values[(*count)++] = SIZE_MAX;
    bool whole =
        copse__parameters_read(parameters, kernels[*kernel].names, values, *count);
    for (size_t i = 0; i < *count; i++)
        whole &= values[i] != SIZE_MAX;
    if (!whole)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "CLBlast's kernel has other parameters");
    if (kernels[*kernel].can_be && !kernels[*kernel].can_be(values))
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "CLBlast's kernel cannot be built so");
    return COPSE_OK;
}

copse_status copse__cl_clblast_override(copse__device *device, const char *kernel,
                                        const char *parameters, copse_error *err) {
    size_t which, count, values[MOST_PARAMETERS];
    copse_status status = read_override(&which, &count, values, kernel, parameters, err);
    if (status != COPSE_OK)
        return status;
    pthread_mutex_lock(&device->clblast_lock);
    CLBlastStatusCode code =
        CLBlastOverrideParameters(device->id, kernel, CLBlastPrecisionSingle, count,
                                  (const char **)(size_t)kernels[which].names, values);
    device->clblast_ready = false;
    pthread_mutex_unlock(&device->clblast_lock);
    return code == CLBlastSuccess
               ? COPSE_OK
               : copse__fail(err, COPSE_INVALID, (int)code, device->place,
                             "CLBlast does not take them (%d)", (int)code);
}

void copse__cl_clblast_forget(copse__device *device) {
    if (device->clblast_used)
        CLBlastClearCache();
}

static CLBlastStatusCode temporary_bytes(size_t *bytes, copse__device *device,
                                         copse__cl_layout layout, size_t m, size_t n,
                                         size_t k) {
    call how = call_of(layout, m, n, k);
    return CLBlastSGemmTempBufferSize(CLBlastLayoutColMajor, how.first, how.second, n, m,
                                      k, 0, how.ld_b, 0, how.ld_a, 0, n,
                                      &device->queues[COPSE__QUEUE_COMPUTE], bytes);
}

/* Sizes that fill tiles need no padded copies, and those one smaller do. */
copse_status copse__cl_clblast_temporary(size_t *bytes, copse__device *device,
                                         copse__cl_layout layout, size_t m, size_t n,
                                         size_t k, copse_error *err) {
    *bytes = 0;
    if (m == 0 || n == 0 || k == 0)
        return COPSE_OK;
    for (size_t less = 0; less < 4; less++) {
        size_t some = 0;
        size_t rows = copse__max_size(m - (less & 1), 1);
        size_t depth = copse__max_size(k - (less >> 1), 1);
        CLBlastStatusCode code = temporary_bytes(&some, device, layout, rows, n, depth);
        if (code != CLBlastSuccess)
            return clblast_failed(err, device, code, "CLBlastSGemmTempBufferSize");
        *bytes = copse__max_size(*bytes, some);
    }
    return COPSE_OK;
}

copse_status copse__cl_clblast_gemm(copse__launch *launch, copse__cl_layout layout,
                                    size_t m, size_t n, size_t k, copse__cl_matrix a,
                                    copse__cl_matrix b, copse__cl_matrix c, float beta,
                                    copse__view temporary, copse_error *err) {
    copse__device *device = launch->device;
    call how = call_of(layout, m, n, k);
    cl_command_queue *queue = &device->queues[COPSE__QUEUE_COMPUTE];
    cl_event event = NULL, *noted = device->profile ? &event : NULL;
    cl_mem scratch = NULL;
    size_t need = 0;
    CLBlastStatusCode code = temporary_bytes(&need, device, layout, m, n, k);
    if (code == CLBlastSuccess && need > 0 && need <= temporary.bytes) {
        copse_status status = copse__cl_view_memory(&scratch, temporary, err);
        if (status != COPSE_OK)
            return status;
    }
    if (code == CLBlastSuccess && scratch)
        code = CLBlastSgemmWithTempBuffer(CLBlastLayoutColMajor, how.first, how.second, n,
                                          m, k, 1.0f, b.memory, b.offset, how.ld_b,
                                          a.memory, a.offset, how.ld_a, beta, c.memory,
                                          c.offset, n, queue, noted, scratch);
    else if (code == CLBlastSuccess)
        code = CLBlastSgemm(CLBlastLayoutColMajor, how.first, how.second, n, m, k, 1.0f,
                            b.memory, b.offset, how.ld_b, a.memory, a.offset, how.ld_a,
                            beta, c.memory, c.offset, n, queue, noted);
    if (code != CLBlastSuccess)
        return clblast_failed(err, device, code, launch->node->name);
    copse__cl_note_event(launch, event);
    return COPSE_OK;
}

/* DENSE, DENSE_GRAD_INPUT, DENSE_GRAD_WEIGHT */

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    (void)graph;
    (void)node;
    return device->base.caps.cpu ? 5 : 0.5;
}

static copse_status workspace(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    return copse__cl_clblast_temporary(bytes, device, p.layout, p.m, p.n, p.k, err);
}

static copse_status prepare(copse__launch *launch, copse_error *err) {
    copse__cl_product p =
        copse__cl_dense_product(launch->graph, launch->node, &launch->operands, NULL);
    uint32_t has_bias = p.bias.buffer != NULL;
    copse_status status = copse__cl_clblast_ready(launch->device, err);
    if (status != COPSE_OK || (!has_bias && p.act == COPSE__ACT_NONE))
        return status;
    status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                  "bias_act_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &p.c, &p.bias);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 3, err, "uuu", (uint32_t)p.n, has_bias,
                                (uint32_t)p.act);
    return status;
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    copse__cl_product p =
        copse__cl_dense_product(launch->graph, launch->node, &launch->operands, extents);
    copse__cl_matrix a = {0}, b = {0}, c = {0};
    copse_status status = COPSE_OK;
    if (p.m == 0 || p.n == 0)
        return COPSE_OK;
    if (p.k == 0)
        return copse__cl_enqueue_zero(launch, p.c, p.m * p.n * sizeof(float), err);
    COPSE__TRY(copse__cl_view_memory(&a.memory, p.a, err), out);
    COPSE__TRY(copse__cl_view_memory(&b.memory, p.b, err), out);
    COPSE__TRY(copse__cl_view_memory(&c.memory, p.c, err), out);
    COPSE__TRY(copse__cl_clblast_gemm(launch, p.layout, p.m, p.n, p.k, a, b, c, 0.0f,
                                      launch->operands.workspace, err),
               out);
    if (launch->kernel_count == 0)
        goto out;
    if (changed)
        COPSE__TRY(copse__cl_args(launch, 0, 2, err, "z", p.m), out);
    size_t items = launch->device->base.caps.cpu ? p.m : p.m * p.n;
    status = copse__cl_enqueue_flat(launch, 0, items, p.n / 16 + 16, err);
out:
    return status;
}

const copse__cl_provider copse__cl_dense_clblast = {.name = "clblast",
                                                    .from_library = true,
                                                    .fits = copse__cl_dense_fits,
                                                    .cost = cost,
                                                    .workspace = workspace,
                                                    .prepare = prepare,
                                                    .enqueue = enqueue};
