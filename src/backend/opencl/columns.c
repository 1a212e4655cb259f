/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/clblast.h"
#include "backend/opencl/ops.h"
#include "backend/opencl/window.h"

/* Convolutions as CLBlast's products with a column matrix, made for some images at a time
 * in the workspace: first the columns, then what CLBlast wants for itself. */

#define MOST_COLUMN_BYTES ((size_t)64 << 20)

/* Sizes of one node. */
typedef struct columns_plan {
    copse_window g;
    size_t places; /* of a map: p * q */
    size_t depth;  /* r * s * c */
    size_t images; /* a pass works on */
    size_t column_bytes, temporary_bytes;
    bool pointwise; /* 1 x 1: the image itself is the matrix */
} columns_plan;

static copse__cl_layout layout_of(copse__op op) {
    return op == COPSE__OP_CONV2D              ? COPSE__CL_NN
           : op == COPSE__OP_CONV2D_GRAD_INPUT ? COPSE__CL_NT
                                               : COPSE__CL_TN;
}

/* m, n, k of the product over this many images. */
static void product_of(const columns_plan *plan, copse__op op, size_t images, size_t *m,
                       size_t *n, size_t *k) {
    size_t pixels = images * plan->places;
    *m = op == COPSE__OP_CONV2D_GRAD_FILTER ? plan->depth : pixels;
    *n = op == COPSE__OP_CONV2D_GRAD_INPUT ? plan->depth : plan->g.f;
    *k = op == COPSE__OP_CONV2D               ? plan->depth
         : op == COPSE__OP_CONV2D_GRAD_FILTER ? pixels
                                              : plan->g.f;
}

static size_t gcd(size_t a, size_t b) {
    return b == 0 ? a : gcd(b, a % b);
}

/* Whether one image's columns fit. Fills all but temporary_bytes. */
static bool make_plan(columns_plan *plan, const copse__device *device,
                      const copse__graph *graph, const copse__node *node) {
    const copse__caps *caps = &device->base.caps;
    copse_window g = copse__cl_window(graph, node);
    size_t planned = copse__cl_images(graph, node, NULL), bytes;
    *plan = (columns_plan){.g = g};
    plan->pointwise = g.r == 1 && g.s == 1 && g.stride_h == 1 && g.stride_w == 1 &&
                      g.pad_top == 0 && g.pad_left == 0 && g.p == g.h && g.q == g.w;
    plan->places = (size_t)g.p * g.q;
    if (!copse__mul_size((size_t)g.r * g.s, g.c, &plan->depth) ||
        !copse__mul_size(plan->places, plan->depth, &bytes) ||
        !copse__mul_size(bytes, sizeof(float), &bytes) ||
        bytes > caps->max_alloc_bytes / 2 || plan->depth >= INT32_MAX)
        return false;
    size_t most = copse__min_size(MOST_COLUMN_BYTES, caps->max_alloc_bytes / 2);
    size_t images = copse__max_size(most / copse__max_size(bytes, 1), 1);
    if (plan->pointwise)
        images = planned;
    /* passes begin where a view of the map may begin: else CLBlast copies it */
    size_t step =
        caps->view_alignment /
        gcd(caps->view_alignment, copse__max_size(plan->places * g.f * sizeof(float), 1));
    if (images > step)
        images -= images % step;
    plan->images = copse__max_size(copse__min_size(images, planned), 1);
    plan->column_bytes =
        plan->pointwise ? 0 : copse__round_up(plan->images * bytes, caps->view_alignment);
    return plan->images <= INT32_MAX / copse__max_size(plan->places, 1);
}

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    columns_plan plan;
    if (!copse__cl_window_fits(graph, node, reason))
        return false;
    *reason = "the column matrix of one image is too large";
    return make_plan(&plan, device, graph, node);
}

/* A filter's gradient sums over all pixels in one tile of the product: a small filter has
 * too few tiles to keep a device busy. */
#define LEAST_FILTER ((size_t)64 * 64 * 16)

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    copse_window g = copse__cl_window(graph, node);
    if (device->base.caps.cpu)
        return 6;
    if (node->op == COPSE__OP_CONV2D_GRAD_FILTER &&
        (size_t)g.r * g.s * g.c * g.f < LEAST_FILTER)
        return 2;
    return 0.5;
}

