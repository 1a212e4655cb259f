/* SPDX-License-Identifier: Apache-2.0 */
/* An OpenCL layer between the loader and every driver, for tests: chosen calls fail, come
 * late or never return, and kernels of a device can be slowed down. Loaded by the loader
 * (OPENCL_LAYERS=PATH/libcopse_fault_layer.so) and told what to do by COPSE_FAULT, orders
 * separated by ';':
 *
 *   fail CALL NTH [DEVICE]      returns an error (a poll: the code of a failed command)
 *   late CALL NTH MS [DEVICE]   goes on after MS milliseconds
 *   hang CALL NTH [DEVICE]      never returns
 *   slow FACTOR DEVICE          each kernel takes FACTOR times as long (cl_slow.h)
 *   coarse                      devices have no fine-grained shared memory
 *   count FILE                  at the end writes "CALL DEVICE CALLS" lines there
 *
 * CALL is alloc, read, write, map, unmap, kernel, flush, poll (asks how an event stands) or
 * wait (sleeps in the driver until events are done); NTH counts from 1 over the device's calls
 * (all devices' where none is given), and "NTH+" means that one and every later one. DEVICE
 * counts the process's contexts from 0, in the order of their making; for `slow` "#N" is part N
 * of every partitioned device, and "NAME" any device whose name has that in it. */
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cl_slow.h"

#define MOST_ORDERS 16
#define MOST_CONTEXTS SLOW_DEVICES
#define MOST_PARTS 256
#define LAYER __attribute__((visibility("default")))

typedef enum call {
    ALLOC,
    READ,
    WRITE,
    MAP,
    UNMAP,
    KERNEL,
    FLUSH,
    POLL,
    WAIT,
    CALLS
} call;
typedef enum action { FAIL, LATE, HANG, SLOW } action;

static const char *const call_names[CALLS] = {"alloc",  "read",  "write", "map", "unmap",
                                              "kernel", "flush", "poll",  "wait"};

typedef struct order {
    action action;
    call call;
    long nth, ms;
    bool onward; /* and every later one */
    double factor;
    int device; /* -1: any */
    int part;   /* SLOW: of a partitioned device; -1: not asked */
    char name[32];
    long seen;
} order;

