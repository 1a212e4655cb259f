/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "backend/opencl/tuned.h"
#include "base/clock.h"

/* A platform or device that lists more than this is not believed. */
#define MOST_HANDLES 256

static copse_status find_platform(copse__device *device, copse_error *err) {
    cl_platform_id ids[MOST_HANDLES];
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(MOST_HANDLES, ids, &count);
    uint32_t index = device->base.choice.platform_index;
    if (code != CL_SUCCESS || index >= copse__min_size(count, MOST_HANDLES))
        return copse__fail(err, COPSE_NODEVICE, code, device->place,
                           "there is no OpenCL platform %u; `copse devices` lists what "
                           "there is",
                           index);
    device->platform = ids[index];
    return COPSE_OK;
}

static copse_status find_device(copse__device *device, copse_error *err) {
    cl_device_id ids[MOST_HANDLES];
    cl_uint count = 0; /* some drivers leave it untouched where they have no device */
    cl_int code =
        clGetDeviceIDs(device->platform, CL_DEVICE_TYPE_ALL, MOST_HANDLES, ids, &count);
    uint32_t index = device->base.choice.device_index;
    if (code != CL_SUCCESS || index >= copse__min_size(count, MOST_HANDLES))
        return copse__fail(err, COPSE_NODEVICE, code, device->place,
                           "the platform has no device %u; `copse devices` lists what "
                           "there is",
                           index);
    device->id = ids[index];
    return COPSE_OK;
}

/* A text property, trimmed, or "". */
static void device_text(const copse__device *device, cl_device_info info, char *text,
                        size_t capacity) {
    char raw[1024] = "";
    size_t bytes = 0;
    if (clGetDeviceInfo(device->id, info, sizeof raw - 1, raw, &bytes) != CL_SUCCESS)
        raw[0] = '\0';
    const char *begin = raw + strspn(raw, " ");
    size_t length = strlen(begin);
    while (length > 0 && begin[length - 1] == ' ')
        length--;
    snprintf(text, capacity, "%.*s", (int)length, begin);
}

/* Whether the driver offers this way of partitioning. Asked first, because a driver that
 * offers none may crash in clCreateSubDevices. */
static bool can_partition(const copse__device *device,
                          cl_device_partition_property wanted) {
    cl_device_partition_property kinds[16] = {0};
    size_t bytes = 0;
    if (clGetDeviceInfo(device->id, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds,
                        &bytes) != CL_SUCCESS)
        return false;
    for (size_t i = 0; i < copse__min_size(bytes / sizeof kinds[0], 16); i++)
        if (kinds[i] != 0 && kinds[i] == wanted)
            return true;
    return false;
}

/* Replaces device->id by its part. */
static copse_status take_part(copse__device *device, copse_error *err) {
    uint32_t parts = device->base.choice.part_count;
    uint32_t index = device->base.choice.part_index;
    cl_uint units = 0, most = 0;
    clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    clGetDeviceInfo(device->id, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, sizeof most, &most,
                    NULL);
    if (index >= parts || parts > units || parts > MOST_HANDLES || parts > most)
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           "it has %u compute units and cannot be split into %u parts",
                           units, parts);
    cl_device_partition_property wish[MOST_HANDLES + 3] = {0};
    if (units % parts == 0 && can_partition(device, CL_DEVICE_PARTITION_EQUALLY)) {
        wish[0] = CL_DEVICE_PARTITION_EQUALLY;
        wish[1] = (cl_device_partition_property)(units / parts);
    } else if (can_partition(device, CL_DEVICE_PARTITION_BY_COUNTS)) {
        wish[0] = CL_DEVICE_PARTITION_BY_COUNTS;
        for (uint32_t i = 0; i < parts; i++)
            wish[1 + i] = (cl_device_partition_property)(units / parts);
    } else {
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           "its driver cannot split it into parts; leave out `/%u`",
                           parts);
    }
    cl_device_id made[MOST_HANDLES * 4];
    cl_uint count = 0;
    cl_int code = clCreateSubDevices(device->id, wish, MOST_HANDLES * 4, made, &count);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clCreateSubDevices");
    for (cl_uint i = 0; i < count; i++)
        if (i != index)
            clReleaseDevice(made[i]);
    if (index >= count)
        return copse__fail(err, COPSE_DEVICE, 0, device->place,
                           "the driver made %u parts instead of %u", count, parts);
    device->id = made[index];
    device->is_part = true;
    return COPSE_OK;
}

