/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/json.h"

#define MOST_RESULTS 100000
#define MOST_TEXT ((size_t)512)

/* ---- Reading ---------------------------------------------------------------------------- */

typedef struct reader {
    copse__pool *pool;
    const char *place;
    copse_error *err;
} reader;

static copse_status wrong(const reader *r, const char *what, const char *key) {
    return copse__fail(r->err, COPSE_FORMAT, 0, r->place,
                       "%s%s%s; run `copse tune` again, or remove the file", what,
                       key ? " " : "", key ? key : "");
}

static copse_status check_keys(const reader *r, json_t *object, const char *const *keys) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i]) {
            char shown[64];
            size_t used = 0;
            for (; key[used] && used < sizeof shown - 1; used++)
                shown[used] =
                    (char)(key[used] >= ' ' && key[used] < 127 ? key[used] : '?');
            shown[used] = '\0';
            return wrong(r, "it has the unknown key", shown);
        }
    }
    return COPSE_OK;
}

static bool is_plain(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    return bytes < MOST_TEXT;
}

/* Absent: NULL, where that is allowed. */
static copse_status read_text(const reader *r, json_t *object, const char *key,
                              bool needed, const char **out) {
    json_t *value = json_object_get(object, key);
    char *made;
    *out = NULL;
    if (!value && !needed)
        return COPSE_OK;
    if (!json_is_string(value) ||
        !is_plain(json_string_value(value), json_string_length(value)))
        return wrong(r, "it has no, or a damaged,", key);
    copse_status status =
        copse__pool_strdup(r->pool, &made, json_string_value(value), r->err);
    *out = made;
    return status;
}

static copse_status read_count(const reader *r, json_t *object, const char *key,
                               uint32_t *out) {
    json_t *value = json_object_get(object, key);
    *out = 0;
    if (!value)
        return COPSE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > UINT32_MAX)
        return wrong(r, "it has a damaged", key);
    *out = (uint32_t)json_integer_value(value);
    return COPSE_OK;
}

static copse_status read_time(const reader *r, json_t *object, const char *key,
                              double *out) {
    json_t *value = json_object_get(object, key);
    *out = value ? json_number_value(value) : 0;
    if (value && (!json_is_number(value) || !(*out >= 0) || !isfinite(*out)))
        return wrong(r, "it has a damaged", key);
    return COPSE_OK;
}

static copse_status read_result(const reader *r, json_t *from, copse__tune_result *to) {
    static const char *const keys[] = {"key", "provider",   "parameters",
                                       "us",  "default_us", NULL};
    copse_status status;
    if (!json_is_object(from))
        return wrong(r, "it has a damaged result", NULL);
    COPSE__TRY(check_keys(r, from, keys), out);
    COPSE__TRY(read_text(r, from, "key", true, &to->tuned.key), out);
    COPSE__TRY(read_text(r, from, "provider", true, &to->tuned.provider), out);
    COPSE__TRY(read_text(r, from, "parameters", true, &to->tuned.parameters), out);
    COPSE__TRY(read_time(r, from, "us", &to->us), out);
    COPSE__TRY(read_time(r, from, "default_us", &to->default_us), out);
    if (!to->tuned.key[0] || !to->tuned.provider[0] ||
        strlen(to->tuned.key) >= COPSE__TUNED_KEY)
        status = wrong(r, "it has a damaged result", NULL);
out:
    return status;
}

static copse_status read_device(const reader *r, json_t *from, copse__tune_device *to) {
    static const char *const keys[] = {"name",    "platform", "driver", "machine",
                                       "units",   "vector",   "build",  "sources",
                                       "results", NULL};
    copse_status status;
    json_t *results = json_object_get(from, "results");
    if (!json_is_object(from) || !json_is_array(results) ||
        json_array_size(results) > MOST_RESULTS)
        return wrong(r, "it has a damaged device", NULL);
    COPSE__TRY(check_keys(r, from, keys), out);
    COPSE__TRY(read_text(r, from, "name", false, &to->name), out);
    COPSE__TRY(read_text(r, from, "platform", true, &to->platform), out);
    COPSE__TRY(read_text(r, from, "driver", false, &to->driver), out);
    COPSE__TRY(read_text(r, from, "machine", false, &to->machine), out);
    COPSE__TRY(read_text(r, from, "build", false, &to->build), out);
    COPSE__TRY(read_text(r, from, "sources", false, &to->sources), out);
    COPSE__TRY(read_count(r, from, "units", &to->units), out);
    COPSE__TRY(read_count(r, from, "vector", &to->vector), out);
    to->result_count = json_array_size(results);
    COPSE__TRY(copse__pool_alloc(r->pool, &to->results, to->result_count,
                                 sizeof *to->results, r->err),
               out);
    for (size_t i = 0; i < to->result_count; i++) {
        COPSE__TRY(read_result(r, json_array_get(results, i), &to->results[i]), out);
        for (size_t j = 0; j < i && to->result_count <= 4096; j++)
            if (strcmp(to->results[j].tuned.key, to->results[i].tuned.key) == 0)
                return wrong(r, "it has two results for", to->results[i].tuned.key);
    }
out:
    return status;
}

