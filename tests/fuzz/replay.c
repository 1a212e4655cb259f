/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Feeds every file of the folders that it is called with to a fuzz target: a crash, or a
 * sanitizer's report, fails the test. A folder without files fails too. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc((size_t)1 << 20);
    size_t size = 0;
    if (file && data)
        size = fread(data, 1, (size_t)1 << 20, file);
    int code = file && data ? LLVMFuzzerTestOneInput(data, size) : 1;
    if (file)
        fclose(file);
    free(data);
    return code;
}

int main(int argc, char **argv) {
    unsigned count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        const struct dirent *entry;
        while (folder && (entry = readdir(folder)) != NULL) {
            char path[4096];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (replay_file(path) != 0)
                return EXIT_FAILURE;
            count++;
        }
        if (folder)
            closedir(folder);
    }
    printf("%u inputs\n", count);
    return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
