/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, reading and closing a pipeline; what its workers do is in pipeline_plan.c, _fill.c and
 * _work.c. */
#include "data/pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"

/* ---- Options --------------------------------------------------------------------------
 */

/* Splits the batch by weights, in groups of `unit` rows. */
static copse_status split_by_weights(copse_pipeline *p, const double *weights,
                                     copse_error *err) {
    size_t groups = p->batch / p->unit + (p->batch % p->unit != 0);
    copse_status status = copse_shard_split(groups, p->replicas, weights, p->shards, err);
    if (status == COPSE_OK)
        copse__pipeline_groups_to_rows(p, p->batch, p->shards);
    return status;
}

static copse_status set_shards(copse_pipeline *p, const copse_pipeline_options *options,
                               copse_error *err) {
    p->unit = options->unit ? options->unit : 1;
    copse_status status = copse__calloc(&p->shards, p->replicas, sizeof *p->shards, err);
    if (status != COPSE_OK)
        return status;
    if (!options->shards)
        return split_by_weights(p, options->weights, err);
    size_t sum = 0;
    for (size_t r = 0; r < p->replicas; r++) {
        p->shards[r] = options->shards[r];
        if (options->shards[r] > 0 && sum % p->unit != 0)
            return copse__fail(err, COPSE_INVALID, 0, NULL,
                               "the shard of replica %zu begins at row %zu, within a "
                               "group of %zu",
                               r, sum, p->unit);
        if (!copse__add_size(sum, options->shards[r], &sum))
            break;
    }
    if (sum != p->batch)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "the shards sum to %zu rows, not to the batch of %zu", sum,
                           p->batch);
    return COPSE_OK;
}

/* The run may be over before it begins, or begin with an epoch's end. */
static void set_start(copse_pipeline *p, const copse_pipeline_options *options) {
    p->next_epoch = options->start_epoch;
    p->next_index = options->start_batch;
    if (p->epochs && p->next_epoch >= p->epochs) {
        p->planned_all = true;
    } else if (!p->stream && p->next_index == p->batches) {
        p->end_due = true;
        p->next_index = 0;
        p->next_epoch++;
        p->planned_all = p->epochs && p->next_epoch >= p->epochs;
    }
}

static copse_status set_position(copse_pipeline *p, const copse_pipeline_options *options,
                                 copse_error *err) {
    size_t count = p->set->count;
    if (!p->stream) {
        p->batches = count / p->batch + (count % p->batch && !p->drop_remainder);
        if (p->batches == 0)
            return copse__fail(err, COPSE_CONFIG, 0, p->set->name,
                               "its %zu samples make no batch of %zu; use a smaller "
                               "batch or keep the remainder",
                               count, p->batch);
        if (options->start_batch > p->batches)
            return copse__fail(err, COPSE_INVALID, 0, p->set->name,
                               "an epoch has %" PRIu64
                               " batches, so none starts at %" PRIu64
                               "; resume with the data and batch of the first run",
                               p->batches, options->start_batch);
    }
    set_start(p, options);
    return COPSE_OK;
}

static copse_status set_shuffle(copse_pipeline *p, const copse_pipeline_options *options,
                                copse_error *err) {
    p->shuffle = options->shuffle;
    p->shuffle_buffer = options->shuffle_buffer;
    p->seed = options->seed;
    if (p->shuffle == COPSE_SHUFFLE_BUFFER && p->shuffle_buffer == 0)
        return copse__fail(err, COPSE_CONFIG, 0, p->set->name,
                           "a shuffle buffer needs at least 1 sample");
    if (p->stream && p->shuffle == COPSE_SHUFFLE_FULL)
        return copse__fail(err, COPSE_CONFIG, 0, p->set->name,
                           "its samples come in one order only and cannot be shuffled "
                           "over the whole set; use shuffle: {buffer: N} or a cache");
    if (p->stream)
        return copse__feed_init(
            &p->feed, p->set, p->seed,
            p->shuffle == COPSE_SHUFFLE_BUFFER ? p->shuffle_buffer : 0, err);
    if (p->shuffle == COPSE_SHUFFLE_NONE)
        return COPSE_OK;
    return copse__calloc(&p->order, p->set->count, sizeof *p->order, err);
}

