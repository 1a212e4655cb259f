/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include <stdlib.h>

#include "base/mem.h"

/* One piece of arena memory and the nodes between whose runs its bytes must stay. */
typedef struct allocation {
    size_t bytes;
    size_t first, last;      /* node indices, inclusive */
    copse__tensor_id tensor; /* whose name an error shows; NO_TENSOR: a workspace */
    size_t node;             /* of a workspace */
    uint32_t block;
    size_t offset;
} allocation;

typedef struct planner {
    const copse__graph *graph;
    const copse__layout *layout;
    copse__device *device;
    const copse__caps *caps;
    copse__plan *plan;
    allocation *allocations;
    size_t count, capacity;
    size_t *allocation_of; /* by storage tensor; SIZE_MAX: none */
    size_t *order;         /* allocations, largest first */
    copse_error *err;
} planner;

static copse_status add_allocation(planner *p, const allocation *new_one) {
    copse_status status = copse__grow(&p->allocations, &p->capacity, p->count + 1,
                                      sizeof *p->allocations, p->err);
    if (status == COPSE_OK)
        p->allocations[p->count++] = *new_one;
    return status;
}

/* The input that the node may overwrite with its output `o`: see op.h, "in place". */
static int in_place_input(const copse__node *node, size_t o) {
    switch (node->op) {
    case COPSE__OP_ACTIVATION:
    case COPSE__OP_SOFTMAX:
    case COPSE__OP_DROPOUT:
    case COPSE__OP_ADD:
    case COPSE__OP_ACCUMULATE:
        return o == 0 ? 0 : -1;
    case COPSE__OP_ACTIVATION_GRAD:
    case COPSE__OP_SOFTMAX_GRAD:
        return o == 0 ? 1 : -1;
    case COPSE__OP_CROSS_ENTROPY:
        return o == 1 ? 0 : -1;
    default:
        return -1;
    }
}

static size_t last_reader(const copse__graph *graph, copse__tensor_id storage) {
    if (graph->tensors[graph->output].storage == storage)
        return SIZE_MAX; /* the host reads it after the run */
    size_t last = 0;
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t i = 0; i < graph->nodes[n].input_count; i++) {
            copse__tensor_id id = graph->nodes[n].inputs[i];
            if (id != COPSE__NO_TENSOR && graph->tensors[id].storage == storage)
                last = n;
        }
    return last;
}

/* Takes over the memory of input i where that dies here. */
static bool take_input(planner *p, size_t n, size_t i, copse__tensor_id storage) {
    const copse__node *node = &p->graph->nodes[n];
    if (node->inputs[i] == COPSE__NO_TENSOR)
        return false;
    copse__tensor_id input = p->graph->tensors[node->inputs[i]].storage;
    size_t have = p->allocation_of[input];
    if (have == SIZE_MAX || p->allocations[have].last != n ||
        p->allocations[have].bytes !=
            copse__tensor_bytes(&p->graph->tensors[storage], NULL))
        return false;
    for (size_t other = 0; other < node->input_count; other++)
        if (other != i && node->inputs[other] != COPSE__NO_TENSOR &&
            p->graph->tensors[node->inputs[other]].storage == input)
            return false;
    p->allocation_of[storage] = have;
    p->allocations[have].last = last_reader(p->graph, storage);
    if (p->allocations[have].last < n)
        p->allocations[have].last = n;
    return true;
}

/* Takes over the memory of a dying input where the operation allows it. */
static bool reuse_input(planner *p, size_t n, size_t o, copse__tensor_id storage) {
    const copse__node *node = &p->graph->nodes[n];
    int i = in_place_input(node, o);
    if (node->op != COPSE__OP_ELEMENTWISE)
        return i >= 0 && take_input(p, n, (size_t)i, storage);
    for (size_t any = 0; o == 0 && any < node->input_count; any++)
        if (take_input(p, n, any, storage))
            return true;
    return false;
}

static copse_status collect_node(planner *p, size_t n) {
    const copse__node *node = &p->graph->nodes[n];
    copse_status status;
    for (size_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] == COPSE__NO_TENSOR)
            continue;
        copse__tensor_id storage = p->graph->tensors[node->outputs[o]].storage;
        const copse__tensor *tensor = &p->graph->tensors[storage];
        if (tensor->role != COPSE__ROLE_ACTIVATION ||
            p->allocation_of[storage] != SIZE_MAX || reuse_input(p, n, o, storage))
            continue;
        allocation made = {.bytes = copse__tensor_bytes(tensor, NULL),
                           .first = n,
                           .last = copse__max_size(n, last_reader(p->graph, storage)),
                           .tensor = storage};
        p->plan->unshared_bytes += made.bytes;
        p->allocation_of[storage] = p->count;
        status = add_allocation(p, &made);
        if (status != COPSE_OK)
            return status;
    }
    size_t workspace = 0;
    status = copse__backend_of(p->device)->supports(p->device, p->graph, node, &workspace,
                                                    p->err);
    if (status != COPSE_OK)
        return status;
    p->plan->workspaces[n].bytes = workspace;
    if (workspace == 0)
        return COPSE_OK;
    p->plan->unshared_bytes += workspace;
    return add_allocation(p, &(allocation){.bytes = workspace,
                                           .first = n,
                                           .last = n,
                                           .tensor = COPSE__NO_TENSOR,
                                           .node = n});
}

