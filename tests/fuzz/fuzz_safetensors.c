/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file as tensors and as a checkpoint; it lies in memory. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    copse__safetensors *file;
    copse__checkpoint *checkpoint;
    copse_error error;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (copse__safetensors_open(&file, path, &error) == COPSE_OK) {
        size_t total = 0;
        for (size_t i = 0; i < copse__safetensors_count(file); i++) {
            const copse__safetensors_entry *entry = copse__safetensors_get(file, i);
            void *bytes = malloc(entry->bytes + 1);
            float *values = malloc(entry->elements * sizeof(float) + 1);
            if (!bytes || !values ||
                copse__safetensors_find(file, entry->name) != entry ||
                copse__safetensors_read(file, entry, bytes, &error) != COPSE_OK)
                abort();
            copse_status status =
                copse__safetensors_read_float(file, entry, values, &error);
            if (status != COPSE_OK && status != COPSE_UNSUPPORTED)
                abort();
            total += entry->bytes;
            free(bytes);
            free(values);
        }
        if (total > size)
            abort();
        copse__safetensors_close(file);
    } else if (file || error.text[0] == '\0') {
        abort();
    }
    if (copse__checkpoint_read(&checkpoint, path, &error) == COPSE_OK)
        copse__checkpoint_free(checkpoint);
    close(fd);
    return 0;
}
