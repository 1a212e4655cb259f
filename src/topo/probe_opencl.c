/* SPDX-License-Identifier: Apache-2.0 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

/* cl_nv_device_attribute_query; the headers of Khronos lack the last three. */
#define NV_PCI_BUS_ID 0x4008
#define NV_PCI_SLOT_ID 0x4009
#define NV_PCI_DOMAIN_ID 0x400A

static void stage(copse__probe *probe, const char *call, const char *detail) {
    copse__put(probe->stage, sizeof probe->stage, "%s%s%s%s", call, detail ? " (" : "",
               detail ? detail : "", detail ? ")" : "");
}

/* Trims blanks, and replaces bytes a terminal would act on. */
static void tidy(char *text) {
    size_t start = 0, length = strlen(text);
    while (length > 0 && (unsigned char)text[length - 1] <= ' ')
        text[--length] = '\0';
    while ((unsigned char)text[start] <= ' ' && text[start])
        start++;
    memmove(text, text + start, length - start + 1);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = ' ';
}

/* A device's text, whole, NUL-terminated whatever the driver did; the number of bytes it
 * said. The buffer is larger than anything a driver may sensibly say: a driver that
 * ignores the size it was given stays within it. */
static size_t device_text(cl_device_id device, cl_device_info what, char *scratch,
                          size_t capacity) {
    memset(scratch, 0, capacity);
    size_t bytes = 0;
    if (clGetDeviceInfo(device, what, 0, NULL, &bytes) != CL_SUCCESS || bytes == 0 ||
        bytes >= capacity)
        return 0;
    if (clGetDeviceInfo(device, what, bytes, scratch, NULL) != CL_SUCCESS)
        bytes = 0;
    scratch[bytes] = '\0';
    return bytes;
}

static void keep_text(char *out, size_t capacity, char *scratch) {
    tidy(scratch);
    copse__put(out, capacity, "%s", scratch);
}

static void platform_text(cl_platform_id platform, cl_platform_info what, char *out,
                          size_t capacity, char *scratch, size_t scratch_bytes) {
    memset(scratch, 0, scratch_bytes);
    size_t bytes = 0;
    out[0] = '\0';
    if (clGetPlatformInfo(platform, what, 0, NULL, &bytes) != CL_SUCCESS ||
        bytes >= scratch_bytes)
        return;
    if (clGetPlatformInfo(platform, what, bytes, scratch, NULL) == CL_SUCCESS)
        keep_text(out, capacity, scratch);
}

static uint64_t device_number(cl_device_id device, cl_device_info what, size_t bytes) {
    union {
        cl_uint small;
        cl_ulong large;
    } value = {.large = 0};
    if (clGetDeviceInfo(device, what, bytes, &value, NULL) != CL_SUCCESS)
        return 0;
    return bytes == sizeof(cl_uint) ? value.small : value.large;
}

