/* SPDX-License-Identifier: Apache-2.0 */
#include "data/save.h"

static const copse__save_ops *const savers[] = {
    [COPSE_DATA_IDX] = &copse__save_idx,
    [COPSE_DATA_CIFAR10] = &copse__save_cifar,
    [COPSE_DATA_NPY] = &copse__save_npy,
    [COPSE_DATA_TFRECORD] = &copse__save_tfrecord,
    [COPSE_DATA_FOLDER] = &copse__save_folder,
    [COPSE_DATA_CSV] = &copse__save_csv,
};

copse_status copse__save_refuse(const copse__saving *saving, const char *why,
                                copse_error *err) {
    return copse__fail(err, COPSE_UNSUPPORTED, 0, saving->target->path,
                       "%s files cannot hold these samples: %s",
                       copse_data_format_name(saving->target->format), why);
}

typedef copse_status visit_fn(void *user, size_t index, const void *features,
                              const void *labels, copse_error *err);

/* Every sample in order, decoded by several threads. */
static copse_status visit(copse_dataset *set, visit_fn *fn, void *user, size_t *count,
                          copse_error *err) {
    copse_pipeline_options options = {.batch = 32, .epochs = 1, .prefetch = 4};
    copse_pipeline *pipeline;
    *count = 0;
    copse_status status = copse_pipeline_open(&pipeline, set, &options, err);
    while (status == COPSE_OK) {
        const copse_batch *batch;
        status = copse_pipeline_next(pipeline, &batch, err);
        if (status != COPSE_OK || !batch)
            break;
        const unsigned char *features = batch->parts[0].features;
        const unsigned char *labels = batch->parts[0].labels;
        for (size_t i = 0; i < batch->rows && status == COPSE_OK; i++)
            status = fn(user, (*count)++, features + i * set->feature_bytes,
                        labels ? labels + i * set->label_bytes : NULL, err);
        copse_pipeline_release(pipeline, batch);
    }
    copse_pipeline_close(pipeline);
    return status;
}

static copse_status only_count(void *user, size_t index, const void *features,
                               const void *labels, copse_error *err) {
    (void)user;
    (void)index;
    (void)features;
    (void)labels;
    (void)err;
    return COPSE_OK;
}

typedef struct job {
    copse__saving saving;
    const copse__save_ops *ops;
} job;

static copse_status put(void *user, size_t index, const void *features,
                        const void *labels, copse_error *err) {
    job *j = user;
    const copse_data_target *target = j->saving.target;
    if (index >= j->saving.count)
        return copse__fail(err, COPSE_IO, 0, j->saving.set->name,
                           "there are more samples now than a moment ago; is it being "
                           "written?");
    copse_status status = j->ops->put(&j->saving, index, features, labels, err);
    if (status == COPSE_OK && target->progress &&
        !target->progress(target->progress_user, index + 1, j->saving.count))
        status = copse__fail(err, COPSE_INTERRUPTED, 0, target->path,
                             "stopped on request; nothing was written");
    return status;
}

copse_status copse_dataset_save(copse_dataset *set, const copse_data_target *target,
                                copse_error *err) {
    job j = {.saving = {.target = target, .set = set, .count = set->count}};
    j.ops = (size_t)target->format < COPSE__COUNT(savers) ? savers[target->format] : NULL;
    if (!j.ops || !target->path)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, target->path,
                           "%s cannot be written; write idx, cifar10, npy, tfrecord, "
                           "folder or csv",
                           copse_data_format_name(target->format)
                               ? copse_data_format_name(target->format)
                               : "this format");
    copse_status status = COPSE_OK;
    size_t count;
    /* A header with the number of samples comes first. */
    if (set->count == COPSE_COUNT_UNKNOWN || set->skip_errors) {
        status = visit(set, only_count, NULL, &count, err);
        j.saving.count = count;
    }
    if (status == COPSE_OK)
        status = j.ops->begin(&j.saving, err);
    if (status == COPSE_OK)
        status = visit(set, put, &j, &count, err);
    if (status == COPSE_OK && count != j.saving.count)
        status = copse__fail(err, COPSE_IO, 0, set->name,
                             "there are fewer samples now than a moment ago; is it being "
                             "written?");
    if (status == COPSE_OK)
        return j.ops->commit(&j.saving, err);
    j.ops->abort(&j.saving);
    return status;
}
