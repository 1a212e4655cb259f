/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/opencl/tuned.h"

const copse__tensor *copse__cl_input(const copse__graph *graph, const copse__node *node,
                                     size_t position) {
    if (position >= node->input_count || node->inputs[position] == COPSE__NO_TENSOR)
        return NULL;
    return &graph->tensors[node->inputs[position]];
}

const copse__tensor *copse__cl_output(const copse__graph *graph, const copse__node *node,
                                      size_t position) {
    if (position >= node->output_count || node->outputs[position] == COPSE__NO_TENSOR)
        return NULL;
    return &graph->tensors[node->outputs[position]];
}

static bool fits(const copse__cl_provider *provider, const copse__device *device,
                 const copse__graph *graph, const copse__node *node,
                 const char **reason) {
    return !provider->fits || provider->fits(device, graph, node, reason);
}

/* The first of the recorded pairs of this operation that fits. *recorded: whether there is
 * any such pair. */
static const copse__cl_provider *
find_recorded(bool *recorded, const copse__device *device, const copse__graph *graph,
              const copse__node *node, const char **reason) {
    const char *op = copse__op_name(node->op);
    size_t length = strlen(op);
    *recorded = false;
    for (char **pair = device->providers; pair && *pair; pair++) {
        if (strncmp(*pair, op, length) != 0 || (*pair)[length] != '=')
            continue;
        *recorded = true;
        const copse__cl_provider *const *p = copse__cl_providers(node->op);
        for (; *p; p++)
            if (strcmp((*p)->name, *pair + length + 1) == 0 &&
                fits(*p, device, graph, node, reason))
                return *p;
    }
    return NULL;
}

/* The provider that was tuned for the node, or NULL. Refused entries are told of. */
static const copse__cl_provider *find_tuned(const copse__tuned **entry,
                                            const copse__device *device,
                                            const copse__graph *graph,
                                            const copse__node *node) {
    const char *reason = "no provider of that name";
    *entry = copse__cl_tuned(device, graph, node);
    if (*entry)
        copse__cl_tuned_find(device, *entry);
    if (*entry && strcmp((*entry)->provider, COPSE__TUNED_DEFAULT) == 0)
        *entry = NULL;
    if (!*entry)
        return NULL;
    for (const copse__cl_provider *const *p = copse__cl_providers(node->op); *p; p++) {
        if (strcmp((*p)->name, (*entry)->provider) != 0)
            continue;
        const char *parameters = (*entry)->parameters;
        reason = "these are no parameters of it that this device can have";
        if ((*p)->takes ? (*p)->takes(device, parameters) : !parameters[0])
            if (fits(*p, device, graph, node, &reason))
                return *p;
    }
    copse__cl_tuned_refuse(device, *entry, reason);
    *entry = NULL;
    return NULL;
}

/* *entry: what was tuned and is followed, or NULL. */
static copse_status choose_tuned(const copse__cl_provider **out,
                                 const copse__tuned **entry, const copse__device *device,
                                 const copse__graph *graph, const copse__node *node,
                                 copse_error *err) {
    const char *reason = "no provider of that name";
    bool recorded;
    const copse__cl_provider *tuned = find_tuned(entry, device, graph, node);
    *out = find_recorded(&recorded, device, graph, node, &reason);
    if (recorded && !*out)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s (%s): the recorded provider cannot run here: %s",
                           node->name, copse__op_name(node->op), reason);
    if (*out && *out != tuned)
        *entry = NULL;
    if (!*out)
        *out = tuned;
    if (*out)
        return COPSE_OK;
    reason = "this backend has no kernel for it";
    double best = 0;
    for (const copse__cl_provider *const *p = copse__cl_providers(node->op); *p; p++) {
        if (!fits(*p, device, graph, node, &reason))
            continue;
        double cost = (*p)->cost ? (*p)->cost(device, graph, node) : 1;
        if (!*out || cost < best) {
            *out = *p;
            best = cost;
        }
    }
    if (!*out)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place, "%s (%s): %s",
                           node->name, copse__op_name(node->op), reason);
    return COPSE_OK;
}

static copse_status choose(const copse__cl_provider **out, const copse__device *device,
                           const copse__graph *graph, const copse__node *node,
                           copse_error *err) {
    const copse__tuned *entry;
    return choose_tuned(out, &entry, device, graph, node, err);
}

