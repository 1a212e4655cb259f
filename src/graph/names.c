/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/layer.h"
#include "graph/names.h"

#define MAX_NAME 100

/* A name becomes part of parameters' names, "NAME/kernel", and of files. */
static copse_status check_name(const copse__layer_spec *spec, copse_error *err) {
    const char *name = spec->name;
    size_t length = strlen(name);
    bool clean = length > 0 && length <= MAX_NAME;
    for (size_t i = 0; clean && i < length; i++)
        clean = (unsigned char)name[i] > 0x20 && name[i] != 0x7f && name[i] != '/';
    if (!clean)
        return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                           "'%.64s' is no name for a layer: it must have 1 to %d "
                           "characters, without spaces and '/'",
                           name, MAX_NAME);
    if (strcmp(name, COPSE__INPUT_NAME) == 0)
        return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                           "no layer may be named '" COPSE__INPUT_NAME
                           "': that is the network's input");
    return COPSE_OK;
}

static bool is_given(const copse__layer_spec *layers, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (layers[i].name && strcmp(layers[i].name, name) == 0)
            return true;
    return false;
}

/* dense, dense_1, dense_2, …: the next that no layer was given by hand. */
static copse_status next_name(const copse__layer_spec *layers, size_t count,
                              const char *base, size_t *number, char **out,
                              copse_error *err) {
    char name[128];
    do {
        if (*number == 0)
            snprintf(name, sizeof name, "%s", base);
        else
            snprintf(name, sizeof name, "%s_%zu", base, *number);
        ++*number;
    } while (is_given(layers, count, name));
    return copse__strdup(out, name, err);
}

copse_status copse__layer_names(char **names, const copse__layer_kind *const *kinds,
                                const copse__layer_spec *layers, size_t count,
                                copse_error *err) {
    size_t kind_count;
    const copse__layer_kind *table = copse__layer_kinds(&kind_count);
    size_t *numbers; /* next number of each kind */
    copse_status status = copse__calloc(&numbers, kind_count, sizeof *numbers, err);
    for (size_t i = 0; status == COPSE_OK && i < count; i++) {
        const copse__layer_spec *spec = &layers[i];
        if (!spec->name) {
            status = next_name(layers, count, kinds[i]->auto_name,
                               &numbers[kinds[i] - table], &names[i], err);
            continue;
        }
        status = check_name(spec, err);
        if (status == COPSE_OK && is_given(layers, i, spec->name))
            status = copse__fail(err, COPSE_CONFIG, 0, spec->place,
                                 "two layers are named '%s'", spec->name);
        if (status == COPSE_OK)
            status = copse__strdup(&names[i], spec->name, err);
    }
    free(numbers);
    return status;
}
