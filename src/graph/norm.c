/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "graph/build.h"

/* The pair of moving statistics; stats is filled in by the caller. */
static copse_status add_state(copse__builder *b, const copse__norm_options *options,
                              copse__tensor_id x, copse__dim channels, uint32_t *index,
                              copse_error *err) {
    copse__graph *graph = b->graph;
    copse__state state = {
        .stats = COPSE__NO_TENSOR, .source = x, .momentum = options->momentum};
    copse_status status =
        copse__build_tensor(b, "moving_mean", COPSE_F32, COPSE__ROLE_STATE, 1, &channels,
                            &state.moving_mean, err);
    if (status == COPSE_OK)
        status = copse__build_tensor(b, "moving_variance", COPSE_F32, COPSE__ROLE_STATE,
                                     1, &channels, &state.moving_variance, err);
    if (status == COPSE_OK)
        status = copse__grow(&graph->states, &graph->state_capacity,
                             graph->state_count + 1, sizeof *graph->states, err);
    if (status != COPSE_OK)
        return status;
    *index = (uint32_t)graph->state_count;
    graph->tensors[state.moving_mean].index = *index;
    graph->tensors[state.moving_variance].index = *index;
    graph->states[graph->state_count++] = state;
    return COPSE_OK;
}

/* Two nodes: the moments of the batch, then what they do to it. */
static copse_status normalize_batch(copse__builder *b, const copse__attrs *attrs,
                                    uint32_t state, copse__tensor_id x,
                                    copse__tensor_id gamma, copse__tensor_id beta,
                                    copse__tensor_id y, copse_error *err) {
    copse__graph *graph = b->graph;
    const copse__tensor *of = &graph->tensors[x];
    copse__dim dim[] = {copse__fixed(2), of->dim[of->rank - 1]};
    copse__tensor_id stats;
    copse_status status = copse__build_tensor(b, "moments", COPSE_F32, COPSE__ROLE_STATS,
                                              2, dim, &stats, err);
    if (status != COPSE_OK)
        return status;
    graph->tensors[stats].index = state;
    graph->states[state].stats = stats;
    status =
        copse__build_node(b, "moments", COPSE__OP_BN_MOMENTS, &x, &stats, attrs, err);
    if (status != COPSE_OK)
        return status;
    copse__tensor_id inputs[] = {x, stats, gamma, beta};
    return copse__build_node(b, NULL, COPSE__OP_BN_NORMALIZE, inputs, &y, attrs, err);
}

copse_status copse__build_batch_norm(copse__builder *b,
                                     const copse__norm_options *options, bool training,
                                     copse__tensor_id x, copse__tensor_id *out,
                                     copse_error *err) {
    const copse__tensor *of = &b->graph->tensors[x];
    char shape[COPSE__SHAPE_TEXT];
    if (of->rank < 2)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "layer '%s' normalises over the last axis, but the input's "
                           "shape %s has none besides the batch",
                           b->layer, copse__build_shape(b, x, shape));
    copse__dim channels = of->dim[of->rank - 1];
    copse__tensor_id gamma = COPSE__NO_TENSOR, beta = COPSE__NO_TENSOR;
    copse__init ones = {.kind = COPSE__INIT_ONES}, zeros = {.kind = COPSE__INIT_ZEROS};
    copse_status status = COPSE_OK;
    if (options->scale)
        status =
            copse__build_parameter(b, "gamma", 1, &channels, ones, false, &gamma, err);
    if (status == COPSE_OK && options->center)
        status =
            copse__build_parameter(b, "beta", 1, &channels, zeros, false, &beta, err);
    uint32_t state = 0;
    if (status == COPSE_OK)
        status = add_state(b, options, x, channels, &state, err);
    if (status == COPSE_OK)
        status = copse__build_like(b, NULL, x, out, err);
    if (status != COPSE_OK)
        return status;
    copse__attrs attrs = {.norm = {.epsilon = options->epsilon}};
    if (training)
        return normalize_batch(b, &attrs, state, x, gamma, beta, *out, err);
    b->next_call++; /* the number that the moments have in training */
    copse__tensor_id inputs[] = {x, b->graph->states[state].moving_mean,
                                 b->graph->states[state].moving_variance, gamma, beta};
    return copse__build_node(b, NULL, COPSE__OP_BN_INFER, inputs, out, &attrs, err);
}

/* The sums serve the parameters and the input alike. The moments' own dependence on x is
 * part of BN_GRAD_INPUT's formula, so that nothing flows through BN_MOMENTS. */
copse_status copse__gradient_batch_norm(copse__backward *pass, const copse__node *node,
                                        size_t index, copse__tensor_id dy,
                                        copse_error *err) {
    (void)index;
    copse__builder *b = &pass->builder;
    copse__tensor_id x = node->inputs[0], stats = node->inputs[1];
    copse__tensor_id gamma = node->inputs[2], beta = node->inputs[3];
    copse__attrs attrs = {.norm = node->attrs.norm};
    bool gamma_wanted = gamma != COPSE__NO_TENSOR && copse__wants(pass, gamma);
    bool beta_wanted = beta != COPSE__NO_TENSOR && copse__wants(pass, beta);
    copse__tensor_id made[] = {COPSE__NO_TENSOR, COPSE__NO_TENSOR, COPSE__NO_TENSOR};
    copse_status status = copse__build_like(b, "grad_sums", stats, &made[0], err);
    if (status == COPSE_OK && gamma_wanted)
        status = copse__gradient_tensor(pass, gamma, &made[1], err);
    if (status == COPSE_OK && beta_wanted)
        status = copse__gradient_tensor(pass, beta, &made[2], err);
    if (status == COPSE_OK)
        status = copse__build_node(
            b, "grad_reduce", COPSE__OP_BN_GRAD_REDUCE,
            (const copse__tensor_id[]){x, dy, stats, COPSE__NO_TENSOR, COPSE__NO_TENSOR},
            made, &attrs, err);
    if (status == COPSE_OK && gamma_wanted)
        status = copse__gradient_give(pass, gamma, made[1], err);
    if (status == COPSE_OK && beta_wanted)
        status = copse__gradient_give(pass, beta, made[2], err);
    if (status == COPSE_OK && copse__wants(pass, x))
        status = copse__gradient_node(
            pass, "grad_input", COPSE__OP_BN_GRAD_INPUT,
            (const copse__tensor_id[]){x, dy, stats, made[0], gamma, COPSE__NO_TENSOR},
            &attrs, x, err);
    return status;
}
