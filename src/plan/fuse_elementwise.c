/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "plan/fuse_private.h"

/* Chains of elementwise nodes become one ELEMENTWISE: a node takes the one before it, as long as the
 * expression's bounds allow and the device runs it. What others still read of the former is written
 * too, where none of them comes before the latter. */

/* As an expression: the node itself, or its one step. false: it is none. */
static bool expression_of(const copse__node *node, copse__expression *out) {
    copse__term step = {.op = (uint8_t)node->op,
                        .act = (uint8_t)node->attrs.act,
                        .b = node->op == COPSE__OP_ADD ||
                             node->op == COPSE__OP_ACTIVATION_GRAD};
    switch (node->op) {
    case COPSE__OP_ELEMENTWISE:
        *out = node->attrs.expression;
        return true;
    case COPSE__OP_DROPOUT:
        step.act = COPSE__ACT_NONE;
        step.rate = node->attrs.dropout.rate;
        step.call = node->attrs.dropout.call;
        break;
    case COPSE__OP_ACTIVATION:
    case COPSE__OP_ACTIVATION_GRAD:
        if (node->attrs.act == COPSE__ACT_NONE)
            return false;
        break;
    case COPSE__OP_ADD:
        step.act = COPSE__ACT_NONE;
        break;
    default:
        return false;
    }
    *out = (copse__expression){
        .term_count = 1, .results = {COPSE__MAX_INPUTS}, .terms = {step}};
    return true;
}

/* Appends an expression's steps to another's. renamed: of its inputs' values in the latter; results:
 * what its steps' values become there. */
static void append(copse__expression *to, const copse__expression *from,
                   const uint8_t renamed[COPSE__MAX_INPUTS],
                   uint8_t results[COPSE__MAX_TERMS]) {
    for (size_t s = 0; s < from->term_count; s++) {
        copse__term step = from->terms[s];
        uint8_t *values[] = {&step.a, &step.b};
        for (size_t v = 0; v < 2; v++)
            *values[v] = *values[v] < COPSE__MAX_INPUTS
                             ? renamed[*values[v]]
                             : results[*values[v] - COPSE__MAX_INPUTS];
        results[s] = (uint8_t)(COPSE__MAX_INPUTS + to->term_count);
        to->terms[to->term_count++] = step;
    }
}

/* The input's place in the node, added where it is new. false: there is no room. */
static bool add_input(copse__node *node, copse__tensor_id id, uint8_t *place) {
    size_t i = 0;
    while (i < COPSE__MAX_INPUTS && node->inputs[i] != COPSE__NO_TENSOR &&
           node->inputs[i] != id)
        i++;
    if (i == COPSE__MAX_INPUTS)
        return false;
    node->inputs[i] = id;
    *place = (uint8_t)i;
    return true;
}

static bool add_output(copse__node *node, copse__tensor_id id, uint8_t value) {
    for (size_t o = 0; o < COPSE__MAX_OUTPUTS; o++)
        if (node->outputs[o] == COPSE__NO_TENSOR) {
            node->outputs[o] = id;
            node->attrs.expression.results[o] = value;
            return true;
        }
    return false;
}

/* Who reads a tensor's bytes besides `reader`. */
typedef enum others { OTHERS_NONE, OTHERS_LATER, OTHERS_BEFORE } others;

static others others_of(const copse__graph *graph, copse__tensor_id id, size_t reader) {
    copse__tensor_id storage = graph->tensors[id].storage;
    others found =
        graph->tensors[graph->output].storage == storage ? OTHERS_LATER : OTHERS_NONE;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (n == reader || !copse__fuse_reads(graph, &graph->nodes[n], storage))
            continue;
        if (n < reader)
            return OTHERS_BEFORE;
        found = OTHERS_LATER;
    }
    return found;
}

/* The latter with the former in it; false where that cannot be. */
static bool join(const copse__graph *graph, size_t former, size_t latter,
                 copse__node *out) {
    const copse__node *first = &graph->nodes[former], *second = &graph->nodes[latter];
    copse__expression a, b;
    uint8_t renamed[COPSE__MAX_INPUTS] = {0}, made_a[COPSE__MAX_TERMS],
            made_b[COPSE__MAX_TERMS];
    if (first->backward != second->backward || !expression_of(first, &a) ||
        !expression_of(second, &b) || a.term_count + b.term_count > COPSE__MAX_TERMS)
        return false;
    *out = *second;
    out->op = COPSE__OP_ELEMENTWISE;
    out->attrs = (copse__attrs){0};
    out->input_count = COPSE__MAX_INPUTS;
    out->output_count = COPSE__MAX_OUTPUTS;
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        out->inputs[i] = COPSE__NO_TENSOR;
    for (size_t o = 0; o < COPSE__MAX_OUTPUTS; o++)
        out->outputs[o] = COPSE__NO_TENSOR;
    copse__expression *to = &out->attrs.expression;
    for (size_t i = 0; i < first->input_count; i++)
        if (first->inputs[i] != COPSE__NO_TENSOR &&
            !add_input(out, first->inputs[i], &renamed[i]))
            return false;
    append(to, &a, renamed, made_a);
    for (size_t i = 0; i < second->input_count; i++) {
        if (second->inputs[i] == COPSE__NO_TENSOR)
            continue;
        size_t o = 0;
        while (o < first->output_count && first->outputs[o] != second->inputs[i])
            o++;
        if (o < first->output_count)
            renamed[i] = made_a[a.results[o] - COPSE__MAX_INPUTS];
        else if (!add_input(out, second->inputs[i], &renamed[i]))
            return false;
    }
    append(to, &b, renamed, made_b);
    for (size_t o = 0; o < second->output_count; o++)
        if (second->outputs[o] != COPSE__NO_TENSOR &&
            !add_output(out, second->outputs[o],
                        made_b[b.results[o] - COPSE__MAX_INPUTS]))
            return false;
    for (size_t o = 0; o < first->output_count; o++) {
        copse__tensor_id id = first->outputs[o];
        if (id == COPSE__NO_TENSOR)
            continue;
        /* Gradients of parameters are finished where they were. */
        if (graph->tensors[id].role != COPSE__ROLE_ACTIVATION ||
            graph->tensors[id].storage != id)
            return false;
        others rest = others_of(graph, id, latter);
        if (rest == OTHERS_BEFORE ||
            (rest == OTHERS_LATER &&
             !add_output(out, id, made_a[a.results[o] - COPSE__MAX_INPUTS])))
            return false;
    }
    return true;
}

copse_status copse__fuse_elementwise(copse__fuser *f, size_t index, bool *changed) {
    copse__graph *graph = f->graph;
    copse__expression ignored;
    copse__node joined;
    if (!expression_of(&graph->nodes[index], &ignored))
        return COPSE_OK;
    for (size_t i = 0; i < graph->nodes[index].input_count; i++) {
        copse__tensor_id id = graph->nodes[index].inputs[i];
        size_t former =
            id == COPSE__NO_TENSOR ? COPSE__NO_NODE : copse__fuse_writer(graph, id);
        if (former == COPSE__NO_NODE || former >= index ||
            !join(graph, former, index, &joined) || !copse__fuse_supported(f, &joined))
            continue;
        copse_status status = copse__fuse_absorb(f, index, former);
        if (status != COPSE_OK)
            return status;
        joined.absorbed = graph->nodes[index].absorbed;
        graph->nodes[index] = joined;
        copse__fuse_remove(f, former);
        *changed = true;
        return COPSE_OK;
    }
    return COPSE_OK;
}
