/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/selftest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/describe.h"
#include "train/augment.h"
#include "train/trainer_private.h"

/* ---- Opening --------------------------------------------------------------------------- */

void copse__trainer_tell(const copse__trainer *t, const char *what) {
    if (t->hooks.on_prepare)
        t->hooks.on_prepare(t->hooks.user, what);
}

/* A metric of the validation needs one. */
static copse_status check_monitored(const copse__config *config,
                                    const copse__datasets *sets, copse_error *err) {
    const copse__config_train *train = &config->train;
    const char *of[] = {
        train->early_stopping.enabled ? train->early_stopping.monitor.metric : NULL,
        train->plateau.enabled ? train->plateau.monitor.metric : NULL,
        config->checkpoint.enabled ? config->checkpoint.best : NULL};
    static const char *const keys[] = {"train.early_stopping",
                                       "train.reduce_lr_on_plateau", "checkpoint.best"};
    for (size_t i = 0; i < COPSE__COUNT(of); i++)
        if (of[i] && strncmp(of[i], "val_", 4) == 0 && !sets->validation)
            return copse__fail(err, COPSE_CONFIG, 0, config->path,
                               "%s looks at %s, but there is no validation set: give "
                               "data.validation, data.validation_split or data.test",
                               keys[i], of[i]);
    return COPSE_OK;
}

copse_status copse__trainer_check(const copse__config *config, copse_error *err) {
    const copse__config_train *train = &config->train;
    const char *what = NULL;
    if (train->precision != COPSE__PRECISION_FLOAT32)
        what = "train.precision: mixed_float16";
    else if (train->strategy != COPSE__STRATEGY_MIRRORED)
        what = "a train.strategy other than mirrored";
    else if (train->accumulate > 1 && train->reproducible == COPSE__REPRODUCIBLE_DEVICES)
        what =
            "train.accumulate with train.reproducible: devices, which cuts every batch "
            "in micro-shards already,";
    return what ? copse__fail(err, COPSE_UNSUPPORTED, 0, config->path,
                              "%s is not supported; remove it", what)
                : COPSE_OK;
}

typedef struct opening {
    copse__trainer *trainer;
    copse__device_options device;
} opening;

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
        ops[COPSE__OP_ACCUMULATE] = r->sizes.levels > 0;
    }
    copse__selftest_options quick = {
        .level = COPSE__SELFTEST_QUICK, .seed = 1, .ops = ops};
    return copse__selftest_run(r->device, &quick, NULL, NULL, err);
}

static copse_status open_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    copse__trainer *t = o->trainer;
    copse__sizes sizes;
    copse_status status = copse__shards_sizes(t, rank, &sizes, err);
    if (status == COPSE_OK)
        status = copse__replica_open(&t->replicas[rank], rank, &t->choices[rank],
                                     &o->device, &t->network, sizes, t->training, err);
    return status;
}

/* The host is what the others are compared with. */
static copse_status check_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    copse__trainer *t = o->trainer;
    t->replicas[rank].stage = "while it was checked";
    return t->choices[rank].api == COPSE__API_HOST
               ? COPSE_OK
               : check_device(t, &t->replicas[rank], err);
}

static copse_status plan_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    return copse__replica_plan(&o->trainer->replicas[rank], o->trainer->layout,
                               &o->trainer->optimizer, err);
}

static copse_status prepare_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    o->trainer->replicas[rank].stage = "while its kernels were built";
    return copse__replica_prepare(&o->trainer->replicas[rank], &o->trainer->optimizer,
                                  err);
}

static copse_status warm_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    o->trainer->replicas[rank].stage = "while its kernels were run once";
    return copse__replica_warm_up(&o->trainer->replicas[rank], err);
}

