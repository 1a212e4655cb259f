/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums a vector over all devices of this machine, whoever made them:
 *   cc allreduce.c $(pkg-config --cflags --libs copse) -o allreduce && ./allreduce [SELECTOR]
 */
#include <copse/copse.h>
#include <stdio.h>
#include <stdlib.h>

enum { ELEMENTS = 1000003 };

static int fail(const copse_error *error) {
    fprintf(stderr, "%s%s%s\n", error->place, error->place[0] ? ": " : "", error->text);
    return EXIT_FAILURE;
}

/* Rank r holds r + 1 everywhere: the sum over n ranks is n (n + 1) / 2. */
static copse_status fill(copse_tensor *tensor, float value, float *scratch,
                         copse_error *error) {
    for (size_t i = 0; i < ELEMENTS; i++)
        scratch[i] = value;
    return copse_tensor_write(tensor, scratch, ELEMENTS * sizeof *scratch, error);
}

int main(int argc, char **argv) {
    copse_error error = {0};
    copse_device_set *set = NULL;
    copse_group *group = NULL;
    if (copse_device_set_open(&set, argc > 1 ? argv[1] : "all", &error) != COPSE_OK)
        return fail(&error);
    size_t count = copse_device_set_count(set), shape[] = {ELEMENTS}, wrong = 0;
    copse_device **devices = calloc(count, sizeof *devices);
    copse_tensor **parts = calloc(count, sizeof *parts);
    float *values = malloc(ELEMENTS * sizeof *values);
    if (!devices || !parts || !values)
        return EXIT_FAILURE;
    copse_status status = COPSE_OK;
    for (size_t r = 0; r < count && status == COPSE_OK; r++) {
        devices[r] = copse_device_set_get(set, r);
        printf("rank %zu  %-8s %s\n", r, copse_device_label(devices[r]),
               copse_device_name(devices[r]));
        status = copse_tensor_new(&parts[r], devices[r], COPSE_F32, 1, shape, &error);
        if (status == COPSE_OK)
            status = fill(parts[r], (float)(r + 1), values, &error);
    }
    if (status == COPSE_OK)
        status = copse_group_new(&group, devices, count, NULL, &error);
    if (status == COPSE_OK)
        status = copse_group_allreduce_sum(group, parts, &error);
    for (size_t r = 0; r < count && status == COPSE_OK; r++) {
        status = copse_tensor_read(parts[r], values, ELEMENTS * sizeof *values, &error);
        for (size_t i = 0; i < ELEMENTS && status == COPSE_OK; i++)
            wrong += values[i] != (float)(count * (count + 1) / 2);
    }
    if (status == COPSE_OK)
        printf("%d numbers summed over %zu devices, %zu wrong\n", ELEMENTS, count, wrong);
    copse_group_free(group);
    for (size_t r = 0; r < count; r++)
        copse_tensor_free(parts[r]);
    copse_device_set_close(set);
    free(values);
    free(parts);
    free(devices);
    return status != COPSE_OK ? fail(&error) : wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
