/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/tree.h"
#include "train/trainer_private.h"

/* What a trainer keeps: parameters, moving statistics, optimizer slots. The items' order:
 * parameters, then each state's mean and variance, then slot by slot all parameters. */

static size_t slot_count(const copse__trainer *t) {
    return t->training ? copse__optimizer_slots(&t->optimizer) : 0;
}

size_t copse__trainer_state_count(const copse__trainer *t) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    return graph->parameter_count * (1 + slot_count(t)) + 2 * graph->state_count;
}

typedef enum item_kind { ITEM_PARAMETER, ITEM_MOVING, ITEM_SLOT } item_kind;

typedef struct item {
    item_kind kind;
    size_t index; /* parameter, or state */
    size_t part;  /* slot; or 0 mean, 1 variance */
    const copse__tensor *tensor;
} item;

static item find_item(const copse__trainer *t, size_t at) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    item found = {.kind = ITEM_PARAMETER, .index = at};
    size_t parameters = graph->parameter_count, moving = 2 * graph->state_count;
    if (at >= parameters + moving) {
        found.kind = ITEM_SLOT;
        found.index = (at - parameters - moving) % parameters;
        found.part = (at - parameters - moving) / parameters;
    } else if (at >= parameters) {
        found.kind = ITEM_MOVING;
        found.index = (at - parameters) / 2;
        found.part = (at - parameters) % 2;
    }
    const copse__state *state =
        found.kind == ITEM_MOVING ? &graph->states[found.index] : NULL;
    found.tensor = &graph->tensors[!state ? graph->parameters[found.index].tensor
                                   : found.part == 0 ? state->moving_mean
                                                     : state->moving_variance];
    return found;
}

copse__state_item copse__trainer_state_item(const copse__trainer *t, size_t index) {
    item at = find_item(t, index);
    copse__state_item made = {.rank = at.tensor->rank,
                              .elements = copse__tensor_elements(at.tensor, NULL),
                              .trainable = at.kind == ITEM_PARAMETER,
                              .slot = at.kind == ITEM_SLOT};
    for (size_t d = 0; d < made.rank; d++)
        made.shape[d] = at.tensor->dim[d].size;
    if (at.kind == ITEM_SLOT)
        snprintf(made.name, sizeof made.name, "optimizer/%s/%s", at.tensor->name,
                 copse__optimizer_slot_name(&t->optimizer, at.part));
    else
        snprintf(made.name, sizeof made.name, "%s", at.tensor->name);
    return made;
}

static float *moving_values(const copse__trainer *t, item at) {
    return t->moving[at.index] + at.part * copse__tensor_elements(at.tensor, NULL);
}

copse_status copse__trainer_state_read(copse__trainer *t, size_t index, float *values,
                                       copse_error *err) {
    item at = find_item(t, index);
    size_t elements = copse__tensor_elements(at.tensor, NULL);
    if (at.kind == ITEM_MOVING) {
        memcpy(values, moving_values(t, at), elements * sizeof(float));
        return COPSE_OK;
    }
    return copse__store_read(t->replicas[0].store,
                             at.kind == ITEM_SLOT ? COPSE__KIND_SLOT : COPSE__KIND_WEIGHT,
                             at.part, at.index, values, err);
}

copse_status copse__trainer_state_write(copse__trainer *t, size_t index,
                                        const float *values, copse_error *err) {
    item at = find_item(t, index);
    size_t elements = copse__tensor_elements(at.tensor, NULL);
    if (at.kind == ITEM_MOVING) {
        memcpy(moving_values(t, at), values, elements * sizeof(float));
        t->moving_changed = true;
        return COPSE_OK;
    }
    copse_status status = COPSE_OK;
    for (size_t r = 0; r < t->replica_count && status == COPSE_OK; r++)
        status = copse__store_write(t->replicas[r].store,
                                    at.kind == ITEM_SLOT ? COPSE__KIND_SLOT
                                                         : COPSE__KIND_WEIGHT,
                                    at.part, at.index, values, err);
    return status;
}

copse_status copse__trainer_move_statistics(copse__trainer *t, const size_t *rows,
                                            copse_error *err) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    if (graph->state_count == 0)
        return COPSE_OK;
    copse_status status;
    uint64_t *counts = NULL;
    const float **stats = NULL;
    float *merged = NULL;
    COPSE__TRY(copse__calloc(&counts, t->replica_count, sizeof *counts, err), out);
    COPSE__TRY(copse__calloc(&stats, t->replica_count, sizeof *stats, err), out);
    for (size_t s = 0; s < graph->state_count; s++) {
        const copse__state *state = &graph->states[s];
        size_t channels =
            copse__tensor_elements(&graph->tensors[state->moving_mean], NULL);
        for (size_t r = 0; r < t->replica_count; r++) {
            copse__extents extents = copse__shard_extents(graph, rows[r]);
            counts[r] = copse__tensor_rows(&graph->tensors[state->source], &extents);
            stats[r] = copse__program_stats(t->replicas[r].train, s);
        }
        free(merged);
        COPSE__TRY(copse__calloc(&merged, 2 * channels, sizeof *merged, err), out);
        if (copse__tree_merge_moments(t->replica_count, counts, stats, channels,
                                      merged) == 0)
            continue;
        /* Keras: moving = moving * momentum + batch * (1 - momentum), in float32. */
        float keep = state->momentum, take = 1.0f - state->momentum;
        for (size_t i = 0; i < 2 * channels; i++)
            t->moving[s][i] = t->moving[s][i] * keep + merged[i] * take;
    }
    t->moving_changed = true;
out:
    free(counts);
    free(stats);
    free(merged);
    return status;
}

/* The STATE buffer of one replica, as its evaluation plan lays it out. */
static copse_status send_to(copse__trainer *t, copse__replica *r, copse_error *err) {
    char *bytes;
    copse_status status = copse__calloc(&bytes, r->store->state_bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    const copse__graph *graph = r->eval_graph;
    for (size_t s = 0; s < graph->state_count; s++) {
        const copse__state *state = &graph->states[s];
        copse__placement mean = r->eval_plan->tensors[state->moving_mean];
        copse__placement variance = r->eval_plan->tensors[state->moving_variance];
        memcpy(bytes + mean.offset, t->moving[s], mean.bytes);
        memcpy(bytes + variance.offset, t->moving[s] + mean.bytes / sizeof(float),
               variance.bytes);
    }
    status = copse__store_write_state(r->store, bytes, err);
    free(bytes);
    return status;
}

copse_status copse__trainer_send_statistics(copse__trainer *t, copse_error *err) {
    if (!t->moving_changed || copse__trainer_main_graph(t)->state_count == 0)
        return COPSE_OK;
    for (size_t r = 0; r < t->replica_count; r++) {
        copse_status status = send_to(t, &t->replicas[r], err);
        if (status != COPSE_OK)
            return status;
    }
    t->moving_changed = false;
    return COPSE_OK;
}