static copse_dtype narrowed(copse_dtype dtype) {
    switch (dtype) {
    case COPSE_F64:
        return COPSE_F32;
    case COPSE_U32:
    case COPSE_I64:
    case COPSE_U64:
        return COPSE_I32;
    default:
        return dtype;
    }
}

static copse_status set_mixup(copse_pipeline *p, const copse_augment *mixup,
                              size_t outputs, copse_error *err) {
    size_t classes = p->label_classes ? p->label_classes : p->set->classes;
    p->mixes = true;
    p->mixup = *mixup;
    if (p->label_bytes == 0 || p->labels.dtype == COPSE_F32)
        return COPSE_OK;
    if (p->labels.rank != 0 || classes == 0)
        return copse__fail(err, COPSE_CONFIG, 0, copse_augment_name(mixup->kind),
                           "it needs one class a sample and the number of classes");
    if (outputs > 0 && outputs < classes)
        return copse__fail(err, COPSE_INVALID, 0, copse_augment_name(mixup->kind),
                           "%zu probabilities cannot hold %zu classes", outputs, classes);
    p->label_classes = classes;
    p->labels = (copse_data_spec){COPSE_F32, 1, {outputs ? outputs : classes}};
    p->label_bytes = copse_data_spec_bytes(&p->labels);
    return COPSE_OK;
}

static copse_status set_augmentations(copse_pipeline *p,
                                      const copse_pipeline_options *options,
                                      copse_error *err) {
    size_t n = options->augment_count;
    if (n > COPSE__AUGMENT_MOST)
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "there are more than %d augmentations", COPSE__AUGMENT_MOST);
    copse_status status = copse__calloc(&p->augment, n, sizeof *p->augment, err);
    if (status == COPSE_OK)
        status = copse__calloc(&p->step_specs, n, sizeof *p->step_specs, err);
    for (size_t i = 0; i < n && status == COPSE_OK; i++) {
        copse_data_spec before = p->features;
        status = copse__augment_spec(&p->features, &options->augment[i], &before, err);
        if (status != COPSE_OK)
            break;
        if (options->augment[i].kind == COPSE_AUGMENT_MIXUP) {
            if (i + 1 < n)
                return copse__fail(err, COPSE_CONFIG, 0, "mixup",
                                   "it must be the last augmentation");
            status = set_mixup(p, &options->augment[i], options->label_outputs, err);
            break;
        }
        p->augment[p->augment_count] = options->augment[i];
        p->step_specs[p->augment_count++] = before;
        p->stage_bytes =
            copse__max_size(p->stage_bytes, copse_data_spec_bytes(&p->features));
    }
    return status;
}

static copse_status set_specs(copse_pipeline *p, const copse_pipeline_options *options,
                              copse_error *err) {
    p->features = p->set->features;
    p->labels = p->set->labels;
    p->label_bytes = p->set->label_bytes;
    p->stage_bytes = p->set->feature_bytes;
    if (options->narrow)
        p->features.dtype = narrowed(p->features.dtype);
    copse_status status = set_augmentations(p, options, err);
    p->feature_bytes = copse_data_spec_bytes(&p->features);
    return status;
}

static size_t usable_cpus(void) {
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return 1;
    return (size_t)CPU_COUNT(&cpus);
}

static size_t choose_threads(const copse_pipeline *p, size_t wanted) {
    if (wanted)
        return copse__min_size(wanted, 256);
    if (p->set->resident && p->augment_count == 0)
        return 1;
    return copse__min_size(usable_cpus(), 8);
}