copse_status copse__cl_supports(copse__device *device, const copse__graph *graph,
                                const copse__node *node, size_t *workspace_bytes,
                                copse_error *err) {
    *workspace_bytes = 0;
    const copse__cl_provider *provider;
    copse_status status = copse__host_check(graph, node, err);
    if (status == COPSE_OK)
        status = choose(&provider, device, graph, node, err);
    if (status == COPSE_OK && provider->workspace)
        status = provider->workspace(workspace_bytes, device, graph, node, err);
    return status;
}

const char *copse__cl_provider_name(copse__device *device, const copse__graph *graph,
                                    const copse__node *node) {
    const copse__cl_provider *provider;
    return choose(&provider, device, graph, node, NULL) == COPSE_OK ? provider->name
                                                                    : NULL;
}

static copse_status check_operand(const copse__launch *launch, copse__tensor_id id,
                                  copse__view view, copse_error *err) {
    if (id == COPSE__NO_TENSOR)
        return COPSE_OK;
    const copse__tensor *tensor = &launch->graph->tensors[id];
    copse_status status = copse__cl_view_check(launch->device, view,
                                               copse__tensor_bytes(tensor, NULL), err);
    if (status == COPSE_OK && view.buffer->host)
        status =
            copse__fail(err, COPSE_INVALID, 0, launch->device->place,
                        "%s: kernels do not work on staging memory", launch->node->name);
    return status;
}

static copse_status check_operands(const copse__launch *launch, copse_error *err) {
    const copse__node *node = launch->node;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < node->input_count && status == COPSE_OK; i++)
        status = check_operand(launch, node->inputs[i], launch->operands.inputs[i], err);
    for (size_t i = 0; i < node->output_count && status == COPSE_OK; i++)
        status =
            check_operand(launch, node->outputs[i], launch->operands.outputs[i], err);
    return status;
}

static copse_status check_workspace(const copse__launch *launch, copse_error *err) {
    size_t need = 0;
    if (!launch->provider->workspace)
        return COPSE_OK;
    copse_status status = launch->provider->workspace(&need, launch->device,
                                                      launch->graph, launch->node, err);
    if (status == COPSE_OK && need > 0)
        status =
            copse__cl_view_check(launch->device, launch->operands.workspace, need, err);
    return status;
}

copse_status copse__cl_launch_new(copse__launch **out, copse__device *device,
                                  const copse__graph *graph, const copse__node *node,
                                  const copse__operands *operands, copse_error *err) {
    *out = NULL;
    copse__launch *launch;
    copse_status status = copse__calloc(&launch, 1, sizeof *launch, err);
    if (status != COPSE_OK)
        return status;
    launch->device = device;
    launch->graph = graph;
    launch->node = node;
    launch->operands = *operands;
    /* providers count on operands that are there and fit one another */
    COPSE__TRY(copse__host_check(graph, node, err), out);
    const copse__tuned *entry;
    COPSE__TRY(choose_tuned(&launch->provider, &entry, device, graph, node, err), out);
    COPSE__TRY(copse__strdup(&launch->parameters, entry ? entry->parameters : "", err),
               out);
    copse__cl_tuned_follow(device, entry);
    COPSE__TRY(check_operands(launch, err), out);
    COPSE__TRY(check_workspace(launch, err), out);
    COPSE__TRY(launch->provider->prepare(launch, err), out);
    *out = launch;
    launch = NULL;
out:
    copse__cl_launch_free(launch);
    return status;
}

static void forget_events(copse__launch *launch) {
    if (launch->first)
        clReleaseEvent(launch->first);
    if (launch->last)
        clReleaseEvent(launch->last);
    launch->first = launch->last = NULL;
}

void copse__cl_launch_free(copse__launch *launch) {
    if (!launch)
        return;
    forget_events(launch);
    if (launch->provider && launch->provider->release)
        launch->provider->release(launch);
    for (size_t i = 0; i < launch->kernel_count; i++)
        clReleaseKernel(launch->kernels[i].kernel);
    free(launch->state);
    free(launch->parameters);
    free(launch);
}

const char *copse__cl_launch_provider(const copse__launch *launch) {
    return launch->provider->name;
}

const char *copse__cl_launch_parameters(const copse__launch *launch) {
    return launch->parameters;
}

