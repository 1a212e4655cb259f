/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done to a batch as a whole, once all its rows are there. */
#include <string.h>

#include "data/pipeline.h"

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
copse_status copse__pipeline_leave_out(copse_pipeline *p, copse__slot *slot,
                                       copse_error *err) {
    size_t count = slot->batch.rows, bad = 0;
    for (size_t i = 0; i < count; i++)
        bad += slot->bad[i];
    if (bad == 0)
        return COPSE_OK;
    slot->skipped += bad;
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

/* ---- Mixing --------------------------------------------------------------------------- */

/* Every row with an unmixed copy of its partner. */
static void mix_rows(copse_pipeline *p, copse__slot *slot, const unsigned char *features,
                     const unsigned char *labels) {
    size_t row = 0, rows = slot->batch.rows;
    size_t feature_elements = copse_data_spec_elements(&p->features);
    size_t label_elements = labels ? copse_data_spec_elements(&p->labels) : 0;
    for (size_t r = 0; r < p->replicas; r++)
        for (size_t i = 0; i < slot->parts[r].rows; i++, row++) {
            copse__augment_key key = {p->seed, slot->batch.epoch, slot->samples[row],
                                      (uint32_t)p->augment_count};
            size_t partner = (row + copse__mixup_partner(rows, &key)) % rows;
            double share = copse__mixup_share(p->mixup.amount, &key);
            copse__mix(slot->features[r] + i * p->feature_bytes,
                       features + partner * p->feature_bytes, p->features.dtype,
                       feature_elements, share);
            if (labels)
                copse__mix(slot->labels[r] + i * p->label_bytes,
                           labels + partner * p->label_bytes, COPSE_F32, label_elements,
                           share);
        }
}

copse_status copse__pipeline_mix(copse_pipeline *p, copse__slot *slot, copse_error *err) {
    size_t rows = slot->batch.rows;
    unsigned char *features, *labels = NULL;
    copse_status status = copse__calloc(&features, rows, p->feature_bytes, err);
    if (status == COPSE_OK && slot->labels)
        status = copse__calloc(&labels, rows, p->label_bytes, err);
    if (status == COPSE_OK) {
        gather(features, slot->features, slot->parts, p->replicas, p->feature_bytes);
        if (labels)
            gather(labels, slot->labels, slot->parts, p->replicas, p->label_bytes);
        mix_rows(p, slot, features, labels);
    }
    free(features);
    free(labels);
    return status;
}

copse_status copse__pipeline_finish(copse_pipeline *p, copse__slot *slot,
                                    copse_error *err) {
    copse_status status = copse__pipeline_leave_out(p, slot, err);
    if (status == COPSE_OK && p->mixes)
        status = copse__pipeline_mix(p, slot, err);
    return status;
}
