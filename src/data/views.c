/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets made of others: a slice, a caller's callbacks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/dataset.h"

/* ---- Slice ----------------------------------------------------------------------------
 */

typedef struct slice {
    copse_dataset *whole;
    size_t first;
} slice;

static copse_status slice_read(copse_dataset *set, size_t index, copse__scratch *scratch,
                               void *features, void *labels, copse_error *err) {
    const slice *part = set->state;
    return part->whole->ops->read(part->whole, part->first + index, scratch, features,
                                  labels, err);
}

static void slice_locate(const copse_dataset *set, size_t index, char *buffer,
                         size_t bytes) {
    const slice *part = set->state;
    part->whole->ops->locate(part->whole, part->first + index, buffer, bytes);
}

static copse_status slice_arrive(copse_dataset *set, copse_error *err) {
    const slice *part = set->state;
    return copse__dataset_arrive(part->whole, err);
}

static void slice_close(copse_dataset *set) {
    slice *part = set->state;
    if (part)
        copse_dataset_close(part->whole);
    free(part);
}

static const copse__dataset_ops slice_ops = {.read = slice_read,
                                             .arrive = slice_arrive,
                                             .locate = slice_locate,
                                             .close = slice_close};

copse_status copse_dataset_slice(copse_dataset **out, copse_dataset *whole, size_t first,
                                 size_t count, copse_error *err) {
    *out = NULL;
    if (whole->count == COPSE_COUNT_UNKNOWN && first == 0 && count == whole->count) {
        *out = copse__dataset_retain(whole);
        return COPSE_OK;
    }
    if (whole->count == COPSE_COUNT_UNKNOWN)
        return copse__fail(err, COPSE_CONFIG, 0, whole->name,
                           "a stream cannot be split; name a separate validation set or "
                           "cache it");
    if (first > whole->count || count > whole->count - first)
        return copse__fail(err, COPSE_INVALID, 0, whole->name,
                           "samples %zu to %zu are outside the set of %zu", first,
                           first + count, whole->count);
    copse_dataset *set;
    copse_status status = copse__dataset_new(&set, &slice_ops, whole->name, err);
    if (status != COPSE_OK)
        return status;
    slice *part;
    COPSE__TRY(copse__calloc(&part, 1, sizeof *part, err), fail);
    set->state = part;
    part->whole = copse__dataset_retain(whole);
    part->first = first;
    set->features = whole->features;
    set->labels = whole->labels;
    set->feature_bytes = whole->feature_bytes;
    set->label_bytes = whole->label_bytes;
    set->resident = whole->resident;
    set->skip_errors = whole->skip_errors;
    set->left_out = whole->left_out;
    set->has_key = whole->has_key;
    const uint64_t key[] = {whole->key.low, whole->key.high, first, count};
    set->key = copse__hash128_of(key, sizeof key);
    set->count = count;
    COPSE__TRY(copse__dataset_set_classes(set, whole->classes,
                                          (const char *const *)whole->class_names, err),
               fail);
    *out = set;
    return COPSE_OK;
fail:
    copse_dataset_close(set);
    return status;
}

copse_status copse_dataset_split(copse_dataset **out_train,
                                 copse_dataset **out_validation, copse_dataset *whole,
                                 double fraction, copse_error *err) {
    *out_train = *out_validation = NULL;
    if (whole->count == COPSE_COUNT_UNKNOWN)
        return copse_dataset_slice(out_train, whole, 0, 0, err); /* refuses */
    if (!(fraction > 0 && fraction < 1))
        return copse__fail(err, COPSE_CONFIG, 0, whole->name,
                           "a validation split of %g is not between 0 and 1", fraction);
    /* Keras: the training part ends at int(count * (1 - fraction)). */
    size_t train = (size_t)floor((double)whole->count * (1.0 - fraction));
    if (train == 0 || train >= whole->count)
        return copse__fail(err, COPSE_CONFIG, 0, whole->name,
                           "a validation split of %g leaves one part of %zu samples "
                           "empty; choose another fraction",
                           fraction, whole->count);
    copse_status status = copse_dataset_slice(out_train, whole, 0, train, err);
    if (status == COPSE_OK)
        status =
            copse_dataset_slice(out_validation, whole, train, whole->count - train, err);
    if (status != COPSE_OK) {
        copse_dataset_close(*out_train);
        *out_train = NULL;
    }
    return status;
}

/* ---- Callbacks ------------------------------------------------------------------------
 */

static copse_status callbacks_read(copse_dataset *set, size_t index,
                                   copse__scratch *scratch, void *features, void *labels,
                                   copse_error *err) {
    const copse_data_callbacks *calls = set->state;
    (void)scratch;
    return calls->read(calls->user, index, features, labels, err);
}

static void callbacks_locate(const copse_dataset *set, size_t index, char *buffer,
                             size_t bytes) {
    snprintf(buffer, bytes, "%s, sample %zu", set->name, index);
}

static void callbacks_close(copse_dataset *set) {
    copse_data_callbacks *calls = set->state;
    if (calls && calls->close)
        calls->close(calls->user);
    free(calls);
}

