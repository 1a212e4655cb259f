/* SPDX-License-Identifier: Apache-2.0 */
#include "train/replica.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/fuse.h"

static copse_status build(copse__graph **out, const copse__network *network,
                          size_t max_rows, bool training, copse_error *err) {
    copse__model_options options = network->options;
    options.max_batch = max_rows;
    options.training = training;
    copse_status status =
        copse__model_build(out, network->layers, network->layer_count, &options, err);
    if (status == COPSE_OK)
        copse__fuse(*out);
    return status;
}

copse_status copse__replica_open(copse__replica *r, size_t rank,
                                 const copse__device_choice *choice,
                                 const copse__device_options *device_options,
                                 const copse__network *network, size_t max_rows,
                                 bool training, copse_error *err) {
    copse_status status;
    *r = (copse__replica){.rank = rank, .max_rows = copse__max_size(max_rows, 1)};
    if (training)
        COPSE__TRY(build(&r->train_graph, network, r->max_rows, true, err), fail);
    COPSE__TRY(build(&r->eval_graph, network, r->max_rows, false, err), fail);
    COPSE__TRY(copse__device_open(&r->device, choice, device_options, err), fail);
    return COPSE_OK;
fail:
    copse__replica_close(r);
    return status;
}

/* Bytes of weights, gradients and slots, and bytes that grow with the shard. */
static size_t fixed_bytes(const copse__replica *r) {
    size_t kinds = r->train_graph ? 2 + r->slot_count : 1, elements = 0;
    for (size_t b = 0; b < r->layout->bucket_count; b++)
        elements += r->layout->buckets[b].elements;
    return kinds * elements * sizeof(float) + r->eval_plan->state_bytes +
           sizeof(copse_scalars);
}

static size_t growing_bytes(const copse__replica *r) {
    const copse__plan *plans[] = {r->eval_plan, r->train_plan};
    size_t bytes = 0, blocks = 0;
    for (size_t i = 0; i < COPSE__COUNT(plans) && plans[i]; i++) {
        bytes += copse__plan_io_bytes(plans[i]);
        blocks = copse__max_size(blocks, plans[i]->block_count);
    }
    for (size_t b = 0; b < blocks; b++) {
        size_t block = 0;
        for (size_t i = 0; i < COPSE__COUNT(plans) && plans[i]; i++)
            if (b < plans[i]->block_count)
                block = copse__max_size(block, plans[i]->block_bytes[b]);
        bytes += block;
    }
    return bytes;
}

size_t copse__replica_bytes(const copse__replica *r) {
    return fixed_bytes(r) + growing_bytes(r);
}

/* Says that a device is too small before its driver is asked for what it cannot give. */
static copse_status check_total(const copse__replica *r, copse_error *err) {
    const copse__device_base *base = copse__device_get(r->device);
    size_t fixed = fixed_bytes(r), growing = growing_bytes(r);
    if (fixed + growing <= base->caps.total_bytes)
        return COPSE_OK;
    size_t room = base->caps.total_bytes > fixed ? base->caps.total_bytes - fixed : 0;
    double fits = (double)r->max_rows * (double)room / (double)growing;
    return copse__fail(err, COPSE_DEVICE_MEMORY, 0, base->choice.label,
                       "the model needs %zu bytes for parameters and %zu for a shard of "
                       "%zu samples, but the device has %zu; a shard of %.0f would fit",
                       fixed, growing, r->max_rows, base->caps.total_bytes, fits);
}

copse_status copse__replica_plan(copse__replica *r, const copse__layout *layout,
                                 const copse__optimizer *optimizer, copse_error *err) {
    r->layout = layout;
    r->slot_count = r->train_graph ? copse__optimizer_slots(optimizer) : 0;
    copse_status status =
        copse__plan_new(&r->eval_plan, r->eval_graph, layout, r->device, err);
    if (status == COPSE_OK && r->train_graph)
        status = copse__plan_new(&r->train_plan, r->train_graph, layout, r->device, err);
    return status == COPSE_OK ? check_total(r, err) : status;
}

