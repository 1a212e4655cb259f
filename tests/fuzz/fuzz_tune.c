/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/packed.h"
#include "tune/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted is written so that it reads back equal, and no parameters make sizes that do not fit. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    copse_error error;
    copse__tune_file file = {0}, again = {0};
    copse__text out = {0}, second = {0};
    copse__packed_sizes sizes;
    if (!copse__packed_sizes_default(&sizes, 8, 512 << 10))
        abort();
    if (copse__tune_parse(&file, (const char *)data, size, "fuzz", &error) == COPSE_OK) {
        copse__tune_write(&out, file.devices, file.device_count);
        if (copse__tune_parse(&again, out.data, out.length, "again", &error) != COPSE_OK)
            abort();
        copse__tune_write(&second, again.devices, again.device_count);
        if (!out.data || strcmp(out.data, second.data) != 0)
            abort();
        for (size_t d = 0; d < file.device_count; d++)
            for (size_t r = 0; r < file.devices[d].result_count; r++) {
                copse__packed_sizes made = sizes;
                const copse__tuned *tuned = &file.devices[d].results[r].tuned;
                if (copse__packed_sizes_set(&made, tuned->parameters, 512 << 10) &&
                    4 * copse__gemm_local_floats(&made) > 512 << 10)
                    abort();
            }
    }
    copse__text_free(&out);
    copse__text_free(&second);
    copse__tune_file_free(&file);
    copse__tune_file_free(&again);
    return 0;
}
