/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "support/op_case.h"

/* The seam's promises about memory, queues and fences, on any device. */

enum { COUNT = 5003, BYTES = COUNT * 4 };

static const copse__backend *backend(void) {
    return copse__backend_of(test_device);
}

static copse__buffer *new_buffer(size_t bytes, copse__memory memory) {
    copse_error error = {0};
    copse__buffer *made;
    ASSERT_OK(backend()->buffer_new(&made, test_device, bytes, memory, &error));
    return made;
}

static void count_up(uint32_t *values, uint32_t from) {
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = from + i;
}

/* Upload, copy on the device, download: three queues that only fences order. */
START_TEST(test_copies_follow_their_fences_over_queues) {
    size_t step = copse__device_get(test_device)->caps.view_alignment;
    static uint32_t sent[COUNT], got[COUNT];
    copse__buffer *a = new_buffer(BYTES + step, COPSE__MEMORY_DEVICE);
    copse__buffer *b = new_buffer(BYTES + step, COPSE__MEMORY_DEVICE);
    copse__view va = {a, step, BYTES}, vb = {b, 0, BYTES};
    for (uint32_t round = 0; round < 10; round++) {
        copse_error error = {0};
        copse__fence *uploaded, *copied, *downloaded;
        count_up(sent, round * 1000);
        ASSERT_OK(backend()->write(test_device, COPSE__QUEUE_UPLOAD, va, sent, BYTES,
                                   NULL, &uploaded, &error));
        ASSERT_OK(backend()->flush(test_device, COPSE__QUEUE_UPLOAD, &error));
        ASSERT_OK(backend()->copy(test_device, COPSE__QUEUE_COMPUTE, vb, va, BYTES,
                                  uploaded, &copied, &error));
        ASSERT_OK(backend()->flush(test_device, COPSE__QUEUE_COMPUTE, &error));
        ASSERT_OK(
            backend()->queue_wait(test_device, COPSE__QUEUE_DOWNLOAD, copied, &error));
        ASSERT_OK(backend()->read(test_device, COPSE__QUEUE_DOWNLOAD, got, vb, BYTES,
                                  NULL, &downloaded, &error));
        ASSERT_OK(backend()->flush(test_device, COPSE__QUEUE_DOWNLOAD, &error));
        ASSERT_OK(backend()->fence_wait(downloaded, 60000000000u, &error));
        ck_assert_mem_eq(sent, got, BYTES);
        bool done = false;
        ASSERT_OK(backend()->fence_poll(&done, uploaded, &error));
        ck_assert(done);
        backend()->fence_free(uploaded);
        backend()->fence_free(copied);
        backend()->fence_free(downloaded);
    }
    backend()->buffer_free(a);
    backend()->buffer_free(b);
}
END_TEST

START_TEST(test_fill_writes_its_view_and_no_more) {
    size_t step = copse__device_get(test_device)->caps.view_alignment;
    size_t whole = 3 * step;
    copse_error error = {0};
    copse__buffer *buffer = new_buffer(whole, COPSE__MEMORY_DEVICE);
    unsigned char *got = malloc(whole);
    ck_assert_ptr_nonnull(got);
    ASSERT_OK(backend()->fill(test_device, COPSE__QUEUE_COMPUTE,
                              (copse__view){buffer, 0, whole}, 0x11111111, NULL, NULL,
                              &error));
    ASSERT_OK(backend()->fill(test_device, COPSE__QUEUE_COMPUTE,
                              (copse__view){buffer, step, 4}, 0x22222222, NULL, NULL,
                              &error));
    ASSERT_OK(backend()->read(test_device, COPSE__QUEUE_COMPUTE, got,
                              (copse__view){buffer, 0, whole}, whole, NULL, NULL,
                              &error));
    ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_COMPUTE, &error));
    for (size_t i = 0; i < whole; i++)
        ck_assert_uint_eq(got[i], i >= step && i < step + 4 ? 0x22 : 0x11);
    free(got);
    backend()->buffer_free(buffer);
}
END_TEST