static const copse__dataset_ops callbacks_ops = {
    .read = callbacks_read, .locate = callbacks_locate, .close = callbacks_close};

static copse_status set_callback_specs(copse_dataset *set,
                                       const copse_data_spec *features,
                                       const copse_data_spec *labels, copse_error *err) {
    if (labels && labels->dtype != COPSE_I32 && labels->dtype != COPSE_F32)
        return copse__fail(err, COPSE_INVALID, 0, set->name,
                           "labels are i32 (classes) or f32 (targets), not %s",
                           copse_dtype_name(labels->dtype));
    return copse__dataset_set_specs(set, features, labels, err);
}

copse_status copse_dataset_from_callbacks(copse_dataset **out,
                                          const copse_data_callbacks *callbacks,
                                          copse_error *err) {
    *out = NULL;
    const char *name = callbacks->name ? callbacks->name : "callback";
    copse_dataset *set = NULL;
    copse_data_callbacks *kept = NULL;
    copse_status status = copse__dataset_new(&set, &callbacks_ops, name, err);
    if (status == COPSE_OK)
        status = copse__calloc(&kept, 1, sizeof *kept, err);
    if (status != COPSE_OK) {
        copse_dataset_close(set);
        if (callbacks->close)
            callbacks->close(callbacks->user);
        return status;
    }
    *kept = *callbacks;
    kept->name = NULL; /* borrowed: not kept */
    set->state = kept;
    set->count = callbacks->count;
    set->classes = callbacks->classes;
    if (!callbacks->read)
        status = copse__fail(err, COPSE_INVALID, 0, name, "the read callback is NULL");
    else
        status =
            set_callback_specs(set, &callbacks->features,
                               callbacks->has_labels ? &callbacks->labels : NULL, err);
    if (status == COPSE_OK)
        *out = set;
    else
        copse_dataset_close(set);
    return status;
}

/* ---- Stream of callbacks -------------------------------------------------------------- */

static copse_status stream_start(copse_dataset *set, void **pass, copse_error *err) {
    const copse_data_stream_callbacks *calls = set->state;
    return calls->start(calls->user, pass, err);
}

/* A raw sample is its features and labels one after the other. */
static copse_status stream_next(copse_dataset *set, void *pass, copse__raw *raw,
                                bool *end, copse_error *err) {
    const copse_data_stream_callbacks *calls = set->state;
    raw->bytes = set->feature_bytes + set->label_bytes;
    copse_status status = copse__grow(&raw->data, &raw->capacity, raw->bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    void *labels = set->label_bytes ? raw->data + set->feature_bytes : NULL;
    return calls->next(calls->user, pass, raw->data, labels, end, err);
}

static void stream_stop(copse_dataset *set, void *pass) {
    const copse_data_stream_callbacks *calls = set->state;
    if (calls->stop)
        calls->stop(calls->user, pass);
}

static copse_status stream_decode(copse_dataset *set, const copse__raw *raw,
                                  copse__scratch *scratch, void *features, void *labels,
                                  copse_error *err) {
    (void)scratch;
    (void)err;
    memcpy(features, raw->data, set->feature_bytes);
    if (labels)
        memcpy(labels, raw->data + set->feature_bytes, set->label_bytes);
    return COPSE_OK;
}

static void stream_locate_raw(const copse_dataset *set, const copse__raw *raw,
                              char *buffer, size_t bytes) {
    snprintf(buffer, bytes, "%s, sample %llu", set->name,
             (unsigned long long)raw->ordinal);
}

static void stream_close(copse_dataset *set) {
    copse_data_stream_callbacks *calls = set->state;
    if (calls && calls->close)
        calls->close(calls->user);
    free(calls);
}

static const copse__dataset_ops stream_ops = {.locate = callbacks_locate,
                                              .close = stream_close,
                                              .start = stream_start,
                                              .next = stream_next,
                                              .stop = stream_stop,
                                              .decode = stream_decode,
                                              .locate_raw = stream_locate_raw};

copse_status copse_dataset_from_stream(copse_dataset **out,
                                       const copse_data_stream_callbacks *callbacks,
                                       copse_error *err) {
    *out = NULL;
    const char *name = callbacks->name ? callbacks->name : "stream";
    copse_dataset *set = NULL;
    copse_data_stream_callbacks *kept = NULL;
    copse_status status = copse__dataset_new(&set, &stream_ops, name, err);
    if (status == COPSE_OK)
        status = copse__calloc(&kept, 1, sizeof *kept, err);
    if (status != COPSE_OK) {
        copse_dataset_close(set);
        if (callbacks->close)
            callbacks->close(callbacks->user);
        return status;
    }
    *kept = *callbacks;
    kept->name = NULL;
    set->state = kept;
    set->count = COPSE_COUNT_UNKNOWN;
    set->classes = callbacks->classes;
    if (!callbacks->start || !callbacks->next)
        status = copse__fail(err, COPSE_INVALID, 0, name,
                             "the start or next callback is NULL");
    else
        status =
            set_callback_specs(set, &callbacks->features,
                               callbacks->has_labels ? &callbacks->labels : NULL, err);
    if (status == COPSE_OK)
        *out = set;
    else
        copse_dataset_close(set);
    return status;
}
