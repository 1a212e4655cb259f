/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "support/op_run.h"

START_TEST(test_open_host_tells_capabilities) {
    copse__device *device = open_host(1);
    const copse__device_base *base = copse__device_get(device);
    ck_assert_str_eq(base->backend->name, "host");
    ck_assert(base->caps.cpu && base->caps.unified && base->caps.exact_divide_sqrt);
    ck_assert_uint_gt(base->caps.total_bytes, 1u << 20);
    ck_assert_uint_ge(base->caps.compute_units, 1);
    copse__device_close(device);
    copse__device_close(NULL);
}
END_TEST

START_TEST(test_open_foreign_provider_is_refused) {
    copse_error error = {0};
    copse__device *device;
    copse__device_choice choice = {
        .api = COPSE__API_HOST, .part_count = 1, .label = "host"};
    const char *const good[] = {"dense=loops", NULL}, *const bad[] = {"dense=clblast",
                                                                      NULL};
    copse__device_options options = {.providers = good};
    ASSERT_OK(copse__device_open(&device, &choice, &options, &error));
    copse__device_close(device);
    options.providers = bad;
    ASSERT_FAILS(COPSE_UNSUPPORTED,
                 copse__device_open(&device, &choice, &options, &error));
    ck_assert_ptr_null(device);
    ck_assert_ptr_nonnull(strstr(error.text, "clblast"));
}
END_TEST

START_TEST(test_open_unknown_api_is_refused) {
    copse_error error = {0};
    copse__device *device;
    copse__device_choice choice = {.api = (copse__api)99, .label = "x:0"};
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse__device_open(&device, &choice, NULL, &error));
    ck_assert_ptr_null(device);
    ck_assert_str_eq(error.place, "x:0");
}
END_TEST

START_TEST(test_buffer_copies_and_fences) {
    copse_error error = {0};
    copse__device *device = open_host(1);
    const copse__backend *host = copse__backend_of(device);
    copse__buffer *from, *to;
    ASSERT_OK(host->buffer_new(&from, device, 256, COPSE__MEMORY_STAGING, &error));
    ASSERT_OK(host->buffer_new(&to, device, 256, COPSE__MEMORY_DEVICE, &error));
    ck_assert_ptr_nonnull(host->buffer_host(from));
    ck_assert_ptr_null(host->buffer_host(to));
    ck_assert_uint_eq((uintptr_t)host->buffer_host(from) % 64, 0);

    copse__view front = {from, 0, 128}, back = {to, 128, 128};
    copse__fence *filled, *copied, *marked;
    bool done = false;
    ASSERT_OK(host->fill(device, COPSE__QUEUE_UPLOAD, front, 0x01020304, NULL, &filled,
                         &error));
    ASSERT_OK(host->copy(device, COPSE__QUEUE_COMPUTE, back, front, 128, filled, &copied,
                         &error));
    ASSERT_OK(host->queue_wait(device, COPSE__QUEUE_DOWNLOAD, copied, &error));
    ASSERT_OK(host->mark(&marked, device, COPSE__QUEUE_DOWNLOAD, &error));
    ASSERT_OK(host->fence_wait(marked, 0, &error));
    ASSERT_OK(host->fence_poll(&done, copied, &error));
    ck_assert(done);
    uint32_t read[32];
    ASSERT_OK(host->read(device, COPSE__QUEUE_DOWNLOAD, read, back, sizeof read, copied,
                         NULL, &error));
    for (size_t i = 0; i < 32; i++)
        ck_assert_uint_eq(read[i], 0x01020304);
    host->fence_free(filled);
    host->fence_free(copied);
    host->fence_free(marked);
    host->fence_free(NULL);
    host->buffer_free(from);
    host->buffer_free(to);
    host->buffer_free(NULL);
    copse__device_close(device);
}
END_TEST

START_TEST(test_map_shows_the_buffers_own_bytes) {
    copse_error error = {0};
    copse__device *device = open_host(1);
    const copse__backend *host = copse__backend_of(device);
    copse__buffer *buffer;
    ASSERT_OK(host->buffer_new(&buffer, device, 192, COPSE__MEMORY_DEVICE, &error));
    copse__view view = {buffer, 64, 4};
    void *mapped;
    float value = 0;
    ASSERT_OK(host->map(&mapped, device, COPSE__QUEUE_UPLOAD, view, true, NULL, &error));
    *(float *)mapped = 2.5f;
    ASSERT_OK(host->unmap(device, COPSE__QUEUE_UPLOAD, view, mapped, NULL, &error));
    ASSERT_OK(
        host->read(device, COPSE__QUEUE_DOWNLOAD, &value, view, 4, NULL, NULL, &error));
    ck_assert_float_eq(value, 2.5f);
    host->buffer_free(buffer);
    copse__device_close(device);
}
END_TEST

