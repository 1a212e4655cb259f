/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_DATASETS_H
#define COPSE_TRAIN_DATASETS_H

#include <copse/data.h>

#include "train/config.h"

/* The sets that a configuration names; NULL where it names none. */
typedef struct copse__datasets {
    copse_dataset *train, *validation, *test;
    const char
        *validation_name;    /* "validation", "validation_split", "test"; NULL: none */
    bool validation_is_test; /* the same samples */
    size_t classes;          /* labels must be below; 0: not classes, or not known */
} copse__datasets;

/* Opens what training needs (need_train), or evaluation alone: the test set or, where there is none,
 * the validation set. Checks that all sets have samples of one kind. */
copse_status copse__datasets_open(copse__datasets *out, const copse__config *config,
                                  bool need_train, copse_error *err);
/* The same in two steps: between them other things can be done while large files are still unpacked.
 * Until the second has said that all samples are there, damage may not be known. */
copse_status copse__datasets_begin(copse__datasets *out, const copse__config *config,
                                   bool need_train, copse_error *err);
copse_status copse__datasets_arrive(const copse__datasets *sets, copse_error *err);
/* All zero is allowed. */
void copse__datasets_close(copse__datasets *sets);

#endif
