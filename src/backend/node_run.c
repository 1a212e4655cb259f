/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/node_run.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* All bits set: a NaN as float and double, and no place, label or count that could be
 * right. */
#define POISON UINT32_MAX

enum { GUARD_BYTES = 256 };

/* A buffer with guards before and behind what the node may touch. */
typedef struct guarded {
    copse__buffer *buffer;
    copse__view whole, inner;
} guarded;

struct copse__node_run {
    copse__device *device;
    copse__node_spec spec;
    copse__graph *graph;
    guarded in[COPSE__MAX_INPUTS];
    guarded out[COPSE__MAX_OUTPUTS]; /* buffer NULL where in place */
    guarded workspace, scalars;
    copse__operands operands;
    copse__launch *launch;
};

size_t copse__node_operand_elements(const copse__node_operand *operand,
                                    const copse__extents *extents) {
    size_t elements = 1;
    for (size_t i = 0; i < operand->rank; i++)
        elements *= copse__dim_at(operand->dim[i], extents);
    return elements;
}

static size_t operand_bytes(const copse__node_operand *operand) {
    return copse__node_operand_elements(operand, NULL) *
           copse_dtype_bytes(operand->dtype);
}

static copse_status add_tensor(copse__node_run *run, const copse__node_operand *operand,
                               const char *side, size_t position, copse__tensor_id *out,
                               copse_error *err) {
    char name[32];
    *out = COPSE__NO_TENSOR;
    if (!operand->present)
        return COPSE_OK;
    snprintf(name, sizeof name, "%s%zu", side, position);
    return copse__graph_tensor(run->graph, name, operand->dtype, COPSE__ROLE_ACTIVATION,
                               operand->rank, operand->dim, out, err);
}

/* Its outputs are its inputs' very tensors where they are in place. */
static bool is_update(copse__op op) {
    return op == COPSE__OP_UPDATE_SGD || op == COPSE__OP_UPDATE_ADAM ||
           op == COPSE__OP_UPDATE_ADAMW || op == COPSE__OP_UPDATE_RMSPROP ||
           op == COPSE__OP_FINITE_CHECK;
}

static copse_status build_graph(copse__node_run *run, copse_error *err) {
    const copse__node_spec *spec = &run->spec;
    const copse__op_arity *arity = copse__op_arity_of(spec->op);
    char name[64];
    snprintf(name, sizeof name, "%s", copse__op_name(spec->op));
    copse__node node = {.name = name,
                        .op = spec->op,
                        .input_count = arity->inputs,
                        .output_count = arity->outputs,
                        .attrs = spec->attrs};
    copse_status status = copse__graph_new(&run->graph, err);
    for (size_t i = 0; i < node.input_count && status == COPSE_OK; i++)
        status = add_tensor(run, &spec->in[i], "in", i, &node.inputs[i], err);
    for (size_t i = 0; i < node.output_count && status == COPSE_OK; i++) {
        if (spec->in_place[i] && is_update(spec->op))
            node.outputs[i] = node.inputs[spec->in_place[i] - 1];
        else
            status = add_tensor(run, &spec->out[i], "out", i, &node.outputs[i], err);
    }
    if (status == COPSE_OK)
        status = copse__graph_node(run->graph, &node, err);
    return status;
}

static copse_status allocate(copse__node_run *run, guarded *to, size_t bytes,
                             copse_error *err) {
    size_t alignment = copse__device_get(run->device)->caps.view_alignment;
    size_t front = copse__round_up(GUARD_BYTES, alignment), whole;
    if (!copse__add_size(bytes, front + GUARD_BYTES + sizeof(uint32_t), &whole))
        return copse__fail_nomem(err, UINT64_MAX);
    whole = copse__round_up(bytes, sizeof(uint32_t)) + front + GUARD_BYTES;
    copse_status status =
        copse__backend_of(run->device)
            ->buffer_new(&to->buffer, run->device, whole, COPSE__MEMORY_DEVICE, err);
    to->whole = (copse__view){to->buffer, 0, whole};
    to->inner = (copse__view){to->buffer, front, bytes};
    return status;
}

static copse_status poison(copse__node_run *run, const guarded *what, copse_error *err) {
    return copse__backend_of(run->device)
        ->fill(run->device, COPSE__QUEUE_COMPUTE, what->whole, POISON, NULL, NULL, err);
}

static copse_status allocate_all(copse__node_run *run, copse_error *err) {
    const copse__node_spec *spec = &run->spec;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__MAX_INPUTS && status == COPSE_OK; i++) {
        if (!spec->in[i].present)
            continue;
        status = allocate(run, &run->in[i], operand_bytes(&spec->in[i]), err);
        run->operands.inputs[i] = run->in[i].inner;
        if (status == COPSE_OK)
            status = poison(run, &run->in[i], err);
    }
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS && status == COPSE_OK; i++) {
        if (spec->in_place[i]) {
            run->operands.outputs[i] = run->operands.inputs[spec->in_place[i] - 1];
        } else if (spec->out[i].present) {
            status = allocate(run, &run->out[i], operand_bytes(&spec->out[i]), err);
            run->operands.outputs[i] = run->out[i].inner;
        }
    }
    return status;
}