static copse_status set_options(copse_pipeline *p, const copse_pipeline_options *options,
                                copse_error *err) {
    if (options->batch == 0)
        return copse__fail(err, COPSE_CONFIG, 0, NULL, "a batch needs at least 1 row");
    if (!options->alloc != !options->free)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "give both or neither of alloc and free");
    p->stream = p->set->count == COPSE_COUNT_UNKNOWN;
    p->batch = options->batch;
    p->replicas = options->replica_count ? options->replica_count : 1;
    p->epochs = options->epochs;
    p->drop_remainder = options->drop_remainder;
    p->skip_errors = options->skip_errors || p->set->skip_errors;
    p->label_classes = options->label_classes;
    copse_status status = set_specs(p, options, err);
    p->claim_rows = p->set->resident ? (p->augment_count ? 8 : 64) : 1;
    if (status == COPSE_OK)
        status = set_shards(p, options, err);
    if (status == COPSE_OK)
        status = set_position(p, options, err);
    if (status == COPSE_OK)
        status = set_shuffle(p, options, err);
    return status;
}

/* ---- Slots ----------------------------------------------------------------------------
 */

#define HOST_ALIGNMENT ((size_t)4096)

static copse_status host_alloc(void *user, size_t replica, size_t bytes, void **out,
                               copse_error *err) {
    (void)user;
    (void)replica;
    if (bytes > SIZE_MAX - HOST_ALIGNMENT)
        return copse__fail_nomem(err, bytes);
    bytes = copse__round_up(copse__max_size(bytes, 1), HOST_ALIGNMENT);
    *out = aligned_alloc(HOST_ALIGNMENT, bytes);
    return *out ? COPSE_OK : copse__fail_nomem(err, bytes);
}

static void host_free(void *user, size_t replica, void *memory) {
    (void)user;
    (void)replica;
    free(memory);
}

static copse_status alloc_part(copse_pipeline *p, copse_slot_alloc_fn *alloc,
                               size_t replica, size_t row_bytes, unsigned char **out,
                               copse_error *err) {
    size_t bytes;
    /* Of a smaller batch the last groups may lie elsewhere, so each is taken as whole. */
    size_t groups = p->shards[replica] / p->unit + (p->shards[replica] % p->unit != 0);
    size_t rows;
    if (!copse__mul_size(copse__max_size(groups, 1), p->unit, &rows) ||
        !copse__mul_size(copse__min_size(rows, p->batch), row_bytes, &bytes))
        return copse__fail_nomem(err, UINT64_MAX);
    void *made = NULL;
    copse_status status = alloc(p->alloc_user, replica, bytes, &made, err);
    *out = status == COPSE_OK ? made : NULL;
    return status;
}

static copse_status slot_init(copse_pipeline *p, copse__slot *slot,
                              copse_slot_alloc_fn *alloc, copse_error *err) {
    copse_status status = COPSE_OK;
    size_t n = p->replicas;
    bool labels = p->label_bytes > 0;
    COPSE__TRY(copse__calloc(&slot->parts, n, sizeof *slot->parts, err), out);
    COPSE__TRY(copse__calloc(&slot->rows, n, sizeof *slot->rows, err), out);
    COPSE__TRY(copse__calloc(&slot->samples, p->batch, sizeof *slot->samples, err), out);
    COPSE__TRY(copse__calloc(&slot->bad, p->batch, 1, err), out);
    if (p->stream)
        COPSE__TRY(copse__calloc(&slot->raws, p->batch, sizeof *slot->raws, err), out);
    COPSE__TRY(copse__calloc(&slot->features, n, sizeof *slot->features, err), out);
    if (labels)
        COPSE__TRY(copse__calloc(&slot->labels, n, sizeof *slot->labels, err), out);
    for (size_t r = 0; r < n; r++) {
        COPSE__TRY(alloc_part(p, alloc, r, p->feature_bytes, &slot->features[r], err),
                   out);
        if (labels)
            COPSE__TRY(alloc_part(p, alloc, r, p->label_bytes, &slot->labels[r], err),
                       out);
    }
out:
    return status;
}

