/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/program.h"

#include <stdlib.h>

#include "base/mem.h"

struct copse__program {
    const copse__graph *graph;
    const copse__plan *plan;
    copse__store *store;
    copse__device *device;
    const copse__backend *backend;
    copse__buffer *inputs[COPSE__INPUT_SLOTS], *labels[COPSE__INPUT_SLOTS];
    copse__fence *uploaded[COPSE__INPUT_SLOTS];  /* NULL: nothing to wait for */
    copse__fence *collected[COPSE__INPUT_SLOTS]; /* the end of the slot's last run */
    copse__buffer *metrics, *stats;              /* on the device */
    copse__buffer *metrics_host[COPSE__INPUT_SLOTS], *stats_host[COPSE__INPUT_SLOTS];
    /* By slot and node. A node that touches no input slot has one launch, used by both. */
    copse__launch **launches[COPSE__INPUT_SLOTS];
};

static copse__view view_of(const copse__program *p, copse__placement at, size_t slot) {
    copse__buffer *buffer = NULL;
    switch (at.home) {
    case COPSE__HOME_NONE:
        break;
    case COPSE__HOME_ARENA:
        buffer = p->store->blocks[at.block];
        break;
    case COPSE__HOME_WEIGHT:
        buffer = p->store->weights[at.block];
        break;
    case COPSE__HOME_GRADIENT:
        buffer = p->store->gradients[at.block];
        break;
    case COPSE__HOME_STATE:
        buffer = p->store->state;
        break;
    case COPSE__HOME_STATS:
        buffer = p->stats;
        break;
    case COPSE__HOME_INPUT:
        buffer = p->inputs[slot];
        break;
    case COPSE__HOME_LABEL:
        buffer = p->labels[slot];
        break;
    case COPSE__HOME_METRIC:
        buffer = p->metrics;
        break;
    }
    return (copse__view){.buffer = buffer, .offset = at.offset, .bytes = at.bytes};
}

static copse__view tensor_view(const copse__program *p, copse__tensor_id id,
                               size_t slot) {
    return id == COPSE__NO_TENSOR ? (copse__view){0}
                                  : view_of(p, p->plan->tensors[id], slot);
}

static bool touches_input(const copse__program *p, const copse__node *node) {
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == COPSE__NO_TENSOR)
            continue;
        copse__home home = p->plan->tensors[node->inputs[i]].home;
        if (home == COPSE__HOME_INPUT || home == COPSE__HOME_LABEL)
            return true;
    }
    return false;
}

static copse_status prepare_node(copse__program *p, size_t n, size_t slot,
                                 copse_error *err) {
    const copse__node *node = &p->graph->nodes[n];
    copse__operands operands = {
        .workspace = view_of(p, p->plan->workspaces[n], slot),
        .scalars = {.buffer = p->store->scalars, .bytes = sizeof(copse_scalars)},
    };
    for (size_t i = 0; i < node->input_count; i++)
        operands.inputs[i] = tensor_view(p, node->inputs[i], slot);
    for (size_t o = 0; o < node->output_count; o++)
        operands.outputs[o] = tensor_view(p, node->outputs[o], slot);
    return p->backend->launch_new(&p->launches[slot][n], p->device, p->graph, node,
                                  &operands, err);
}

static copse_status prepare(copse__program *p, copse_error *err) {
    for (size_t slot = 0; slot < COPSE__INPUT_SLOTS; slot++) {
        copse_status status = copse__calloc(&p->launches[slot], p->graph->node_count,
                                            sizeof *p->launches[slot], err);
        for (size_t n = 0; n < p->graph->node_count && status == COPSE_OK; n++)
            if (slot > 0 && !touches_input(p, &p->graph->nodes[n]))
                p->launches[slot][n] = p->launches[0][n];
            else
                status = prepare_node(p, n, slot, err);
        if (status != COPSE_OK)
            return status;
    }
    return COPSE_OK;
}

static copse_status new_buffer(copse__program *p, copse__buffer **out, size_t bytes,
                               copse__memory memory, copse_error *err) {
    if (bytes == 0)
        return COPSE_OK;
    return p->backend->buffer_new(out, p->device, copse__round_up(bytes, 4), memory, err);
}

copse__memory_bytes copse__program_bytes(const copse__plan *plan) {
    size_t metrics = copse__memory_lines(plan->metric_bytes);
    size_t stats = copse__memory_lines(plan->stats_bytes);
    size_t inputs = copse__memory_lines(plan->input_bytes);
    size_t labels = copse__memory_lines(plan->label_bytes);
    return (copse__memory_bytes){.device = COPSE__INPUT_SLOTS * (inputs + labels) +
                                           metrics + stats,
                                 .pinned = COPSE__INPUT_SLOTS * (metrics + stats)};
}

