/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/check.h"
#include "topo/model.h"
#include "topo/select.h"

static copse_error error;

/* A machine made by hand: nothing here asks a driver. */
static copse__topo *machine;

static void open_machine(void) {
    machine = calloc(1, sizeof *machine);
    machine->handles = calloc(16, sizeof machine->handles[0]);
    machine->platforms = calloc(8, sizeof machine->platforms[0]);
    machine->cpu_count = 4;
}

static copse__handle *add(uint32_t platform, const char *platform_name, uint32_t device,
                          uint64_t type, const char *name, const char *vendor) {
    copse__handle *handle = &machine->handles[machine->handle_count++];
    *handle = (copse__handle){.platform = platform,
                              .device = device,
                              .type = type,
                              .physical = -1,
                              .available = 1,
                              .compiler = 1,
                              .compute_units = 4,
                              .native_float_width = 8,
                              .max_parts = 4};
    snprintf(handle->name, sizeof handle->name, "%s", name);
    snprintf(handle->vendor, sizeof handle->vendor, "%s", vendor);
    copse__handle_set_tag(handle);
    if (platform >= machine->platform_count)
        machine->platform_count = platform + 1;
    snprintf(machine->platforms[platform].name, sizeof machine->platforms[0].name, "%s",
             platform_name);
    return handle;
}

static void at_address(copse__handle *handle, uint32_t bus) {
    handle->pci = (copse__pci){0, bus, 0, 0};
    handle->pci_evidence = COPSE__BY_KHR_PCI;
}

static void close_machine(void) {
    copse__topo_close(machine);
    machine = NULL;
}

/* The labels that a selector gives, joined by blanks. */
static const char *labels(const char *selector) {
    static char text[512];
    copse__device_choice *choice = NULL;
    size_t count = 0, used = 0;
    ASSERT_OK(copse__select_devices(machine, selector, &choice, &count, &error));
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                                 choice[i].label);
    free(choice);
    return text;
}

static void refused(copse_status expected, const char *selector) {
    copse__device_choice *choice = NULL;
    size_t count = 0;
    ASSERT_FAILS(expected,
                 copse__select_devices(machine, selector, &choice, &count, &error));
    ck_assert_ptr_null(choice);
    ck_assert_msg(strstr(error.text, "there is") != NULL, "%s", error.text);
}

/* Two GPUs, the second seen by two platforms; two CPU runtimes. */
static void open_mixed(void) {
    open_machine();
    at_address(add(0, "AMD APP", 0, COPSE__TYPE_GPU, "gfx1030", "AMD"), 0x83);
    copse__handle *near = add(0, "AMD APP", 1, COPSE__TYPE_GPU, "gfx90a", "AMD");
    at_address(near, 0x03);
    copse__handle *twin = add(1, "rusticl", 0, COPSE__TYPE_GPU, "MI250", "AMD");
    at_address(twin, 0x03);
    twin->native_float_width = 1;
    copse__handle *soft = add(1, "rusticl", 1, COPSE__TYPE_CPU, "llvmpipe", "Mesa/X.org");
    soft->compute_units = 8;
    soft->max_parts = 0;
    copse__handle *cpu = add(2, "Portable Computing Language", 0, COPSE__TYPE_CPU,
                             "pthread", "AuthenticAMD");
    cpu->native_kernels = 1;
    ASSERT_OK(copse__identify(machine, &error));
}

START_TEST(test_select_default_takes_each_gpu_once_in_pci_order) {
    open_mixed();
    ck_assert_uint_eq(machine->physical_count, 3);
    ck_assert_str_eq(labels(NULL), "0:1 0:0");
    ck_assert_str_eq(labels(""), "0:1 0:0");
    close_machine();
}
END_TEST

