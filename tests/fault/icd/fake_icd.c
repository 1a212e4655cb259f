/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that shows made-up devices, or breaks in one of the ways that drivers have been
 * seen to break. FAKE_CASE says which: one shared library a case is built from this file. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CASE_CRASH_LOAD 1
#define CASE_CRASH_QUERY 2
#define CASE_HANG 3
#define CASE_EMPTY 4
#define CASE_ZERO_PCI 5
#define CASE_DUPLICATE 6
#define CASE_TWIN_A 7
#define CASE_TWIN_B 8
#define CASE_NAMES 9
#define CASE_HIGH_BUS 10
#define CASE_EIGHT 11
#define CASE_EXIT 12
#define CASE_NO_COMPILER 13
#define CASE_ABORT 14

#define NV_PCI_BUS_ID 0x4008
#define NV_PCI_SLOT_ID 0x4009
#define NV_PCI_DOMAIN_ID 0x400A

#define EXPORT __attribute__((visibility("default")))

typedef struct fake_device {
    cl_icd_dispatch *dispatch; /* first, as cl_khr_icd demands */
    const char *name;
    size_t name_bytes; /* as told to the caller; 0: with its NUL */
    const char *vendor, *extensions;
    cl_uint vendor_id, units;
    cl_uint domain, bus, device, function;
    unsigned char uuid[CL_UUID_SIZE_KHR];
    int no_compiler;
} fake_device;

typedef struct fake_platform {
    cl_icd_dispatch *dispatch;
} fake_platform;

static cl_icd_dispatch table;
static fake_platform platform = {&table};

#define KHR_PCI "cl_khr_fp16 cl_khr_fp64 cl_khr_pci_bus_info "
#define KHR_BOTH "cl_khr_device_uuid cl_khr_fp16 cl_khr_pci_bus_info"
#define AMD_GPU "Advanced Micro Devices, Inc."

static const char *const platform_name =
#if FAKE_CASE == CASE_TWIN_A
    "Fake A";
#elif FAKE_CASE == CASE_TWIN_B
    "Fake B";
#else
    "Fake";
#endif

static fake_device devices[] = {
#if FAKE_CASE == CASE_ZERO_PCI
    {&table, "Zero", 0, AMD_GPU, KHR_PCI, 0x1002, 8, 0, 0, 0, 0, {0}, 0},
#elif FAKE_CASE == CASE_DUPLICATE
    {&table, "Half one", 0, AMD_GPU, KHR_PCI, 0x1002, 8, 0, 0x23, 0, 0, {0}, 0},
    {&table, "Half two", 0, AMD_GPU, KHR_PCI, 0x1002, 8, 0, 0x23, 0, 0, {0}, 0},
#elif FAKE_CASE == CASE_TWIN_A
    {&table,
     "Arc",
     0,
     "Intel(R) Corporation",
     KHR_BOTH,
     0x8086,
     32,
     0,
     0x23,
     0,
     0,
     {0x86, 0x80, 1},
     0},
    /* One more than the other platform has: loaders put the larger platform first. */
    {&table,
     "Flex",
     0,
     "Intel(R) Corporation",
     KHR_BOTH,
     0x8086,
     32,
     0,
     0x24,
     0,
     0,
     {0x86, 0x80, 2},
     0},
#elif FAKE_CASE == CASE_TWIN_B
        {&table,
         "Mesa Arc",
         0,
         "Intel",
         KHR_BOTH,
         0x8086,
         32,
         0,
         0x23,
         0,
         0,
         {0xfe, 2},
         0},
#elif FAKE_CASE == CASE_NAMES
        {&table, "Unterminated", 12, AMD_GPU, "", 0x1002, 8, 0, 0, 0, 0, {0}, 0},
        {&table,
         "   Padded\0 \0\0",
         13,
         AMD_GPU,
         "  cl_b   cl_a cl_b ",
         0x1002,
         8,
         0,
         0,
         0,
         0,
         {0},
         0},
        {&table,
         "Wild \xff\x1b[31m\"<&>\" \xc3\xa9",
         0,
         AMD_GPU,
         "",
         0x1002,
         8,
         0,
         0,
         0,
         0,
         {0},
         0},
#elif FAKE_CASE == CASE_HIGH_BUS
        {&table,
         "High",
         0,
         AMD_GPU,
         "cl_amd_device_attribute_query",
         0x1002,
         60,
         0,
         0xa3,
         0,
         0,
         {0},
         0},
#elif FAKE_CASE == CASE_EIGHT
#define GPU(bus)                                                                         \
    { &table, "MI210", 0, AMD_GPU, KHR_PCI, 0x1002, 104, 0, bus, 0, 0, {0}, 0 }
        GPU(0xa8), GPU(0xa7), GPU(0xa4), GPU(0xa3),
        GPU(0x28), GPU(0x27), GPU(0x24), GPU(0x23),
#elif FAKE_CASE == CASE_NO_COMPILER
        {&table, "Runtime only", 0, AMD_GPU, "", 0x1002, 8, 0, 0, 0, 0, {0}, 1},
#else
        {&table,
         "Fine",
         0,
         "NVIDIA Corporation",
         "cl_nv_device_attribute_query",
         0x10de,
         16,
         0,
         0x24,
         0,
         0,
         {0},
         0},
#endif
};

