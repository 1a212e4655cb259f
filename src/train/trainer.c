/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/selftest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/fuse.h"
#include "train/trainer_private.h"

/* ---- The network ----------------------------------------------------------------------- */

/* The graph's options that follow from the data. */
static copse_status make_network(copse__network *out, const copse__config *config,
                                 const copse__datasets *sets, copse_error *err) {
    copse_dataset *set = sets->train  ? sets->train
                         : sets->test ? sets->test
                                      : sets->validation;
    const copse_data_spec *features = copse_dataset_get_features(set);
    const copse_data_spec *labels = copse_dataset_get_labels(set);
    *out = (copse__network){.layers = config->layers, .layer_count = config->layer_count};
    copse__model_options *o = &out->options;
    o->sample_rank = features->rank;
    memcpy(o->sample_shape, features->shape, sizeof o->sample_shape);
    o->sample_dtype = features->dtype;
    o->scale = (float)config->data.scale;
    o->offset = (float)config->data.offset;
    o->loss = labels ? config->train.loss : COPSE__LOSS_NONE;
    o->from_logits = config->train.from_logits;
    o->class_count = sets->classes;
    if (labels && o->loss == COPSE__LOSS_MEAN_SQUARED_ERROR) {
        if (labels->dtype != COPSE_F32)
            return copse__fail(
                err, COPSE_CONFIG, 0, config->path,
                "mean_squared_error needs float targets, but the labels are "
                "%s; use sparse_categorical_crossentropy",
                copse_dtype_name(labels->dtype));
        o->target_rank = labels->rank;
        memcpy(o->target_shape, labels->shape, sizeof o->target_shape);
    } else if (labels && labels->dtype != COPSE_I32) {
        return copse__fail(err, COPSE_CONFIG, 0, config->path,
                           "sparse_categorical_crossentropy needs class labels, but the "
                           "labels are %s; use mean_squared_error",
                           copse_dtype_name(labels->dtype));
    }
    return COPSE_OK;
}

copse_status copse__trainer_build_graph(copse__graph **out, const copse__config *config,
                                        const copse__datasets *sets, size_t max_batch,
                                        bool training, copse_error *err) {
    *out = NULL;
    copse__network network;
    copse_status status = make_network(&network, config, sets, err);
    if (status != COPSE_OK)
        return status;
    network.options.max_batch = max_batch;
    network.options.training = training;
    status = copse__model_build(out, network.layers, network.layer_count,
                                &network.options, err);
    if (status == COPSE_OK)
        copse__fuse(*out);
    return status;
}

/* ---- Opening --------------------------------------------------------------------------- */

static void tell(const copse__trainer *t, const char *what) {
    if (t->hooks.on_prepare)
        t->hooks.on_prepare(t->hooks.user, what);
}

static copse_status check_supported(const copse__config *config, copse_error *err) {
    const copse__config_train *train = &config->train;
    const char *what = NULL;
    if (train->precision != COPSE__PRECISION_FLOAT32)
        what = "train.precision: mixed_float16";
    else if (train->strategy != COPSE__STRATEGY_MIRRORED)
        what = "a train.strategy other than mirrored";
    else if (train->accumulate > 1)
        what = "train.accumulate above 1";
    else if (train->reproducible != COPSE__REPRODUCIBLE_RUN)
        what = "train.reproducible: devices";
    return what ? copse__fail(err, COPSE_UNSUPPORTED, 0, config->path,
                              "%s is not supported yet; remove it", what)
                : COPSE_OK;
}

