/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    return fuzz_dataset(
        data, bytes,
        (copse_data_source){.format = COPSE_DATA_TEXT, .sequence_length = 3});
}