static copse_status temporary(columns_plan *plan, copse__device *device,
                              const copse__node *node, copse_error *err) {
    size_t m, n, k;
    product_of(plan, node->op, plan->images, &m, &n, &k);
    return copse__cl_clblast_temporary(&plan->temporary_bytes, device,
                                       layout_of(node->op), m, n, k, err);
}

static copse_status workspace(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    columns_plan plan;
    if (!make_plan(&plan, device, graph, node))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s: the column matrix of one image is too large", node->name);
    copse_status status = temporary(&plan, device, node, err);
    *bytes = plan.column_bytes + plan.temporary_bytes;
    return status;
}

enum { COLUMNS, EPILOGUE };

static copse_status prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    const copse__node *node = launch->node;
    bool backward = node->op == COPSE__OP_CONV2D_GRAD_INPUT;
    columns_plan *plan;
    copse__view bias = {0}, columns = {o->workspace.buffer, o->workspace.offset, 0};
    copse_status status = copse__calloc(&plan, 1, sizeof *plan, err);
    if (status != COPSE_OK)
        return status;
    launch->state = plan;
    make_plan(plan, launch->device, launch->graph, node);
    columns.bytes = plan->column_bytes;
    COPSE__TRY(temporary(plan, launch->device, node, err), out);
    COPSE__TRY(copse__cl_clblast_ready(launch->device, err), out);
    COPSE__TRY(copse__cl_kernel_add(
                   launch, NULL, &copse__cl_source_columns, "",
                   backward ? "image_from_columns_f32" : "columns_from_image_f32", err),
               out);
    if (!plan->pointwise) {
        COPSE__TRY(copse__cl_args(launch, COLUMNS, 0, err, "vv",
                                  backward ? &columns : &o->inputs[0],
                                  backward ? &o->outputs[0] : &columns),
                   out);
        COPSE__TRY(copse__cl_arg_window(launch, COLUMNS, 2, &plan->g, err), out);
    }
    if (node->op != COPSE__OP_CONV2D)
        goto out;
    bool has_bias = copse__cl_input(launch->graph, node, 2) != NULL;
    if (has_bias)
        bias = o->inputs[2];
    COPSE__TRY(copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                    "bias_act_f32", err),
               out);
    COPSE__TRY(copse__cl_args(launch, EPILOGUE, 0, err, "vv", &o->outputs[0], &bias),
               out);
    status = copse__cl_args(launch, EPILOGUE, 3, err, "uuu", plan->g.f,
                            (uint32_t)has_bias, (uint32_t)node->attrs.act);
out:
    return status;
}

/* The part of a tensor that begins `elements` into it, as CLBlast likes it: a view of its
 * own where one may begin there, else an offset. Views are those of the planned passes, so
 * that their number is bounded whatever the batch. */
static copse_status part_of(copse__cl_matrix *out, const copse__launch *launch,
                            copse__view view, size_t elements, size_t planned,
                            copse_error *err) {
    size_t skip = elements * sizeof(float);
    out->offset = 0;
    if (skip % launch->device->base.caps.view_alignment != 0) {
        out->offset = elements;
        return copse__cl_view_memory(&out->memory, view, err);
    }
    if (skip > 0) {
        view.offset += skip;
        view.bytes = copse__min_size(planned * sizeof(float), view.bytes - skip);
    }
    return copse__cl_view_memory(&out->memory, view, err);
}

static copse_status move_columns(copse__launch *launch, size_t first, size_t images,
                                 copse_error *err) {
    const columns_plan *plan = launch->state;
    const copse_window *g = &plan->g;
    bool chunked = launch->device->base.caps.cpu;
    size_t taps = (size_t)g->r * g->s;
    size_t items, steps;
    if (launch->node->op == COPSE__OP_CONV2D_GRAD_INPUT) {
        items = images * g->h * g->w * (chunked ? 1 : g->c);
        steps = taps * g->c;
    } else {
        items = images * plan->places * taps * (chunked ? 1 : g->c);
        steps = g->c;
    }
    copse_status status = copse__cl_args(launch, COLUMNS, 3, err, "zz", first, images);
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, COLUMNS, items, steps, err);
    return status;
}