static struct {
    pthread_mutex_t lock;
    const struct _cl_icd_dispatch *next;
    struct _cl_icd_dispatch table;
    order orders[MOST_ORDERS];
    size_t order_count;
    cl_context contexts[MOST_CONTEXTS];
    int parts[MOST_CONTEXTS]; /* -1: of a whole device */
    char names[MOST_CONTEXTS][128];
    size_t context_count;
    cl_device_id made[MOST_PARTS]; /* by clCreateSubDevices, with their numbers */
    int made_index[MOST_PARTS];
    size_t made_count;
    bool coarse;
    long counts[CALLS][MOST_CONTEXTS];
    char count_path[256];
} layer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void sleep_s(double seconds) {
    struct timespec time = {(time_t)seconds,
                            (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static int device_of(cl_context context) {
    for (size_t i = 0; i < layer.context_count; i++)
        if (layer.contexts[i] == context)
            return (int)i;
    return -1;
}

/* Whether the call goes on; it may have slept, or sleep for ever. */
static bool passes(call kind, cl_context context) {
    double wait_s = 0;
    bool fails = false, hangs = false;
    pthread_mutex_lock(&layer.lock);
    const int device = device_of(context);
    if (device >= 0)
        layer.counts[kind][device]++;
    for (size_t i = 0; i < layer.order_count; i++) {
        order *o = &layer.orders[i];
        if (o->action == SLOW || o->call != kind ||
            (o->device >= 0 && o->device != device))
            continue;
        o->seen++;
        if (o->seen != o->nth && !(o->onward && o->seen > o->nth))
            continue;
        fails = fails || o->action == FAIL;
        hangs = hangs || o->action == HANG;
        wait_s += o->action == LATE ? (double)o->ms * 1e-3 : 0;
    }
    pthread_mutex_unlock(&layer.lock);
    while (hangs)
        sleep_s(3600);
    if (wait_s > 0)
        sleep_s(wait_s);
    return !fails;
}

static cl_context context_of(cl_command_queue queue) {
    cl_context context = NULL;
    layer.next->clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context,
                                      NULL);
    return context;
}

/* A driver may give a released device's address to a new one: the newest counts. */
static int part_of(cl_device_id device) {
    for (size_t i = layer.made_count; i > 0; i--)
        if (layer.made[i - 1] == device)
            return layer.made_index[i - 1];
    return -1;
}

static cl_int CL_API_CALL make_parts(cl_device_id device,
                                     const cl_device_partition_property *properties,
                                     cl_uint room, cl_device_id *made, cl_uint *count) {
    cl_uint found = 0;
    const cl_int code =
        layer.next->clCreateSubDevices(device, properties, room, made, &found);
    if (count != NULL)
        *count = found;
    pthread_mutex_lock(&layer.lock);
    for (cl_uint i = 0; code == CL_SUCCESS && made != NULL && i < found && i < room; i++)
        if (layer.made_count < MOST_PARTS) {
            layer.made[layer.made_count] = made[i];
            layer.made_index[layer.made_count++] = (int)i;
        }
    pthread_mutex_unlock(&layer.lock);
    return code;
}

static cl_context CL_API_CALL make_context(
    const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
    cl_int *code) {
    cl_context made =
        layer.next->clCreateContext(properties, count, devices, notify, user, code);
    char name[128] = "";
    layer.next->clGetDeviceInfo(devices[0], CL_DEVICE_NAME, sizeof name, name, NULL);
    pthread_mutex_lock(&layer.lock);
    if (made != NULL && layer.context_count < MOST_CONTEXTS) {
        const size_t i = layer.context_count++;
        layer.contexts[i] = made;
        layer.parts[i] = part_of(devices[0]);
        memcpy(layer.names[i], name, sizeof name);
    }
    pthread_mutex_unlock(&layer.lock);
    return made;
}

static cl_mem CL_API_CALL make_buffer(cl_context context, cl_mem_flags flags,
                                      size_t bytes, void *host, cl_int *code) {
    if (passes(ALLOC, context))
        return layer.next->clCreateBuffer(context, flags, bytes, host, code);
    if (code != NULL)
        *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem from, cl_bool block,
                                      size_t offset, size_t bytes, void *to,
                                      cl_uint waits, const cl_event *wait,
                                      cl_event *done) {
    if (!passes(READ, context_of(queue)))
        return CL_OUT_OF_RESOURCES;
    return layer.next->clEnqueueReadBuffer(queue, from, block, offset, bytes, to, waits,
                                           wait, done);
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem to, cl_bool block,
                                       size_t offset, size_t bytes, const void *from,
                                       cl_uint waits, const cl_event *wait,
                                       cl_event *done) {
    if (!passes(WRITE, context_of(queue)))
        return CL_OUT_OF_RESOURCES;
    return layer.next->clEnqueueWriteBuffer(queue, to, block, offset, bytes, from, waits,
                                            wait, done);
}

static void *CL_API_CALL map_buffer(cl_command_queue queue, cl_mem buffer, cl_bool block,
                                    cl_map_flags flags, size_t offset, size_t bytes,
                                    cl_uint waits, const cl_event *wait, cl_event *done,
                                    cl_int *code) {
    if (passes(MAP, context_of(queue)))
        return layer.next->clEnqueueMapBuffer(queue, buffer, block, flags, offset, bytes,
                                              waits, wait, done, code);
    if (code != NULL)
        *code = CL_MAP_FAILURE;
    return NULL;
}

static cl_int CL_API_CALL unmap(cl_command_queue queue, cl_mem object, void *mapped,
                                cl_uint waits, const cl_event *wait, cl_event *done) {
    if (!passes(UNMAP, context_of(queue)))
        return CL_OUT_OF_RESOURCES;
    return layer.next->clEnqueueUnmapMemObject(queue, object, mapped, waits, wait, done);
}

/* The factor by which kernels of this context take longer. */
static double slowness(cl_context context) {
    double factor = 1;
    pthread_mutex_lock(&layer.lock);
    const int device = device_of(context);
    for (size_t i = 0; device >= 0 && i < layer.order_count; i++) {
        const order *o = &layer.orders[i];
        if (o->action != SLOW)
            continue;
        if (o->device == device || (o->part >= 0 && o->part == layer.parts[device]) ||
            (o->name[0] && strstr(layer.names[device], o->name) != NULL))
            factor = o->factor;
    }
    pthread_mutex_unlock(&layer.lock);
    return factor;
}

static cl_int CL_API_CALL run_kernel(cl_command_queue queue, cl_kernel kernel,
                                     cl_uint dimensions, const size_t *offset,
                                     const size_t *global, const size_t *local,
                                     cl_uint waits, const cl_event *wait,
                                     cl_event *done) {
    const cl_context context = context_of(queue);
    if (!passes(KERNEL, context))
        return CL_OUT_OF_RESOURCES;
    const double factor = slowness(context);
    cl_event ran = NULL;
    const cl_int code =
        layer.next->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global,
                                           local, waits, wait, factor > 1 ? &ran : done);
    return code == CL_SUCCESS && factor > 1
               ? slow_hold_back(layer.next, queue, context, ran, factor,
                                (size_t)device_of(context), done)
               : code;
}

static cl_int CL_API_CALL flush(cl_command_queue queue) {
    return passes(FLUSH, context_of(queue)) ? layer.next->clFlush(queue)
                                            : CL_OUT_OF_RESOURCES;
}

static cl_context event_context(const cl_event *events) {
    cl_context context = NULL;
    layer.next->clGetEventInfo(events[0], CL_EVENT_CONTEXT, sizeof context, &context,
                               NULL);
    return context;
}

static cl_int CL_API_CALL wait_for(cl_uint count, const cl_event *events) {
    if (count > 0 && !passes(WAIT, event_context(events)))
        return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    return layer.next->clWaitForEvents(count, events);
}

/* The answer is that of a failed command. */
static cl_int CL_API_CALL event_info(cl_event event, cl_event_info what, size_t bytes,
                                     void *value, size_t *used) {
    if (what == CL_EVENT_COMMAND_EXECUTION_STATUS && bytes >= sizeof(cl_int) &&
        value != NULL && !passes(POLL, event_context(&event))) {
        *(cl_int *)value = CL_OUT_OF_RESOURCES;
        return CL_SUCCESS;
    }
    return layer.next->clGetEventInfo(event, what, bytes, value, used);
}

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info what,
                                      size_t bytes, void *value, size_t *used) {
    const cl_int code = layer.next->clGetDeviceInfo(device, what, bytes, value, used);
    if (layer.coarse && what == CL_DEVICE_SVM_CAPABILITIES && code == CL_SUCCESS &&
        value != NULL)
        *(cl_device_svm_capabilities *)value &= CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    return code;
}