static copse_status read_root(const reader *r, json_t *root, copse__tune_file *out) {
    static const char *const keys[] = {"schema", "devices", NULL};
    json_t *devices = json_object_get(root, "devices");
    const char *schema = json_string_value(json_object_get(root, "schema"));
    copse_status status = check_keys(r, root, keys);
    if (status != COPSE_OK)
        return status;
    if (!schema || strcmp(schema, "copse-tune/1") != 0 || !json_is_array(devices) ||
        json_array_size(devices) > MOST_RESULTS)
        return wrong(r, "it holds no tuning results (copse-tune/1)", NULL);
    size_t count = json_array_size(devices);
    status =
        copse__pool_alloc(r->pool, &out->devices, count, sizeof *out->devices, r->err);
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        out->device_count = i + 1;
        status = read_device(r, json_array_get(devices, i), &out->devices[i]);
    }
    return status;
}

copse_status copse__tune_parse(copse__tune_file *out, const char *data, size_t bytes,
                               const char *place, copse_error *err) {
    json_error_t why;
    const reader r = {&out->pool, place, err};
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return copse__fail(err, COPSE_FORMAT, 0, place,
                           "line %d: %s; run `copse tune` again, or remove the file",
                           why.line, why.text);
    copse_status status = read_root(&r, root, out);
    json_decref(root);
    return status;
}

copse_status copse__tune_load(copse__tune_file *out, const char *path, copse_error *err) {
    char *data = NULL;
    size_t bytes;
    copse_status status =
        copse__file_read(&data, &bytes, path, COPSE__TUNE_MOST_BYTES, err);
    if (status == COPSE_OK)
        status = copse__tune_parse(out, data, bytes, path, err);
    free(data);
    return status;
}

void copse__tune_file_free(copse__tune_file *file) {
    copse__pool_free(&file->pool);
    *file = (copse__tune_file){0};
}

/* ---- Writing ---------------------------------------------------------------------------- */

static void write_text(copse__text *out, const char *key, const char *value,
                       const char *joint) {
    if (!value)
        return;
    copse__text_add(out, "%s\"%s\": ", joint, key);
    copse__json_text(out, value);
}

static void write_time(copse__text *out, const char *key, double us) {
    if (us >= 0.0005) /* less would be written as 0, which is not told */
        copse__text_add(out, ", \"%s\": %.3f", key, us);
}

static void write_device(copse__text *out, const copse__tune_device *d) {
    write_text(out, "platform", d->platform ? d->platform : "", "\n  {");
    write_text(out, "name", d->name, ", ");
    write_text(out, "driver", d->driver, ",\n   ");
    write_text(out, "machine", d->machine, ", ");
    if (d->units > 0)
        copse__text_add(out, ", \"units\": %u", d->units);
    if (d->vector > 0)
        copse__text_add(out, ", \"vector\": %u", d->vector);
    write_text(out, "build", d->build, ",\n   ");
    write_text(out, "sources", d->sources, ", ");
    copse__text_add(out, ",\n   \"results\": [");
    for (size_t i = 0; i < d->result_count; i++) {
        const copse__tune_result *r = &d->results[i];
        write_text(out, "key", r->tuned.key, i ? ",\n    {" : "\n    {");
        write_text(out, "provider", r->tuned.provider, ",\n     ");
        write_text(out, "parameters", r->tuned.parameters, ", ");
        write_time(out, "us", r->us);
        write_time(out, "default_us", r->default_us);
        copse__text_add(out, "}");
    }
    copse__text_add(out, "]}");
}

void copse__tune_write(copse__text *out, const copse__tune_device *devices,
                       size_t count) {
    copse__text_add(out, "{\"schema\": \"copse-tune/1\", \"devices\": [");
    for (size_t i = 0; i < count; i++) {
        copse__text_add(out, "%s", i ? "," : "");
        write_device(out, &devices[i]);
    }
    copse__text_add(out, "]}\n");
}

/* ---- For whom --------------------------------------------------------------------------- */

copse__tune_device copse__tune_device_of(const copse__device *device,
                                         copse__tuning_id *id) {
    struct utsname here;
    const copse__device_base *base = copse__device_get(device);
    copse__backend_of(device)->tuning_id(device, id);
    snprintf(id->machine, sizeof id->machine, "%s",
             uname(&here) == 0 ? here.machine : "");
    return (copse__tune_device){.name = base->choice.name,
                                .platform = base->choice.platform_name,
                                .driver = base->choice.driver,
                                .machine = id->machine,
                                .build = id->build,
                                .sources = id->sources,
                                .units = id->units,
                                .vector = id->vector};
}

static bool same(const char *named, const char *is) {
    return !named || strcmp(named, is) == 0;
}

const copse__tune_device *copse__tune_match(const copse__tune_file *file,
                                            const copse__tune_device *self,
                                            bool with_build) {
    const copse__tune_device *last = NULL;
    for (size_t i = 0; i < file->device_count; i++) {
        const copse__tune_device *d = &file->devices[i];
        if (!(same(d->name, self->name) && same(d->platform, self->platform) &&
              same(d->driver, self->driver) && same(d->machine, self->machine) &&
              same(d->sources, self->sources) &&
              (d->units == 0 || d->units == self->units) &&
              (d->vector == 0 || d->vector == self->vector)))
            continue;
        if (d->build && strcmp(d->build, self->build) == 0)
            return d;
        last = d; /* results are appended: the newest */
    }
    return with_build ? NULL : last;
}