copse_status copse__cl_run(copse__device *device, copse__launch *const *launches,
                           size_t count, const copse__extents *extents,
                           copse_error *err) {
    for (size_t i = 0; i < count; i++) {
        copse__launch *launch = launches[i];
        bool changed =
            !launch->bound || memcmp(&launch->extents, extents, sizeof *extents) != 0;
        if (device->profile)
            forget_events(launch);
        launch->bound = false; /* should it fail half-way */
        copse_status status = launch->provider->enqueue(launch, extents, changed, err);
        if (status != COPSE_OK)
            return status;
        launch->bound = true;
        launch->extents = *extents;
    }
    return COPSE_OK;
}

/* By the device's clock. */
static bool device_span(const copse__launch *launch, cl_ulong *start, cl_ulong *end) {
    return launch->first &&
           clGetEventProfilingInfo(launch->first, CL_PROFILING_COMMAND_START,
                                   sizeof *start, start, NULL) == CL_SUCCESS &&
           clGetEventProfilingInfo(launch->last ? launch->last : launch->first,
                                   CL_PROFILING_COMMAND_END, sizeof *end, end,
                                   NULL) == CL_SUCCESS &&
           *end > *start;
}

uint64_t copse__cl_launch_time_ns(const copse__launch *launch) {
    cl_ulong start, end;
    return device_span(launch, &start, &end) ? end - start : 0;
}

bool copse__cl_launch_span(const copse__launch *launch, uint64_t *begin_ns,
                           uint64_t *end_ns) {
    cl_ulong start, end;
    if (!launch->device->clock_known || !device_span(launch, &start, &end))
        return false;
    *begin_ns = start + launch->device->clock_offset_ns;
    *end_ns = end + launch->device->clock_offset_ns;
    return true;
}

copse_status copse__cl_kernel_add(copse__launch *launch, size_t *index,
                                  const copse__cl_source *source, const char *options,
                                  const char *name, copse_error *err) {
    copse__device *device = launch->device;
    if (launch->kernel_count == COPSE__CL_MAX_KERNELS)
        return copse__fail(err, COPSE_INTERNAL, 0, device->place,
                           "%s: too many kernels in one launch", launch->node->name);
    cl_program program;
    copse_status status = copse__cl_program_get(&program, device, source, options, err);
    if (status != COPSE_OK)
        return status;
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, name, &code);
    if (code != CL_SUCCESS)
        return copse__fail(err, COPSE_KERNEL, code, device->place,
                           "%s.cl has no kernel %s here: %s", source->name, name,
                           copse__cl_code_name(code));
    copse__cl_kernel *made = &launch->kernels[launch->kernel_count];
    made->kernel = kernel;
    made->max_local = device->max_local;
    size_t most = 0;
    if (clGetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE,
                                 sizeof most, &most, NULL) == CL_SUCCESS &&
        most > 0)
        made->max_local = copse__min_size(most, device->max_local);
    if (index)
        *index = launch->kernel_count;
    launch->kernel_count++;
    return COPSE_OK;
}

static copse_status set_view(copse__launch *launch, cl_kernel kernel, unsigned index,
                             const copse__view *view, copse_error *err) {
    cl_mem memory = launch->device->nothing->memory;
    if (view->buffer) {
        copse_status status = copse__cl_view_memory(&memory, *view, err);
        if (status != COPSE_OK)
            return status;
    }
    cl_int code = clSetKernelArg(kernel, index, sizeof memory, &memory);
    return code == CL_SUCCESS
               ? COPSE_OK
               : copse__cl_fail(err, launch->device, code, "clSetKernelArg");
}

/* One argument that is no view. */
static cl_int set_plain(cl_kernel kernel, unsigned index, char kind, va_list *list) {
    switch (kind) {
    case 'm': {
        cl_mem memory = va_arg(*list, cl_mem);
        return clSetKernelArg(kernel, index, sizeof memory, &memory);
    }
    case 'u': {
        cl_uint number = va_arg(*list, uint32_t);
        return clSetKernelArg(kernel, index, sizeof number, &number);
    }
    case 'i': {
        cl_int number = va_arg(*list, int32_t);
        return clSetKernelArg(kernel, index, sizeof number, &number);
    }
    case 'z': {
        cl_ulong number = va_arg(*list, size_t);
        return clSetKernelArg(kernel, index, sizeof number, &number);
    }
    case 'f': {
        cl_float number = (cl_float)va_arg(*list, double);
        return clSetKernelArg(kernel, index, sizeof number, &number);
    }
    case 'l':
        return clSetKernelArg(kernel, index, va_arg(*list, size_t), NULL);
    default:
        return CL_INVALID_ARG_VALUE;
    }
}

