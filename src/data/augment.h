/* SPDX-License-Identifier: Apache-2.0
 *
 * Random changes of images, each a pure function of the image and (seed, epoch, sample, place). */
#ifndef COPSE_DATA_AUGMENT_H
#define COPSE_DATA_AUGMENT_H

#include "data/dataset.h"

enum { COPSE__AUGMENT_MOST = 64 };

/* What the n-th change makes of a spec. COPSE_CONFIG where it cannot be applied. */
copse_status copse__augment_spec(copse_data_spec *out, const copse_augment *augment,
                                 const copse_data_spec *in, copse_error *err);

typedef struct copse__augment_key {
    uint64_t seed, epoch, sample;
    uint32_t place; /* in the list */
} copse__augment_key;

/* One image (spec `in`) to another (copse__augment_spec of it), in other memory. Not for mixup. */
void copse__augment_image(void *out, const void *image, const copse_data_spec *in,
                          const copse_augment *augment, const copse__augment_key *key);

/* Mixup's share of the sample itself: Beta(alpha, alpha), in 0..1. */
double copse__mixup_share(double alpha, const copse__augment_key *key);

/* Which of the other rows is mixed in: 1..rows-1, to be added to the row modulo rows (0 where there
 * is no other). */
size_t copse__mixup_partner(size_t rows, const copse__augment_key *key);

/* out = share * out + (1 - share) * other, rounded to the type. */
void copse__mix(void *out, const void *other, copse_dtype dtype, size_t elements,
                double share);

#endif
