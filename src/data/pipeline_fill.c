/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a batch's samples on the way into a slot. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/convert.h"
#include "data/pipeline.h"

static void locate(copse_pipeline *p, const copse__slot *slot, size_t row, char *buffer,
                   size_t bytes) {
    if (p->stream)
        p->set->ops->locate_raw(p->set, &slot->raws[row], buffer, bytes);
    else
        p->set->ops->locate(p->set, (size_t)slot->samples[row], buffer, bytes);
}

static copse_status check_labels(copse_pipeline *p, const copse__slot *slot, size_t row,
                                 const unsigned char *labels, copse_error *err) {
    if (p->label_classes == 0 || p->set->labels.dtype != COPSE_I32)
        return COPSE_OK;
    for (size_t i = 0; i < p->set->label_bytes / 4; i++) {
        int32_t label;
        memcpy(&label, labels + i * 4, 4);
        if (label >= 0 && (size_t)label < p->label_classes)
            continue;
        char where[256];
        locate(p, slot, row, where, sizeof where);
        return copse__fail(err, COPSE_FORMAT, 0, where,
                           "its label is %d, but the model has %zu classes (0 to %zu); "
                           "correct the data or the model's last layer",
                           label, p->label_classes, p->label_classes - 1);
    }
    return COPSE_OK;
}

static copse_status read_sample(copse_pipeline *p, const copse__slot *slot, size_t row,
                                copse__scratch *scratch, void *features, void *labels,
                                copse_error *err) {
    copse_dataset *set = p->set;
    if (p->stream)
        return set->ops->decode(set, &slot->raws[row], scratch, features, labels, err);
    return set->ops->read(set, (size_t)slot->samples[row], scratch, features, labels,
                          err);
}

static copse_status narrow(copse_pipeline *p, const copse__slot *slot, size_t row,
                           void *out, const void *in, copse_error *err) {
    size_t elements = copse_data_spec_elements(&p->set->features), bad;
    if (copse__convert(p->features.dtype, out, p->set->features.dtype, in, elements,
                       &bad))
        return COPSE_OK;
    char where[256];
    locate(p, slot, row, where, sizeof where);
    return copse__fail(err, COPSE_FORMAT, 0, where,
                       "its element %zu does not fit the 32-bit integers of the device; "
                       "store it in a smaller range or as floats",
                       bad);
}

static copse_status fill_row(copse_pipeline *p, copse__slot *slot, size_t row,
                             size_t replica, copse__scratch *scratch, copse_error *err) {
    size_t at = row - slot->parts[replica].first_row;
    unsigned char *features = slot->features[replica] + at * p->feature_bytes;
    unsigned char *labels =
        slot->labels ? slot->labels[replica] + at * p->label_bytes : NULL;
    unsigned char *read_to = features;
    bool narrows = p->features.dtype != p->set->features.dtype;
    copse_status status = COPSE_OK;
    if (narrows) {
        status = copse__grow(&scratch->stage[0], &scratch->stage_capacity[0],
                             p->set->feature_bytes, 1, err);
        read_to = scratch->stage[0];
    }
    if (status == COPSE_OK)
        status = read_sample(p, slot, row, scratch, read_to, labels, err);
    if (status == COPSE_OK && labels)
        status = check_labels(p, slot, row, labels, err);
    if (status == COPSE_OK && narrows)
        status = narrow(p, slot, row, features, read_to, err);
    return status;
}

/* Only what is wrong with a sample can be left out, not what is wrong with the machine. */
static bool can_skip(const copse_pipeline *p, copse_status status) {
    return p->skip_errors && (status == COPSE_IO || status == COPSE_FORMAT);
}

copse_status copse__pipeline_fill(copse_pipeline *p, copse__slot *slot, size_t from,
                                  size_t to, copse__scratch *scratch, size_t *bad_row,
                                  copse_error *err) {
    size_t replica = 0;
    for (size_t row = from; row < to; row++) {
        while (row - slot->parts[replica].first_row >= slot->parts[replica].rows)
            replica++;
        copse_error error = {0};
        copse_status status = fill_row(p, slot, row, replica, scratch, &error);
        slot->bad[row] = status != COPSE_OK;
        if (status == COPSE_OK)
            continue;
        if (can_skip(p, status)) {
            copse__log(COPSE_LOG_WARN, "sample left out: %s: %s", error.place,
                       error.text);
            continue;
        }
        *bad_row = row;
        *err = error;
        return status;
    }
    return COPSE_OK;
}

/* ---- Leaving rows out ----------------------------------------------------------------- */

/* All rows of one kind (features or labels), one after the other. */
static void gather(unsigned char *out, unsigned char *const *memory,
                   const copse_batch_part *parts, size_t replicas, size_t row_bytes) {
    for (size_t r = 0; r < replicas; r++) {
        memcpy(out, memory[r], parts[r].rows * row_bytes);
        out += parts[r].rows * row_bytes;
    }
}

static void scatter(unsigned char *const *memory, const unsigned char *in,
                    const copse_batch_part *parts, size_t replicas, size_t row_bytes) {
    for (size_t r = 0; r < replicas; r++) {
        memcpy(memory[r], in, parts[r].rows * row_bytes);
        in += parts[r].rows * row_bytes;
    }
}

static size_t close_gaps(unsigned char *rows, const unsigned char *bad, size_t count,
                         size_t row_bytes) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!bad[i])
            memmove(rows + kept++ * row_bytes, rows + i * row_bytes, row_bytes);
    return kept;
}

/* The rows move to other parts, so they go through memory of their own: this is rare. */
copse_status copse__pipeline_finish(copse_pipeline *p, copse__slot *slot,
                                    copse_error *err) {
    size_t count = slot->batch.rows, bad = 0;
    for (size_t i = 0; i < count; i++)
        bad += slot->bad[i];
    if (bad == 0)
        return COPSE_OK;
    slot->skipped = bad;
    unsigned char *features, *labels = NULL;
    copse_status status = copse__calloc(&features, count, p->feature_bytes, err);
    if (status == COPSE_OK && slot->labels)
        status = copse__calloc(&labels, count, p->label_bytes, err);
    if (status != COPSE_OK)
        goto out;
    gather(features, slot->features, slot->parts, p->replicas, p->feature_bytes);
    if (labels)
        gather(labels, slot->labels, slot->parts, p->replicas, p->label_bytes);
    close_gaps((unsigned char *)slot->samples, slot->bad, count, sizeof *slot->samples);
    close_gaps(features, slot->bad, count, p->feature_bytes);
    if (labels)
        close_gaps(labels, slot->bad, count, p->label_bytes);
    slot->batch.rows = count - bad;
    COPSE__TRY(copse__pipeline_set_parts(p, slot, err), out);
    scatter(slot->features, features, slot->parts, p->replicas, p->feature_bytes);
    if (labels)
        scatter(slot->labels, labels, slot->parts, p->replicas, p->label_bytes);
out:
    free(features);
    free(labels);
    return status;
}
