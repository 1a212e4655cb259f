/* SPDX-License-Identifier: Apache-2.0
 *
 * A tf.train.Example without its record's checksums, which a fuzzer cannot guess. */
#include "data/example.h"
#include "fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    copse__scratch scratch = {0};
    copse__example_reader reader = {0};
    copse_error error = {0};
    copse_data_source source = {.label_name = "label",
                                .feature = {.dtype = COPSE_F32, .rank = 1, .shape = {3}}};
    copse_status status =
        copse__example_settle(&reader, &source, data, bytes, "fuzz", &scratch, &error);
    size_t size = copse_data_spec_bytes(&reader.features.spec);
    if (status == COPSE_OK && size < 1 << 20) {
        void *features = malloc(size), *label = malloc(64);
        status = copse__example_read(&reader, data, bytes, "fuzz", &scratch, features,
                                     label, &error);
        free(features);
        free(label);
    }
    if (status != COPSE_OK && !error.text[0])
        abort();
    copse__example_free(&reader);
    copse__scratch_free(&scratch);
    return 0;
}