/* To the measured shard. A device that gets none keeps what it has: it may be needed later. */
static copse_status fit_one(size_t rank, void *user, copse_error *err) {
    const opening *o = user;
    copse__trainer *t = o->trainer;
    copse__sizes sizes;
    if (t->shards[rank] == 0)
        return COPSE_OK;
    copse_status status = copse__shards_sizes(t, rank, &sizes, err);
    return status == COPSE_OK ? copse__replica_resize(&t->replicas[rank], &t->network,
                                                      &t->optimizer, sizes, err)
                              : status;
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

/* The same plan as `cltopo plan` shows. */
static copse_status rank_replicas(copse__trainer *t, const copse__topo *topo,
                                  copse_error *err) {
    uint64_t bytes = 0;
    char text[32];
    for (size_t b = 0; b < t->layout->bucket_count; b++)
        bytes += t->layout->buckets[b].elements * sizeof(float);
    copse_status status =
        copse__rank_plan_make(&t->ranks, topo, t->choices, t->replica_count, bytes, err);
    if (status != COPSE_OK || t->replica_count < 2 || !t->training)
        return status;
    const copse__rank_plan *plan = t->ranks;
    if (plan->bound[0])
        copse__log(COPSE_LOG_INFO,
                   "rank order %s; summing %s of gradients takes at least %.3g ms (%s)",
                   plan->hash, copse__format_bytes(text, sizeof text, bytes),
                   1e3 * fmax(fmax(plan->link_s, plan->memory_s), plan->cpu_s),
                   plan->bound);
    else
        copse__log(COPSE_LOG_INFO, "rank order %s", plan->hash);
    return COPSE_OK;
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

/* Times that measured shards are checked at their own sizes. */
#define MOST_CHECKS 2

/* Devices are first made for the shards that could be had without measuring; what is measured then may
 * give them others, for which those whose shard changed are planned and prepared anew. So everything
 * that depends on sizes (kernels, memory) is as it would be had the shards been recorded. */
static copse_status prepare_all(copse__trainer *t, const copse__trainer_options *options,
                                bool measure, copse_error *err) {
    copse_status status;
    char *cache = NULL;
    COPSE__TRY(copse__cache_folder(&cache, err), out);
    opening o = {.trainer = t,
                 .device = {.profile = options->profile,
                            .cache_folder = cache,
                            .providers = options->providers,
                            .backend = options->backend}};
    copse__workers_set_patience(t->workers, t->stall_ns * COPSE__BUILD_PATIENCE);
    copse__trainer_tell(t, "opening the devices");
    COPSE__TRY(copse__workers_run(t->workers, open_one, &o, NULL, err), out);
    if (options->selftest) {
        copse__trainer_tell(t, "checking the devices");
        COPSE__TRY(copse__workers_run(t->workers, check_one, &o, NULL, err), out);
    }
    copse__trainer_tell(t, "planning");
    COPSE__TRY(copse__trainer_tune(t, options, cache, err), out);
    COPSE__TRY(make_layout(t, err), out);
    if (options->topo)
        COPSE__TRY(rank_replicas(t, options->topo, err), out);
    COPSE__TRY(copse__workers_run(t->workers, plan_one, &o, NULL, err), out);
    if (options->plan_only)
        goto out;
    copse__trainer_tell(t, "building kernels");
    COPSE__TRY(copse__workers_run(t->workers, prepare_one, &o, NULL, err), out);
    copse__trainer_tell(t, "running everything once");
    COPSE__TRY(copse__workers_run(t->workers, warm_one, &o, NULL, err), out);
    if (measure) {
        bool changed = true;
        COPSE__TRY(copse__calibrate(t, err), out);
        for (int checks = 0; changed; checks++) {
            copse__trainer_tell(t, "building kernels for the measured shards");
            COPSE__TRY(copse__workers_run(t->workers, fit_one, &o, NULL, err), out);
            changed = false;
            if (checks < MOST_CHECKS)
                COPSE__TRY(copse__calibrate_again(t, &changed, err), out);
        }
    }
    copse__trainer_tell(t, "setting the weights");
    COPSE__TRY(copse__group_join(t, err), out);
    copse__workers_set_patience(t->workers, t->stall_ns);
    copse__trainer_set_pace(t);
    COPSE__TRY(new_moving(t, err), out);
    COPSE__TRY(draw_weights(t, err), out);
    for (size_t r = 0; r < t->replica_count; r++)
        copse__trainer_tell_tuned(t, r);
    copse__trainer_tell(t, NULL);
out:
    free(cache);
    return status;
}

static copse_status new_augment(copse__trainer *t, copse_error *err) {
    copse_status status =
        copse__config_augment(&t->augment, &t->augment_count, t->config, err);
    if (status == COPSE_OK)
        status = copse__calloc(&t->eval_augment, t->augment_count,
                               sizeof *t->eval_augment, err);
    if (status == COPSE_OK)
        t->eval_augment_count =
            copse__augment_for_evaluation(t->eval_augment, t->augment, t->augment_count);
    return status;
}

void copse__trainer_set_pace(copse__trainer *t) {
    uint64_t longest = 0;
    for (size_t r = 0; r < t->replica_count; r++) {
        const copse__replica *replica = &t->replicas[r];
        /* A thread that was left alone may write to its replica. */
        if (!copse__takes_part(t, r) || copse__workers_is_out(t->workers, r))
            continue;
        size_t micro = copse__max_size(replica->sizes.train_rows, 1);
        uint64_t step = replica->pass_ns * (t->shards[r] / micro + 1);
        longest = step > longest ? step : longest;
    }
    copse__workers_set_pace(t->workers, longest);
}

static void on_hang(void *user, double seconds) {
    const copse__trainer *t = user;
    const char *stage = t->replicas[0].stage;
    copse_error why = {0};
    copse__fail(&why, COPSE_TIMEOUT, 0, t->choices[0].label,
                "after step %" PRIu64 ": it has not answered for %.3g s%s%s; its driver "
                "hangs, and what it holds is lost: go on from the last checkpoint",
                t->position.step, seconds, stage ? ", " : "", stage ? stage : "");
    if (t->hooks.on_hang)
        t->hooks.on_hang(t->hooks.user, &why);
    else
        copse__log(COPSE_LOG_ERROR, "%s: %s", why.place, why.text);
}

static copse_status new_arrays(copse__trainer *t, copse_error *err) {
    copse_status status;
    size_t n = t->replica_count;
    COPSE__TRY(copse__calloc(&t->choices, n, sizeof *t->choices, err), out);
    COPSE__TRY(copse__calloc(&t->replicas, n, sizeof *t->replicas, err), out);
    COPSE__TRY(copse__calloc(&t->engine_ranks, n, sizeof *t->engine_ranks, err), out);
    COPSE__TRY(copse__calloc(&t->steps, n, sizeof *t->steps, err), out);
    COPSE__TRY(copse__calloc(&t->statuses, n, sizeof *t->statuses, err), out);
    COPSE__TRY(copse__calloc(&t->failed, n, sizeof *t->failed, err), out);
out:
    return status;
}

/* Whose thread has not come back, and from where. */
static void name_silent(const copse__trainer *t, copse_error *err) {
    for (size_t r = 0; t->workers && r < t->replica_count; r++) {
        const char *stage = t->replicas[r].stage;
        if (copse__workers_is_out(t->workers, r))
            copse__fail(
                err, COPSE_TIMEOUT, 0, t->choices[r].label,
                "before the first step: its driver has not answered %s; leave the "
                "device out with --devices, or set devices.stall_seconds higher",
                stage ? stage : "in time");
    }
}

copse_status copse__trainer_open(copse__trainer **out, const copse__config *config,
                                 const copse__datasets *sets,
                                 const copse__trainer_options *options,
                                 copse_error *err) {
    *out = NULL;
    copse_status status = copse__trainer_check(config, err);
    if (status == COPSE_OK && options->training)
        status = check_monitored(config, sets, err);
    if (status != COPSE_OK)
        return status;
    copse__trainer *t;
    bool measure;
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
    if (config->train.reproducible == COPSE__REPRODUCIBLE_DEVICES)
        t->micro_shard = (size_t)config->train.micro_shard;
    t->stall_ns = (uint64_t)(config->devices.stall_seconds * 1e9);
    t->set_rate = -1;
    t->optimizer = copse__optimizer_make(&config->train.optimizer);
    COPSE__TRY(new_arrays(t, err), fail);
    memcpy(t->choices, options->choices, t->replica_count * sizeof *t->choices);
    COPSE__TRY(new_augment(t, err), fail);
    COPSE__TRY(copse__network_make(&t->network, config, sets, err), fail);
    COPSE__TRY(copse__shards_begin(t, options->shards, &measure, err), fail);
    if (copse__shards_are_free(t) && t->micro_shard == 0)
        COPSE__TRY(copse__drift_new(&t->drift, t->replica_count, err), fail);
    for (size_t i = 0; options->cuts && i < options->cuts->count; i++)
        COPSE__TRY(copse__cuts_add(&t->cuts, t->replica_count, options->cuts->steps[i],
                                   options->cuts->shards + i * t->replica_count, err),
                   fail);
    COPSE__TRY(copse__workers_new(&t->workers, t->replica_count, err), fail);
    COPSE__TRY(copse__workers_watch(t->workers, on_hang, t, err), fail);
    COPSE__TRY(prepare_all(t, options, measure, err), fail);
    *out = t;
    return COPSE_OK;
fail:
    if (status == COPSE_TIMEOUT)
        name_silent(t, err);
    copse__trainer_close(t);
    return status;
}

static void free_moving(copse__trainer *t) {
    size_t states = t->moving ? copse__trainer_main_graph(t)->state_count : 0;
    for (size_t s = 0; s < states; s++)
        free(t->moving[s]);
    free(t->moving);
}

static void free_arrays(copse__trainer *t) {
    free(t->augment);
    free(t->eval_augment);
    free(t->replicas);
    free(t->choices);
    free(t->shards);
    free(t->eval_shards);
    free(t->speeds);
    copse__cuts_free(&t->cuts);
    copse__drift_free(t->drift);
    copse__rank_plan_free(t->ranks);
    copse__trainer_free_tuned(t);
    free(t->engine_ranks);
    free(t->retired);
    free(t->kept);
    free(t->steps);
    free(t->statuses);
    free(t->failed);
    free(t->spare);
    free(t);
}

void copse__trainer_close(copse__trainer *t) {
    if (!t)
        return;
    free_moving(t);
    for (size_t r = 0; t->workers && r < t->replica_count; r++)
        if (copse__workers_is_out(t->workers, r))
            atomic_store(&t->replicas[r].lost, true); /* also where opening failed */
    /* A thread that is still in its driver may come back and look at all of these. */
    bool all_back = copse__workers_free(t->workers);
    if (all_back) {
        copse__allreduce_free(t->allreduce);
        for (size_t i = 0; i < t->retired_count; i++)
            copse__allreduce_free(t->retired[i]);
        for (size_t i = 0; i < t->kept_count; i++)
            free(t->kept[i]);
    }
    for (size_t r = 0; t->replicas && r < t->replica_count; r++)
        copse__replica_close(&t->replicas[r]);
    if (!all_back)
        return;
    for (size_t r = 0; t->replicas && r < t->replica_count; r++)
        copse__replica_forget(&t->replicas[r]);
    copse__layout_free(t->layout);
    free_arrays(t);
}

/* ---- Small questions ------------------------------------------------------------------- */

void copse__trainer_stop(copse__trainer *t) {
    atomic_store(&t->stop, true);
}

void copse__trainer_time_steps(copse__trainer *t, bool on) {
    t->times_steps = on;
}

const copse__step_times *copse__trainer_times(const copse__trainer *t, size_t rank) {
    return copse__trainer_measured(t, rank) && t->steps[rank].timed
               ? &t->steps[rank].times
               : NULL;
}

const char *copse__trainer_label(const copse__trainer *t, size_t rank) {
    return t->choices[rank].label;
}

bool copse__trainer_node_span(const copse__trainer *t, size_t rank, size_t node,
                              copse__node_span *span) {
    const copse__replica *r = &t->replicas[rank];
    *span = (copse__node_span){0};
    if (atomic_load(&r->lost) || node >= r->train_graph->node_count)
        return false;
    if (copse__program_span(r->train, t->steps[rank].slot, node, &span->begin_ns,
                            &span->end_ns)) {
        span->name = r->train_graph->nodes[node].name;
        span->provider = copse__program_provider(r->train, node);
    }
    return true;
}

void copse__trainer_finish(copse__trainer *t) {
    t->finished = true;
}

double copse__trainer_rate(const copse__trainer *t, uint64_t step) {
    return t->set_rate >= 0 ? t->set_rate
                            : copse__config_learning_rate(
                                  &t->config->train.optimizer.learning_rate, step);
}

void copse__trainer_set_rate(copse__trainer *t, double rate) {
    t->set_rate = rate;
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

const copse__datasets *copse__trainer_sets(const copse__trainer *t) {
    return t->sets;
}

void copse__trainer_describe(copse__trainer *t, size_t rank, copse__text *out) {
    const copse__replica *r = &t->replicas[rank];
    copse__plan_describe(out, r->train_graph ? r->train_graph : r->eval_graph,
                         r->train_plan ? r->train_plan : r->eval_plan, r->device);
}

const copse__layout *copse__trainer_layout(const copse__trainer *t) {
    return t->layout;
}

size_t copse__trainer_label_outputs(const copse__trainer *t) {
    const copse__graph *graph = copse__trainer_graph(t);
    if (graph->label == COPSE__NO_TENSOR ||
        graph->tensors[graph->label].dtype != COPSE_I32)
        return 0;
    return copse__tensor_columns(&graph->tensors[graph->output]);
}

size_t copse__trainer_label_bound(const copse__trainer *t) {
    size_t outputs = copse__trainer_label_outputs(t);
    size_t configured = (size_t)t->config->data.classes;
    return configured > 0 ? copse__min_size(outputs, configured) : outputs;
}

const char *copse__trainer_shards_are(const copse__trainer *t) {
    return t->shards_are;
}

bool copse__trainer_is_lost(const copse__trainer *t, size_t rank) {
    return atomic_load(&t->replicas[rank].lost);
}

const copse__graph *copse__trainer_graph(const copse__trainer *t) {
    return t->replicas[t->lead == SIZE_MAX ? 0 : t->lead].eval_graph;
}

static copse_status finish_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    t->replicas[rank].stage = "while its queues were emptied";
    copse__device *device = t->replicas[rank].device;
    copse_status status =
        copse__backend_of(device)->finish(device, COPSE__QUEUE_UPLOAD, err);
    return status == COPSE_OK
               ? copse__backend_of(device)->finish(device, COPSE__QUEUE_COMPUTE, err)
               : status;
}

void copse__trainer_finish_queues(copse__trainer *t) {
    (void)!copse__trainer_ask_all(t, finish_one, t, NULL);
}