copse_status copse__cl_args(copse__launch *launch, size_t kernel, unsigned first,
                            copse_error *err, const char *format, ...) {
    cl_kernel object = launch->kernels[kernel].kernel;
    copse_status status = COPSE_OK;
    va_list list;
    va_start(list, format);
    for (unsigned i = 0; format[i] && status == COPSE_OK; i++) {
        if (format[i] == 'v') {
            status = set_view(launch, object, first + i,
                              va_arg(list, const copse__view *), err);
            continue;
        }
        cl_int code = set_plain(object, first + i, format[i], &list);
        if (code != CL_SUCCESS)
            status = copse__cl_fail(err, launch->device, code, "clSetKernelArg");
    }
    va_end(list);
    return status;
}

void copse__cl_note_event(copse__launch *launch, cl_event event) {
    if (!event)
        return;
    if (!launch->first) {
        launch->first = event;
        return;
    }
    if (launch->last)
        clReleaseEvent(launch->last);
    launch->last = event;
}

copse_status copse__cl_enqueue(copse__launch *launch, size_t kernel, unsigned dimensions,
                               const size_t *global, const size_t *local,
                               copse_error *err) {
    copse__device *device = launch->device;
    cl_event event = NULL;
    cl_int code = clEnqueueNDRangeKernel(
        device->queues[COPSE__QUEUE_COMPUTE], launch->kernels[kernel].kernel, dimensions,
        NULL, global, local, 0, NULL, device->profile ? &event : NULL);
    if (code != CL_SUCCESS) {
        copse_status status = copse__cl_fail(err, device, code, launch->node->name);
        return status;
    }
    copse__cl_note_event(launch, event);
    return COPSE_OK;
}

/* How many groups a compute unit gets: enough to balance and to hide latency. */
#define GROUPS_A_UNIT_CHUNKED 4
#define GROUPS_A_UNIT 32
#define FLAT_LOCAL 256
/* Loop passes of one work-item where it takes a range. Below the least its start would cost
 * more than its work; llvmpipe silently ends all loops of a work-item after 65535 passes. */
#define LEAST_STEPS 512
#define MOST_STEPS 32768

size_t copse__cl_chunks(const copse__device *device, size_t items, size_t steps) {
    size_t most = copse__max_size(MOST_STEPS / copse__max_size(steps, 1), 1);
    size_t least = copse__max_size(LEAST_STEPS / copse__max_size(steps, 1), 1);
    size_t chunks =
        copse__min_size((items + least - 1) / least,
                        (size_t)device->base.caps.compute_units * GROUPS_A_UNIT_CHUNKED);
    return copse__max_size(copse__max_size(chunks, (items + most - 1) / most), 1);
}

copse_status copse__cl_enqueue_flat(copse__launch *launch, size_t kernel, size_t items,
                                    size_t steps, copse_error *err) {
    const copse__caps *caps = &launch->device->base.caps;
    if (items == 0)
        return COPSE_OK;
    size_t local = 1, groups = copse__cl_chunks(launch->device, items, steps);
    if (!caps->cpu) {
        local = copse__min_size(FLAT_LOCAL, launch->kernels[kernel].max_local);
        groups = copse__min_size((items + local - 1) / local,
                                 (size_t)caps->compute_units * GROUPS_A_UNIT);
    }
    size_t global = groups * local;
    return copse__cl_enqueue(launch, kernel, 1, &global, &local, err);
}

copse_status copse__cl_enqueue_zero(copse__launch *launch, copse__view view, size_t bytes,
                                    copse_error *err) {
    copse__device *device = launch->device;
    const cl_uint zero = 0;
    cl_event event = NULL;
    if (bytes == 0)
        return COPSE_OK;
    cl_int code = clEnqueueFillBuffer(
        device->queues[COPSE__QUEUE_COMPUTE], view.buffer->memory, &zero, sizeof zero,
        view.offset, bytes, 0, NULL, device->profile ? &event : NULL);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clEnqueueFillBuffer");
    copse__cl_note_event(launch, event);
    return COPSE_OK;
}