static copse_status make_shards(copse__trainer *t, const size_t *recorded,
                                copse_error *err) {
    copse_status status;
    size_t n = t->replica_count;
    double *weights = NULL;
    COPSE__TRY(copse__calloc(&t->shards, n, sizeof *t->shards, err), out);
    COPSE__TRY(copse__calloc(&t->eval_weights, n, sizeof *t->eval_weights, err), out);
    COPSE__TRY(copse__calloc(&weights, n, sizeof *weights, err), out);
    for (size_t r = 0; r < n; r++)
        weights[r] = t->choices[r].weight > 0 ? t->choices[r].weight : 1;
    if (recorded)
        memcpy(t->shards, recorded, n * sizeof *t->shards);
    else
        COPSE__TRY(copse_shard_split(t->batch, n, weights, t->shards, err), out);
    for (size_t r = 0; r < n; r++)
        t->eval_weights[r] = (double)t->shards[r];
out:
    free(weights);
    return status;
}

typedef struct opening {
    copse__trainer *trainer;
    copse__device_options device;
    bool selftest;
} opening;

/* The largest shard a replica may get: of a training batch its own; of an evaluation batch of another
 * size its share, rounded up. */
static size_t largest_shard(const copse__trainer *t, size_t rank) {
    double share = (double)t->shards[rank] / (double)t->batch * (double)t->eval_batch;
    size_t eval = copse__min_size((size_t)share + 1, t->eval_batch);
    return copse__max_size(t->shards[rank], t->shards[rank] > 0 ? eval : 0);
}

static void mark_ops(bool *ops, const copse__graph *graph) {
    for (size_t n = 0; graph && n < graph->node_count; n++)
        ops[graph->nodes[n].op] = true;
}

/* The quick part of the self-test, of the operations that this run needs. */
static copse_status check_device(const copse__trainer *t, const copse__replica *r,
                                 copse_error *err) {
    bool ops[COPSE__OP_COUNT] = {false};
    mark_ops(ops, r->eval_graph);
    mark_ops(ops, r->train_graph);
    if (r->train_graph) {
        ops[t->optimizer.op] = true;
        ops[COPSE__OP_FINITE_CHECK] = true;
        ops[COPSE__OP_PARAMETER_HASH] = true;
    }
    copse__selftest_options quick = {
        .level = COPSE__SELFTEST_QUICK, .seed = 1, .ops = ops};
    return copse__selftest_run(r->device, &quick, NULL, NULL, err);
}

static copse_status open_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    copse__trainer *t = o->trainer;
    copse_status status =
        copse__replica_open(&t->replicas[rank], rank, &t->choices[rank], &o->device,
                            &t->network, largest_shard(t, rank), t->training, err);
    if (status != COPSE_OK || !o->selftest || t->choices[rank].api == COPSE__API_HOST)
        return status; /* the host is what the others are compared with */
    return check_device(t, &t->replicas[rank], err);
}

static copse_status plan_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    return copse__replica_plan(&o->trainer->replicas[rank], o->trainer->layout,
                               &o->trainer->optimizer, err);
}

static copse_status prepare_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    copse__replica *replica = &o->trainer->replicas[rank];
    copse_status status = copse__replica_prepare(replica, &o->trainer->optimizer, err);
    return status == COPSE_OK ? copse__replica_warm_up(replica, err) : status;
}

static copse_status make_layout(copse__trainer *t, copse_error *err) {
    copse__layout_options options = {.max_bucket_bytes = SIZE_MAX};
    for (size_t r = 0; r < t->replica_count; r++) {
        const copse__caps *caps = &copse__device_get(t->replicas[r].device)->caps;
        options.alignment = copse__max_size(options.alignment, caps->view_alignment);
        options.max_bucket_bytes =
            copse__min_size(options.max_bucket_bytes, caps->max_alloc_bytes);
    }
    return copse__layout_new(&t->layout, copse__trainer_main_graph(t), &options, err);
}

