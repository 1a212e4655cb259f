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

/* One parameter's values, or one of its slots', to or from devices. On the heap, where it stays if a
 * driver does not come back from its call; else the largest is kept for the next, as new memory costs a
 * checkpoint more time than the copy. */
struct copse__transfer {
    copse__trainer *trainer;
    size_t capacity; /* bytes of all of this */
    item at;
    bool reads;
    float values[];
};
typedef struct copse__transfer transfer;

static copse_status transfer_new(transfer **out, copse__trainer *t, item at, bool reads,
                                 const float *values, copse_error *err) {
    size_t bytes = copse__tensor_elements(at.tensor, NULL) * sizeof(float), total;
    *out = NULL;
    if (!copse__add_size(bytes, sizeof **out, &total))
        return copse__fail_nomem(err, UINT64_MAX);
    if (t->spare && t->spare->capacity >= total) {
        *out = t->spare;
        t->spare = NULL;
    } else {
        copse_status status = copse__calloc(out, total, 1, err);
        if (status != COPSE_OK)
            return status;
        (*out)->capacity = total;
    }
    (*out)->trainer = t;
    (*out)->at = at;
    (*out)->reads = reads;
    if (values)
        memcpy((*out)->values, values, bytes);
    return COPSE_OK;
}

/* A device that failed may still be at it: what it may write stays. */
static void transfer_free(transfer *x, copse_status status) {
    bool out = copse__is_loss(status);
    for (size_t r = 0; r < x->trainer->replica_count; r++)
        out |= copse__workers_is_out(x->trainer->workers, r);
    copse__trainer *t = x->trainer;
    if (out)
        return;
    bool keeps = !t->spare || t->spare->capacity < x->capacity;
    free(keeps ? t->spare : x);
    if (keeps)
        t->spare = x;
}

static copse_status transfer_one(size_t rank, void *user, copse_error *err) {
    transfer *x = user;
    x->trainer->replicas[rank].stage = "while its weights were read or written";
    copse__store *store = x->trainer->replicas[rank].store;
    copse__kind kind = x->at.kind == ITEM_SLOT ? COPSE__KIND_SLOT : COPSE__KIND_WEIGHT;
    return x->reads
               ? copse__store_read(store, kind, x->at.part, x->at.index, x->values, err)
               : copse__store_write(store, kind, x->at.part, x->at.index, x->values, err);
}

/* From the first rank that takes part; where it fails, from the next. */
static copse_status read_from_lead(copse__trainer *t, item at, float *values,
                                   copse_error *err) {
    while (t->lead != SIZE_MAX) {
        size_t rank = t->lead;
        transfer *x;
        copse_status status = transfer_new(&x, t, at, true, NULL, err);
        if (status != COPSE_OK)
            return status;
        status = copse__trainer_ask(t, rank, transfer_one, x, err);
        if (status == COPSE_OK)
            memcpy(values, x->values,
                   copse__tensor_elements(at.tensor, NULL) * sizeof(float));
        transfer_free(x, status);
        if (status == COPSE_OK || t->lead == rank)
            return status;
    }
    return copse__fail(err, COPSE_DEVICE, 0, NULL,
                       "no device with the weights of step %llu is left",
                       (unsigned long long)t->position.step);
}

copse_status copse__trainer_state_read(copse__trainer *t, size_t index, float *values,
                                       copse_error *err) {
    item at = find_item(t, index);
    if (at.kind != ITEM_MOVING)
        return read_from_lead(t, at, values, err);
    memcpy(values, moving_values(t, at),
           copse__tensor_elements(at.tensor, NULL) * sizeof(float));
    return COPSE_OK;
}

copse_status copse__trainer_state_write(copse__trainer *t, size_t index,
                                        const float *values, copse_error *err) {
    item at = find_item(t, index);
    if (at.kind == ITEM_MOVING) {
        memcpy(moving_values(t, at), values,
               copse__tensor_elements(at.tensor, NULL) * sizeof(float));
        t->moving_changed = true;
        return COPSE_OK;
    }
    transfer *x;
    copse_status status = transfer_new(&x, t, at, false, values, err);
    if (status != COPSE_OK)
        return status;
    status = copse__workers_run(t->workers, transfer_one, x, NULL, err);
    transfer_free(x, status);
    return status;
}

