/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/node_run.h"
#include "backend/opencl/provider.h"
#include "base/clock.h"
#include "support/op_case.h"

/* What is particular to OpenCL devices: handles, parts, deadlines, errors, providers. */

static copse__device_choice choice(void) {
    return copse__device_get(test_device)->choice;
}

START_TEST(test_open_absent_handles_are_refused) {
    copse_error error = {0};
    copse__device *device;
    copse__device_choice wrong = choice();
    wrong.platform_index = 200;
    ASSERT_FAILS(COPSE_NODEVICE, copse__device_open(&device, &wrong, NULL, &error));
    ck_assert_ptr_null(device);
    ck_assert_ptr_nonnull(strstr(error.text, "platform 200"));
    wrong = choice();
    wrong.device_index = 99;
    ASSERT_FAILS(COPSE_NODEVICE, copse__device_open(&device, &wrong, NULL, &error));
    ck_assert_ptr_null(device);
}
END_TEST

static bool can_split(void) {
    cl_device_partition_property kinds[8] = {0};
    clGetDeviceInfo(test_device->id, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds,
                    NULL);
    return kinds[0] != 0;
}

/* Doubles 0 .. 999 on a device. */
static void use(copse__device *device) {
    copse_error error = {0};
    copse__node_operand x = {.present = true, .dtype = COPSE_F32, .rank = 1};
    x.dim[0] = (copse__dim){1000, COPSE__BATCH};
    copse__node_spec spec = {.op = COPSE__OP_ADD, .in = {x, x}, .out = {x}};
    copse__node_run *run;
    float numbers[1000], got[1000];
    for (size_t i = 0; i < 1000; i++)
        numbers[i] = (float)i;
    ASSERT_OK(copse__node_run_new(&run, device, &spec, &error));
    ASSERT_OK(copse__node_run_set(run, 0, numbers, 1000, &error));
    ASSERT_OK(copse__node_run_set(run, 1, numbers, 1000, &error));
    copse_scalars scalars = {0};
    ASSERT_OK(copse__node_run_go(run, &(copse__extents){{0, 1000, 0}}, &scalars, &error));
    ASSERT_OK(copse__node_run_get(run, 0, got, 1000, &error));
    for (size_t i = 0; i < 1000; i++)
        ck_assert(got[i] == (float)(2 * i));
    copse__node_run_free(run);
}

START_TEST(test_open_parts_work_side_by_side) {
    copse_error error = {0};
    uint32_t parts = copse__device_get(test_device)->caps.compute_units;
    copse__device_choice part = choice();
    copse__device *device[2];
    part.part_count = parts;
    if (!can_split() || parts < 2) { /* it must say so instead of crashing */
        part.part_count = 2;
        ASSERT_FAILS(COPSE_INVALID, copse__device_open(&device[0], &part, NULL, &error));
        ck_assert_ptr_null(device[0]);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        part.part_index = i;
        ASSERT_OK(copse__device_open(&device[i], &part, NULL, &error));
        ck_assert_uint_eq(copse__device_get(device[i])->caps.compute_units, 1);
    }
    use(device[1]);
    use(device[0]);
    copse__device_close(device[0]);
    use(device[1]);
    copse__device_close(device[1]);
}
END_TEST

START_TEST(test_open_too_many_parts_are_refused) {
    copse_error error = {0};
    copse__device *device;
    copse__device_choice part = choice();
    part.part_count = copse__device_get(test_device)->caps.compute_units + 1;
    ASSERT_FAILS(COPSE_INVALID, copse__device_open(&device, &part, NULL, &error));
    ck_assert_ptr_null(device);
    part.part_count = 2;
    part.part_index = 2;
    ASSERT_FAILS(COPSE_INVALID, copse__device_open(&device, &part, NULL, &error));
}
END_TEST

START_TEST(test_buffer_new_beyond_the_device_says_how_much) {
    copse_error error = {0};
    copse__buffer *buffer;
    size_t most = copse__device_get(test_device)->caps.max_alloc_bytes;
    ASSERT_FAILS(COPSE_DEVICE_MEMORY, copse__cl_buffer_new(&buffer, test_device, most + 1,
                                                           COPSE__MEMORY_DEVICE, &error));
    ck_assert_ptr_null(buffer);
    ck_assert_ptr_nonnull(strstr(error.text, "at most"));
    ASSERT_FAILS(COPSE_DEVICE_MEMORY, copse__cl_buffer_new(&buffer, test_device, SIZE_MAX,
                                                           COPSE__MEMORY_DEVICE, &error));
    ck_assert_uint_eq(copse__device_memory(test_device).device, 64);
}
END_TEST

