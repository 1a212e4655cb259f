/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/build.h"

copse__gradient_rule *copse__gradient_rule_of(copse__op op) {
    static copse__gradient_rule *const rules[COPSE__OP_COUNT] = {
        [COPSE__OP_DENSE] = copse__gradient_dense,
        [COPSE__OP_CONV2D] = copse__gradient_conv2d,
        [COPSE__OP_MAX_POOL2D] = copse__gradient_max_pool2d,
        [COPSE__OP_AVG_POOL2D] = copse__gradient_avg_pool2d,
        [COPSE__OP_GLOBAL_AVG_POOL] = copse__gradient_global_avg_pool,
        [COPSE__OP_ACTIVATION] = copse__gradient_activation,
        [COPSE__OP_SOFTMAX] = copse__gradient_softmax,
        [COPSE__OP_DROPOUT] = copse__gradient_dropout,
        [COPSE__OP_ADD] = copse__gradient_add,
        [COPSE__OP_BN_NORMALIZE] = copse__gradient_batch_norm,
    };
    return rules[op];
}

static copse__tensor_id storage_of(const copse__backward *pass, copse__tensor_id id) {
    return pass->builder.graph->tensors[id].storage;
}

bool copse__wants(const copse__backward *pass, copse__tensor_id id) {
    return pass->wanted[storage_of(pass, id)];
}

/* Tensors of the backward pass are named after what they are the gradient in. */
copse_status copse__gradient_tensor(copse__backward *pass, copse__tensor_id of,
                                    copse__tensor_id *out, copse_error *err) {
    copse__builder named = pass->builder;
    named.layer = named.graph->tensors[of].name;
    return copse__build_like(&named, "grad", of, out, err);
}

/* The same bytes in the shape of `of`. */
static copse_status in_shape_of(copse__backward *pass, copse__tensor_id of,
                                copse__tensor_id gradient, copse__tensor_id *out,
                                copse_error *err) {
    const copse__graph *graph = pass->builder.graph;
    const copse__tensor like = graph->tensors[of];
    *out = gradient;
    if (copse__tensor_same_shape(&like, &graph->tensors[gradient]))
        return COPSE_OK;
    copse__builder named = pass->builder;
    named.layer = like.name;
    return copse__build_view(&named, "grad", gradient, like.rank, like.dim, out, err);
}

copse_status copse__gradient_give(copse__backward *pass, copse__tensor_id of,
                                  copse__tensor_id gradient, copse_error *err) {
    copse__tensor_id storage = storage_of(pass, of), part, sum;
    copse_status status = in_shape_of(pass, storage, gradient, &part, err);
    if (status != COPSE_OK)
        return status;
    if (pass->sums[storage] == COPSE__NO_TENSOR) {
        pass->sums[storage] = part;
        return COPSE_OK;
    }
    copse__builder named = pass->builder;
    named.layer = named.graph->tensors[storage].name;
    status = copse__build_like(&named, "grad_sum", storage, &sum, err);
    if (status != COPSE_OK)
        return status;
    status = copse__build_node(&pass->builder, "grad_sum", COPSE__OP_ADD,
                               (const copse__tensor_id[]){pass->sums[storage], part},
                               &sum, NULL, err);
    if (status == COPSE_OK)
        pass->sums[storage] = sum;
    return status;
}

copse_status copse__gradient_node(copse__backward *pass, const char *suffix, copse__op op,
                                  const copse__tensor_id *inputs,
                                  const copse__attrs *attrs, copse__tensor_id of,
                                  copse_error *err) {
    copse__tensor_id out[COPSE__MAX_OUTPUTS];
    for (size_t o = 0; o < COPSE__MAX_OUTPUTS; o++)
        out[o] = COPSE__NO_TENSOR;
    copse_status status = copse__gradient_tensor(pass, of, &out[0], err);
    if (status == COPSE_OK)
        status = copse__build_node(&pass->builder, suffix, op, inputs, out, attrs, err);
    if (status == COPSE_OK)
        status = copse__gradient_give(pass, of, out[0], err);
    return status;
}