static copse_status make_allreduce(copse__trainer *t, copse_error *err) {
    if (!t->training || t->replica_count < 2 || t->layout->bucket_count == 0)
        return COPSE_OK;
    copse_status status;
    copse__device **devices = NULL;
    size_t *elements = NULL;
    COPSE__TRY(copse__calloc(&devices, t->replica_count, sizeof(copse__device *), err),
               out);
    COPSE__TRY(copse__calloc(&elements, t->layout->bucket_count, sizeof *elements, err),
               out);
    for (size_t r = 0; r < t->replica_count; r++)
        devices[r] = t->replicas[r].device;
    for (size_t b = 0; b < t->layout->bucket_count; b++)
        elements[b] = t->layout->buckets[b].elements;
    copse__allreduce_options options = {.devices = devices,
                                        .rank_count = t->replica_count,
                                        .bucket_elements = elements,
                                        .bucket_count = t->layout->bucket_count};
    COPSE__TRY(copse__allreduce_new(&t->allreduce, &options, err), out);
out:
    free(devices);
    free(elements);
    return status;
}

static copse_status new_moving(copse__trainer *t, copse_error *err) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    copse_status status =
        copse__calloc(&t->moving, graph->state_count, sizeof *t->moving, err);
    for (size_t s = 0; s < graph->state_count && status == COPSE_OK; s++) {
        size_t channels =
            copse__tensor_elements(&graph->tensors[graph->states[s].moving_mean], NULL);
        status = copse__calloc(&t->moving[s], 2 * channels, sizeof(float), err);
        if (status == COPSE_OK)
            copse__state_initialize(graph, s, t->moving[s], t->moving[s] + channels);
    }
    t->moving_changed = true;
    return status;
}

static copse_status draw_weights(copse__trainer *t, copse_error *err) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    copse_status status = COPSE_OK;
    for (size_t p = 0; p < graph->parameter_count && status == COPSE_OK; p++) {
        float *values;
        status =
            copse__calloc(&values, t->layout->places[p].elements, sizeof *values, err);
        if (status != COPSE_OK)
            return status;
        copse__parameter_initialize(graph, p, t->config->train.seed, values);
        status = copse__trainer_state_write(t, p, values, err);
        free(values);
    }
    return status;
}

static copse_status prepare_all(copse__trainer *t, const copse__trainer_options *options,
                                copse_error *err) {
    copse_status status;
    char *cache = NULL;
    COPSE__TRY(copse__cache_folder(&cache, err), out);
    opening o = {.trainer = t,
                 .device = {.profile = options->profile,
                            .cache_folder = cache,
                            .providers = options->providers},
                 .selftest = options->selftest};
    tell(t, "opening and checking the devices");
    COPSE__TRY(copse__workers_run(t->workers, open_one, &o, NULL, err), out);
    COPSE__TRY(make_layout(t, err), out);
    COPSE__TRY(copse__workers_run(t->workers, plan_one, &o, NULL, err), out);
    if (options->plan_only)
        goto out;
    tell(t, "building kernels");
    COPSE__TRY(copse__workers_run(t->workers, prepare_one, &o, NULL, err), out);
    COPSE__TRY(make_allreduce(t, err), out);
    COPSE__TRY(new_moving(t, err), out);
    COPSE__TRY(draw_weights(t, err), out);
    tell(t, NULL);
out:
    free(cache);
    return status;
}

copse_status copse__trainer_open(copse__trainer **out, const copse__config *config,
                                 const copse__datasets *sets,
                                 const copse__trainer_options *options,
                                 copse_error *err) {
    *out = NULL;
    copse_status status = check_supported(config, err);
    if (status != COPSE_OK)
        return status;
    copse__trainer *t;
    status = copse__calloc(&t, 1, sizeof *t, err);
    if (status != COPSE_OK)
        return status;
    t->config = config;
    t->sets = sets;
    t->training = options->training;
    t->hooks = options->hooks ? *options->hooks : (copse__trainer_hooks){0};
    t->replica_count = options->choice_count;
    t->batch = (size_t)config->train.batch;
    t->eval_batch = (size_t)config->train.validate_batch;
    t->optimizer = copse__optimizer_make(&config->train.optimizer);
    COPSE__TRY(copse__calloc(&t->choices, t->replica_count, sizeof *t->choices, err),
               fail);
    memcpy(t->choices, options->choices, t->replica_count * sizeof *t->choices);
    COPSE__TRY(copse__calloc(&t->replicas, t->replica_count, sizeof *t->replicas, err),
               fail);
    COPSE__TRY(make_network(&t->network, config, sets, err), fail);
    COPSE__TRY(make_shards(t, options->shards, err), fail);
    COPSE__TRY(copse__workers_new(&t->workers, t->replica_count, err), fail);
    COPSE__TRY(prepare_all(t, options, err), fail);
    *out = t;
    return COPSE_OK;
fail:
    copse__trainer_close(t);
    return status;
}

