/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "train/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A configuration, and behind a NUL byte perhaps an override. What is accepted must survive being
 * written and read again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    size_t bytes = end ? (size_t)(end - data) : size;
    char *override = NULL;
    copse__config *config, *again = NULL;
    copse__text first = {0}, second = {0};
    copse_error error;
    if (end && (override = calloc(1, size - bytes)) != NULL)
        memcpy(override, end + 1, size - bytes - 1);
    const char *const overrides[] = {override};
    if (copse__config_parse(&config, (const char *)data, bytes, "/f.yaml", overrides,
                            override != NULL, &error) == COPSE_OK) {
        if (copse__config_write(config, &first, &error) != COPSE_OK ||
            copse__config_parse(&again, first.data, first.length, "/g.yaml", NULL, 0,
                                &error) != COPSE_OK ||
            copse__config_write(again, &second, &error) != COPSE_OK ||
            strcmp(first.data, second.data) != 0)
            abort();
        copse__config_free(again);
        copse__config_free(config);
    } else if (config || error.text[0] == '\0' || strchr(error.text, '\n')) {
        abort();
    }
    copse__text_free(&first);
    copse__text_free(&second);
    free(override);
    return 0;
}