START_TEST(test_view_memory_is_kept_and_checked) {
    copse_error error = {0};
    copse__buffer *buffer;
    size_t step = copse__device_get(test_device)->caps.view_alignment;
    ASSERT_OK(copse__cl_buffer_new(&buffer, test_device, 4 * step, COPSE__MEMORY_DEVICE,
                                   &error));
    cl_mem whole, first, again, other;
    ASSERT_OK(copse__cl_view_memory(&whole, (copse__view){buffer, 0, 4 * step}, &error));
    ck_assert_ptr_eq(whole, buffer->memory);
    ASSERT_OK(copse__cl_view_memory(&first, (copse__view){buffer, step, 8}, &error));
    ASSERT_OK(copse__cl_view_memory(&again, (copse__view){buffer, step, 8}, &error));
    ASSERT_OK(copse__cl_view_memory(&other, (copse__view){buffer, step, 12}, &error));
    ck_assert_ptr_eq(first, again);
    ck_assert_ptr_ne(first, other);
    ASSERT_FAILS(COPSE_INVALID,
                 copse__cl_view_memory(&other, (copse__view){buffer, 4, 8}, &error));
    ASSERT_FAILS(
        COPSE_INVALID,
        copse__cl_view_memory(&other, (copse__view){buffer, 3 * step, step + 1}, &error));
    ASSERT_FAILS(COPSE_INVALID, copse__cl_view_memory(
                                    &other, (copse__view){buffer, SIZE_MAX, 8}, &error));
    copse__cl_buffer_free(buffer);
}
END_TEST

static const char slow_text[] =
    "kernel void slow(global uint *x) { uint v = x[0];\n"
    "for (uint i = 0; i < 60000; i++) v = v * 1664525u + (v >> 3) + i;\n"
    "x[0] = v; }\n";
static const copse__cl_source slow = {"slow", slow_text, sizeof slow_text - 1, "slow"};