START_TEST(test_single_bytes_are_copied) {
    copse_error error = {0};
    copse__buffer *buffer = new_buffer(3, COPSE__MEMORY_DEVICE);
    copse__view view = {buffer, 0, 3};
    unsigned char sent[3] = {7, 8, 9}, got[3] = {0};
    ASSERT_OK(backend()->write(test_device, COPSE__QUEUE_UPLOAD, view, sent, 3, NULL,
                               NULL, &error));
    ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_UPLOAD, &error));
    ASSERT_OK(backend()->read(test_device, COPSE__QUEUE_DOWNLOAD, got, view, 1, NULL,
                              NULL, &error));
    ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_DOWNLOAD, &error));
    ck_assert(got[0] == 7 && got[1] == 0);
    backend()->buffer_free(buffer);
}
END_TEST

START_TEST(test_mapping_sees_and_changes_device_memory) {
    static uint32_t values[COUNT];
    copse_error error = {0};
    copse__buffer *buffer = new_buffer(BYTES, COPSE__MEMORY_DEVICE);
    copse__view view = {buffer, 0, BYTES};
    void *mapped;
    copse__fence *unmapped;
    count_up(values, 5);
    ASSERT_OK(backend()->map(&mapped, test_device, COPSE__QUEUE_UPLOAD, view, true, NULL,
                             &error));
    memcpy(mapped, values, BYTES);
    ASSERT_OK(backend()->unmap(test_device, COPSE__QUEUE_UPLOAD, view, mapped, &unmapped,
                               &error));
    ASSERT_OK(backend()->flush(test_device, COPSE__QUEUE_UPLOAD, &error));
    ASSERT_OK(backend()->map(&mapped, test_device, COPSE__QUEUE_DOWNLOAD, view, false,
                             unmapped, &error));
    ck_assert_mem_eq(mapped, values, BYTES);
    ASSERT_OK(
        backend()->unmap(test_device, COPSE__QUEUE_DOWNLOAD, view, mapped, NULL, &error));
    ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_DOWNLOAD, &error));
    backend()->fence_free(unmapped);
    backend()->buffer_free(buffer);
}
END_TEST

/* Staging memory is both a host address and a buffer. */
START_TEST(test_staging_memory_is_source_and_target) {
    copse_error error = {0};
    copse__buffer *staging = new_buffer(BYTES, COPSE__MEMORY_STAGING);
    copse__buffer *device = new_buffer(BYTES, COPSE__MEMORY_DEVICE);
    copse__view view = {device, 0, BYTES};
    uint32_t *host = backend()->buffer_host(staging);
    static uint32_t want[COUNT];
    ck_assert_ptr_nonnull(host);
    ck_assert_ptr_null(backend()->buffer_host(device));
    count_up(host, 9);
    count_up(want, 9);
    ASSERT_OK(backend()->write(test_device, COPSE__QUEUE_UPLOAD, view, host, BYTES, NULL,
                               NULL, &error));
    ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_UPLOAD, &error));
    memset(host, 0, BYTES);
    ASSERT_OK(backend()->read(test_device, COPSE__QUEUE_DOWNLOAD, host, view, BYTES, NULL,
                              NULL, &error));
    ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_DOWNLOAD, &error));
    ck_assert_mem_eq(host, want, BYTES);
    backend()->buffer_free(staging);
    backend()->buffer_free(device);
}
END_TEST

/* Where it has an address, device and host use it by turns without a call. */
START_TEST(test_shared_memory_is_the_devices_and_the_hosts) {
    copse_error error = {0};
    copse__buffer *shared = new_buffer(BYTES, COPSE__MEMORY_SHARED);
    copse__buffer *device = new_buffer(BYTES, COPSE__MEMORY_DEVICE);
    copse__view view = {shared, 0, BYTES}, other = {device, 0, BYTES};
    uint32_t *host = backend()->buffer_host(shared);
    static uint32_t sent[COUNT], got[COUNT];
    for (uint32_t turn = 1; turn <= 3; turn++) {
        copse__fence *written, *read;
        count_up(sent, 10 * turn);
        ASSERT_OK(backend()->write(test_device, COPSE__QUEUE_UPLOAD, view, sent, BYTES,
                                   NULL, &written, &error));
        ASSERT_OK(backend()->fence_wait(written, UINT64_MAX, &error));
        if (host != NULL) {
            ck_assert_mem_eq(host, sent, BYTES);
            count_up(host, 11 * turn);
            count_up(sent, 11 * turn);
        }
        ASSERT_OK(backend()->copy(test_device, COPSE__QUEUE_COMPUTE, other, view, BYTES,
                                  NULL, NULL, &error));
        ASSERT_OK(backend()->read(test_device, COPSE__QUEUE_COMPUTE, got, other, BYTES,
                                  NULL, &read, &error));
        ASSERT_OK(backend()->fence_wait(read, UINT64_MAX, &error));
        ck_assert_mem_eq(got, sent, BYTES);
        backend()->fence_free(written);
        backend()->fence_free(read);
    }
    backend()->buffer_free(shared);
    backend()->buffer_free(device);
}
END_TEST

