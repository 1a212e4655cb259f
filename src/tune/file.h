/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TUNE_FILE_H
#define COPSE_TUNE_FILE_H

#include "backend/backend.h"
#include "base/pool.h"
#include "base/text.h"

/* Tuning results as JSON, in the user's cache, in a file that somebody names, and shipped (cl/tune):
 *
 * {"schema": "copse-tune/1", "devices": [
 *   {"name", "platform", "driver", "machine", "units", "vector", "build", "sources",
 *    "results": [{"key", "provider", "parameters", "us", "default_us"}]}]}
 *
 * What a device's object leaves out does not matter: shipped results name platform, machine and vector. Every
 * other key, wrong type, repeated or overlong text is refused. */

typedef struct copse__tune_result {
    copse__tuned tuned;
    double us,
        default_us; /* its median, and what the choice before took by their turns; 0: not told */
} copse__tune_result;

typedef struct copse__tune_device {
    const char *name, *platform, *driver, *machine; /* NULL: any */
    const char *build, *sources;                    /* of copse__tuning_id; NULL: any */
    uint32_t units, vector;                         /* 0: any */
    copse__tune_result *results;
    size_t result_count;
} copse__tune_device;

typedef struct copse__tune_file {
    copse__pool pool;
    copse__tune_device *devices;
    size_t device_count;
} copse__tune_file;

#define COPSE__TUNE_MOST_BYTES ((size_t)8 << 20)

/* COPSE_FORMAT with what is wrong. place: the file's path. Start from {0}; free it in any case. */
COPSE_CHECKED copse_status copse__tune_parse(copse__tune_file *out, const char *data,
                                             size_t bytes, const char *place,
                                             copse_error *err);
COPSE_CHECKED copse_status copse__tune_load(copse__tune_file *out, const char *path,
                                            copse_error *err);
void copse__tune_file_free(copse__tune_file *file);

/* Of file order; what is any is left out. */
void copse__tune_write(copse__text *out, const copse__tune_device *devices, size_t count);

/* Who a device is, to be matched. exact: driver, build and sources as well, as where the user's own results
 * are looked up. Borrows texts of the device. */
copse__tune_device copse__tune_device_of(const copse__device *device,
                                         copse__tuning_id *id);
/* Which of the file's devices this one is; NULL: none. with_build: with the same build of its driver's library; else
 * where there is none such the last that fits by what is named. */
const copse__tune_device *copse__tune_match(const copse__tune_file *file,
                                            const copse__tune_device *self,
                                            bool with_build);

#endif