START_TEST(test_fence_wait_deadline_passes_while_the_device_works) {
    copse_error error = {0};
    cl_program program;
    copse__buffer *buffer;
    copse__fence *fence;
    cl_int code;
    size_t one = 1;
    ASSERT_OK(copse__cl_program_get(&program, test_device, &slow, "", &error));
    ASSERT_OK(
        copse__cl_buffer_new(&buffer, test_device, 4, COPSE__MEMORY_DEVICE, &error));
    cl_kernel kernel = clCreateKernel(program, "slow", &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    clSetKernelArg(kernel, 0, sizeof(cl_mem), &buffer->memory);
    for (int i = 0; i < 2000; i++)
        ck_assert_int_eq(clEnqueueNDRangeKernel(test_device->queues[COPSE__QUEUE_COMPUTE],
                                                kernel, 1, NULL, &one, &one, 0, NULL,
                                                NULL),
                         CL_SUCCESS);
    ASSERT_OK(copse__cl_mark(&fence, test_device, COPSE__QUEUE_COMPUTE, &error));
    ASSERT_FAILS(COPSE_TIMEOUT, copse__cl_fence_wait(fence, 1000000, &error));
    ASSERT_OK(copse__cl_fence_wait(fence, UINT64_MAX, &error));
    ASSERT_OK(copse__cl_fence_wait(fence, 0, &error));
    copse__cl_fence_free(fence);
    clReleaseKernel(kernel);
    copse__cl_buffer_free(buffer);
}
END_TEST

START_TEST(test_fence_wait_failed_command_is_a_device_error) {
    copse_error error = {0};
    copse__fence *fence;
    cl_int code;
    cl_event event = clCreateUserEvent(test_device->context, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    ASSERT_OK(
        copse__cl_fence_new(&fence, test_device, COPSE__QUEUE_COMPUTE, event, &error));
    bool done = true;
    ASSERT_OK(copse__cl_fence_poll(&done, fence, &error));
    ck_assert(!done);
    ck_assert_int_eq(clSetUserEventStatus(event, CL_OUT_OF_RESOURCES), CL_SUCCESS);
    ASSERT_FAILS(COPSE_DEVICE, copse__cl_fence_poll(&done, fence, &error));
    ck_assert_int_eq(error.native, CL_OUT_OF_RESOURCES);
    ASSERT_FAILS(COPSE_DEVICE, copse__cl_fence_wait(fence, UINT64_MAX, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "CL_OUT_OF_RESOURCES"));
    copse__cl_fence_free(fence);
}
END_TEST

static copse__node_spec dense_8x8(void) {
    copse__node_operand x = {.present = true, .dtype = COPSE_F32, .rank = 2};
    x.dim[0] = (copse__dim){8, COPSE__BATCH};
    x.dim[1] = (copse__dim){8, COPSE__FIXED};
    copse__node_operand w = x;
    w.dim[0].symbol = COPSE__FIXED;
    return (copse__node_spec){.op = COPSE__OP_DENSE, .in = {x, w}, .out = {x}};
}

/* A DENSE of 8 x 8 on a device that was opened with a table of providers. */
static copse_status choose_dense(const char *const *providers, char *name,
                                 copse_error *err) {
    copse__device *device;
    copse__node_run *run;
    copse__node_spec spec = dense_8x8();
    copse__device_options options = {.providers = providers};
    copse_error error = {0};
    copse__device_choice here = choice();
    ASSERT_OK(copse__device_open(&device, &here, &options, &error));
    copse_status status = copse__node_run_new(&run, device, &spec, err);
    if (status == COPSE_OK)
        strcpy(name, copse__node_run_provider(run));
    copse__node_run_free(run);
    copse__device_close(device);
    return status;
}

START_TEST(test_launch_new_recorded_provider_is_taken) {
    copse_error error = {0};
    char name[64];
    ASSERT_OK(choose_dense((const char *const[]){"dense=tiled", NULL}, name, &error));
    ck_assert_str_eq(name, "tiled");
    ASSERT_OK(
        choose_dense((const char *const[]){"dense_grad_input=tiled", "dense=rows", NULL},
                     name, &error));
    ck_assert_str_eq(name, "rows");
    ASSERT_FAILS(COPSE_UNSUPPORTED,
                 choose_dense((const char *const[]){"dense=magic", NULL}, name, &error));
    ck_assert_msg(strstr(error.text, "recorded provider") != NULL, "%s", error.text);
}
END_TEST

/* What a DENSE of 8 x 8 is run by once these entries were tuned, and whether the first is followed. */
static bool tuned_dense(const copse__tuned *entries, size_t count, char *name,
                        char *parameters) {
    copse__device *device;
    copse__node_run *run;
    copse__node_spec spec = dense_8x8();
    copse_error error = {0};
    copse__device_choice here = choice();
    ASSERT_OK(copse__device_open(&device, &here, NULL, &error));
    const copse__backend *backend = copse__backend_of(device);
    ASSERT_OK(backend->tune(device, entries, count, &error));
    ASSERT_OK(copse__node_run_new(&run, device, &spec, &error));
    strcpy(name, copse__node_run_provider(run));
    strcpy(parameters, copse__node_run_parameters(run));
    bool followed = backend->tuned_used(device, 0);
    ck_assert(!backend->tuned_used(device, count));
    copse__node_run_free(run);
    copse__device_close(device);
    return followed;
}

START_TEST(test_launch_new_follows_what_was_tuned) {
    char name[64], parameters[256], own[64];
    const copse__tuned exact = {"dense 8x8 8x8 - > 8x8", "rows", ""};
    const copse__tuned whole = {"dense", "rows", ""},
                       other = {"dense 9x8 8x8 - > 9x8", "rows", ""};
    const copse__tuned unknown[] = {{"dense", "magic", ""},
                                    {"dense", "rows", "speed=11"},
                                    {"dense", "packed", "mr=0"}};
    ck_assert(!tuned_dense(&other, 1, own, parameters));
    ck_assert(tuned_dense(&exact, 1, name, parameters));
    ck_assert_str_eq(name, "rows");
    ck_assert(tuned_dense(&whole, 1, name, parameters));
    ck_assert_str_eq(name, "rows");
    for (size_t i = 0; i < 3; i++) {
        ck_assert(!tuned_dense(&unknown[i], 1, name, parameters));
        ck_assert_str_eq(name, own);
        ck_assert_str_eq(parameters, "");
    }
    const copse__tuned free_choice[] = {
        {"dense 8x8 8x8 - > 8x8", COPSE__TUNED_DEFAULT, ""}, {"dense", "rows", ""}};
    ck_assert(!tuned_dense(free_choice, 2, name, parameters));
    ck_assert_str_eq(name, own);
    const copse__tuned two[] = {exact, whole};
    ck_assert(tuned_dense(two, 2, name, parameters));
}
END_TEST

START_TEST(test_launch_time_is_measured_where_asked_for) {
    copse_error error = {0};
    copse__device *device;
    copse__device_options options = {.profile = true};
    copse__device_choice here = choice();
    ASSERT_OK(copse__device_open(&device, &here, &options, &error));
    const copse__backend *backend = copse__backend_of(device);
    copse__graph *graph;
    copse__tensor_id x, y;
    copse__dim dim[1] = {{1 << 20, COPSE__FIXED}};
    ASSERT_OK(copse__graph_new(&graph, &error));
    ASSERT_OK(copse__graph_tensor(graph, "x", COPSE_F32, COPSE__ROLE_ACTIVATION, 1, dim,
                                  &x, &error));
    ASSERT_OK(copse__graph_tensor(graph, "y", COPSE_F32, COPSE__ROLE_ACTIVATION, 1, dim,
                                  &y, &error));
    copse__node node = {.name = (char[]){"act"},
                        .op = COPSE__OP_ACTIVATION,
                        .input_count = 1,
                        .output_count = 1,
                        .inputs = {x},
                        .outputs = {y},
                        .attrs = {.act = COPSE__ACT_TANH}};
    copse__buffer *from, *to;
    ASSERT_OK(backend->buffer_new(&from, device, 4 << 20, COPSE__MEMORY_DEVICE, &error));
    ASSERT_OK(backend->buffer_new(&to, device, 4 << 20, COPSE__MEMORY_DEVICE, &error));
    copse__operands operands = {.inputs = {{from, 0, 4 << 20}},
                                .outputs = {{to, 0, 4 << 20}}};
    copse__launch *launch;
    ASSERT_OK(backend->launch_new(&launch, device, graph, &node, &operands, &error));
    ck_assert_uint_eq(backend->launch_time_ns(launch), 0);
    copse__extents extents = {{0, 1, 1}};
    uint64_t begun = copse__now_ns(), from_ns, to_ns;
    ASSERT_OK(backend->run(device, &launch, 1, &extents, &error));
    ASSERT_OK(backend->finish(device, COPSE__QUEUE_COMPUTE, &error));
    cl_ulong stamp = 0; /* a driver may take no stamps: then the time is 0, not made up */
    clGetEventProfilingInfo(launch->first, CL_PROFILING_COMMAND_END, sizeof stamp, &stamp,
                            NULL);
    if (stamp == 0)
        ck_assert_uint_eq(backend->launch_time_ns(launch), 0);
    else
        ck_assert_uint_gt(backend->launch_time_ns(launch), 0);
    bool known = backend->launch_span(launch, &from_ns, &to_ns);
    ck_assert(known == (device->clock_known && stamp > 0));
    if (known) { /* by the host's clock, as well as that can be told */
        ck_assert_uint_ge(from_ns + 1000000, begun);
        ck_assert_uint_le(to_ns, copse__now_ns() + 1000000);
        ck_assert_uint_eq(to_ns - from_ns, backend->launch_time_ns(launch));
    }
    ck_assert_uint_lt(backend->launch_time_ns(launch), 60000000000u);
    backend->launch_free(launch);
    backend->buffer_free(from);
    backend->buffer_free(to);
    copse__graph_free(graph);
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("opencl devices");
    TCase *opened = device_case(suite, "open");
    tcase_add_test(opened, test_open_absent_handles_are_refused);
    tcase_add_test(opened, test_open_parts_work_side_by_side);
    tcase_add_test(opened, test_open_too_many_parts_are_refused);
    TCase *memory = device_case(suite, "memory");
    tcase_add_test(memory, test_buffer_new_beyond_the_device_says_how_much);
    tcase_add_test(memory, test_view_memory_is_kept_and_checked);
    TCase *fences = device_case(suite, "fences");
    tcase_add_test(fences, test_fence_wait_deadline_passes_while_the_device_works);
    tcase_add_test(fences, test_fence_wait_failed_command_is_a_device_error);
    TCase *launches = device_case(suite, "launches");
    tcase_add_test(launches, test_launch_new_recorded_provider_is_taken);
    tcase_add_test(launches, test_launch_new_follows_what_was_tuned);
    tcase_add_test(launches, test_launch_time_is_measured_where_asked_for);
    return run_device_suite(suite);
}