static copse_status too_large(planner *p, const allocation *a) {
    const copse__device_base *base = copse__device_get(p->device);
    const char *name = a->tensor == COPSE__NO_TENSOR ? p->graph->nodes[a->node].name
                                                     : p->graph->tensors[a->tensor].name;
    size_t batch = p->graph->tensors[p->graph->input].dim[0].size;
    double fits = (double)batch * (double)p->caps->max_alloc_bytes / (double)a->bytes;
    return copse__fail(
        p->err, COPSE_DEVICE_MEMORY, 0, base->choice.label,
        "%s '%s' takes %zu bytes at a shard of %zu samples, but the device "
        "allocates at most %zu at once; a shard of at most %.0f would fit",
        a->tensor == COPSE__NO_TENSOR ? "the workspace of" : "tensor", name, a->bytes,
        batch, p->caps->max_alloc_bytes, fits);
}

/* The lowest offset in a block at which `a` meets no allocation that lives at the same time. The
 * first `placed` entries of order have their places. */
static size_t find_offset(const planner *p, size_t placed, uint32_t block,
                          const allocation *a) {
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < placed; i++) {
            const allocation *b = &p->allocations[p->order[i]];
            if (b->block != block || b->last < a->first || a->last < b->first)
                continue;
            if (offset < b->offset + b->bytes && b->offset < offset + a->bytes) {
                offset = copse__round_up(b->offset + b->bytes, p->caps->view_alignment);
                moved = true;
            }
        }
    }
    return offset;
}

static copse_status place(planner *p, size_t rank) {
    allocation *a = &p->allocations[p->order[rank]];
    copse__plan *plan = p->plan;
    if (a->bytes > p->caps->max_alloc_bytes)
        return too_large(p, a);
    for (uint32_t block = 0;; block++) {
        if (block == plan->block_count) {
            size_t capacity = plan->block_count;
            copse_status status =
                copse__grow(&plan->block_bytes, &capacity, plan->block_count + 1,
                            sizeof *plan->block_bytes, p->err);
            if (status != COPSE_OK)
                return status;
            plan->block_bytes[plan->block_count++] = 0;
        }
        size_t offset = find_offset(p, rank, block, a);
        if (offset > p->caps->max_alloc_bytes - a->bytes)
            continue;
        a->block = block;
        a->offset = offset;
        plan->block_bytes[block] =
            copse__max_size(plan->block_bytes[block], offset + a->bytes);
        return COPSE_OK;
    }
}

static copse_status place_arena(planner *p) {
    copse_status status = copse__calloc(&p->order, p->count, sizeof *p->order, p->err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < p->count; i++) { /* stable: equal sizes in order of birth */
        size_t at = i;
        for (; at > 0 && p->allocations[p->order[at - 1]].bytes < p->allocations[i].bytes;
             at--)
            p->order[at] = p->order[at - 1];
        p->order[at] = i;
    }
    for (size_t rank = 0; rank < p->count && status == COPSE_OK; rank++)
        status = place(p, rank);
    return status;
}

/* Places a tensor one behind another in a buffer of its own kind. */
static copse__placement append(const planner *p, copse__home home, size_t bytes,
                               size_t *used) {
    copse__placement made = {.home = home, .offset = *used, .bytes = bytes};
    *used += copse__round_up(bytes ? bytes : 1, p->caps->view_alignment);
    return made;
}

static copse__placement place_parameter(const planner *p, copse__home home,
                                        uint32_t index) {
    const copse__parameter_place *at = &p->layout->places[index];
    return (copse__placement){.home = home,
                              .block = at->bucket,
                              .offset = at->offset * sizeof(float),
                              .bytes = at->elements * sizeof(float)};
}