copse_status copse__program_new(copse__program **out, const copse__graph *graph,
                                const copse__plan *plan, copse__store *store,
                                copse_error *err) {
    *out = NULL;
    copse__program *p;
    copse_status status = copse__calloc(&p, 1, sizeof *p, err);
    if (status != COPSE_OK)
        return status;
    p->graph = graph;
    p->plan = plan;
    p->store = store;
    p->device = store->device;
    p->backend = copse__backend_of(store->device);
    const copse__memory device = COPSE__MEMORY_DEVICE, staging = COPSE__MEMORY_STAGING;
    for (size_t slot = 0; slot < COPSE__INPUT_SLOTS; slot++) {
        COPSE__TRY(new_buffer(p, &p->inputs[slot], plan->input_bytes, device, err), fail);
        COPSE__TRY(new_buffer(p, &p->labels[slot], plan->label_bytes, device, err), fail);
        COPSE__TRY(
            new_buffer(p, &p->metrics_host[slot], plan->metric_bytes, staging, err),
            fail);
        COPSE__TRY(new_buffer(p, &p->stats_host[slot], plan->stats_bytes, staging, err),
                   fail);
    }
    COPSE__TRY(new_buffer(p, &p->metrics, plan->metric_bytes, device, err), fail);
    COPSE__TRY(new_buffer(p, &p->stats, plan->stats_bytes, device, err), fail);
    COPSE__TRY(prepare(p, err), fail);
    *out = p;
    return COPSE_OK;
fail:
    copse__program_free(p);
    return status;
}

void copse__program_free(copse__program *p) {
    if (!p)
        return;
    for (size_t n = 0; n < p->graph->node_count; n++)
        for (size_t slot = 0; slot < COPSE__INPUT_SLOTS; slot++)
            if (p->launches[slot] && (slot == 0 || !p->launches[0] ||
                                      p->launches[slot][n] != p->launches[0][n]))
                p->backend->launch_free(p->launches[slot][n]);
    for (size_t slot = 0; slot < COPSE__INPUT_SLOTS; slot++) {
        free(p->launches[slot]);
        p->backend->fence_free(p->uploaded[slot]);
        p->backend->fence_free(p->collected[slot]);
        p->backend->buffer_free(p->inputs[slot]);
        p->backend->buffer_free(p->labels[slot]);
        p->backend->buffer_free(p->metrics_host[slot]);
        p->backend->buffer_free(p->stats_host[slot]);
    }
    p->backend->buffer_free(p->metrics);
    p->backend->buffer_free(p->stats);
    free(p);
}

static bool is_empty(const copse__program *p, const copse__extents *extents) {
    return copse__tensor_elements(&p->graph->tensors[p->graph->input], extents) == 0;
}

static void replace_fence(copse__program *p, copse__fence **kept, copse__fence *made) {
    p->backend->fence_free(*kept);
    *kept = made;
}

copse_status copse__program_upload(copse__program *p, size_t slot, const void *features,
                                   const void *labels, const copse__extents *extents,
                                   copse_error *err) {
    if (is_empty(p, extents))
        return COPSE_OK;
    const copse__tensor *input = &p->graph->tensors[p->graph->input];
    size_t bytes = copse__tensor_bytes(input, extents);
    copse__view to = tensor_view(p, p->graph->input, slot);
    copse__fence *done = NULL;
    copse_status status = p->backend->write(p->device, COPSE__QUEUE_UPLOAD, to, features,
                                            bytes, p->collected[slot], &done, err);
    if (status == COPSE_OK && labels && p->graph->label != COPSE__NO_TENSOR) {
        replace_fence(p, &p->uploaded[slot], done);
        const copse__tensor *label = &p->graph->tensors[p->graph->label];
        to = tensor_view(p, p->graph->label, slot);
        done = NULL; /* in order: the later one covers the earlier one */
        status = p->backend->write(p->device, COPSE__QUEUE_UPLOAD, to, labels,
                                   copse__tensor_bytes(label, extents), NULL, &done, err);
    }
    if (status != COPSE_OK)
        return status;
    replace_fence(p, &p->uploaded[slot], done);
    return p->backend->flush(p->device, COPSE__QUEUE_UPLOAD, err);
}

copse_status copse__program_wait_upload(const copse__program *p, size_t slot,
                                        copse_error *err) {
    return p->uploaded[slot] ? p->backend->fence_wait(p->uploaded[slot], UINT64_MAX, err)
                             : COPSE_OK;
}

copse_status copse__program_run(copse__program *p, size_t slot, size_t first, size_t last,
                                const copse__extents *extents, copse_error *err) {
    if (is_empty(p, extents) || first >= last)
        return COPSE_OK;
    copse_status status = COPSE_OK;
    if (p->uploaded[slot]) {
        status = p->backend->queue_wait(p->device, COPSE__QUEUE_COMPUTE,
                                        p->uploaded[slot], err);
        replace_fence(p, &p->uploaded[slot], NULL);
    }
    if (status == COPSE_OK)
        status = p->backend->run(p->device, p->launches[slot] + first, last - first,
                                 extents, err);
    return status;
}