static void slot_free(copse_pipeline *p, copse__slot *slot) {
    for (size_t r = 0; r < p->replicas; r++) {
        if (slot->features && slot->features[r])
            p->free(p->alloc_user, r, slot->features[r]);
        if (slot->labels && slot->labels[r])
            p->free(p->alloc_user, r, slot->labels[r]);
    }
    for (size_t i = 0; slot->raws && i < p->batch; i++)
        copse__raw_free(&slot->raws[i]);
    free(slot->raws);
    free(slot->bad);
    free(slot->features);
    free(slot->labels);
    free(slot->samples);
    free(slot->rows);
    free(slot->parts);
}

static copse_status make_slots(copse_pipeline *p, const copse_pipeline_options *options,
                               copse_error *err) {
    copse_slot_alloc_fn *alloc = options->alloc ? options->alloc : host_alloc;
    p->free = options->free ? options->free : host_free;
    p->alloc_user = options->alloc_user;
    size_t prefetch = options->prefetch ? options->prefetch : 2;
    size_t held = options->held ? options->held : 1, n;
    if (!copse__add_size(prefetch, held, &n))
        return copse__fail_nomem(err, UINT64_MAX);
    copse_status status = COPSE_OK;
    COPSE__TRY(copse__calloc(&p->slots, n, sizeof *p->slots, err), out);
    p->slot_count = n;
    COPSE__TRY(copse__calloc(&p->unused, n, sizeof *p->unused, err), out);
    COPSE__TRY(copse__calloc(&p->queue, n, sizeof *p->queue, err), out);
    for (size_t i = 0; i < n; i++) {
        COPSE__TRY(slot_init(p, &p->slots[i], alloc, err), out);
        p->unused[p->unused_count++] = &p->slots[i];
    }
out:
    return status;
}

/* ---- Threads --------------------------------------------------------------------------
 */

static copse_status start_threads(copse_pipeline *p, size_t wanted, copse_error *err) {
    size_t n = choose_threads(p, wanted);
    copse_status status = copse__calloc(&p->threads, n, sizeof *p->threads, err);
    for (size_t i = 0; i < n && status == COPSE_OK; i++) {
        int code = pthread_create(&p->threads[i], NULL, copse__pipeline_worker, p);
        if (code == 0)
            p->thread_count++;
        else
            status = copse__fail(err, COPSE_NOMEM, code, NULL,
                                 "cannot start thread %zu of %zu: %s", i + 1, n,
                                 strerror(code));
    }
    return status;
}

copse_status copse_pipeline_open(copse_pipeline **out, copse_dataset *dataset,
                                 const copse_pipeline_options *options,
                                 copse_error *err) {
    *out = NULL;
    copse_pipeline *p;
    copse_status status = copse__dataset_arrive(dataset, err);
    if (status == COPSE_OK)
        status = copse__calloc(&p, 1, sizeof *p, err);
    if (status != COPSE_OK)
        return status;
    p->set = copse__dataset_retain(dataset);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ready, NULL);
    COPSE__TRY(set_options(p, options, err), fail);
    COPSE__TRY(make_slots(p, options, err), fail);
    COPSE__TRY(start_threads(p, options->threads, err), fail);
    *out = p;
    return COPSE_OK;
fail:
    copse_pipeline_close(p);
    return status;
}

void copse_pipeline_close(copse_pipeline *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->thread_count; i++)
        pthread_join(p->threads[i], NULL);
    for (size_t i = 0; i < p->slot_count; i++)
        slot_free(p, &p->slots[i]);
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->slots);
    free(p->unused);
    free(p->queue);
    copse__feed_free(&p->feed);
    copse__raw_free(&p->ahead);
    free(p->order);
    free(p->augment);
    free(p->step_specs);
    free(p->shards);
    copse_dataset_close(p->set);
    free(p);
}