/* One property into a variable of its own type; left as it is where the driver refuses. */
#define ASK(device, info, variable)                                                      \
    (void)clGetDeviceInfo((device)->id, info, sizeof(variable), &(variable), NULL)

static copse_status read_caps(copse__device *device, copse_error *err) {
    copse__caps *caps = &device->base.caps;
    cl_ulong total = 0, most = 0, local = 0;
    cl_uint units = 1, align_bits = 0;
    cl_bool unified = CL_FALSE, compiler = CL_FALSE, available = CL_FALSE;
    cl_device_type type = 0;
    cl_device_fp_config single = 0, twice = 0;
    size_t group = 1;
    char extensions[16384] = "";
    ASK(device, CL_DEVICE_AVAILABLE, available);
    ASK(device, CL_DEVICE_COMPILER_AVAILABLE, compiler);
    if (!available || !compiler)
        return copse__fail(err, COPSE_NODEVICE, 0, device->place,
                           "it %s; choose another device",
                           available ? "cannot compile kernels" : "is not available");
    ASK(device, CL_DEVICE_GLOBAL_MEM_SIZE, total);
    ASK(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, most);
    ASK(device, CL_DEVICE_LOCAL_MEM_SIZE, local);
    ASK(device, CL_DEVICE_MAX_COMPUTE_UNITS, units);
    ASK(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, align_bits);
    ASK(device, CL_DEVICE_HOST_UNIFIED_MEMORY, unified);
    ASK(device, CL_DEVICE_TYPE, type);
    ASK(device, CL_DEVICE_SINGLE_FP_CONFIG, single);
    ASK(device, CL_DEVICE_DOUBLE_FP_CONFIG, twice);
    ASK(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, group);
    ASK(device, CL_DEVICE_EXTENSIONS, extensions);
    extensions[sizeof extensions - 1] = '\0';
    caps->total_bytes = (size_t)total;
    caps->max_alloc_bytes = (size_t)most;
    /* 64 bytes also let a kernel read and write sixteen floats at a time */
    caps->view_alignment = copse__max_size(align_bits / 8, 64);
    caps->compute_units = units > 0 ? units : 1;
    caps->cpu = (type & CL_DEVICE_TYPE_CPU) && !(type & CL_DEVICE_TYPE_GPU);
    caps->unified = unified == CL_TRUE;
    device->shares = copse__cl_shares(device);
    caps->fp16 = strstr(extensions, "cl_khr_fp16") != NULL;
    caps->fp64 = twice != 0;
    caps->exact_divide_sqrt = (single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    device->max_local = copse__max_size(group, 1);
    device->local_bytes = (size_t)local;
    return COPSE_OK;
}

/* Options that every program of this device is built with: they name capabilities, never
 * vendors. */
static copse_status make_options(copse__device *device, copse_error *err) {
    const copse__caps *caps = &device->base.caps;
    copse__text text = {0};
    copse__text_add(&text, "-cl-std=CL1.2 -w");
    if (caps->cpu)
        copse__text_add(&text, " -DCOPSE_CHUNKED=1");
    if (caps->exact_divide_sqrt)
        copse__text_add(
            &text, " -cl-fp32-correctly-rounded-divide-sqrt -DCOPSE_HAS_EXACT_DIVIDE=1");
    if (caps->fp64)
        copse__text_add(&text, " -DCOPSE_HAS_FP64=1");
    copse_status status = copse__text_check(&text, err);
    if (status == COPSE_OK)
        device->options = text.data;
    else
        copse__text_free(&text);
    return status;
}

/* Adds the size and time of the driver's library, so that a new driver under an old version
 * number does not get the old one's binaries. With cl_khr_icd every handle begins with a
 * table of the library's functions. */
static void add_library(const copse__device *device, copse__text *text) {
    char extensions[8192] = "";
    clGetPlatformInfo(device->platform, CL_PLATFORM_EXTENSIONS, sizeof extensions - 1,
                      extensions, NULL);
    if (!strstr(extensions, "cl_khr_icd"))
        return;
    void **table = *(void ***)(void *)device->platform;
    Dl_info info;
    struct stat file;
    if (dladdr(table[0], &info) && info.dli_fname && stat(info.dli_fname, &file) == 0)
        copse__text_add(text, "library %lld bytes, time %lld.%09ld\n",
                        (long long)file.st_size, (long long)file.st_mtim.tv_sec,
                        file.st_mtim.tv_nsec);
}

static copse_status make_identity(copse__device *device, copse_error *err) {
    copse__text text = {0};
    char value[1024] = "";
    static const cl_device_info device_infos[] = {CL_DEVICE_NAME, CL_DEVICE_VENDOR,
                                                  CL_DEVICE_VERSION, CL_DRIVER_VERSION};
    for (size_t i = 0; i < COPSE__COUNT(device_infos); i++) {
        device_text(device, device_infos[i], value, sizeof value);
        copse__text_add(&text, "%s\n", value);
    }
    static const cl_platform_info platform_infos[] = {CL_PLATFORM_NAME,
                                                      CL_PLATFORM_VERSION};
    for (size_t i = 0; i < COPSE__COUNT(platform_infos); i++) {
        memset(value, 0, sizeof value);
        clGetPlatformInfo(device->platform, platform_infos[i], sizeof value - 1, value,
                          NULL);
        copse__text_add(&text, "%s\n", value);
    }
    copse__text_add(&text, "%u units\n", device->base.caps.compute_units);
    add_library(device, &text);
    copse_status status = copse__text_check(&text, err);
    if (status == COPSE_OK)
        device->identity = text.data;
    else
        copse__text_free(&text);
    return status;
}

static copse_status copy_options(copse__device *device,
                                 const copse__device_options *options, copse_error *err) {
    copse_status status = COPSE_OK;
    if (!options)
        return COPSE_OK;
    device->profile = options->profile;
    if (options->cache_folder)
        COPSE__TRY(copse__strdup(&device->cache_folder, options->cache_folder, err), out);
    if (options->providers) {
        size_t count = 0;
        while (options->providers[count])
            count++;
        COPSE__TRY(copse__calloc(&device->providers, count + 1, sizeof(char *), err),
                   out);
        for (size_t i = 0; i < count; i++)
            COPSE__TRY(copse__strdup(&device->providers[i], options->providers[i], err),
                       out);
    }
out:
    return status;
}

static copse_status make_context(copse__device *device, copse_error *err) {
    copse_status status = COPSE_OK;
    cl_int code;
    const cl_context_properties properties[] = {
        CL_CONTEXT_PLATFORM, (cl_context_properties)device->platform, 0};
    device->context = clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
    COPSE__CL_TRY(device, code, "clCreateContext", out);
    for (size_t i = 0; i < COPSE__QUEUE_COUNT; i++) {
        device->queues[i] =
            clCreateCommandQueue(device->context, device->id,
                                 device->profile ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
        COPSE__CL_TRY(device, code, "clCreateCommandQueue", out);
    }
out:
    return status;
}

/* When a marker was queued, by both clocks: it is noted while the call that queues it lasts. */
typedef struct stamp {
    cl_ulong device_ns;
    uint64_t host_ns, unsure_ns;
} stamp;

static copse_status take_stamp(stamp *out, copse__device *device, copse_error *err) {
    copse_status status = COPSE_OK;
    cl_event event = NULL;
    uint64_t before = copse__now_ns();
    COPSE__CL_TRY(device,
                  clEnqueueMarkerWithWaitList(device->queues[COPSE__QUEUE_COMPUTE], 0,
                                              NULL, &event),
                  "clEnqueueMarkerWithWaitList", out);
    out->unsure_ns = copse__now_ns() - before;
    out->host_ns = before + out->unsure_ns / 2;
    COPSE__CL_TRY(device, clWaitForEvents(1, &event), "clWaitForEvents", out);
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof out->device_ns,
                                &out->device_ns, NULL) != CL_SUCCESS)
        out->device_ns = 0;
out:
    if (event)
        clReleaseEvent(event);
    return status;
}