copse_status copse__program_collect(copse__program *p, size_t slot,
                                    const copse__extents *extents, copse_error *err) {
    copse_status status = COPSE_OK;
    if (is_empty(p, extents))
        return COPSE_OK;
    copse__fence *done = NULL;
    if (p->stats) {
        copse__view from = {.buffer = p->stats, .bytes = p->plan->stats_bytes};
        status = p->backend->read(p->device, COPSE__QUEUE_COMPUTE,
                                  p->backend->buffer_host(p->stats_host[slot]), from,
                                  from.bytes, NULL, NULL, err);
    }
    if (status == COPSE_OK && p->metrics) {
        copse__view from = tensor_view(p, p->graph->metrics, slot);
        size_t bytes =
            copse__tensor_bytes(&p->graph->tensors[p->graph->metrics], extents);
        status = p->backend->read(p->device, COPSE__QUEUE_COMPUTE,
                                  p->backend->buffer_host(p->metrics_host[slot]), from,
                                  bytes, NULL, &done, err);
    } else if (status == COPSE_OK) {
        status = p->backend->mark(&done, p->device, COPSE__QUEUE_COMPUTE, err);
    }
    if (status != COPSE_OK)
        return status;
    replace_fence(p, &p->collected[slot], done);
    return p->backend->flush(p->device, COPSE__QUEUE_COMPUTE, err);
}

copse_status copse__program_wait(copse__program *p, size_t slot, uint64_t timeout_ns,
                                 copse_error *err) {
    return p->collected[slot]
               ? p->backend->fence_wait(p->collected[slot], timeout_ns, err)
               : COPSE_OK;
}

const float *copse__program_metrics(const copse__program *p, size_t slot) {
    copse__buffer *from = p->metrics_host[slot];
    return from ? p->backend->buffer_host(from) : NULL;
}

const float *copse__program_stats(const copse__program *p, size_t slot, size_t state) {
    const char *base = p->backend->buffer_host(p->stats_host[slot]);
    const void *at = base + p->plan->tensors[p->graph->states[state].stats].offset;
    return at;
}

/* *done stays NULL where there is nothing to read. */
static copse_status queue_read(copse__program *p, copse__tensor_id tensor,
                               const copse__extents *extents, void *out,
                               copse__fence **done, copse_error *err) {
    copse__view from = tensor_view(p, tensor, 0);
    const copse__tensor *info = &p->graph->tensors[tensor];
    if (!from.buffer)
        return copse__fail(err, COPSE_INVALID, 0, info->name,
                           "the plan keeps no memory for this tensor");
    size_t bytes = copse__tensor_bytes(info, extents);
    return bytes ? p->backend->read(p->device, COPSE__QUEUE_COMPUTE, out, from, bytes,
                                    NULL, done, err)
                 : COPSE_OK;
}

copse_status copse__program_collect_output(copse__program *p, size_t slot,
                                           const copse__extents *extents, float *out,
                                           copse_error *err) {
    copse__fence *done = NULL;
    if (is_empty(p, extents))
        return COPSE_OK;
    copse_status status = queue_read(p, p->graph->output, extents, out, &done, err);
    if (status != COPSE_OK)
        return status;
    replace_fence(p, &p->collected[slot], done);
    return p->backend->flush(p->device, COPSE__QUEUE_COMPUTE, err);
}

size_t copse__program_output_end(const copse__program *p) {
    const copse__graph *graph = p->graph;
    copse__tensor_id storage = graph->tensors[graph->output].storage;
    size_t end = graph->node_count;
    while (end > 0) {
        const copse__node *node = &graph->nodes[end - 1];
        for (size_t o = 0; o < node->output_count; o++)
            if (node->outputs[o] != COPSE__NO_TENSOR &&
                graph->tensors[node->outputs[o]].storage == storage)
                return end;
        end--;
    }
    return graph->node_count; /* the input itself */
}

copse_status copse__program_read_tensor(copse__program *p, copse__tensor_id tensor,
                                        const copse__extents *extents, void *out,
                                        copse_error *err) {
    copse__fence *done = NULL;
    copse_status status = queue_read(p, tensor, extents, out, &done, err);
    if (status == COPSE_OK)
        status = p->backend->flush(p->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK && done)
        status = p->backend->fence_wait(done, UINT64_MAX, err);
    p->backend->fence_free(done);
    return status;
}

copse_status copse__program_read_output(copse__program *p, const copse__extents *extents,
                                        float *out, copse_error *err) {
    return copse__program_read_tensor(p, p->graph->output, extents, out, err);
}

const char *copse__program_provider(const copse__program *p, size_t node) {
    return p->backend->launch_provider(p->launches[0][node]);
}

uint64_t copse__program_time_ns(const copse__program *p, size_t node) {
    return p->backend->launch_time_ns(p->launches[0][node]);
}

bool copse__program_span(const copse__program *p, size_t slot, size_t node,
                         uint64_t *begin_ns, uint64_t *end_ns) {
    return p->backend->launch_span(p->launches[slot][node], begin_ns, end_ns);
}

const char *copse__program_parameters(const copse__program *p, size_t node) {
    return p->backend->launch_parameters
               ? p->backend->launch_parameters(p->launches[0][node])
               : "";
}
