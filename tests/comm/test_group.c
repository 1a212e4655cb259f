/* SPDX-License-Identifier: Apache-2.0 */
/* The public groups over COPSE_TEST_DEVICES: a selector, or "fake:N", devices of plain memory for
 * where drivers cannot be judged. Skips visibly where there are none. */
#include <copse/group.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/tensor.h"
#include "base/half.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/fake_device.h"

#define MOST 16

static copse_device_set *set;
static copse_device *devices[MOST];
static copse_device fakes[MOST];
static copse_group *group;
static size_t n;

/* The number of fake devices that are asked for; 0: real ones are. */
static size_t fake_count(void) {
    const char *wanted = getenv("COPSE_TEST_DEVICES");
    return wanted != NULL && strncmp(wanted, "fake:", 5) == 0
               ? strtoul(wanted + 5, NULL, 10)
               : 0;
}

static void set_up(void) {
    copse_error error = {0};
    n = fake_count();
    ck_assert(n <= MOST);
    for (size_t r = 0; r < n; r++) { /* some with memory of their own */
        fakes[r].device = fake_device_new(r, r % 2 == 0);
        devices[r] = &fakes[r];
    }
    if (n == 0) {
        ASSERT_OK(copse_device_set_open(&set, getenv("COPSE_TEST_DEVICES"), &error));
        n = copse_device_set_count(set);
        ck_assert(n >= 2 && n <= MOST);
        for (size_t r = 0; r < n; r++)
            devices[r] = copse_device_set_get(set, r);
    }
    ASSERT_OK(copse_group_new(&group, devices, n, NULL, &error));
}

static void tear_down(void) {
    copse_group_free(group);
    copse_device_set_close(set);
    for (size_t r = 0; r < fake_count(); r++) {
        ck_assert_uint_eq(fake_live_objects(fakes[r].device), 0);
        fake_device_free(fakes[r].device);
    }
}

static void make(copse_tensor **tensors, copse_dtype dtype, size_t elements) {
    copse_error error = {0};
    for (size_t r = 0; r < n; r++)
        ASSERT_OK(copse_tensor_new(&tensors[r], devices[r], dtype, 1, &elements, &error));
}

static void drop(copse_tensor **tensors) {
    for (size_t r = 0; r < n; r++)
        copse_tensor_free(tensors[r]);
}

static float value(size_t rank, size_t element) {
    const uint32_t x = (uint32_t)(element * 2654435761u + rank * 40503u);
    return (float)(int32_t)(x ^ x >> 15) * 0x1p-31f;
}

static void fill(copse_tensor **tensors) {
    copse_error error = {0};
    for (size_t r = 0; r < n; r++) {
        const size_t count = copse_tensor_elements(tensors[r]);
        const size_t bytes = copse_tensor_bytes(tensors[r]);
        const bool half = copse_tensor_dtype(tensors[r]) == COPSE_F16;
        char *host = malloc(bytes);
        for (size_t e = 0; e < count; e++) {
            if (half)
                ((uint16_t *)(void *)host)[e] = copse__half_from_float(value(r, e));
            else
                ((float *)(void *)host)[e] = value(r, e);
        }
        ASSERT_OK(copse_tensor_write(tensors[r], host, bytes, &error));
        free(host);
    }
}

static float tree(size_t lo, size_t count, const float *values) {
    if (count == 1)
        return values[lo];
    size_t split = 1;
    while (split * 2 < count)
        split *= 2;
    const float left = tree(lo, split, values);
    return left + tree(lo + split, count - split, values);
}

/* The bits that element e of the sum of all ranks' values has. */
static uint32_t expected_bits(size_t e, bool half) {
    float values[MOST];
    for (size_t r = 0; r < n; r++)
        values[r] = half ? copse__half_to_float(copse__half_from_float(value(r, e)))
                         : value(r, e);
    const float sum = tree(0, n, values);
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return half ? copse__half_from_float(sum) : bits;
}

/* The tensor holds elements [first, …) of the sum. */
static void check_sum(copse_tensor *tensor, size_t first) {
    copse_error error = {0};
    const bool half = copse_tensor_dtype(tensor) == COPSE_F16;
    const size_t count = copse_tensor_elements(tensor);
    char *host = malloc(copse_tensor_bytes(tensor));
    ASSERT_OK(copse_tensor_read(tensor, host, copse_tensor_bytes(tensor), &error));
    for (size_t e = 0; e < count; e++) {
        const uint32_t got =
            half ? ((uint16_t *)(void *)host)[e] : ((uint32_t *)(void *)host)[e];
        if (got != expected_bits(first + e, half))
            ck_abort_msg("element %zu of %zu: %x, not %x", e, count, got,
                         expected_bits(first + e, half));
    }
    free(host);
}

static const size_t sizes[] = {1, 7, 4097, 700001};
static const copse_dtype dtypes[] = {COPSE_F32, COPSE_F16};

START_TEST(test_allreduce_sum_is_the_trees_on_every_device) {
    copse_error error = {0};
    for (size_t d = 0; d < 2; d++)
        for (size_t s = 0; s < COPSE__COUNT(sizes); s++) {
            copse_tensor *part[MOST];
            make(part, dtypes[d], sizes[s]);
            for (int repetition = 0; repetition < 2; repetition++) {
                fill(part);
                ASSERT_OK(copse_group_allreduce_sum(group, part, &error));
                for (size_t r = 0; r < n; r++)
                    check_sum(part[r], 0);
            }
            drop(part);
        }
}
END_TEST