copse_status copse__node_run_new(copse__node_run **out, copse__device *device,
                                 const copse__node_spec *spec, copse_error *err) {
    const copse__backend *backend = copse__backend_of(device);
    copse__node_run *made = NULL;
    size_t workspace = 0;
    copse_status status;
    *out = NULL;
    COPSE__TRY(copse__calloc(&made, 1, sizeof *made, err), out);
    made->device = device;
    made->spec = *spec;
    COPSE__TRY(build_graph(made, err), out);
    const copse__node *node = &made->graph->nodes[0];
    COPSE__TRY(backend->supports(device, made->graph, node, &workspace, err), out);
    COPSE__TRY(allocate_all(made, err), out);
    if (workspace > 0)
        COPSE__TRY(allocate(made, &made->workspace, workspace, err), out);
    COPSE__TRY(allocate(made, &made->scalars, sizeof(copse_scalars), err), out);
    made->operands.workspace = made->workspace.inner;
    made->operands.scalars = made->scalars.inner;
    COPSE__TRY(backend->launch_new(&made->launch, device, made->graph, node,
                                   &made->operands, err),
               out);
    *out = made;
    made = NULL;
out:
    copse__node_run_free(made);
    return status;
}

void copse__node_run_free(copse__node_run *run) {
    if (!run)
        return;
    const copse__backend *backend = copse__backend_of(run->device);
    backend->launch_free(run->launch);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        backend->buffer_free(run->in[i].buffer);
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS; i++)
        backend->buffer_free(run->out[i].buffer);
    backend->buffer_free(run->workspace.buffer);
    backend->buffer_free(run->scalars.buffer);
    copse__graph_free(run->graph);
    free(run);
}

static copse_status write_and_wait(copse__node_run *run, copse__view to, const void *data,
                                   size_t bytes, copse_error *err) {
    const copse__backend *backend = copse__backend_of(run->device);
    if (bytes == 0)
        return COPSE_OK;
    copse_status status = backend->write(run->device, COPSE__QUEUE_COMPUTE, to, data,
                                         bytes, NULL, NULL, err);
    if (status == COPSE_OK)
        status = backend->finish(run->device, COPSE__QUEUE_COMPUTE, err);
    return status;
}

copse_status copse__node_run_set(copse__node_run *run, size_t input, const void *data,
                                 size_t elements, copse_error *err) {
    const copse__node_operand *operand = &run->spec.in[input];
    size_t bytes = elements * copse_dtype_bytes(operand->dtype);
    if (!operand->present || bytes > run->in[input].inner.bytes)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "input %zu does not hold %zu elements", input, elements);
    copse_status status = poison(run, &run->in[input], err);
    if (status == COPSE_OK)
        status = write_and_wait(run, run->in[input].inner, data, bytes, err);
    return status;
}

/* Whether the guards around an operand still hold their pattern. */
static copse_status check_guards(copse__node_run *run, const guarded *what,
                                 const char *side, size_t position, copse_error *err) {
    const copse__backend *backend = copse__backend_of(run->device);
    unsigned char *bytes = NULL;
    copse_status status;
    if (!what->buffer)
        return COPSE_OK;
    COPSE__TRY(copse__calloc(&bytes, what->whole.bytes, 1, err), out);
    COPSE__TRY(backend->read(run->device, COPSE__QUEUE_COMPUTE, bytes, what->whole,
                             what->whole.bytes, NULL, NULL, err),
               out);
    COPSE__TRY(backend->finish(run->device, COPSE__QUEUE_COMPUTE, err), out);
    for (size_t i = 0; i < what->whole.bytes; i++) {
        bool inside =
            i >= what->inner.offset && i - what->inner.offset < what->inner.bytes;
        if (inside || bytes[i] == 0xFF)
            continue;
        status = copse__fail(
            err, COPSE_KERNEL, 0, copse__device_get(run->device)->choice.label,
            "%s wrote outside of its %s %zu, at byte %td of %zu",
            copse__op_name(run->spec.op), side, position,
            (ptrdiff_t)i - (ptrdiff_t)what->inner.offset, what->inner.bytes);
        goto out;
    }
out:
    free(bytes);
    return status;
}

static copse_status check_all_guards(copse__node_run *run, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__MAX_INPUTS && status == COPSE_OK; i++)
        status = check_guards(run, &run->in[i], "input", i, err);
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS && status == COPSE_OK; i++)
        status = check_guards(run, &run->out[i], "output", i, err);
    if (status == COPSE_OK)
        status = check_guards(run, &run->workspace, "workspace", 0, err);
    return status;
}