enum { DEVICES = sizeof devices / sizeof devices[0] };

static cl_int answer(const void *data, size_t bytes, size_t room, void *out,
                     size_t *told) {
    if (told)
        *told = bytes;
    if (out && room < bytes)
        return CL_INVALID_VALUE;
    if (out)
        memcpy(out, data, bytes);
    return CL_SUCCESS;
}

#define TEXT(text) answer((text), strlen(text) + 1, room, out, told)
#define NUMBER(type, value) answer(&(type){value}, sizeof(type), room, out, told)

static cl_int CL_API_CALL platform_info(cl_platform_id id, cl_platform_info what,
                                        size_t room, void *out, size_t *told) {
    (void)id;
    switch (what) {
    case CL_PLATFORM_NAME:
        return TEXT(platform_name);
    case CL_PLATFORM_VENDOR:
        return TEXT("Fake vendor");
    case CL_PLATFORM_VERSION:
        return TEXT("OpenCL 3.0 fake");
    case CL_PLATFORM_PROFILE:
        return TEXT("FULL_PROFILE");
    case CL_PLATFORM_EXTENSIONS:
        return TEXT("cl_khr_icd");
    case CL_PLATFORM_ICD_SUFFIX_KHR:
        return TEXT("FAKE");
    default:
        return CL_INVALID_VALUE;
    }
}

static cl_int CL_API_CALL platform_ids(cl_uint room, cl_platform_id *out,
                                       cl_uint *count) {
#if FAKE_CASE == CASE_EXIT
    exit(3);
#elif FAKE_CASE == CASE_ABORT
    fputs("fake: cannot map the card\n", stderr);
    abort();
#endif
    if (count)
        *count = 1;
    if (out && room > 0)
        out[0] = (cl_platform_id)&platform;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL device_ids(cl_platform_id id, cl_device_type type, cl_uint room,
                                     cl_device_id *out, cl_uint *count) {
    (void)id;
#if FAKE_CASE == CASE_HANG
    for (;;)
        pause();
#elif FAKE_CASE == CASE_EMPTY
    return CL_DEVICE_NOT_FOUND; /* and *count stays as it was */
#endif
    if (type != CL_DEVICE_TYPE_ALL &&
        !(type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT)))
        return CL_DEVICE_NOT_FOUND;
    if (count)
        *count = DEVICES;
    for (cl_uint i = 0; out && i < room && i < DEVICES; i++)
        out[i] = (cl_device_id)&devices[i];
    return CL_SUCCESS;
}