/* Columns and product of images [first, first + images). */
static copse_status pass(copse__launch *launch, size_t first, size_t images,
                         copse_error *err) {
    const columns_plan *plan = launch->state;
    const copse__operands *o = &launch->operands;
    copse__op op = launch->node->op;
    size_t m, n, k;
    copse__view spare = o->workspace;
    copse__cl_matrix columns = {0}, map = {0}, filter = {0};
    const copse__view *image = op == COPSE__OP_CONV2D_GRAD_INPUT ? o->outputs : o->inputs;
    copse_status status = COPSE_OK;
    product_of(plan, op, images, &m, &n, &k);
    if (plan->pointwise) {
        COPSE__TRY(copse__cl_view_memory(&columns.memory, *image, err), out);
    } else {
        copse__view view = {spare.buffer, spare.offset, plan->column_bytes};
        COPSE__TRY(copse__cl_view_memory(&columns.memory, view, err), out);
    }
    spare.offset += plan->column_bytes;
    spare.bytes = plan->temporary_bytes;
    if (!plan->pointwise && op != COPSE__OP_CONV2D_GRAD_INPUT)
        COPSE__TRY(move_columns(launch, first, images, err), out);
    const copse__view *of_map = op == COPSE__OP_CONV2D               ? &o->outputs[0]
                                : op == COPSE__OP_CONV2D_GRAD_FILTER ? &o->inputs[1]
                                                                     : &o->inputs[0];
    const copse__view *of_filter =
        op == COPSE__OP_CONV2D_GRAD_FILTER ? &o->outputs[0] : &o->inputs[1];
    COPSE__TRY(part_of(&map, launch, *of_map, first * plan->places * plan->g.f,
                       plan->images * plan->places * plan->g.f, err),
               out);
    COPSE__TRY(copse__cl_view_memory(&filter.memory, *of_filter, err), out);
    if (op == COPSE__OP_CONV2D)
        status = copse__cl_clblast_gemm(launch, COPSE__CL_NN, m, n, k, columns, filter,
                                        map, 0.0f, spare, err);
    else if (op == COPSE__OP_CONV2D_GRAD_FILTER)
        status = copse__cl_clblast_gemm(launch, COPSE__CL_TN, m, n, k, columns, map,
                                        filter, first > 0 ? 1.0f : 0.0f, spare, err);
    else
        status = copse__cl_clblast_gemm(launch, COPSE__CL_NT, m, n, k, map, filter,
                                        columns, 0.0f, spare, err);
    if (status == COPSE_OK && !plan->pointwise && op == COPSE__OP_CONV2D_GRAD_INPUT)
        status = move_columns(launch, first, images, err);
out:
    return status;
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    const columns_plan *plan = launch->state;
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    size_t rows = images * plan->places;
    copse__op op = launch->node->op;
    copse_status status = COPSE_OK;
    if (images == 0)
        return op == COPSE__OP_CONV2D_GRAD_FILTER
                   ? copse__cl_enqueue_zero(launch, launch->operands.outputs[0],
                                            plan->depth * plan->g.f * sizeof(float), err)
                   : COPSE_OK;
    for (size_t at = 0; at < images && status == COPSE_OK; at += plan->images)
        status = pass(launch, at, copse__min_size(plan->images, images - at), err);
    bool plain = launch->node->attrs.act == COPSE__ACT_NONE &&
                 !copse__cl_input(launch->graph, launch->node, 2);
    if (status != COPSE_OK || op != COPSE__OP_CONV2D || plain)
        return status;
    if (changed)
        status = copse__cl_args(launch, EPILOGUE, 2, err, "z", rows);
    if (status != COPSE_OK)
        return status;
    size_t items = launch->device->base.caps.cpu ? rows : rows * plan->g.f;
    return copse__cl_enqueue_flat(launch, EPILOGUE, items, plan->g.f / 16 + 16, err);
}

const copse__cl_provider copse__cl_conv2d_columns = {.name = "clblast",
                                                     .from_library = true,
                                                     .fits = fits,
                                                     .cost = cost,
                                                     .workspace = workspace,
                                                     .prepare = prepare,
                                                     .enqueue = enqueue};
