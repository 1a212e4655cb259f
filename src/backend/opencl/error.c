/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/internal.h"

typedef struct code_name {
    cl_int code;
    const char *name;
} code_name;

#define CODE(code)                                                                       \
    { code, #code }

static const code_name names[] = {
    CODE(CL_DEVICE_NOT_FOUND),
    CODE(CL_DEVICE_NOT_AVAILABLE),
    CODE(CL_COMPILER_NOT_AVAILABLE),
    CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    CODE(CL_OUT_OF_RESOURCES),
    CODE(CL_OUT_OF_HOST_MEMORY),
    CODE(CL_PROFILING_INFO_NOT_AVAILABLE),
    CODE(CL_MEM_COPY_OVERLAP),
    CODE(CL_BUILD_PROGRAM_FAILURE),
    CODE(CL_MAP_FAILURE),
    CODE(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    CODE(CL_DEVICE_PARTITION_FAILED),
    CODE(CL_INVALID_VALUE),
    CODE(CL_INVALID_PLATFORM),
    CODE(CL_INVALID_DEVICE),
    CODE(CL_INVALID_CONTEXT),
    CODE(CL_INVALID_QUEUE_PROPERTIES),
    CODE(CL_INVALID_COMMAND_QUEUE),
    CODE(CL_INVALID_MEM_OBJECT),
    CODE(CL_INVALID_BINARY),
    CODE(CL_INVALID_BUILD_OPTIONS),
    CODE(CL_INVALID_PROGRAM),
    CODE(CL_INVALID_PROGRAM_EXECUTABLE),
    CODE(CL_INVALID_KERNEL_NAME),
    CODE(CL_INVALID_KERNEL),
    CODE(CL_INVALID_ARG_INDEX),
    CODE(CL_INVALID_ARG_VALUE),
    CODE(CL_INVALID_ARG_SIZE),
    CODE(CL_INVALID_KERNEL_ARGS),
    CODE(CL_INVALID_WORK_DIMENSION),
    CODE(CL_INVALID_WORK_GROUP_SIZE),
    CODE(CL_INVALID_WORK_ITEM_SIZE),
    CODE(CL_INVALID_GLOBAL_OFFSET),
    CODE(CL_INVALID_EVENT_WAIT_LIST),
    CODE(CL_INVALID_EVENT),
    CODE(CL_INVALID_OPERATION),
    CODE(CL_INVALID_BUFFER_SIZE),
    CODE(CL_INVALID_GLOBAL_WORK_SIZE),
    CODE(CL_INVALID_PROPERTY),
    CODE(CL_INVALID_DEVICE_PARTITION_COUNT),
};

const char *copse__cl_code_name(cl_int code) {
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        if (names[i].code == code)
            return names[i].name;
    return "unknown error";
}

copse_status copse__cl_fail(copse_error *err, const copse__device *device, cl_int code,
                            const char *what) {
    if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY)
        return copse__fail(err, COPSE_DEVICE_MEMORY, code, device->place,
                           "%s: %s; use a smaller batch or fewer devices", what,
                           copse__cl_code_name(code));
    return copse__fail(err, COPSE_DEVICE, code, device->place,
                       "the driver failed in %s: %s (%d)", what,
                       copse__cl_code_name(code), code);
}

bool copse__cl_is_launch_fault(const copse_error *err) {
    return err->status == COPSE_DEVICE && (err->native == CL_OUT_OF_RESOURCES ||
                                           err->native == CL_INVALID_WORK_GROUP_SIZE ||
                                           err->native == CL_INVALID_WORK_ITEM_SIZE ||
                                           err->native == CL_INVALID_GLOBAL_WORK_SIZE ||
                                           err->native == CL_INVALID_KERNEL_ARGS);
}
