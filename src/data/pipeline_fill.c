/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a batch's samples on the way into a slot. */
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

/* One-hot, for mixup. */
static void spread_label(copse_pipeline *p, unsigned char *out, int32_t label) {
    float *probabilities = (float *)(void *)out;
    for (size_t i = 0; i < p->labels.shape[0]; i++)
        probabilities[i] = (int32_t)i == label ? 1.0f : 0.0f;
}

static copse_status read_row(copse_pipeline *p, copse__slot *slot, size_t row,
                             copse__scratch *scratch, void *features,
                             unsigned char *labels, copse_error *err) {
    int32_t class = 0;
    bool spreads = labels && p->labels.dtype != p->set->labels.dtype;
    unsigned char *read_to = spreads ? (unsigned char *)&class : labels;
    copse_status status = read_sample(p, slot, row, scratch, features, read_to, err);
    if (status == COPSE_OK && labels)
        status = check_labels(p, slot, row, read_to, err);
    if (status == COPSE_OK && spreads)
        spread_label(p, labels, class);
    return status;
}

/* Where the next step writes: the slot if it is the last one, else the other stage. */
static void *next_stage(copse__scratch *scratch, const void *now, void *last,
                        size_t steps_left) {
    if (steps_left == 0)
        return last;
    return now == scratch->stage[0] ? scratch->stage[1] : scratch->stage[0];
}

static copse_status make_stages(copse_pipeline *p, copse__scratch *scratch,
                                copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < 2 && status == COPSE_OK; i++)
        status = copse__grow(&scratch->stage[i], &scratch->stage_capacity[i],
                             p->stage_bytes, 1, err);
    return status;
}

static copse_status fill_row(copse_pipeline *p, copse__slot *slot, size_t row,
                             size_t replica, copse__scratch *scratch, copse_error *err) {
    size_t at = row - slot->parts[replica].first_row;
    unsigned char *features = slot->features[replica] + at * p->feature_bytes;
    unsigned char *labels =
        slot->labels ? slot->labels[replica] + at * p->label_bytes : NULL;
    bool narrows = p->features.dtype != p->set->features.dtype;
    size_t steps = p->augment_count + narrows;
    copse_status status = steps ? make_stages(p, scratch, err) : COPSE_OK;
    if (status != COPSE_OK)
        return status;
    void *now = next_stage(scratch, NULL, features, steps), *next;
    status = read_row(p, slot, row, scratch, now, labels, err);
    if (status == COPSE_OK && narrows) {
        next = next_stage(scratch, now, features, --steps);
        status = narrow(p, slot, row, next, now, err);
        now = next;
    }
    if (status != COPSE_OK)
        return status;
    copse__augment_key key = {p->seed, slot->batch.epoch, slot->samples[row], 0};
    for (size_t i = 0; i < p->augment_count; i++, key.place++) {
        next = next_stage(scratch, now, features, --steps);
        copse__augment_image(next, now, &p->step_specs[i], &p->augment[i], &key);
        now = next;
    }
    return COPSE_OK;
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
