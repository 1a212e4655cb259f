/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG and JPEG; decoded, and scaled to 7 x 5. */
#include "data/image.h"
#include "fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    copse__scratch scratch = {0};
    copse__image image;
    copse_error error = {0};
    unsigned char out[7 * 5 * 3];
    copse_data_spec spec = {COPSE_U8, 3, {7, 5, 3}};
    copse_image_options options = {.height = 7, .width = 5};
    copse_status status =
        copse__image_decode(&image, data, bytes, 1, bytes & 1, "fuzz", &scratch, &error);
    if (status == COPSE_OK && image.height * image.width < 1 << 20)
        status = copse__image_read(out, &spec, &options, data, bytes, "fuzz", &scratch,
                                   &error);
    if (status != COPSE_OK && !error.text[0])
        abort();
    copse__scratch_free(&scratch);
    return 0;
}