/* Parameters, and whatever is computed from them through operations that have a rule. */
static void mark_wanted(copse__backward *pass) {
    const copse__graph *graph = pass->builder.graph;
    for (size_t i = 0; i < graph->parameter_count; i++)
        pass->wanted[storage_of(pass, graph->parameters[i].tensor)] = true;
    for (size_t i = 0; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        if (!copse__gradient_rule_of(node->op))
            continue;
        for (size_t j = 0; j < node->input_count; j++)
            if (node->inputs[j] != COPSE__NO_TENSOR &&
                copse__wants(pass, node->inputs[j]))
                pass->wanted[storage_of(pass, node->outputs[0])] = true;
    }
}

/* The loss's own node gives the first gradient, as its second output. */
static copse_status start(copse__backward *pass, size_t loss, copse_error *err) {
    copse__graph *graph = pass->builder.graph;
    copse__tensor_id x = graph->nodes[loss].inputs[0], dx;
    if (!copse__wants(pass, x))
        return COPSE_OK;
    copse_status status = copse__gradient_tensor(pass, x, &dx, err);
    if (status != COPSE_OK)
        return status;
    graph->nodes[loss].outputs[1] = dx;
    return copse__gradient_give(pass, x, dx, err);
}

static copse_status step_back(copse__backward *pass, size_t index, copse_error *err) {
    /* A copy: the list of nodes grows, and may move, under the rule. */
    const copse__node node = pass->builder.graph->nodes[index];
    copse__gradient_rule *rule = copse__gradient_rule_of(node.op);
    copse__tensor_id sum = pass->sums[storage_of(pass, node.outputs[0])], dy;
    if (!rule || sum == COPSE__NO_TENSOR)
        return COPSE_OK;
    copse_status status = in_shape_of(pass, node.outputs[0], sum, &dy, err);
    if (status != COPSE_OK)
        return status;
    pass->builder.layer = node.name;
    return rule(pass, &node, index, dy, err);
}

/* A parameter's gradient is written by one node, and into memory of its own: the buckets
 * that are summed over replicas. */
static copse_status assign_parameters(copse__backward *pass, copse_error *err) {
    copse__graph *graph = pass->builder.graph;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        copse__parameter *parameter = &graph->parameters[i];
        copse__tensor_id sum = pass->sums[storage_of(pass, parameter->tensor)];
        parameter->gradient = sum;
        if (sum == COPSE__NO_TENSOR)
            continue;
        copse__tensor *gradient = &graph->tensors[sum];
        if (gradient->storage != sum || gradient->role != COPSE__ROLE_ACTIVATION)
            return copse__fail(err, COPSE_INTERNAL, 0, NULL,
                               "the gradient of '%s' has no memory of its own",
                               graph->tensors[parameter->tensor].name);
        gradient->role = COPSE__ROLE_GRADIENT;
        gradient->index = (uint32_t)i;
    }
    return COPSE_OK;
}

static copse_status walk(copse__backward *pass, size_t loss, copse_error *err) {
    mark_wanted(pass);
    copse_status status = start(pass, loss, err);
    for (size_t i = loss; status == COPSE_OK && i-- > 0;)
        status = step_back(pass, i, err);
    return status == COPSE_OK ? assign_parameters(pass, err) : status;
}

copse_status copse__graph_backward(copse__graph *graph, copse_error *err) {
    size_t loss = graph->node_count;
    uint32_t next_call = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        if (node->call >= next_call)
            next_call = node->call + 1;
        if ((node->op == COPSE__OP_CROSS_ENTROPY ||
             node->op == COPSE__OP_MEAN_SQUARED_ERROR) &&
            node->outputs[0] == graph->metrics)
            loss = i;
    }
    if (loss == graph->node_count)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "a graph without a loss has no gradients");
    copse__backward pass = {.builder = {.graph = graph,
                                        .layer = graph->nodes[loss].name,
                                        .next_call = next_call,
                                        .backward = true},
                            .count = graph->tensor_count};
    copse_status status =
        copse__calloc(&pass.wanted, pass.count, sizeof *pass.wanted, err);
    if (status == COPSE_OK)
        status = copse__calloc(&pass.sums, pass.count, sizeof *pass.sums, err);
    if (status == COPSE_OK) {
        for (size_t i = 0; i < pass.count; i++)
            pass.sums[i] = COPSE__NO_TENSOR;
        graph->forward_count = graph->node_count;
        status = walk(&pass, loss, err);
    }
    free(pass.wanted);
    free(pass.sums);
    return status;
}