static int8_t device_flag(cl_device_id device, cl_device_info what) {
    cl_bool value = CL_FALSE;
    if (clGetDeviceInfo(device, what, sizeof value, &value, NULL) != CL_SUCCESS)
        return -1;
    return value ? 1 : 0;
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static bool sane_pci(const copse__pci *pci) {
    bool zero = pci->domain == 0 && pci->bus == 0 && pci->device == 0;
    return !zero && pci->bus <= 255 && pci->device <= 31 && pci->function <= 7;
}

/* Only where the extension is advertised: some drivers answer the query with success and
 * zeros for devices that have no address. */
static void ask_pci(cl_device_id device, const char *extensions, copse__handle *handle) {
    copse__pci pci = {0};
    if (has_word(extensions, "cl_khr_pci_bus_info")) {
        cl_device_pci_bus_info_khr info = {0};
        if (clGetDeviceInfo(device, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof info, &info,
                            NULL) == CL_SUCCESS) {
            pci = (copse__pci){info.pci_domain, info.pci_bus, info.pci_device,
                               info.pci_function};
            if (sane_pci(&pci)) {
                handle->pci = pci;
                handle->pci_evidence = COPSE__BY_KHR_PCI;
                return;
            }
        }
    }
    if (has_word(extensions, "cl_amd_device_attribute_query")) {
        cl_device_topology_amd info;
        memset(&info, 0, sizeof info);
        if (clGetDeviceInfo(device, CL_DEVICE_TOPOLOGY_AMD, sizeof info, &info, NULL) ==
                CL_SUCCESS &&
            info.raw.type == 1) {
            /* Signed characters in the header: a bus above 127 would turn negative. */
            pci = (copse__pci){0, (uint8_t)info.pcie.bus, (uint8_t)info.pcie.device,
                               (uint8_t)info.pcie.function};
            if (sane_pci(&pci)) {
                handle->pci = pci;
                handle->pci_evidence = COPSE__BY_AMD_TOPOLOGY;
                return;
            }
        }
    }
    if (has_word(extensions, "cl_nv_device_attribute_query")) {
        cl_uint bus = 0, slot = 0, domain = 0;
        if (clGetDeviceInfo(device, NV_PCI_BUS_ID, sizeof bus, &bus, NULL) ==
                CL_SUCCESS &&
            clGetDeviceInfo(device, NV_PCI_SLOT_ID, sizeof slot, &slot, NULL) ==
                CL_SUCCESS) {
            if (clGetDeviceInfo(device, NV_PCI_DOMAIN_ID, sizeof domain, &domain, NULL) !=
                CL_SUCCESS)
                domain = 0;
            /* The slot is device and function in one. */
            pci = (copse__pci){domain, bus, slot >> 3, slot & 7};
            if (sane_pci(&pci)) {
                handle->pci = pci;
                handle->pci_evidence = COPSE__BY_NV_PCI;
            }
        }
    }
}

static void ask_uuid(cl_device_id device, const char *extensions, copse__handle *handle) {
    static const uint8_t nothing[16];
    if (has_word(extensions, "cl_khr_device_uuid") &&
        clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, sizeof handle->uuid, handle->uuid,
                        NULL) == CL_SUCCESS)
        handle->has_uuid = memcmp(handle->uuid, nothing, sizeof nothing) != 0;
}

static uint32_t ask_parts(cl_device_id device) {
    cl_device_partition_property kinds[16] = {0};
    cl_uint most = 0;
    if (clGetDeviceInfo(device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, sizeof most, &most,
                        NULL) != CL_SUCCESS ||
        clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds,
                        NULL) != CL_SUCCESS)
        return 0;
    for (size_t i = 0; i < COPSE__COUNT(kinds); i++)
        if (kinds[i] == CL_DEVICE_PARTITION_EQUALLY)
            return most;
    return 0;
}

static int compare_words(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, once each, one blank between: what a report prints must not depend on the
 * driver's habits. */
static void sort_words(char *out, size_t capacity, char *text) {
    char *words[512];
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word && count < COPSE__COUNT(words);
         word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    qsort(words, count, sizeof words[0], compare_words);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && !strcmp(words[i], words[i - 1]))
            continue;
        size_t need = strlen(words[i]) + (used ? 1 : 0);
        if (need >= capacity - used)
            return;
        used +=
            copse__put(out + used, capacity - used, "%s%s", used ? " " : "", words[i]);
    }
}