static copse__placement place_tensor(const planner *p, copse__tensor_id id) {
    const copse__tensor *tensor = &p->graph->tensors[id];
    copse__plan *plan = p->plan;
    size_t bytes = copse__tensor_bytes(tensor, NULL);
    switch (tensor->role) {
    case COPSE__ROLE_INPUT:
        return append(p, COPSE__HOME_INPUT, bytes, &plan->input_bytes);
    case COPSE__ROLE_LABEL:
        return append(p, COPSE__HOME_LABEL, bytes, &plan->label_bytes);
    case COPSE__ROLE_METRIC:
        return append(p, COPSE__HOME_METRIC, bytes, &plan->metric_bytes);
    case COPSE__ROLE_STATE:
        return append(p, COPSE__HOME_STATE, bytes, &plan->state_bytes);
    case COPSE__ROLE_STATS:
        return append(p, COPSE__HOME_STATS, bytes, &plan->stats_bytes);
    case COPSE__ROLE_PARAMETER:
        return place_parameter(p, COPSE__HOME_WEIGHT, tensor->index);
    case COPSE__ROLE_GRADIENT:
        return place_parameter(p, COPSE__HOME_GRADIENT, tensor->index);
    case COPSE__ROLE_ACTIVATION:
        break;
    }
    size_t index = p->allocation_of[id];
    if (index == SIZE_MAX)
        return (copse__placement){.home = COPSE__HOME_NONE};
    const allocation *a = &p->allocations[index];
    return (copse__placement){.home = COPSE__HOME_ARENA,
                              .block = a->block,
                              .offset = a->offset,
                              .bytes = bytes};
}

static void fill_placements(planner *p) {
    const copse__graph *graph = p->graph;
    for (copse__tensor_id id = 0; id < graph->tensor_count; id++)
        if (graph->tensors[id].storage == id)
            p->plan->tensors[id] = place_tensor(p, id);
    for (copse__tensor_id id = 0; id < graph->tensor_count; id++)
        p->plan->tensors[id] = p->plan->tensors[graph->tensors[id].storage];
    for (size_t i = 0; i < p->count; i++) {
        const allocation *a = &p->allocations[i];
        if (a->tensor == COPSE__NO_TENSOR)
            p->plan->workspaces[a->node] = (copse__placement){.home = COPSE__HOME_ARENA,
                                                              .block = a->block,
                                                              .offset = a->offset,
                                                              .bytes = a->bytes};
    }
}

/* Devices may have fused the same graph differently: each finds its own nodes. */
static void find_ready(planner *p) {
    const copse__graph *graph = p->graph;
    for (size_t b = 0; b < p->layout->bucket_count; b++)
        p->plan->bucket_ready[b] = graph->forward_count;
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t o = 0; o < graph->nodes[n].output_count; o++) {
            copse__tensor_id id = graph->nodes[n].outputs[o];
            if (id == COPSE__NO_TENSOR)
                continue;
            const copse__tensor *tensor = &graph->tensors[graph->tensors[id].storage];
            if (tensor->role == COPSE__ROLE_GRADIENT)
                p->plan->bucket_ready[p->layout->places[tensor->index].bucket] = n;
        }
}

copse_status copse__plan_new(copse__plan **out, const copse__graph *graph,
                             const copse__layout *layout, copse__device *device,
                             copse_error *err) {
    *out = NULL;
    copse_status status;
    planner p = {.graph = graph,
                 .layout = layout,
                 .device = device,
                 .caps = &copse__device_get(device)->caps,
                 .err = err};
    COPSE__TRY(copse__calloc(&p.plan, 1, sizeof *p.plan, err), out);
    COPSE__TRY(copse__calloc(&p.plan->tensors, graph->tensor_count,
                             sizeof *p.plan->tensors, err),
               out);
    COPSE__TRY(copse__calloc(&p.plan->workspaces, graph->node_count,
                             sizeof *p.plan->workspaces, err),
               out);
    COPSE__TRY(copse__calloc(&p.plan->bucket_ready, layout->bucket_count,
                             sizeof *p.plan->bucket_ready, err),
               out);
    COPSE__TRY(copse__calloc(&p.allocation_of, graph->tensor_count,
                             sizeof *p.allocation_of, err),
               out);
    for (size_t i = 0; i < graph->tensor_count; i++)
        p.allocation_of[i] = SIZE_MAX;
    for (size_t n = 0; n < graph->node_count; n++)
        COPSE__TRY(collect_node(&p, n), out);
    COPSE__TRY(place_arena(&p), out);
    fill_placements(&p);
    find_ready(&p);
    *out = p.plan;
    p.plan = NULL;
out:
    free(p.allocations);
    free(p.allocation_of);
    free(p.order);
    copse__plan_free(p.plan);
    return status;
}

void copse__plan_free(copse__plan *plan) {
    if (!plan)
        return;
    free(plan->tensors);
    free(plan->workspaces);
    free(plan->bucket_ready);
    free(plan->block_bytes);
    free(plan);
}

size_t copse__plan_arena_bytes(const copse__plan *plan) {
    size_t bytes = 0;
    for (size_t i = 0; i < plan->block_count; i++)
        bytes += plan->block_bytes[i];
    return bytes;
}