copse_status copse__replica_prepare(copse__replica *r, const copse__optimizer *optimizer,
                                    copse_error *err) {
    copse_status status;
    bool training = r->train_graph != NULL;
    const copse__plan *plans[] = {r->eval_plan, r->train_plan};
    COPSE__TRY(copse__store_new(&r->store, r->device, r->layout, r->slot_count, training,
                                plans, training ? 2 : 1, err),
               out);
    if (training)
        COPSE__TRY(
            copse__program_new(&r->train, r->train_graph, r->train_plan, r->store, err),
            out);
    COPSE__TRY(copse__program_new(&r->eval, r->eval_graph, r->eval_plan, r->store, err),
               out);
    if (training)
        COPSE__TRY(copse__updater_new(&r->updater, r->store, optimizer, err), out);
out:
    return status; /* what was made is freed by copse__replica_close */
}

copse_status copse__replica_warm_up(copse__replica *r, copse_error *err) {
    copse_status status;
    copse__program *programs[] = {r->eval, r->train};
    copse__extents extents = copse__shard_extents(r->eval_graph, r->max_rows);
    const copse__tensor *input = &r->eval_graph->tensors[r->eval_graph->input];
    size_t label_bytes =
        r->eval_graph->label == COPSE__NO_TENSOR
            ? 0
            : copse__tensor_bytes(&r->eval_graph->tensors[r->eval_graph->label], NULL);
    void *zeros;
    status = copse__calloc(
        &zeros, copse__max_size(copse__tensor_bytes(input, NULL), label_bytes), 1, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < COPSE__COUNT(programs) && programs[i]; i++)
        for (size_t slot = 0; slot < COPSE__INPUT_SLOTS; slot++) {
            const copse__graph *graph = i == 0 ? r->eval_graph : r->train_graph;
            COPSE__TRY(
                copse__program_upload(programs[i], slot, zeros, zeros, &extents, err),
                out);
            COPSE__TRY(copse__program_run(programs[i], slot, 0, graph->node_count,
                                          &extents, err),
                       out);
            COPSE__TRY(copse__program_collect(programs[i], slot, &extents, err), out);
            COPSE__TRY(copse__program_wait(programs[i], UINT64_MAX, err), out);
        }
    if (r->updater) {
        uint64_t ignored;
        COPSE__TRY(copse__updater_check(r->updater, &ignored, err), out);
        COPSE__TRY(copse__updater_apply(r->updater, err), out);
        COPSE__TRY(copse__updater_hash(r->updater, &ignored, err), out);
    }
    COPSE__TRY(copse__store_clear(r->store, err), out);
out:
    free(zeros);
    return status;
}

void copse__replica_close(copse__replica *r) {
    copse__updater_free(r->updater);
    copse__program_free(r->train);
    copse__program_free(r->eval);
    copse__store_free(r->store);
    copse__plan_free(r->train_plan);
    copse__plan_free(r->eval_plan);
    copse__graph_free(r->train_graph);
    copse__graph_free(r->eval_graph);
    copse__device_close(r->device);
    *r = (copse__replica){0};
}

copse__extents copse__shard_extents(const copse__graph *graph, size_t rows) {
    copse__extents extents = {.of = {[COPSE__BATCH] = rows}};
    const copse__tensor *input = &graph->tensors[graph->input];
    for (size_t d = 0; d < input->rank; d++)
        if (input->dim[d].symbol == COPSE__TIME)
            extents.of[COPSE__TIME] = input->dim[d].size;
    return extents;
}

static copse_status send_scalars(copse__replica *r, const copse__step *step,
                                 copse_error *err) {
    r->scalars[step->slot] = step->scalars;
    copse__view to = {.buffer = r->store->scalars, .bytes = sizeof(copse_scalars)};
    return copse__backend_of(r->device)->write(r->device, COPSE__QUEUE_COMPUTE, to,
                                               &r->scalars[step->slot],
                                               sizeof(copse_scalars), NULL, NULL, err);
}