static void write_counts(void) {
    FILE *out = fopen(layer.count_path, "we");
    if (out == NULL)
        return;
    for (size_t c = 0; c < CALLS; c++)
        for (size_t d = 0; d < layer.context_count; d++)
            fprintf(out, "%s %zu %ld\n", call_names[c], d, layer.counts[c][d]);
    fclose(out);
}

/* One order; false where it says nothing known. */
static bool parse(const char *text, order *out) {
    char verb[8], name[16], nth[24];
    *out = (order){.device = -1, .part = -1};
    if (sscanf(text, " slow %lf #%d", &out->factor, &out->part) == 2 ||
        sscanf(text, " slow %lf %d", &out->factor, &out->device) == 2 ||
        sscanf(text, " slow %lf %31s", &out->factor, out->name) == 2) {
        out->action = SLOW;
        return true;
    }
    if (sscanf(text, " %7s %15s %23s", verb, name, nth) != 3)
        return false;
    char *end;
    out->nth = strtol(nth, &end, 10);
    out->onward = *end == '+';
    for (out->call = 0; out->call < CALLS; out->call++)
        if (strcmp(name, call_names[out->call]) == 0)
            break;
    if (strcmp(verb, "late") == 0) {
        out->action = LATE;
        sscanf(text, " %*s %*s %*s %ld %d", &out->ms, &out->device);
    } else {
        out->action = strcmp(verb, "hang") == 0 ? HANG : FAIL;
        if (out->action == FAIL && strcmp(verb, "fail") != 0)
            return false;
        sscanf(text, " %*s %*s %*s %d", &out->device);
    }
    return out->call < CALLS && out->nth > 0;
}

static void read_orders(void) {
    const char *told = getenv("COPSE_FAULT");
    char text[1024];
    snprintf(text, sizeof text, "%s", told != NULL ? told : "");
    char *rest = text;
    for (char *one; (one = strsep(&rest, ";")) != NULL;) {
        if (one[strspn(one, " ")] == '\0')
            continue;
        if (sscanf(one, " count %255s", layer.count_path) == 1) {
            atexit(write_counts);
            continue;
        }
        if (strcmp(one + strspn(one, " "), "coarse") == 0) {
            layer.coarse = true;
            continue;
        }
        if (layer.order_count == MOST_ORDERS ||
            !parse(one, &layer.orders[layer.order_count])) {
            fprintf(stderr, "COPSE_FAULT: '%s' is no order\n", one);
            abort();
        }
        layer.order_count++;
    }
}

LAYER cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t bytes, void *value,
                                        size_t *used) {
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what != CL_LAYER_API_VERSION)
        return CL_INVALID_VALUE;
    if (value != NULL && bytes >= sizeof version)
        memcpy(value, &version, sizeof version);
    if (used != NULL)
        *used = sizeof version;
    return CL_SUCCESS;
}

LAYER cl_int CL_API_CALL clInitLayer(cl_uint entries, const struct _cl_icd_dispatch *next,
                                     cl_uint *entries_out,
                                     const struct _cl_icd_dispatch **table) {
    const size_t known = sizeof layer.table / sizeof(void *);
    layer.next = next;
    memcpy(&layer.table, next, (entries < known ? entries : known) * sizeof(void *));
    layer.table.clGetDeviceInfo = device_info;
    layer.table.clCreateContext = make_context;
    layer.table.clCreateSubDevices = make_parts;
    layer.table.clCreateBuffer = make_buffer;
    layer.table.clEnqueueReadBuffer = read_buffer;
    layer.table.clEnqueueWriteBuffer = write_buffer;
    layer.table.clEnqueueMapBuffer = map_buffer;
    layer.table.clEnqueueUnmapMemObject = unmap;
    layer.table.clEnqueueNDRangeKernel = run_kernel;
    layer.table.clFlush = flush;
    layer.table.clWaitForEvents = wait_for;
    layer.table.clGetEventInfo = event_info;
    read_orders();
    *entries_out = (cl_uint)known;
    *table = &layer.table;
    return CL_SUCCESS;
}