START_TEST(test_view_outside_its_buffer_is_refused) {
    copse_error error = {0};
    copse__device *device = open_host(1);
    const copse__backend *host = copse__backend_of(device);
    copse__buffer *buffer;
    copse__fence *fence;
    char bytes[64] = {0};
    ASSERT_OK(host->buffer_new(&buffer, device, 64, COPSE__MEMORY_DEVICE, &error));
    copse__view beyond = {buffer, 64, 64}, wrapping = {buffer, SIZE_MAX - 7, 64},
                small = {buffer, 0, 32};
    ASSERT_FAILS(COPSE_INVALID, host->write(device, COPSE__QUEUE_UPLOAD, beyond, bytes,
                                            64, NULL, &fence, &error));
    ck_assert_ptr_null(fence);
    ASSERT_FAILS(COPSE_INVALID, host->read(device, COPSE__QUEUE_UPLOAD, bytes, wrapping,
                                           64, NULL, &fence, &error));
    ASSERT_FAILS(COPSE_INVALID, host->write(device, COPSE__QUEUE_UPLOAD, small, bytes, 33,
                                            NULL, NULL, &error));
    host->buffer_free(buffer);
    ASSERT_FAILS(COPSE_DEVICE_MEMORY, host->buffer_new(&buffer, device, SIZE_MAX / 2,
                                                       COPSE__MEMORY_DEVICE, &error));
    ck_assert_ptr_null(buffer);
    copse__device_close(device);
}
END_TEST

/* Each breaks one rule of op.h; none may reach a loop. */
START_TEST(test_node_that_does_not_fit_is_refused) {
    const copse__window square = {2, 2, 2, 2, 1, 1, 0, 0},
                        outside = {2, 2, 2, 2, 1, 1, 2, 0};
    const copse__node_spec wrong[] = {
        {.op = COPSE__OP_DENSE,
         .in = {BATCHED(COPSE_F32, 4, 3), FIXED(COPSE_F32, 4, 2)},
         .out = {BATCHED(COPSE_F32, 4, 2)}},
        {.op = COPSE__OP_DENSE, /* rows equal only at the planned maximum */
         .in = {BATCHED(COPSE_F32, 4, 3), FIXED(COPSE_F32, 3, 2)},
         .out = {FIXED(COPSE_F32, 4, 2)}},
        {.op = COPSE__OP_ADD,
         .in = {BATCHED(COPSE_F32, 4, 3), BATCHED(COPSE_F32, 4, 2)},
         .out = {BATCHED(COPSE_F32, 4, 3)}},
        {.op = COPSE__OP_ACTIVATION,
         .in = {BATCHED(COPSE_F64, 4, 3)},
         .out = {BATCHED(COPSE_F32, 4, 3)}},
        {.op = COPSE__OP_MAX_POOL2D, /* the first window is all padding */
         .attrs.window = outside,
         .in = {BATCHED(COPSE_F32, 1, 4, 4, 1)},
         .out = {BATCHED(COPSE_F32, 1, 2, 2, 1)}},
        {.op = COPSE__OP_MAX_POOL2D,
         .attrs.window = square,
         .in = {BATCHED(COPSE_F32, 1, 4, 4, 1)},
         .out = {BATCHED(COPSE_F32, 1, 2, 2, 1), BATCHED(COPSE_F32, 1, 2, 2, 1)}},
        {.op = COPSE__OP_UPDATE_SGD, /* momentum without its slot */
         .attrs.update.momentum = 0.9,
         .in = {FIXED(COPSE_F32, 3), FIXED(COPSE_F32, 3)},
         .in_place = {1}},
        {.op = COPSE__OP_CROSS_ENTROPY,
         .in = {BATCHED(COPSE_F32, 4, 3), BATCHED(COPSE_F32, 4)},
         .out = {BATCHED(COPSE_F32, 4, 2)}},
        {.op = COPSE__OP_DROPOUT,
         .attrs.dropout.rate = 1.0f,
         .in = {BATCHED(COPSE_F32, 4, 3)},
         .out = {BATCHED(COPSE_F32, 4, 3)}},
        {.op = COPSE__OP_CAST,
         .in = {BATCHED(COPSE_U64, 4)},
         .out = {BATCHED(COPSE_F32, 4)}},
    };
    copse__device *device = open_host(1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        copse_error error = {0};
        copse__node_run *run;
        copse_status status = copse__node_run_new(&run, device, &wrong[i], &error);
        ck_assert_msg(status == COPSE_UNSUPPORTED, "case %zu: %s: %s", i,
                      copse_status_name(status), error.text);
        ck_assert_ptr_null(run);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_run_beyond_the_plan_is_refused) {
    copse__device *device = open_host(1);
    float x[8] = {0}, y[8];
    copse_error error = {0};
    copse__node_run *run;
    copse_scalars scalars = {0};
    copse__node_spec spec = {.op = COPSE__OP_ACTIVATION,
                             .in = {BATCHED(COPSE_F32, 4, 2)},
                             .out = {BATCHED(COPSE_F32, 4, 2)}};
    ASSERT_OK(copse__node_run_new(&run, device, &spec, &error));
    ASSERT_OK(copse__node_run_set(run, 0, x, 8, &error));
    copse__extents five = {{0, 5, 0}}, four = {{0, 4, 0}};
    ASSERT_FAILS(COPSE_INVALID, copse__node_run_go(run, &five, &scalars, &error));
    ASSERT_OK(copse__node_run_go(run, &four, &scalars, &error));
    ASSERT_OK(copse__node_run_get(run, 0, y, 8, &error));
    copse__node_run_free(run);
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_device");
    ADD_TEST(suite, test_open_host_tells_capabilities);
    ADD_TEST(suite, test_open_foreign_provider_is_refused);
    ADD_TEST(suite, test_open_unknown_api_is_refused);
    ADD_TEST(suite, test_buffer_copies_and_fences);
    ADD_TEST(suite, test_map_shows_the_buffers_own_bytes);
    ADD_TEST(suite, test_view_outside_its_buffer_is_refused);
    ADD_TEST(suite, test_node_that_does_not_fit_is_refused);
    ADD_TEST(suite, test_run_beyond_the_plan_is_refused);
    return run_suite(suite);
}