/* Hands a bucket to the all-reduce as soon as what is queued so far has run. */
static copse_status submit_bucket(copse__replica *r, const copse__step *step,
                                  size_t bucket, copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    copse__fence *ready = NULL;
    bool contributes = step->extents.of[COPSE__BATCH] > 0;
    copse_status status = backend->mark(&ready, r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->flush(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status != COPSE_OK) {
        backend->fence_free(ready);
        return status;
    }
    return copse__allreduce_submit(
        step->allreduce, r->rank, step->step, bucket,
        copse__store_bucket(r->store, COPSE__KIND_GRADIENT, 0, bucket), ready,
        contributes, err);
}

/* Runs all nodes, cut where a bucket's last gradient is written. */
static copse_status run_nodes(copse__replica *r, const copse__step *step,
                              copse_error *err) {
    copse_status status;
    size_t at = 0, end = r->train_graph->node_count;
    for (size_t b = 0; step->allreduce && b < step->layout->bucket_count; b++) {
        size_t ready = step->layout->buckets[b].ready_node + 1;
        ready = copse__min_size(ready, end);
        status = copse__program_run(r->train, step->slot, at, ready, &step->extents, err);
        if (status == COPSE_OK)
            status = submit_bucket(r, step, b, err);
        if (status != COPSE_OK)
            return status;
        at = copse__max_size(at, ready);
    }
    return copse__program_run(r->train, step->slot, at, end, &step->extents, err);
}

copse_status copse__replica_step(copse__replica *r, copse__step *step, copse_error *err) {
    copse_status status;
    copse__allreduce_result reduced = {0};
    step->nonfinite = 0;
    step->weights_hash = 0;
    /* First of all, as the all-reduce uses the upload queue from the first bucket on. */
    if (step->next_features)
        COPSE__TRY(copse__program_upload(r->train, (step->slot + 1) % COPSE__INPUT_SLOTS,
                                         step->next_features, step->next_labels,
                                         &step->next_extents, err),
                   out);
    COPSE__TRY(send_scalars(r, step, err), out);
    COPSE__TRY(run_nodes(r, step, err), out);
    COPSE__TRY(copse__program_collect(r->train, step->slot, &step->extents, err), out);
    if (step->allreduce) {
        COPSE__TRY(
            copse__allreduce_wait(step->allreduce, r->rank, step->step, &reduced, err),
            out);
        step->nonfinite = reduced.nonfinite;
    } else {
        COPSE__TRY(copse__updater_check(r->updater, &step->nonfinite, err), out);
    }
    COPSE__TRY(copse__program_wait(r->train, UINT64_MAX, err), out);
    if (step->nonfinite > 0 || !step->update)
        return COPSE_OK;
    COPSE__TRY(copse__updater_apply(r->updater, err), out);
    if (step->hash)
        COPSE__TRY(copse__updater_hash(r->updater, &step->weights_hash, err), out);
out:
    return status;
}

copse_status copse__replica_evaluate(copse__replica *r, size_t slot,
                                     const copse__extents *extents,
                                     const void *next_features, const void *next_labels,
                                     const copse__extents *next_extents,
                                     copse_error *err) {
    copse_status status;
    size_t end = r->eval_graph->node_count;
    COPSE__TRY(copse__program_run(r->eval, slot, 0, end, extents, err), out);
    COPSE__TRY(copse__program_collect(r->eval, slot, extents, err), out);
    if (next_features)
        COPSE__TRY(copse__program_upload(r->eval, (slot + 1) % COPSE__INPUT_SLOTS,
                                         next_features, next_labels, next_extents, err),
                   out);
    COPSE__TRY(copse__program_wait(r->eval, UINT64_MAX, err), out);
out:
    return status;
}
