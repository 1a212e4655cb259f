/* SPDX-License-Identifier: Apache-2.0
 *
 * tf.train.Example records to tensors. */
#ifndef COPSE_DATA_EXAMPLE_H
#define COPSE_DATA_EXAMPLE_H

#include "data/dataset.h"

/* Which feature of a record becomes what; settled by the first record. */
typedef struct copse__example_field {
    char *name;
    copse_data_encoding encoding; /* never AUTO after the settling */
    copse_dtype from;             /* raw: as stored */
    copse_data_spec spec;         /* as delivered */
} copse__example_field;

typedef struct copse__example_reader {
    copse__example_field features, labels;
    bool has_labels;
    copse_image_options image;
} copse__example_reader;

/* Settles what source leaves open by looking at a record. */
copse_status copse__example_settle(copse__example_reader *reader,
                                   const copse_data_source *source,
                                   const unsigned char *record, size_t bytes,
                                   const char *place, copse__scratch *scratch,
                                   copse_error *err);

/* One record to a sample; labels may be NULL. Thread-safe for different scratch. */
copse_status copse__example_read(const copse__example_reader *reader,
                                 const unsigned char *record, size_t bytes,
                                 const char *place, copse__scratch *scratch,
                                 void *features, void *labels, copse_error *err);

void copse__example_free(copse__example_reader *reader);

#endif