/* The surest of some stamps gives the offset. Some drivers (rusticl of Mesa 22) only count calls: theirs is
 * no clock, as it does not go as fast as the host's. */
static copse_status compare_clocks(copse__device *device, copse_error *err) {
    stamp first, best, now;
    copse_status status = take_stamp(&first, device, err);
    best = first;
    for (int i = 0; i < 20 && status == COPSE_OK; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        status = take_stamp(&now, device, err);
        if (status == COPSE_OK && now.unsure_ns < best.unsure_ns)
            best = now;
    }
    if (status != COPSE_OK)
        return status;
    uint64_t host_ns = now.host_ns - first.host_ns + now.unsure_ns + first.unsure_ns;
    cl_ulong device_ns = now.device_ns - first.device_ns;
    device->clock_known = device_ns > host_ns / 4 && device_ns < 4 * host_ns;
    device->clock_offset_ns = best.host_ns - best.device_ns;
    return COPSE_OK;
}

copse_status copse__cl_open(copse__device **out, const copse__device_choice *choice,
                            const copse__device_options *options, copse_error *err) {
    *out = NULL;
    copse__device *device;
    copse_status status = copse__calloc(&device, 1, sizeof *device, err);
    if (status != COPSE_OK)
        return status;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->clblast_lock, NULL);
    pthread_cond_init(&device->built, NULL);
    atomic_init(&device->no_binaries, false);
    device->base.backend = &copse__backend_opencl;
    device->base.choice = *choice;
    snprintf(device->place, sizeof device->place, "%s", choice->label);
    COPSE__TRY(find_platform(device, err), out);
    COPSE__TRY(find_device(device, err), out);
    char name[160];
    device_text(device, CL_DEVICE_NAME, name, sizeof name);
    snprintf(device->place, sizeof device->place, "%s (%s)", choice->label, name);
    if (choice->part_count > 1)
        COPSE__TRY(take_part(device, err), out);
    COPSE__TRY(read_caps(device, err), out);
    COPSE__TRY(copy_options(device, options, err), out);
    COPSE__TRY(make_options(device, err), out);
    COPSE__TRY(make_identity(device, err), out);
    COPSE__TRY(make_context(device, err), out);
    if (device->profile)
        COPSE__TRY(compare_clocks(device, err), out);
    if (device->cache_folder)
        atomic_store(&device->no_binaries,
                     copse__cl_note_exists(device->cache_folder, device->identity));
    COPSE__TRY(
        copse__cl_buffer_new(&device->nothing, device, 64, COPSE__MEMORY_DEVICE, err),
        out);
    const copse__view nothing = {.buffer = device->nothing, .bytes = 64};
    COPSE__TRY(copse__cl_fill(device, COPSE__QUEUE_COMPUTE, nothing, 0, NULL, NULL, err),
               out);
    *out = device;
    device = NULL;
out:
    copse__cl_close(device);
    return status;
}

void copse__cl_close(copse__device *device) {
    if (!device)
        return;
    for (size_t i = 0; i < COPSE__QUEUE_COUNT; i++)
        if (device->queues[i])
            (void)copse__cl_queue_finish(device, (copse__queue)i, NULL);
    copse__cl_buffer_free(device->nothing);
    copse__cl_clblast_forget(device);
    copse__cl_programs_free(device);
    for (size_t i = 0; i < COPSE__QUEUE_COUNT; i++)
        if (device->queues[i])
            clReleaseCommandQueue(device->queues[i]);
    if (device->context)
        clReleaseContext(device->context);
    if (device->is_part)
        clReleaseDevice(device->id);
    for (char **pair = device->providers; pair && *pair; pair++)
        free(*pair);
    free(device->providers);
    copse__cl_tuned_free(device);
    free(device->cache_folder);
    free(device->identity);
    free(device->options);
    pthread_cond_destroy(&device->built);
    pthread_mutex_destroy(&device->clblast_lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}
