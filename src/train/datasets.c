/* SPDX-License-Identifier: Apache-2.0 */
#include "train/datasets.h"

#include <string.h>

#include "base/mem.h"

static copse_status open_source(copse_dataset **out, const copse__config *config,
                                const copse__config_source *from, copse_error *err) {
    copse_data_source source = copse__config_data_source(config, from);
    return copse_dataset_open(out, &source, err);
}

static bool same_spec(const copse_data_spec *a, const copse_data_spec *b) {
    if (!a || !b)
        return a == b;
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static copse_status check_same(const copse__config *config, const copse_dataset *a,
                               const copse_dataset *b, const char *b_name,
                               copse_error *err) {
    if (!a || !b ||
        (same_spec(copse_dataset_get_features(a), copse_dataset_get_features(b)) &&
         same_spec(copse_dataset_get_labels(a), copse_dataset_get_labels(b))))
        return COPSE_OK;
    return copse__fail(
        err, COPSE_CONFIG, 0, config->path,
        "the samples of data.%s are of another type or shape than those of "
        "the other sets",
        b_name);
}

/* The classes that labels must stay below: as configured, else as the files know. */
static size_t find_classes(const copse__config *config, const copse_dataset *set) {
    const copse_data_spec *labels = set ? copse_dataset_get_labels(set) : NULL;
    if (!labels || labels->dtype != COPSE_I32)
        return 0;
    return config->data.classes ? (size_t)config->data.classes
                                : copse_dataset_classes(set);
}

copse_status copse__datasets_open(copse__datasets *out, const copse__config *config,
                                  bool need_train, copse_error *err) {
    const copse__config_data *data = &config->data;
    copse_status status;
    *out = (copse__datasets){0};
    if (data->train.given && (need_train || data->validation_split > 0))
        COPSE__TRY(open_source(&out->train, config, &data->train, err), fail);
    if (data->validation_split > 0 && !data->validation.given) {
        copse_dataset *whole = out->train;
        out->train = NULL;
        status = copse_dataset_split(&out->train, &out->validation, whole,
                                     data->validation_split, err);
        copse_dataset_close(whole);
        if (status != COPSE_OK)
            goto fail;
        out->validation_name = "validation_split";
    }
    if (data->test.given)
        COPSE__TRY(open_source(&out->test, config, &data->test, err), fail);
    if (data->validation.given) {
        COPSE__TRY(open_source(&out->validation, config, &data->validation, err), fail);
        out->validation_name = "validation";
    } else if (!out->validation && out->test) {
        /* Its own slice, so that each handle is closed once. */
        COPSE__TRY(copse_dataset_slice(&out->validation, out->test, 0,
                                       copse_dataset_count(out->test), err),
                   fail);
        out->validation_name = "test";
        out->validation_is_test = true;
    }
    copse_dataset *first = out->train  ? out->train
                           : out->test ? out->test
                                       : out->validation;
    if (!first || (need_train && !out->train)) {
        status = copse__fail(err, COPSE_CONFIG, 0, config->path, "data.%s names no files",
                             need_train ? "train" : "test");
        goto fail;
    }
    COPSE__TRY(check_same(config, first, out->test, "test", err), fail);
    COPSE__TRY(check_same(config, first, out->validation, "validation", err), fail);
    out->classes = find_classes(config, first);
    return COPSE_OK;
fail:
    copse__datasets_close(out);
    return status;
}

void copse__datasets_close(copse__datasets *sets) {
    copse_dataset_close(sets->train);
    copse_dataset_close(sets->validation);
    copse_dataset_close(sets->test);
    *sets = (copse__datasets){0};
}