static cl_int address_info(const fake_device *d, cl_device_info what, size_t room,
                           void *out, size_t *told) {
    cl_device_pci_bus_info_khr khr = {d->domain, d->bus, d->device, d->function};
    cl_device_topology_amd amd;
    memset(&amd, 0, sizeof amd);
    amd.raw.type = 1;
    amd.pcie.bus = (cl_char)d->bus;
    amd.pcie.device = (cl_char)d->device;
    amd.pcie.function = (cl_char)d->function;
    switch (what) {
    case CL_DEVICE_PCI_BUS_INFO_KHR: /* answered also where it is not advertised */
        return answer(&khr, sizeof khr, room, out, told);
    case CL_DEVICE_TOPOLOGY_AMD:
        return answer(&amd, sizeof amd, room, out, told);
    case NV_PCI_BUS_ID:
        return NUMBER(cl_uint, d->bus);
    case NV_PCI_SLOT_ID:
        return NUMBER(cl_uint, d->device << 3 | d->function);
    case NV_PCI_DOMAIN_ID:
        return NUMBER(cl_uint, d->domain);
    case CL_DEVICE_UUID_KHR:
        return answer(d->uuid, sizeof d->uuid, room, out, told);
    default:
        return CL_INVALID_VALUE;
    }
}

static cl_int CL_API_CALL device_info(cl_device_id id, cl_device_info what, size_t room,
                                      void *out, size_t *told) {
    const fake_device *d = (const fake_device *)id;
    switch (what) {
    case CL_DEVICE_NAME:
        return d->name_bytes ? answer(d->name, d->name_bytes, room, out, told)
                             : TEXT(d->name);
    case CL_DEVICE_VENDOR:
#if FAKE_CASE == CASE_CRASH_QUERY
        raise(SIGSEGV);
#endif
        return TEXT(d->vendor);
    case CL_DRIVER_VERSION:
        return TEXT("1.2.3 ");
    case CL_DEVICE_VERSION:
        return TEXT("OpenCL 3.0 fake");
    case CL_DEVICE_OPENCL_C_VERSION:
        return TEXT("OpenCL C 1.2 fake");
    case CL_DEVICE_EXTENSIONS:
        return TEXT(d->extensions);
    case CL_DEVICE_TYPE:
        return NUMBER(cl_device_type, CL_DEVICE_TYPE_GPU);
    case CL_DEVICE_VENDOR_ID:
        return NUMBER(cl_uint, d->vendor_id);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        return NUMBER(cl_uint, d->units);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY:
        return NUMBER(cl_uint, 1700);
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
        return NUMBER(cl_uint, 1);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        return NUMBER(cl_ulong, (cl_ulong)16 << 30);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return NUMBER(cl_ulong, (cl_ulong)4 << 30);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        return NUMBER(cl_ulong, 65536);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return NUMBER(size_t, 256);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
        return NUMBER(cl_uint, 2048);
    case CL_DEVICE_AVAILABLE:
        return NUMBER(cl_bool, CL_TRUE);
    case CL_DEVICE_COMPILER_AVAILABLE:
        return NUMBER(cl_bool, d->no_compiler ? CL_FALSE : CL_TRUE);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
    case CL_DEVICE_IMAGE_SUPPORT:
        return NUMBER(cl_bool, CL_FALSE);
    case CL_DEVICE_EXECUTION_CAPABILITIES:
        return NUMBER(cl_device_exec_capabilities, CL_EXEC_KERNEL);
    default:
        return address_info(d, what, room, out, told);
    }
}

__attribute__((constructor)) static void load(void) {
#if FAKE_CASE == CASE_CRASH_LOAD
    raise(SIGSEGV);
#endif
    table.clGetPlatformIDs = platform_ids;
    table.clGetPlatformInfo = platform_info;
    table.clGetDeviceIDs = device_ids;
    table.clGetDeviceInfo = device_info;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint room,
                                                              cl_platform_id *out,
                                                              cl_uint *count) {
    return platform_ids(room, out, count);
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id id,
                                                         cl_platform_info what,
                                                         size_t room, void *out,
                                                         size_t *told) {
    return platform_info(id, what, room, out, told);
}

EXPORT CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
    return !strcmp(name, "clIcdGetPlatformIDsKHR") ? (void *)clIcdGetPlatformIDsKHR
                                                   : NULL;
}
