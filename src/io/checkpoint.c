/* SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"

#define VERSION "3"
#define PLAN "copse.plan"

/* ---- The numbers as notes: one table for both ways ---- */

typedef enum note_kind { NOTE_COUNT, NOTE_NUMBER, NOTE_FLAG, NOTE_HASH } note_kind;

typedef struct note_field {
    const char *key;
    note_kind kind;
    size_t offset;
} note_field;

#define NOTE(key, kind, member)                                                          \
    { key, kind, offsetof(copse__checkpoint, member) }
#define MONITOR_NOTES(key, member)                                                       \
    NOTE(key ".has_best", NOTE_FLAG, member.has_best),                                   \
        NOTE(key ".best", NOTE_NUMBER, member.best),                                     \
        NOTE(key ".wait", NOTE_COUNT, member.wait),                                      \
        NOTE(key ".cooldown", NOTE_COUNT, member.cooldown),                              \
        NOTE(key ".stopped", NOTE_FLAG, member.stopped)
static const note_field fields[] = {
    NOTE("copse.step", NOTE_COUNT, step),
    NOTE("copse.epoch", NOTE_COUNT, epoch),
    NOTE("copse.batch", NOTE_COUNT, batch),
    NOTE("copse.epoch_loss", NOTE_NUMBER, epoch_loss),
    NOTE("copse.epoch_hits", NOTE_NUMBER, epoch_hits),
    NOTE("copse.epoch_samples", NOTE_COUNT, epoch_samples),
    NOTE("copse.skipped", NOTE_COUNT, skipped),
    NOTE("copse.seed", NOTE_COUNT, seed),
    NOTE("copse.loss_scale", NOTE_NUMBER, loss_scale),
    NOTE("copse.good_steps", NOTE_COUNT, good_steps),
    NOTE("copse.has_best", NOTE_FLAG, has_best),
    NOTE("copse.best", NOTE_NUMBER, best),
    MONITOR_NOTES("copse.early_stopping", early_stopping),
    MONITOR_NOTES("copse.plateau", plateau),
    NOTE("copse.learning_rate", NOTE_NUMBER, learning_rate),
    NOTE("copse.log_bytes", NOTE_COUNT, log_bytes),
    NOTE("copse.config_hash", NOTE_HASH, config_hash)};
#undef NOTE
#undef MONITOR_NOTES

enum { FIELDS = sizeof fields / sizeof fields[0], NOTES = FIELDS + 4, VALUE_BYTES = 40 };

static void print_note(const note_field *field, const copse__checkpoint *checkpoint,
                       char value[VALUE_BYTES]) {
    const char *at = (const char *)checkpoint + field->offset;
    if (field->kind == NOTE_COUNT)
        snprintf(value, VALUE_BYTES, "%" PRIu64, *(const uint64_t *)(const void *)at);
    else if (field->kind == NOTE_NUMBER)
        copse__format_double(value, VALUE_BYTES, *(const double *)(const void *)at);
    else if (field->kind == NOTE_FLAG)
        snprintf(value, VALUE_BYTES, "%d", *(const bool *)(const void *)at);
    else
        snprintf(value, VALUE_BYTES, "%s", at);
}

static bool scan_note(const note_field *field, const char *value,
                      copse__checkpoint *checkpoint) {
    char *at = (char *)checkpoint + field->offset, *end;
    if (field->kind == NOTE_HASH) {
        if (strlen(value) > 32)
            return false;
        snprintf(at, 33, "%s", value);
        return true;
    }
    if (field->kind == NOTE_NUMBER) {
        *(double *)(void *)at = strtod(value, &end);
        return *value && !*end && isfinite(*(double *)(void *)at);
    }
    errno = 0;
    unsigned long long count = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end || errno != 0)
        return false;
    if (field->kind == NOTE_FLAG)
        *(bool *)(void *)at = count != 0;
    else
        *(uint64_t *)(void *)at = count;
    return field->kind != NOTE_FLAG || count <= 1;
}

/* ---- The hash: over names, types, shapes, the bytes' own hashes, and the notes ---- */

