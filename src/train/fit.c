/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/augment.h"
#include "train/trainer_private.h"

/* The training run: epochs of steps, each step by all replicas at once. */
typedef struct fit {
    copse__trainer *trainer;
    copse_pipeline *pipeline;
    copse__slot_memory memory;
    const copse_batch *now, *next;
    size_t slot;
    copse__step *steps; /* by rank */
    size_t *rows;       /* of the current batch, by rank */
    copse__score epoch_score;
    uint64_t epoch_samples;
    uint64_t epoch_start_ns, step_start_ns;
    uint64_t waited_before_ns; /* for data, until this epoch */
} fit;

static bool same_spec(const copse_data_spec *a, const copse_data_spec *b) {
    if (!a || !b)
        return a == b;
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* The network was planned for the samples as they are stored. */
static copse_status check_rows(const fit *f, copse_error *err) {
    const copse_dataset *set = f->trainer->sets->train;
    if (same_spec(copse_pipeline_get_features(f->pipeline),
                  copse_dataset_get_features(set)) &&
        same_spec(copse_pipeline_get_labels(f->pipeline), copse_dataset_get_labels(set)))
        return COPSE_OK;
    return copse__fail(err, COPSE_UNSUPPORTED, 0, f->trainer->config->path,
                       "data.augment changes the size of the samples or makes "
                       "probabilities of their labels (mixup), which training does not "
                       "support yet");
}

static copse_status open_pipeline(fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    const copse__config_data *data = &t->config->data;
    f->memory.trainer = t;
    copse_augment *augment;
    size_t augment_count;
    copse_status status = copse__config_augment(&augment, &augment_count, t->config, err);
    if (status != COPSE_OK)
        return status;
    copse_pipeline_options options = {
        .batch = t->batch,
        .augment = augment,
        .augment_count = augment_count,
        .shuffle = data->shuffle,
        .shuffle_buffer = (size_t)data->shuffle_buffer,
        .seed = data->shuffle_seed,
        .drop_remainder = data->drop_remainder,
        .epochs = t->config->train.epochs,
        .start_epoch = t->position.epoch,
        .start_batch = t->position.batch,
        .prefetch = (size_t)data->prefetch,
        .held = COPSE__INPUT_SLOTS,
        .label_classes = copse__trainer_label_bound(t),
        .replica_count = t->replica_count,
        .shards = t->shards,
        .alloc = copse__slot_alloc,
        .free = copse__slot_free,
        .alloc_user = &f->memory,
    };
    status = copse_pipeline_open(&f->pipeline, t->sets->train, &options, err);
    free(augment);
    return status == COPSE_OK ? check_rows(f, err) : status;
}

static copse_status upload_one(size_t rank, void *user, copse_error *err) {
    const fit *f = user;
    copse__replica *r = &f->trainer->replicas[rank];
    const copse_batch_part *part = &f->now->parts[rank];
    copse__extents extents = copse__shard_extents(r->train_graph, part->rows);
    return copse__program_upload(r->train, f->slot, part->features, part->labels,
                                 &extents, err);
}

static copse_status step_one(size_t rank, void *user, copse_error *err) {
    const fit *f = user;
    return copse__replica_step(&f->trainer->replicas[rank], &f->steps[rank], err);
}

/* How many rows the loss is a mean over: the global batch's, on whichever replica they are. */
static double loss_denominator(const copse__trainer *t, size_t batch_rows) {
    const copse__graph *graph = t->replicas[0].train_graph;
    copse__extents extents = copse__shard_extents(graph, batch_rows);
    return (double)copse__tensor_rows(&graph->tensors[graph->metrics], &extents);
}

static bool hash_is_due(const copse__trainer *t) {
    uint64_t every = t->config->train.hash_every;
    return t->replica_count > 1 && every > 0 && (t->position.step + 1) % every == 0;
}

static void describe_step(fit *f) {
    copse__trainer *t = f->trainer;
    uint64_t seed = t->config->train.seed;
    copse_scalars scalars = {
        .seed0 = (uint32_t)seed,
        .seed1 = (uint32_t)(seed >> 32),
        .step = (uint32_t)t->position.step,
        .loss_scale = (float)(1.0 / loss_denominator(t, f->now->rows)),
        .gradient_scale = 1,
    };
    copse__optimizer_scalars(
        &t->optimizer, t->position.step,
        copse__config_learning_rate(&t->config->train.optimizer.learning_rate,
                                    t->position.step),
        &scalars);
    for (size_t r = 0; r < t->replica_count; r++) {
        const copse__graph *graph = t->replicas[r].train_graph;
        const copse_batch_part *part = &f->now->parts[r];
        const copse_batch_part *next = f->next ? &f->next->parts[r] : NULL;
        f->rows[r] = part->rows;
        f->steps[r] = (copse__step){
            .step = t->position.step,
            .slot = f->slot,
            .extents = copse__shard_extents(graph, part->rows),
            .scalars = scalars,
            .layout = t->layout,
            .allreduce = t->allreduce,
            .next_features = next ? next->features : NULL,
            .next_labels = next ? next->labels : NULL,
            .next_extents = copse__shard_extents(graph, next ? next->rows : 0),
            .hash = hash_is_due(t),
            .update = true,
        };
        f->steps[r].scalars.sample_base = (uint32_t)part->first_row;
    }
}

/* Names the first replica and layer whose numbers are not finite. */
static copse_status name_nonfinite(fit *f, double loss, copse_error *err) {
    copse__trainer *t = f->trainer;
    for (size_t r = 0; r < t->replica_count; r++) {
        const char *node =
            copse__replica_find_nonfinite(&t->replicas[r], f->slot, &f->steps[r].extents);
        if (node)
            return copse__fail(err, COPSE_NUMERIC, 0, t->choices[r].label,
                               "step %" PRIu64 ": the first number that is not finite "
                               "comes from '%s'; lower the learning rate or look at the "
                               "data of this batch",
                               t->position.step + 1, node);
    }
    return copse__fail(err, COPSE_NUMERIC, 0, NULL,
                       "step %" PRIu64 ": %" PRIu64
                       " gradients are not finite (loss %g); "
                       "lower the learning rate",
                       t->position.step + 1, f->steps[0].nonfinite, loss);
}

static copse_status check_step(fit *f, const copse__score *score, copse_error *err) {
    copse__trainer *t = f->trainer;
    double loss = copse__score_loss(score);
    if (f->steps[0].nonfinite > 0 || !isfinite(loss)) {
        if (t->config->train.on_nonfinite == COPSE__ON_FAULT_CONTINUE &&
            f->steps[0].nonfinite > 0) {
            copse__log(COPSE_LOG_WARN,
                       "step %" PRIu64 " left out: %" PRIu64 " gradients are not finite",
                       t->position.step + 1, f->steps[0].nonfinite);
            return COPSE_OK;
        }
        return name_nonfinite(f, loss, err);
    }
    if (!f->steps[0].hash)
        return COPSE_OK;
    for (size_t r = 1; r < t->replica_count; r++)
        if (f->steps[r].weights_hash != f->steps[0].weights_hash)
            return copse__fail(
                err, COPSE_DRIFT, 0, t->choices[r].label,
                "after step %" PRIu64 " its parameters differ from those of %s (hash "
                "%016" PRIx64 " and %016" PRIx64
                "); leave the device out with --devices and run `copse selftest`",
                t->position.step + 1, t->choices[0].label, f->steps[r].weights_hash,
                f->steps[0].weights_hash);
    return COPSE_OK;
}

static copse_status report_step(fit *f, const copse__score *score, copse_error *err) {
    copse__trainer *t = f->trainer;
    if (!t->hooks.on_step)
        return COPSE_OK;
    uint64_t now = copse__now_ns();
    copse__progress progress = {
        .step = t->position.step,
        .epoch = f->now->epoch,
        .epochs = t->config->train.epochs,
        .index = f->now->index + 1,
        .count = copse_pipeline_batches(f->pipeline),
        .last = *score,
        .epoch_score = f->epoch_score,
        .rows = f->now->rows,
        .seconds = (double)(now - f->step_start_ns) * 1e-9,
        .learning_rate = copse__config_learning_rate(
            &t->config->train.optimizer.learning_rate, t->position.step - 1),
    };
    f->step_start_ns = now;
    return t->hooks.on_step(t->hooks.user, &progress, err);
}

/* One optimizer step over the current batch. */
static copse_status run_step(fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse_status status = copse_pipeline_next(f->pipeline, &f->next, err);
    if (status != COPSE_OK)
        return status;
    describe_step(f);
    status = copse__workers_run(t->workers, step_one, f, NULL, err);
    if (status != COPSE_OK)
        return status;
    copse__score score = {0};
    for (size_t r = 0; r < t->replica_count; r++)
        copse__score_add(&score, t->replicas[r].train, t->replicas[r].train_graph,
                         f->rows[r]);
    status = check_step(f, &score, err);
    if (status == COPSE_OK && f->steps[0].nonfinite == 0)
        status = copse__trainer_move_statistics(t, f->rows, err);
    if (status != COPSE_OK)
        return status;
    f->epoch_score.loss_sum += score.loss_sum;
    f->epoch_score.hits += score.hits;
    f->epoch_score.samples += score.samples;
    f->epoch_samples += f->now->rows;
    t->position.step++;
    t->position.batch = f->now->index + 1;
    return report_step(f, &score, err);
}

static void advance(fit *f) {
    copse_pipeline_release(f->pipeline, f->now);
    f->now = f->next;
    f->next = NULL;
    f->slot = (f->slot + 1) % COPSE__INPUT_SLOTS;
}

static bool steps_are_done(const copse__trainer *t) {
    return t->config->train.steps > 0 && t->position.step >= t->config->train.steps;
}

/* The steps of the current epoch, from the current position. */
static copse_status run_epoch(fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse_pipeline_stats stats;
    copse_pipeline_get_stats(f->pipeline, &stats);
    f->waited_before_ns = stats.wait_ns;
    f->epoch_score = (copse__score){0};
    f->epoch_samples = 0;
    f->epoch_start_ns = f->step_start_ns = copse__now_ns();
    if (f->now) {
        copse_status status = copse__workers_run(t->workers, upload_one, f, NULL, err);
        if (status != COPSE_OK)
            return status;
    }
    while (f->now) {
        copse_status status = run_step(f, err);
        if (status != COPSE_OK)
            return status;
        advance(f);
        if (atomic_exchange(&t->stop, false))
            return copse__fail(err, COPSE_INTERRUPTED, 0, NULL,
                               "stopped after step %" PRIu64 ", as asked",
                               t->position.step);
        if (steps_are_done(t))
            break;
    }
    return COPSE_OK;
}

static copse_status end_epoch(fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse_pipeline_stats stats;
    copse_pipeline_get_stats(f->pipeline, &stats);
    copse__epoch_report report = {
        .epoch = t->position.epoch,
        .step = t->position.step,
        .train = f->epoch_score,
        .validation_name = t->sets->validation_name,
        .seconds = (double)(copse__now_ns() - f->epoch_start_ns) * 1e-9,
        .data_wait_seconds = (double)(stats.wait_ns - f->waited_before_ns) * 1e-9,
    };
    report.samples_per_s =
        report.seconds > 0 ? (double)f->epoch_samples / report.seconds : 0;
    if (!steps_are_done(t) || !f->now) {
        t->position.epoch++;
        t->position.batch = 0;
    }
    bool due = t->config->train.validate && t->sets->validation &&
               (report.epoch + 1) % t->config->train.validate_every == 0;
    if (due) {
        copse_status status = copse__trainer_evaluate(
            t, t->sets->validation, t->sets->validation_name, &report.validation, err);
        if (status != COPSE_OK)
            return status;
        report.validated = true;
    }
    return t->hooks.on_epoch ? t->hooks.on_epoch(t->hooks.user, &report, err) : COPSE_OK;
}

static void close_fit(fit *f) {
    for (size_t r = 0; r < f->trainer->replica_count; r++) {
        copse__device *device = f->trainer->replicas[r].device;
        (void)copse__backend_of(device)->finish(device, COPSE__QUEUE_UPLOAD, NULL);
        (void)copse__backend_of(device)->finish(device, COPSE__QUEUE_COMPUTE, NULL);
    }
    copse_pipeline_close(f->pipeline);
    free(f->steps);
    free(f->rows);
}

copse_status copse__trainer_fit(copse__trainer *t, copse_error *err) {
    copse_status status;
    fit f = {.trainer = t};
    COPSE__TRY(copse__calloc(&f.steps, t->replica_count, sizeof *f.steps, err), out);
    COPSE__TRY(copse__calloc(&f.rows, t->replica_count, sizeof *f.rows, err), out);
    COPSE__TRY(open_pipeline(&f, err), out);
    while (t->position.epoch < t->config->train.epochs && !steps_are_done(t)) {
        COPSE__TRY(copse_pipeline_next(f.pipeline, &f.now, err), out);
        COPSE__TRY(run_epoch(&f, err), out);
        COPSE__TRY(end_epoch(&f, err), out);
    }
out:
    close_fit(&f);
    return status;
}

static bool is_finite(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

const char *copse__replica_find_nonfinite(copse__replica *r, size_t slot,
                                          const copse__extents *extents) {
    const copse__graph *graph = r->train_graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        const copse__node *node = &graph->nodes[n];
        if (copse__program_run(r->train, slot, n, n + 1, extents, NULL) != COPSE_OK)
            return NULL;
        for (size_t o = 0; o < node->output_count; o++) {
            copse__tensor_id id = node->outputs[o];
            if (id == COPSE__NO_TENSOR || graph->tensors[id].dtype != COPSE_F32)
                continue;
            size_t count = copse__tensor_elements(&graph->tensors[id], extents);
            float *values = NULL;
            if (copse__calloc(&values, count, sizeof *values, NULL) != COPSE_OK)
                return NULL;
            bool fine = copse__program_read_tensor(r->train, id, extents, values, NULL) !=
                            COPSE_OK ||
                        is_finite(values, count);
            free(values);
            if (!fine)
                return node->name;
        }
    }
    return NULL;
}