void copse__trainer_close(copse__trainer *t) {
    if (!t)
        return;
    size_t states = t->moving ? copse__trainer_main_graph(t)->state_count : 0;
    for (size_t s = 0; s < states; s++)
        free(t->moving[s]);
    free(t->moving);
    copse__allreduce_free(t->allreduce);
    for (size_t r = 0; t->replicas && r < t->replica_count; r++)
        copse__replica_close(&t->replicas[r]);
    copse__workers_free(t->workers);
    copse__layout_free(t->layout);
    free(t->replicas);
    free(t->choices);
    free(t->shards);
    free(t->eval_weights);
    free(t);
}

/* ---- Small questions ------------------------------------------------------------------- */

void copse__trainer_stop(copse__trainer *t) {
    atomic_store(&t->stop, true);
}

copse__position copse__trainer_position(const copse__trainer *t) {
    return t->position;
}

void copse__trainer_seek(copse__trainer *t, copse__position position) {
    t->position = position;
}

size_t copse__trainer_replicas(const copse__trainer *t) {
    return t->replica_count;
}

size_t copse__trainer_shard(const copse__trainer *t, size_t rank) {
    return t->shards[rank];
}

size_t copse__trainer_device_bytes(const copse__trainer *t, size_t rank) {
    return copse__replica_bytes(&t->replicas[rank]);
}

const copse__layout *copse__trainer_layout(const copse__trainer *t) {
    return t->layout;
}

size_t copse__trainer_label_bound(const copse__trainer *t) {
    const copse__graph *graph = t->replicas[0].eval_graph;
    if (graph->label == COPSE__NO_TENSOR ||
        graph->tensors[graph->label].dtype != COPSE_I32)
        return 0;
    return copse__tensor_columns(&graph->tensors[graph->output]);
}

const copse__graph *copse__trainer_graph(const copse__trainer *t) {
    return t->replicas[0].eval_graph;
}

typedef struct hashing {
    copse__trainer *trainer;
    uint64_t *hashes;
} hashing;

static copse_status hash_one(size_t rank, void *user, copse_error *err) {
    const hashing *h = user;
    return copse__updater_hash(h->trainer->replicas[rank].updater, &h->hashes[rank], err);
}

copse_status copse__check_hashes(const copse__trainer *t, const uint64_t *hashes,
                                 copse_error *err) {
    for (size_t r = 1; r < t->replica_count; r++)
        if (hashes[r] != hashes[0])
            return copse__fail(err, COPSE_DRIFT, 0, t->choices[r].label,
                               "after step %" PRIu64
                               " its parameters differ from those of %s (hash %016" PRIx64
                               " and %016" PRIx64
                               "); leave the device out with --devices and run `copse "
                               "selftest`",
                               t->position.step, t->choices[0].label, hashes[r],
                               hashes[0]);
    return COPSE_OK;
}

copse_status copse__trainer_hash(copse__trainer *t, uint64_t *hash, copse_error *err) {
    hashing h = {.trainer = t};
    *hash = 0;
    copse_status status =
        copse__calloc(&h.hashes, t->replica_count, sizeof *h.hashes, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__workers_run(t->workers, hash_one, &h, NULL, err), out);
    COPSE__TRY(copse__check_hashes(t, h.hashes, err), out);
    *hash = h.hashes[0];
out:
    free(h.hashes);
    return status;
}