static copse_status hash_all(const copse__checkpoint *checkpoint, char out[33],
                             copse_error *err) {
    copse__text text = {0};
    char value[VALUE_BYTES], hex[33];
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        const copse__safetensor *tensor = &checkpoint->tensors[i];
        size_t bytes = copse_dtype_bytes(tensor->dtype);
        copse__text_add(&text, "%s\n%s", tensor->name, copse_dtype_name(tensor->dtype));
        for (size_t d = 0; d < tensor->rank; d++) {
            bytes *= tensor->shape[d]; /* fits: it lies in memory */
            copse__text_add(&text, " %zu", tensor->shape[d]);
        }
        copse__hash128 hash = copse__hash128_of(bytes ? tensor->data : "", bytes);
        copse__text_add(&text, "\n%s\n", copse__hash128_hex(hex, hash));
    }
    for (size_t i = 0; i < FIELDS; i++) {
        print_note(&fields[i], checkpoint, value);
        copse__text_add(&text, "%s=%s\n", fields[i].key, value);
    }
    copse__text_add(&text, PLAN "=%s\n", checkpoint->plan ? checkpoint->plan : "");
    copse_status status = copse__text_check(&text, err);
    if (status == COPSE_OK)
        copse__hash128_hex(out, copse__hash128_of(text.data, text.length));
    copse__text_free(&text);
    return status;
}

/* The order of the bytes in the file, which is that of the hash as well. */
static int compare_tensors(const void *a, const void *b) {
    const copse__safetensor *x = a, *y = b;
    size_t x_size = copse_dtype_bytes(x->dtype), y_size = copse_dtype_bytes(y->dtype);
    if (x_size != y_size)
        return x_size > y_size ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* ---- Writing ---- */

copse_status copse__checkpoint_write(const char *path,
                                     const copse__checkpoint *checkpoint,
                                     copse_error *err) {
    copse__safetensors_note notes[NOTES];
    char values[FIELDS][VALUE_BYTES], hash[33];
    copse__checkpoint sorted = *checkpoint;
    copse__safetensor *tensors;
    copse_status status =
        copse__calloc(&tensors, checkpoint->tensor_count, sizeof *tensors, err);
    if (status != COPSE_OK)
        return status;
    if (checkpoint->tensor_count > 0) {
        memcpy(tensors, checkpoint->tensors, checkpoint->tensor_count * sizeof *tensors);
        qsort(tensors, checkpoint->tensor_count, sizeof *tensors, compare_tensors);
    }
    sorted.tensors = tensors;
    COPSE__TRY(hash_all(&sorted, hash, err), out);
    for (size_t i = 0; i < FIELDS; i++) {
        print_note(&fields[i], checkpoint, values[i]);
        notes[i] = (copse__safetensors_note){fields[i].key, values[i]};
    }
    notes[FIELDS] = (copse__safetensors_note){"copse.checkpoint", VERSION};
    notes[FIELDS + 1] = (copse__safetensors_note){"copse.hash", hash};
    notes[FIELDS + 2] = (copse__safetensors_note){"format", "np"};
    notes[FIELDS + 3] =
        (copse__safetensors_note){PLAN, checkpoint->plan ? checkpoint->plan : ""};
    status = copse__safetensors_write(path, tensors, checkpoint->tensor_count, notes,
                                      NOTES, err);
out:
    free(tensors);
    return status;
}

/* ---- Reading ---- */

static copse_status read_notes(copse__checkpoint *checkpoint,
                               const copse__safetensors *file, const char *path,
                               copse_error *err) {
    const char *version = copse__safetensors_note_of(file, "copse.checkpoint");
    if (!version)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "it holds weights but no state of training: begin a run with "
                           "them by init: FILE instead");
    if (strcmp(version, VERSION) != 0)
        return copse__fail(
            err, COPSE_FORMAT, 0, path,
            "it is a checkpoint of version %.20s; this copse reads version "
            "%s",
            version, VERSION);
    for (size_t i = 0; i < FIELDS; i++) {
        const char *value = copse__safetensors_note_of(file, fields[i].key);
        if (!value || !scan_note(&fields[i], value, checkpoint))
            return copse__fail(err, COPSE_FORMAT, 0, path,
                               "its %s is missing or wrong; use an older checkpoint",
                               fields[i].key);
    }
    const char *plan = copse__safetensors_note_of(file, PLAN);
    char *copy;
    if (!plan)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "its " PLAN " is missing; use an older checkpoint");
    copse_status status = copse__pool_strdup(&checkpoint->pool, &copy, plan, err);
    checkpoint->plan = status == COPSE_OK ? copy : NULL;
    return status;
}