copse_status copse__node_run_go(copse__node_run *run, const copse__extents *extents,
                                const copse_scalars *scalars, copse_error *err) {
    const copse__backend *backend = copse__backend_of(run->device);
    copse_status status;
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS; i++)
        if (run->out[i].buffer)
            COPSE__TRY(poison(run, &run->out[i], err), out);
    if (run->workspace.buffer)
        COPSE__TRY(poison(run, &run->workspace, err), out);
    COPSE__TRY(
        write_and_wait(run, run->scalars.inner, scalars, sizeof(copse_scalars), err),
        out);
    COPSE__TRY(backend->run(run->device, &run->launch, 1, extents, err), out);
    COPSE__TRY(backend->finish(run->device, COPSE__QUEUE_COMPUTE, err), out);
    status = check_all_guards(run, err);
out:
    return status;
}

copse_status copse__node_run_get(copse__node_run *run, size_t output, void *data,
                                 size_t elements, copse_error *err) {
    const copse__backend *backend = copse__backend_of(run->device);
    copse__view view = run->operands.outputs[output];
    uint8_t place = run->spec.in_place[output];
    const copse__node_operand *operand = place && !run->spec.out[output].present
                                             ? &run->spec.in[place - 1]
                                             : &run->spec.out[output];
    size_t bytes = elements * copse_dtype_bytes(operand->dtype);
    if (!view.buffer || bytes > view.bytes)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "output %zu does not hold %zu elements", output, elements);
    if (bytes == 0)
        return COPSE_OK;
    copse_status status = backend->read(run->device, COPSE__QUEUE_COMPUTE, data, view,
                                        bytes, NULL, NULL, err);
    if (status == COPSE_OK)
        status = backend->finish(run->device, COPSE__QUEUE_COMPUTE, err);
    return status;
}

enum { LEAST_SAMPLES = 5, MOST_SAMPLES = 1000, MOST_LAUNCHES = 1000 };

copse_status copse__node_run_sample(double *us, copse__node_run *run,
                                    const copse__extents *extents, size_t launches,
                                    copse_error *err) {
    const copse__backend *backend = copse__backend_of(run->device);
    copse_status status = COPSE_OK;
    uint64_t start = copse__now_ns();
    for (size_t i = 0; i < launches && status == COPSE_OK; i++)
        status = backend->run(run->device, &run->launch, 1, extents, err);
    if (status == COPSE_OK)
        status = backend->finish(run->device, COPSE__QUEUE_COMPUTE, err);
    *us = (double)(copse__now_ns() - start) * 1e-3 / (double)launches;
    return status;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

copse_status copse__node_run_time(copse__node_time *out, copse__node_run *run,
                                  const copse__extents *extents, double seconds,
                                  copse_error *err) {
    double *us = NULL, first = 0;
    copse_status status;
    *out = (copse__node_time){.launches = 1};
    COPSE__TRY(copse__calloc(&us, MOST_SAMPLES, sizeof *us, err), out);
    COPSE__TRY(copse__node_run_sample(&first, run, extents, 1, err), out);
    COPSE__TRY(copse__node_run_sample(&first, run, extents, 1, err), out);
    if (first < 1000)
        out->launches = (size_t)(1000 / (first > 1 ? first : 1)) + 1;
    if (out->launches > MOST_LAUNCHES)
        out->launches = MOST_LAUNCHES;
    uint64_t start = copse__now_ns();
    while (out->samples < LEAST_SAMPLES ||
           (out->samples < MOST_SAMPLES &&
            (double)(copse__now_ns() - start) * 1e-9 < seconds))
        COPSE__TRY(
            copse__node_run_sample(&us[out->samples++], run, extents, out->launches, err),
            out);
    qsort(us, out->samples, sizeof *us, compare_doubles);
    out->min_us = us[0];
    out->median_us = us[out->samples / 2];
    out->max_us = us[out->samples - 1];
out:
    free(us);
    return status;
}

double copse__node_run_flops(const copse__node_run *run, const copse__extents *extents) {
    return copse__node_flops(run->graph, &run->graph->nodes[0], extents);
}

const char *copse__node_run_provider(const copse__node_run *run) {
    return copse__backend_of(run->device)->launch_provider(run->launch);
}

const char *copse__node_run_parameters(const copse__node_run *run) {
    const copse__backend *backend = copse__backend_of(run->device);
    return backend->launch_parameters ? backend->launch_parameters(run->launch) : "";
}

void copse__node_run_candidates(const copse__node_run *run, copse__effort effort,
                                copse__candidate_fn *fn, void *user) {
    copse__backend_of(run->device)
        ->candidates(run->device, run->graph, &run->graph->nodes[0], effort, fn, user);
}
