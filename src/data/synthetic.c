/* SPDX-License-Identifier: Apache-2.0
 *
 * Made-up samples: a fixed pattern for each class, blurred by noise. Sample i depends on the seed
 * and i alone, in integers, so that it is the same on every machine. */
#include <stdio.h>
#include <string.h>

#include "data/dataset.h"
#include "data/shuffle.h"

typedef struct synthetic {
    uint64_t seed;
    size_t elements;
} synthetic;

/* The value of element e: three quarters pattern, one quarter noise. */
static unsigned char value_at(uint64_t pattern, uint64_t noise, size_t e) {
    unsigned shift = (unsigned)(e % 8) * 8;
    return (unsigned char)(((pattern >> shift & 255) * 3 + (noise >> shift & 255)) / 4);
}

static copse_status synthetic_read(copse_dataset *set, size_t index,
                                   copse__scratch *scratch, void *features, void *labels,
                                   copse_error *err) {
    const synthetic *s = set->state;
    (void)scratch;
    (void)err;
    uint64_t class = 0;
    if (set->classes)
        class = copse__bounded(copse__draw64(s->seed, 0, index, COPSE__DRAW_SYNTHETIC),
                               set->classes);
    unsigned char *bytes = features;
    float *reals = features;
    uint64_t pattern = 0, noise = 0;
    for (size_t e = 0; e < s->elements; e++) {
        if (e % 8 == 0) {
            pattern = copse__draw64(s->seed, 1 + class, e / 8, COPSE__DRAW_SYNTHETIC + 1);
            noise = copse__draw64(s->seed, index, e / 8, COPSE__DRAW_SYNTHETIC + 2);
        }
        unsigned char value = value_at(pattern, noise, e);
        if (set->features.dtype == COPSE_U8)
            bytes[e] = value;
        else
            reals[e] = (float)value / 127.5f - 1.0f;
    }
    if (labels)
        *(int32_t *)labels = (int32_t) class;
    return COPSE_OK;
}

static void synthetic_locate(const copse_dataset *set, size_t index, char *buffer,
                             size_t bytes) {
    snprintf(buffer, bytes, "%s, sample %zu", set->name, index);
}

static void synthetic_close(copse_dataset *set) {
    free(set->state);
}

static const copse__dataset_ops synthetic_ops = {
    .read = synthetic_read, .locate = synthetic_locate, .close = synthetic_close};

copse_status copse__synthetic_open(copse_dataset **out, const copse_data_source *source,
                                   const copse__found_files *files, copse_error *err) {
    copse_dataset *set;
    synthetic *s;
    copse_data_spec features = {.dtype = source->feature.dtype,
                                .rank = source->feature.rank};
    copse_data_spec labels = {.dtype = COPSE_I32};
    memcpy(features.shape, source->feature.shape, sizeof features.shape);
    if (files->paths.count || source->count == 0 || source->class_count > INT32_MAX ||
        (features.dtype != COPSE_U8 && features.dtype != COPSE_F32))
        return copse__fail(err, COPSE_CONFIG, 0, "synthetic",
                           "synthetic data needs a count of samples, u8 or f32 features "
                           "and no path");
    copse_status status = copse__dataset_new(&set, &synthetic_ops, "synthetic", err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&s, 1, sizeof *s, err), fail);
    set->state = s;
    COPSE__TRY(copse__dataset_set_specs(set, &features,
                                        source->class_count ? &labels : NULL, err),
               fail);
    s->seed = source->seed;
    s->elements = copse_data_spec_elements(&features);
    set->count = source->count;
    COPSE__TRY(
        copse__dataset_set_classes(set, source->class_count, source->class_names, err),
        fail);
    *out = set;
    return COPSE_OK;
fail:
    copse_dataset_close(set);
    return status;
}