START_TEST(test_reduce_scatter_sum_gives_each_its_slice) {
    copse_error error = {0};
    for (size_t d = 0; d < 2; d++)
        for (size_t s = 0; s < COPSE__COUNT(sizes); s++) {
            copse_tensor *from[MOST], *to[MOST];
            make(from, dtypes[d], sizes[s] * n);
            make(to, dtypes[d], sizes[s]);
            fill(from);
            ASSERT_OK(copse_group_reduce_scatter_sum(group, from, to, &error));
            for (size_t r = 0; r < n; r++)
                check_sum(to[r], r * sizes[s]);
            drop(from);
            drop(to);
        }
}
END_TEST

START_TEST(test_broadcast_copies_the_root) {
    copse_error error = {0};
    for (size_t s = 0; s < COPSE__COUNT(sizes); s++)
        for (size_t root = 0; root < n; root++) {
            copse_tensor *part[MOST];
            make(part, COPSE_F32, sizes[s]);
            fill(part);
            ASSERT_OK(copse_group_broadcast(group, root, part, &error));
            float *host = malloc(sizes[s] * sizeof *host);
            for (size_t r = 0; r < n; r++) {
                ASSERT_OK(
                    copse_tensor_read(part[r], host, sizes[s] * sizeof *host, &error));
                for (size_t e = 0; e < sizes[s]; e++)
                    if (host[e] != value(root, e))
                        ck_abort_msg("root %zu, rank %zu, element %zu", root, r, e);
            }
            free(host);
            drop(part);
        }
}
END_TEST

START_TEST(test_all_gather_concatenates_in_rank_order) {
    copse_error error = {0};
    for (size_t s = 0; s < COPSE__COUNT(sizes); s++) {
        copse_tensor *from[MOST], *to[MOST];
        make(from, COPSE_F32, sizes[s]);
        make(to, COPSE_F32, sizes[s] * n);
        fill(from);
        ASSERT_OK(copse_group_all_gather(group, from, to, &error));
        float *host = malloc(sizes[s] * n * sizeof *host);
        for (size_t r = 0; r < n; r++) {
            ASSERT_OK(
                copse_tensor_read(to[r], host, sizes[s] * n * sizeof *host, &error));
            for (size_t e = 0; e < sizes[s] * n; e++)
                if (host[e] != value(e / sizes[s], e % sizes[s]))
                    ck_abort_msg("rank %zu, element %zu", r, e);
        }
        free(host);
        drop(from);
        drop(to);
    }
}
END_TEST

START_TEST(test_tensors_that_do_not_belong_are_refused) {
    copse_error error = {0};
    copse_tensor *part[MOST], *large[MOST], *bytes[MOST], *bad = NULL;
    make(part, COPSE_F32, 5);
    make(large, COPSE_F32, 6);
    make(bytes, COPSE_U8, 5);
    copse_tensor *mixed[MOST];
    memcpy(mixed, part, sizeof mixed);
    mixed[1] = large[1];
    ASSERT_FAILS(COPSE_INVALID, copse_group_allreduce_sum(group, mixed, &error));
    mixed[1] = part[0];
    ASSERT_FAILS(COPSE_INVALID, copse_group_allreduce_sum(group, mixed, &error));
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse_group_allreduce_sum(group, bytes, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_group_broadcast(group, n, part, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_group_all_gather(group, part, large, &error));
    ASSERT_FAILS(COPSE_INVALID,
                 copse_group_reduce_scatter_sum(group, large, part, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_tensor_write(part[0], &error, 3, &error));
    const size_t none = 0, huge[] = {SIZE_MAX / 2, 3};
    ASSERT_FAILS(COPSE_INVALID,
                 copse_tensor_new(&bad, devices[0], COPSE_F32, 1, &none, &error));
    ASSERT_FAILS(COPSE_INVALID,
                 copse_tensor_new(&bad, devices[0], COPSE_F32, 2, huge, &error));
    ck_assert_ptr_null(bad);
    fill(part); /* and the group works on */
    ASSERT_OK(copse_group_allreduce_sum(group, part, &error));
    check_sum(part[0], 0);
    drop(part);
    drop(large);
    drop(bytes);
}
END_TEST

/* In a child: this process must make no OpenCL call before Check forks. */
static bool devices_are_there(void) {
    if (fake_count() > 0)
        return true;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        copse_error error = {0};
        const copse_status status =
            copse_device_set_open(&set, getenv("COPSE_TEST_DEVICES"), &error);
        if (status != COPSE_OK)
            printf("SKIPPED: %s\n", error.text);
        fflush(NULL);
        _exit(status == COPSE_OK ? 0 : 77);
    }
    int result = -1;
    waitpid(child, &result, 0);
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

int main(void) {
    if (!devices_are_there())
        return 77;
    Suite *suite = suite_create("group");
    TCase *one = tcase_create("devices");
    tcase_set_timeout(one, 60);
    tcase_add_checked_fixture(one, set_up, tear_down);
    tcase_add_test(one, test_allreduce_sum_is_the_trees_on_every_device);
    tcase_add_test(one, test_reduce_scatter_sum_gives_each_its_slice);
    tcase_add_test(one, test_broadcast_copies_the_root);
    tcase_add_test(one, test_all_gather_concatenates_in_rank_order);
    tcase_add_test(one, test_tensors_that_do_not_belong_are_refused);
    suite_add_tcase(suite, one);
    return run_suite(suite);
}
