/* SPDX-License-Identifier: Apache-2.0 */
#include "train/datasets.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "data/dataset.h"

/* As data.cache says; a file gets the set's name behind its own, but for the training set. Closes
 * what it replaces, also on failure. */
static copse_status cache(copse_dataset **set, const copse__config *config,
                          const char *name, copse_error *err) {
    const char *where = config->data.cache;
    if (!where || strcmp(where, "none") == 0)
        return COPSE_OK;
    copse_dataset *cached = NULL;
    copse__text path = {0};
    copse_status status = COPSE_OK;
    if (strcmp(where, "memory") == 0) {
        status = copse_dataset_cache_memory(&cached, *set, 0, err);
    } else {
        bool train = strcmp(name, "train") == 0;
        copse__text_add(&path, "%s%s%s", where, train ? "" : ".", train ? "" : name);
        status = copse__text_check(&path, err);
        if (status == COPSE_OK)
            status = copse_dataset_cache_file(&cached, *set, path.data, NULL, err);
        copse__text_free(&path);
    }
    copse_dataset_close(*set);
    *set = cached;
    return status;
}

/* Formats whose classes are numbered as they are found: every set of a run needs those of the
 * training set. */
static bool finds_classes(const copse__config *config) {
    copse_data_format format = config->data.format;
    return config->data.class_name_count == 0 &&
           (format == COPSE_DATA_FOLDER || format == COPSE_DATA_CSV ||
            format == COPSE_DATA_TEXT);
}

/* names_from NULL: as configured. */
static copse_status open_source(copse_dataset **out, const copse__config *config,
                                const copse__config_source *from, const char *name,
                                const copse_dataset *names_from, copse_error *err) {
    copse_data_source source = copse__config_data_source(config, from);
    const char **names = NULL;
    size_t classes = names_from ? copse_dataset_classes(names_from) : 0;
    copse_status status = COPSE_OK;
    if (classes && copse_dataset_get_class_name(names_from, 0)) {
        status = copse__calloc(&names, classes, sizeof *names, err);
        for (size_t i = 0; i < classes && status == COPSE_OK; i++)
            names[i] = copse_dataset_get_class_name(names_from, i);
        source.class_names = names;
        source.class_count = classes;
    }
    if (status == COPSE_OK)
        status = copse__dataset_open_ahead(out, &source, err);
    if (status == COPSE_OK)
        status = cache(out, config, name, err);
    free(names);
    return status;
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

/* What a pipeline would refuse only once devices are open. */
static copse_status check_order(const copse__config *config, const copse_dataset *train,
                                copse_error *err) {
    size_t count = copse_dataset_count(train), batch = (size_t)config->train.batch;
    if (count == COPSE_COUNT_UNKNOWN && config->data.shuffle == COPSE_SHUFFLE_FULL)
        return copse__fail(err, COPSE_CONFIG, 0, config->path,
                           "the samples of data.train come in one order only and cannot "
                           "be shuffled as a whole; use data.shuffle: {buffer: N} or "
                           "false, or data.cache");
    if (count < batch && config->data.drop_remainder)
        return copse__fail(err, COPSE_CONFIG, 0, config->path,
                           "the %zu samples of data.train make no batch of %zu, and "
                           "data.drop_remainder leaves smaller ones out",
                           count, batch);
    return COPSE_OK;
}

/* The classes that labels must stay below: as configured, else as the files know. */
static size_t find_classes(const copse__config *config, const copse_dataset *set) {
    const copse_data_spec *labels = set ? copse_dataset_get_labels(set) : NULL;
    if (!labels || labels->dtype != COPSE_I32)
        return 0;
    return config->data.classes ? (size_t)config->data.classes
                                : copse_dataset_classes(set);
}

copse_status copse__datasets_begin(copse__datasets *out, const copse__config *config,
                                   bool need_train, copse_error *err) {
    const copse__config_data *data = &config->data;
    copse_status status;
    *out = (copse__datasets){0};
    bool names = finds_classes(config);
    if (data->train.given && (need_train || names || data->validation_split > 0))
        COPSE__TRY(open_source(&out->train, config, &data->train, "train", NULL, err),
                   fail);
    const copse_dataset *names_from = names ? out->train : NULL;
    if (data->validation_split > 0 && !data->validation.given) {
        copse_dataset *whole = out->train;
        out->train = NULL;
        names_from = NULL;
        status = copse_dataset_split(&out->train, &out->validation, whole,
                                     data->validation_split, err);
        copse_dataset_close(whole);
        if (status != COPSE_OK)
            goto fail;
        names_from = names ? out->train : NULL;
        out->validation_name = "validation_split";
    }
    if (data->test.given)
        COPSE__TRY(open_source(&out->test, config, &data->test, "test", names_from, err),
                   fail);
    if (data->validation.given) {
        COPSE__TRY(open_source(&out->validation, config, &data->validation, "validation",
                               names_from, err),
                   fail);
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
    if (need_train ? !out->train : !out->test && !out->validation) {
        status = copse__fail(err, COPSE_CONFIG, 0, config->path, "data.%s names no files",
                             need_train ? "train" : "test");
        goto fail;
    }
    if (need_train)
        COPSE__TRY(check_order(config, out->train, err), fail);
    COPSE__TRY(check_same(config, first, out->test, "test", err), fail);
    COPSE__TRY(check_same(config, first, out->validation, "validation", err), fail);
    out->classes = find_classes(config, first);
    return COPSE_OK;
fail:
    copse__datasets_close(out);
    return status;
}

copse_status copse__datasets_arrive(const copse__datasets *sets, copse_error *err) {
    copse_dataset *const of[] = {sets->train, sets->validation, sets->test};
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__COUNT(of) && status == COPSE_OK; i++)
        status = copse__dataset_arrive(of[i], err);
    return status;
}

copse_status copse__datasets_open(copse__datasets *out, const copse__config *config,
                                  bool need_train, copse_error *err) {
    copse_status status = copse__datasets_begin(out, config, need_train, err);
    if (status == COPSE_OK)
        status = copse__datasets_arrive(out, err);
    if (status != COPSE_OK)
        copse__datasets_close(out);
    return status;
}

void copse__datasets_close(copse__datasets *sets) {
    copse_dataset_close(sets->train);
    copse_dataset_close(sets->validation);
    copse_dataset_close(sets->test);
    *sets = (copse__datasets){0};
}