static copse_status wake_item(copse__trainer *t, size_t rank, item at, copse_error *err) {
    transfer *x;
    copse_status status = transfer_new(&x, t, at, false, NULL, err);
    if (status != COPSE_OK)
        return status;
    status = read_from_lead(t, at, x->values, err);
    if (status == COPSE_OK)
        status = copse__trainer_ask(t, rank, transfer_one, x, err);
    transfer_free(x, status);
    return status;
}

copse_status copse__trainer_wake(copse__trainer *t, size_t rank, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < copse__trainer_state_count(t) && status == COPSE_OK; i++) {
        item at = find_item(t, i);
        if (at.kind != ITEM_MOVING)
            status = wake_item(t, rank, at, err);
    }
    return status;
}

/* The micro-batches of the last step, over all replicas: one row of `counts` and `stats` each. */
static size_t list_moments(const copse__trainer *t, const copse__graph *graph,
                           size_t state, uint64_t *counts, const float **stats) {
    size_t before = 0, all = 0, found = 0;
    for (size_t s = 0; s < graph->state_count; s++) {
        if (s == state)
            before = all;
        if (graph->states[s].stats != COPSE__NO_TENSOR)
            all += copse__tensor_elements(&graph->tensors[graph->states[s].stats], NULL);
    }
    for (size_t r = 0; r < t->replica_count; r++) {
        const copse__replica *replica = &t->replicas[r];
        size_t micro = copse__max_size(replica->sizes.train_rows, 1);
        for (size_t at = 0, row = 0;
             copse__trainer_measured(t, r) && at + all <= replica->moment_count;
             at += all, row += micro, found++) {
            if (!counts)
                continue;
            size_t rows = copse__min_size(micro, replica->share_rows - row);
            copse__extents extents = copse__shard_extents(graph, rows);
            counts[found] = copse__tensor_rows(
                &graph->tensors[graph->states[state].source], &extents);
            stats[found] = replica->moments + at + before;
        }
    }
    return found;
}

/* Keras: moving = moving * momentum + batch * (1 - momentum), in float32. */
static void move(float *moving, const float *batch, size_t count, float momentum) {
    float keep = momentum, take = 1.0f - momentum;
    for (size_t i = 0; i < count; i++)
        moving[i] = moving[i] * keep + batch[i] * take;
}

copse_status copse__trainer_move_statistics(copse__trainer *t, copse_error *err) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    if (graph->state_count == 0)
        return COPSE_OK;
    copse_status status;
    uint64_t *counts = NULL;
    const float **stats = NULL;
    float *merged = NULL;
    size_t n = list_moments(t, graph, 0, NULL, NULL);
    COPSE__TRY(copse__calloc(&counts, n, sizeof *counts, err), out);
    COPSE__TRY(copse__calloc(&stats, n, sizeof *stats, err), out);
    for (size_t s = 0; s < graph->state_count && n > 0; s++) {
        const copse__state *state = &graph->states[s];
        size_t channels =
            copse__tensor_elements(&graph->tensors[state->moving_mean], NULL);
        list_moments(t, graph, s, counts, stats);
        free(merged);
        COPSE__TRY(copse__calloc(&merged, 2 * channels, sizeof *merged, err), out);
        if (copse__tree_merge_moments(n, counts, stats, channels, merged) > 0)
            move(t->moving[s], merged, 2 * channels, state->momentum);
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

static copse_status send_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return send_to(t, &t->replicas[rank], err);
}

copse_status copse__trainer_send_statistics(copse__trainer *t, copse_error *err) {
    if (!t->moving_changed || copse__trainer_main_graph(t)->state_count == 0)
        return COPSE_OK;
    copse_status status = copse__trainer_ask_all(t, send_one, t, err);
    t->moving_changed = status != COPSE_OK;
    return status;
}