/* ---- The caller's side ----------------------------------------------------------------
 */

static bool all_held(const copse_pipeline *p) {
    for (size_t i = 0; i < p->slot_count; i++)
        if (!p->slots[i].held)
            return false;
    return true;
}

/* Waits for the next planned batch; NULL where the run is over. */
static copse__slot *wait_for_head(copse_pipeline *p) {
    uint64_t begun = copse__now_ns();
    copse__slot *head = NULL;
    while (!(p->queue_count == 0 && p->planned_all && !p->planning)) {
        head = p->queue_count ? p->queue[p->queue_start] : NULL;
        if (head && head->finished)
            break;
        head = NULL;
        pthread_cond_wait(&p->ready, &p->lock);
    }
    p->stats.wait_ns += copse__now_ns() - begun;
    return head;
}

static void give_back(copse_pipeline *p, copse__slot *slot) {
    slot->held = false;
    p->unused[p->unused_count++] = slot;
    pthread_cond_signal(&p->work);
}

static copse_status fail_for_good(copse_pipeline *p, const copse__slot *slot,
                                  copse_error *err) {
    p->failed = true;
    p->failure = slot->error;
    p->planned_all = true;
    if (err)
        *err = p->failure;
    return slot->status;
}

/* The next batch; NULL at an epoch's or the run's end. */
static copse_status take_next(copse_pipeline *p, const copse_batch **out,
                              copse_error *err) {
    for (;;) {
        copse__slot *slot = wait_for_head(p);
        if (!slot)
            return COPSE_OK;
        if (slot->status != COPSE_OK)
            return fail_for_good(p, slot, err);
        p->queue_start = (p->queue_start + 1) % p->slot_count;
        p->queue_count--;
        p->stats.skipped += slot->skipped;
        bool last = slot->batch.last;
        if (slot->batch.rows > 0) {
            p->stats.samples += slot->batch.rows;
            p->end_due = last;
            slot->held = true;
            slot->batch.skipped = slot->skipped + p->skipped;
            p->skipped = 0;
            *out = &slot->batch;
            return COPSE_OK;
        }
        give_back(p, slot);
        p->skipped = last ? 0 : p->skipped + slot->skipped;
        if (last)
            return COPSE_OK;
    }
}

copse_status copse_pipeline_next(copse_pipeline *p, const copse_batch **out,
                                 copse_error *err) {
    *out = NULL;
    copse_status status = COPSE_OK;
    pthread_mutex_lock(&p->lock);
    if (p->failed) {
        status = p->failure.status;
        if (err)
            *err = p->failure;
    } else if (p->end_due) {
        p->end_due = false;
    } else if (all_held(p)) {
        status = copse__fail(err, COPSE_INVALID, 0, NULL,
                             "all %zu batches are held; release one, or open the "
                             "pipeline with a larger `held`",
                             p->slot_count);
    } else {
        status = take_next(p, out, err);
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

void copse_pipeline_release(copse_pipeline *p, const copse_batch *batch) {
    if (!batch)
        return;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->slot_count; i++) {
        copse__slot *slot = &p->slots[i];
        if (&slot->batch == batch && slot->held)
            give_back(p, slot);
    }
    pthread_mutex_unlock(&p->lock);
}

const copse_data_spec *copse_pipeline_get_features(const copse_pipeline *p) {
    return &p->features;
}

const copse_data_spec *copse_pipeline_get_labels(const copse_pipeline *p) {
    return p->label_bytes ? &p->labels : NULL;
}

uint64_t copse_pipeline_batches(const copse_pipeline *p) {
    return p->batches;
}

const size_t *copse_pipeline_get_shards(const copse_pipeline *p) {
    return p->shards;
}

void copse_pipeline_get_stats(copse_pipeline *p, copse_pipeline_stats *out) {
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    pthread_mutex_unlock(&p->lock);
}