/* A queue that was flushed is not finished yet: the host frees what its copies write. */
START_TEST(test_finish_waits_for_what_was_flushed) {
    const size_t bytes = 4 << 20;
    copse__buffer *buffer = new_buffer(bytes, COPSE__MEMORY_DEVICE);
    uint32_t *got = malloc(bytes);
    ck_assert_ptr_nonnull(got);
    for (uint32_t round = 1; round <= 20; round++) {
        copse_error error = {0};
        const copse__view all = {buffer, 0, bytes};
        memset(got, 0, bytes);
        ASSERT_OK(backend()->fill(test_device, COPSE__QUEUE_COMPUTE, all, round, NULL,
                                  NULL, &error));
        ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_COMPUTE, &error));
        ASSERT_OK(backend()->read(test_device, COPSE__QUEUE_DOWNLOAD, got, all, bytes,
                                  NULL, NULL, &error));
        ASSERT_OK(backend()->flush(test_device, COPSE__QUEUE_DOWNLOAD, &error));
        ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_DOWNLOAD, &error));
        for (size_t i = 0; i < bytes / 4; i += 1023)
            ck_assert_uint_eq(got[i], round);
    }
    free(got);
    backend()->buffer_free(buffer);
}
END_TEST

/* As where making the next buffer fails: the commands end in memory that is still there. */
START_TEST(test_memory_outlives_the_commands_that_write_it) {
    static const copse__memory kinds[] = {COPSE__MEMORY_DEVICE, COPSE__MEMORY_SHARED};
    const size_t bytes = 16 << 20;
    for (size_t k = 0; k < COPSE__COUNT(kinds); k++)
        for (int round = 0; round < 3; round++) {
            copse_error error = {0};
            copse__buffer *buffer = new_buffer(bytes, kinds[k]);
            for (uint32_t i = 0; i < 8; i++)
                ASSERT_OK(backend()->fill(test_device, COPSE__QUEUE_COMPUTE,
                                          (copse__view){buffer, 0, bytes}, i, NULL, NULL,
                                          &error));
            ASSERT_OK(backend()->flush(test_device, COPSE__QUEUE_COMPUTE, &error));
            backend()->buffer_free(buffer);
            ASSERT_OK(backend()->finish(test_device, COPSE__QUEUE_COMPUTE, &error));
        }
}
END_TEST

START_TEST(test_allocation_beyond_the_device_is_refused) {
    copse_error error = {0};
    copse__buffer *buffer;
    size_t most = copse__device_get(test_device)->caps.max_alloc_bytes;
    ck_assert_uint_lt(most, SIZE_MAX);
    ASSERT_FAILS(COPSE_DEVICE_MEMORY,
                 backend()->buffer_new(&buffer, test_device, most + 1,
                                       COPSE__MEMORY_DEVICE, &error));
    ck_assert_ptr_null(buffer);
    ck_assert_ptr_nonnull(
        strstr(error.place, copse__device_get(test_device)->choice.label));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device_memory");
    TCase *tests = device_case(suite, "memory");
    tcase_add_test(tests, test_copies_follow_their_fences_over_queues);
    tcase_add_test(tests, test_fill_writes_its_view_and_no_more);
    tcase_add_test(tests, test_single_bytes_are_copied);
    tcase_add_test(tests, test_mapping_sees_and_changes_device_memory);
    tcase_add_test(tests, test_staging_memory_is_source_and_target);
    tcase_add_test(tests, test_shared_memory_is_the_devices_and_the_hosts);
    tcase_add_test(tests, test_finish_waits_for_what_was_flushed);
    tcase_add_test(tests, test_memory_outlives_the_commands_that_write_it);
    tcase_add_test(tests, test_allocation_beyond_the_device_is_refused);
    return run_device_suite(suite);
}