static copse_status read_tensors(copse__checkpoint *checkpoint,
                                 const copse__safetensors *file, const char *path,
                                 copse_error *err) {
    size_t count = copse__safetensors_count(file), total = 0;
    copse__safetensor *tensors;
    copse_status status =
        copse__pool_alloc(&checkpoint->pool, &tensors, count, sizeof *tensors, err);
    for (size_t i = 0; i < count; i++) /* at most the file's size: it was checked */
        total += copse__round_up(copse__safetensors_get(file, i)->bytes, 64);
    if (status == COPSE_OK)
        status = copse__calloc(&checkpoint->memory, total, 1, err);
    char *data = checkpoint->memory;
    for (size_t i = 0; status == COPSE_OK && i < count; i++) {
        const copse__safetensors_entry *entry = copse__safetensors_get(file, i);
        char *name;
        if (!entry->known)
            return copse__fail(err, COPSE_FORMAT, 0, path,
                               "the tensor '%.100s' is of type %s, which no checkpoint "
                               "holds",
                               entry->name, entry->dtype_name);
        status = copse__pool_strdup(&checkpoint->pool, &name, entry->name, err);
        if (status == COPSE_OK)
            status = copse__safetensors_read(file, entry, data, err);
        tensors[i] = (copse__safetensor){
            .name = name, .dtype = entry->dtype, .rank = entry->rank, .data = data};
        memcpy(tensors[i].shape, entry->shape, sizeof tensors[i].shape);
        data += copse__round_up(entry->bytes, 64);
    }
    if (status != COPSE_OK)
        return status;
    qsort(tensors, count, sizeof *tensors, compare_tensors);
    checkpoint->tensors = tensors;
    checkpoint->tensor_count = count;
    return COPSE_OK;
}

copse_status copse__checkpoint_read(copse__checkpoint **out, const char *path,
                                    copse_error *err) {
    *out = NULL;
    copse__safetensors *file = NULL;
    copse__checkpoint *checkpoint;
    char hash[33];
    copse_status status = copse__calloc(&checkpoint, 1, sizeof *checkpoint, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__safetensors_open(&file, path, err), out);
    COPSE__TRY(read_notes(checkpoint, file, path, err), out);
    COPSE__TRY(read_tensors(checkpoint, file, path, err), out);
    COPSE__TRY(hash_all(checkpoint, hash, err), out);
    const char *wanted = copse__safetensors_note_of(file, "copse.hash");
    if (!wanted || strcmp(wanted, hash) != 0) {
        status = copse__fail(err, COPSE_FORMAT, 0, path,
                             "its content does not match its hash: it was damaged or "
                             "changed; use an older checkpoint");
        goto out;
    }
    *out = checkpoint;
    checkpoint = NULL;
out:
    copse__safetensors_close(file);
    copse__checkpoint_free(checkpoint);
    return status;
}

void copse__checkpoint_free(copse__checkpoint *checkpoint) {
    if (!checkpoint)
        return;
    copse__pool_free(&checkpoint->pool);
    free(checkpoint->memory);
    free(checkpoint);
}

const copse__safetensor *copse__checkpoint_find(const copse__checkpoint *checkpoint,
                                                const char *name) {
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        if (strcmp(checkpoint->tensors[i].name, name) == 0)
            return &checkpoint->tensors[i];
    return NULL;
}

copse_status copse__checkpoint_verify(const char *path, copse_error *err) {
    copse__safetensors *file;
    if (copse__safetensors_open(&file, path, NULL) != COPSE_OK)
        return COPSE_OK; /* another format, or whoever reads it says what is wrong */
    bool claims = copse__safetensors_note_of(file, "copse.hash") != NULL;
    copse__safetensors_close(file);
    if (!claims)
        return COPSE_OK;
    copse__checkpoint *checkpoint = NULL;
    copse_status status = copse__checkpoint_read(&checkpoint, path, err);
    copse__checkpoint_free(checkpoint);
    return status;
}
