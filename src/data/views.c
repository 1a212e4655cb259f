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

static void slice_close(copse_dataset *set) {
    slice *part = set->state;
    if (part)
        copse_dataset_close(part->whole);
    free(part);
}

static const copse__dataset_ops slice_ops = {slice_read, slice_locate, slice_close};

copse_status copse_dataset_slice(copse_dataset **out, copse_dataset *whole, size_t first,
                                 size_t count, copse_error *err) {
    *out = NULL;
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

static const copse__dataset_ops callbacks_ops = {callbacks_read, callbacks_locate,
                                                 callbacks_close};

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
    copse_dtype label = callbacks->labels.dtype;
    if (!callbacks->read)
        status = copse__fail(err, COPSE_INVALID, 0, name, "the read callback is NULL");
    else if (callbacks->has_labels && label != COPSE_I32 && label != COPSE_F32)
        status = copse__fail(err, COPSE_INVALID, 0, name,
                             "labels are i32 (classes) or f32 (targets), not %s",
                             copse_dtype_name(label));
    else
        status = copse__dataset_set_specs(
            set, &callbacks->features, callbacks->has_labels ? &callbacks->labels : NULL,
            err);
    if (status == COPSE_OK)
        *out = set;
    else
        copse_dataset_close(set);
    return status;
}