static void ask_numbers(cl_device_id device, copse__handle *handle) {
    handle->vendor_id =
        (uint32_t)device_number(device, CL_DEVICE_VENDOR_ID, sizeof(cl_uint));
    handle->compute_units =
        (uint32_t)device_number(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    handle->clock_mhz =
        (uint32_t)device_number(device, CL_DEVICE_MAX_CLOCK_FREQUENCY, sizeof(cl_uint));
    handle->memory_bytes = device_number(device, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
    handle->max_alloc_bytes = device_number(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    handle->local_bytes = device_number(device, CL_DEVICE_LOCAL_MEM_SIZE, 8);
    handle->cache_bytes = device_number(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 8);
    handle->max_work_group =
        device_number(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    handle->native_float_width = (uint32_t)device_number(
        device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof(cl_uint));
    handle->align_bits =
        (uint32_t)device_number(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(cl_uint));
    handle->available = device_flag(device, CL_DEVICE_AVAILABLE) == 1;
    handle->compiler = device_flag(device, CL_DEVICE_COMPILER_AVAILABLE) == 1;
    handle->unified = device_flag(device, CL_DEVICE_HOST_UNIFIED_MEMORY);
    handle->images = device_flag(device, CL_DEVICE_IMAGE_SUPPORT);
    uint64_t how = device_number(device, CL_DEVICE_EXECUTION_CAPABILITIES, 8);
    handle->native_kernels = (how & CL_EXEC_NATIVE_KERNEL) ? 1 : 0;
}

static void ask_device(copse__probe *probe, cl_device_id device,
                       copse__probe_handle *made, char *scratch, size_t capacity) {
    copse__handle *handle = &made->handle;
    char where[64];
    copse__put(where, sizeof where, "%u:%u", handle->platform, handle->device);
    stage(probe, "clGetDeviceInfo of the name", where);
    size_t bytes = device_text(device, CL_DEVICE_NAME, scratch, capacity);
    handle->name_raw_bytes = (uint32_t)copse__min_size(bytes, sizeof handle->name_raw);
    memcpy(handle->name_raw, scratch, handle->name_raw_bytes);
    keep_text(handle->name, sizeof handle->name, scratch);
    stage(probe, "clGetDeviceInfo of the vendor and version", where);
    device_text(device, CL_DEVICE_VENDOR, scratch, capacity);
    keep_text(handle->vendor, sizeof handle->vendor, scratch);
    device_text(device, CL_DRIVER_VERSION, scratch, capacity);
    keep_text(handle->driver, sizeof handle->driver, scratch);
    device_text(device, CL_DEVICE_VERSION, scratch, capacity);
    keep_text(handle->version, sizeof handle->version, scratch);
    device_text(device, CL_DEVICE_OPENCL_C_VERSION, scratch, capacity);
    keep_text(handle->c_version, sizeof handle->c_version, scratch);
    stage(probe, "clGetDeviceInfo of the capabilities", where);
    handle->type = device_number(device, CL_DEVICE_TYPE, sizeof(cl_device_type)) &
                   (COPSE__TYPE_CPU | COPSE__TYPE_GPU | COPSE__TYPE_ACCELERATOR |
                    COPSE__TYPE_CUSTOM);
    ask_numbers(device, handle);
    stage(probe, "clGetDeviceInfo of the extensions", where);
    device_text(device, CL_DEVICE_EXTENSIONS, scratch, capacity);
    tidy(scratch);
    sort_words(made->extensions, sizeof made->extensions, scratch);
    const char *extensions = made->extensions;
    handle->fp16 = has_word(extensions, "cl_khr_fp16");
    handle->fp64 = has_word(extensions, "cl_khr_fp64");
    handle->subgroups = has_word(extensions, "cl_khr_subgroups") ||
                        has_word(extensions, "cl_intel_subgroups");
    stage(probe, "clGetDeviceInfo of the partition properties", where);
    handle->max_parts = ask_parts(device);
    stage(probe, "clGetDeviceInfo of the address", where);
    ask_pci(device, extensions, handle);
    ask_uuid(device, extensions, handle);
}

/* The library that implements a platform: every ICD object starts with a pointer to its
 * dispatch table, whose second entry is clGetPlatformInfo (cl_khr_icd). */
static int find_icd(cl_platform_id platform, const copse__topo *topo,
                    void *const libraries[]) {
    void *const *dispatch = *(void *const *const *)platform;
    Dl_info at, mine;
    if (!dispatch || !dladdr((const void *)dispatch, &at) || !dispatch[1] ||
        !dladdr(dispatch[1], &at) || !at.dli_fbase)
        return -1;
    for (size_t i = 0; i < topo->icd_count; i++) {
        void *known =
            libraries[i] ? dlsym(libraries[i], "clGetExtensionFunctionAddress") : NULL;
        if (libraries[i] && !known)
            known = dlsym(libraries[i], "clIcdGetPlatformIDsKHR");
        if (known && dladdr(known, &mine) && mine.dli_fbase == at.dli_fbase)
            return (int)i;
    }
    return -1;
}

/* Which libraries the loader has loaded, and why not the others. */
static void ask_libraries(copse__probe *probe, const copse__topo *topo, const bool *only,
                          void *libraries[]) {
    for (size_t i = 0; i < topo->icd_count; i++) {
        if (only && !only[i])
            continue;
        const char *library = topo->icds[i].shared_object;
        libraries[i] = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        if (libraries[i]) {
            probe->icd_loaded[i] = 1;
            continue;
        }
        stage(probe, "dlopen", library);
        libraries[i] = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
        probe->icd_loaded[i] = libraries[i] ? 2 : 3;
        if (!libraries[i]) {
            const char *why = dlerror();
            copse__put(probe->icd_message[i], sizeof probe->icd_message[i], "%s",
                       why ? why : "");
        }
    }
}

static void ask_platform(copse__probe *probe, cl_platform_id id, uint32_t index,
                         char *scratch, size_t capacity) {
    copse__platform *platform = &probe->platforms[index];
    char where[64];
    copse__put(where, sizeof where, "platform %u", index);
    stage(probe, "clGetPlatformInfo", where);
    platform_text(id, CL_PLATFORM_NAME, platform->name, sizeof platform->name, scratch,
                  capacity);
    platform_text(id, CL_PLATFORM_VENDOR, platform->vendor, sizeof platform->vendor,
                  scratch, capacity);
    platform_text(id, CL_PLATFORM_VERSION, platform->version, sizeof platform->version,
                  scratch, capacity);
    stage(probe, "clGetDeviceIDs", where);
    cl_device_id devices[COPSE__MAX_HANDLES];
    cl_uint count = 0; /* some drivers leave it untouched */
    if (clGetDeviceIDs(id, CL_DEVICE_TYPE_ALL, 0, NULL, &count) != CL_SUCCESS ||
        count == 0)
        return;
    cl_uint room = COPSE__MAX_HANDLES - probe->handle_count;
    if (count > room) {
        probe->dropped += count - room;
        count = room;
    }
    memset(devices, 0, sizeof devices);
    if (count == 0 ||
        clGetDeviceIDs(id, CL_DEVICE_TYPE_ALL, count, devices, NULL) != CL_SUCCESS)
        return;
    for (cl_uint d = 0; d < count; d++) {
        if (!devices[d])
            continue;
        copse__probe_handle *made = &probe->handles[probe->handle_count];
        made->handle = (copse__handle){.platform = index, .device = d, .physical = -1};
        ask_device(probe, devices[d], made, scratch, capacity);
        probe->handle_count++;
        platform->device_count++;
    }
}

void copse__probe_opencl(copse__probe *probe, const copse__topo *topo, const bool *only) {
    enum { SCRATCH = 65536 };
    static const char nothing[] = "";
    cl_platform_id platforms[COPSE__MAX_PLATFORMS];
    void *libraries[COPSE__MAX_ICDS] = {0};
    char *scratch = malloc(SCRATCH + 1);
    cl_uint count = 0;
    if (!scratch)
        return;
    memset(platforms, 0, sizeof platforms);
    stage(probe, "loading the drivers", NULL);
    if (clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS)
        count = 0;
    if (count > COPSE__MAX_PLATFORMS)
        count = COPSE__MAX_PLATFORMS;
    stage(probe, "clGetPlatformIDs", NULL);
    if (count > 0 && clGetPlatformIDs(count, platforms, NULL) != CL_SUCCESS)
        count = 0;
    for (cl_uint p = 0; p < count; p++) {
        probe->platform_count = p + 1;
        probe->platforms[p].icd = -1;
        if (platforms[p])
            ask_platform(probe, platforms[p], p, scratch, SCRATCH);
    }
    ask_libraries(probe, topo, only, libraries);
    for (cl_uint p = 0; p < count; p++)
        if (platforms[p])
            probe->platforms[p].icd = find_icd(platforms[p], topo, libraries);
    for (size_t i = 0; i < topo->icd_count; i++)
        if (libraries[i])
            dlclose(libraries[i]);
    stage(probe, nothing, NULL);
    free(scratch);
    probe->finished = 1;
}