START_TEST(test_select_default_without_gpu_takes_the_cpu_runtime) {
    open_machine();
    copse__handle *soft = add(0, "rusticl", 0, COPSE__TYPE_CPU, "llvmpipe", "Mesa/X.org");
    soft->native_float_width = 16;
    copse__handle *one = add(1, "PoCL", 0, COPSE__TYPE_CPU, "pthread", "AuthenticAMD");
    copse__handle *two = add(1, "PoCL", 1, COPSE__TYPE_CPU, "pthread", "AuthenticAMD");
    one->native_kernels = two->native_kernels = 1;
    ASSERT_OK(copse__identify(machine, &error));
    ck_assert_str_eq(labels(NULL), "1:0 1:1");
    ck_assert_str_eq(labels("cpu"), "1:0 1:1");
    ck_assert_str_eq(labels("platform~=RUSTICL"), "0:0");
    snprintf(machine->platforms[1].name, sizeof machine->platforms[1].name, "Portable");
    snprintf(machine->platforms[1].version, sizeof machine->platforms[1].version,
             "OpenCL 3.0 PoCL 3.1");
    ck_assert_str_eq(labels("platform~=pocl"), "1:0 1:1");
    one->compiler = two->compiler = 0;
    ck_assert_str_eq(labels(NULL), "0:0");
    soft->available = 0;
    ck_assert_str_eq(labels(NULL), "host");
    close_machine();
}
END_TEST

START_TEST(test_select_terms_match_and_never_repeat) {
    open_mixed();
    ck_assert_str_eq(labels("all"), "0:1 0:0 2:0");
    ck_assert_str_eq(labels("gpu,cpu,gpu"), "0:1 0:0 2:0");
    ck_assert_str_eq(labels("vendor=amd"), "0:1 0:0 2:0");
    ck_assert_str_eq(labels("vendor=mesa"), "1:1");
    ck_assert_str_eq(labels("platform~=rusti"), "1:0 1:1");
    ck_assert_str_eq(labels("name~=GFX90"), "0:1");
    ck_assert_str_eq(labels("pci:0000:83:00.0, host"), "0:0 host");
    ck_assert_str_eq(labels("pci:83:00.0"), "0:0");
    ck_assert_str_eq(labels("opencl:1:0"), "1:0");
    close_machine();
}
END_TEST

START_TEST(test_select_pair_repeats_as_replicas_with_labels_of_their_own) {
    open_mixed();
    ck_assert_str_eq(labels("2:0,2:0"), "2:0 2:0@2");
    ck_assert_str_eq(labels("gpu,0:1"), "0:1 0:1@2 0:0");
    ck_assert_str_eq(labels("2:0/2,2:0"), "2:0/2#0 2:0@2 2:0/2#1");
    close_machine();
}
END_TEST

START_TEST(test_select_parts_and_weights) {
    open_mixed();
    copse__device_choice *choice = NULL;
    size_t count = 0;
    ASSERT_OK(copse__select_devices(machine, "2:0/2*3,0:0*0.5", &choice, &count, &error));
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(choice[0].label, "0:0");
    ck_assert_double_eq(choice[0].weight, 0.5);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(choice[1 + i].part_index, i);
        ck_assert_uint_eq(choice[1 + i].part_count, 2);
        ck_assert_double_eq(choice[1 + i].weight, 3);
        ck_assert_uint_eq(choice[1 + i].platform_index, 2);
    }
    ck_assert_str_eq(choice[1].vendor, "amd");
    ck_assert_str_eq(choice[1].platform_name, "Portable Computing Language");
    free(choice);
    close_machine();
}
END_TEST

START_TEST(test_select_refuses_with_what_there_is) {
    static const char *const unknown[] = {
        "tpu",     "0",      "0:",     "9:9",       ",",       "gpu,",        "0:0/0",
        "0:0/999", "0:0*0",  "0:0*x",  "0:0*-1",    "0:0*inf", "0:0/2/2",     "1:1/2",
        "2:0/5",   "host/2", "pci:zz", "pci:0:0.0", "0:0 1",   "4294967296:0"};
    open_mixed();
    for (size_t i = 0; i < COPSE__COUNT(unknown); i++)
        refused(COPSE_INVALID, unknown[i]);
    refused(COPSE_NODEVICE, "vendor=nvidia");
    refused(COPSE_NODEVICE, "accelerator");
    machine->handles[0].compiler = 0;
    refused(COPSE_INVALID, "0:0");
    ck_assert_str_eq(labels("gpu"), "0:1");
    close_machine();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("topo_select");
    ADD_TEST(suite, test_select_default_takes_each_gpu_once_in_pci_order);
    ADD_TEST(suite, test_select_default_without_gpu_takes_the_cpu_runtime);
    ADD_TEST(suite, test_select_terms_match_and_never_repeat);
    ADD_TEST(suite, test_select_pair_repeats_as_replicas_with_labels_of_their_own);
    ADD_TEST(suite, test_select_parts_and_weights);
    ADD_TEST(suite, test_select_refuses_with_what_there_is);
    return run_suite(suite);
}
