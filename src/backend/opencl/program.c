/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/opencl/internal.h"
#include "base/clock.h"

/* A driver that reports a larger binary or log is not believed. */
#define MOST_BINARY_BYTES ((size_t)256 << 20)
#define MOST_LOG_BYTES ((size_t)16 << 20)

/* The compiler's output, or NULL where there is none. free() it. */
static char *build_log(const copse__device *device, cl_program program) {
    size_t bytes = 0;
    if (clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL,
                              &bytes) != CL_SUCCESS ||
        bytes < 2 || bytes > MOST_LOG_BYTES)
        return NULL;
    char *text = calloc(1, bytes + 1);
    if (text && clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes,
                                      text, NULL) != CL_SUCCESS) {
        free(text);
        return NULL;
    }
    return text;
}

/* The first line that speaks of an error, else the first that is not empty. */
static const char *telling_line(const char *log, int *length) {
    const char *first = NULL, *error = NULL;
    int first_length = 0;
    for (const char *line = log; line && *line && !error;) {
        const char *end = strchr(line, '\n');
        int bytes = end ? (int)(end - line) : (int)strlen(line);
        if (!first && bytes > 0) {
            first = line;
            first_length = bytes;
        }
        const char *found = strstr(line, "error");
        if (found && found < line + bytes) {
            error = line;
            *length = bytes;
        }
        line = end ? end + 1 : NULL;
    }
    if (error)
        return error;
    *length = first_length;
    return first ? first : "";
}

static copse_status build_failed(const copse__device *device,
                                 const copse__cl_source *source, const char *options,
                                 cl_program program, cl_int code, copse_error *err) {
    if (code == CL_OUT_OF_HOST_MEMORY)
        return copse__cl_fail(err, device, code, "clBuildProgram");
    char *log = build_log(device, program);
    int length = 0;
    const char *line = telling_line(log ? log : "", &length);
    copse_status status = copse__fail(err, COPSE_KERNEL, code, device->place,
                                      "%s.cl does not build here: %.*s", source->name,
                                      length > 0 ? length : 64,
                                      length > 0 ? line : copse__cl_code_name(code));
    copse__log(COPSE_LOG_ERROR, "%s: %s.cl does not build with \"%s\":", device->place,
               source->name, options);
    if (log)
        copse__log_lines(COPSE_LOG_ERROR, log);
    free(log);
    return status;
}

static copse_status build_source(cl_program *out, copse__device *device,
                                 const copse__cl_source *source, const char *options,
                                 copse_error *err) {
    *out = NULL;
    cl_int code;
    cl_program program = clCreateProgramWithSource(
        device->context, 1, (const char *[]){source->text}, &source->bytes, &code);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clCreateProgramWithSource");
    code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        copse_status status = build_failed(device, source, options, program, code, err);
        clReleaseProgram(program);
        return status;
    }
    if (copse__log_wanted(COPSE_LOG_DEBUG)) {
        char *log = build_log(device, program);
        if (log && log[0]) {
            copse__log(COPSE_LOG_DEBUG, "%s: the compiler about %s.cl:", device->place,
                       source->name);
            copse__log_lines(COPSE_LOG_DEBUG, log);
        }
        free(log);
    }
    *out = program;
    return COPSE_OK;
}

/* NULL where the driver does not take it: then the source is built. */
static cl_program build_binary(copse__device *device, const char *options,
                               const unsigned char *binary, size_t bytes) {
    cl_int code, state = CL_SUCCESS;
    cl_program program = clCreateProgramWithBinary(device->context, 1, &device->id,
                                                   &bytes, &binary, &state, &code);
    if (code != CL_SUCCESS || state != CL_SUCCESS ||
        clBuildProgram(program, 1, &device->id, options, NULL, NULL) != CL_SUCCESS) {
        if (code == CL_SUCCESS && program)
            clReleaseProgram(program);
        return NULL;
    }
    return program;
}

/* Some drivers (PoCL) compile every kernel once more when they are asked for the binary, and
 * have a cache of their own. Where asking takes longer than building did, a note in the
 * folder says so, and this driver is not asked again. */
static void store_binary(copse__device *device, cl_program program, const char *key,
                         uint64_t build_ns) {
    size_t bytes = 0;
    uint64_t start = copse__now_ns();
    if (atomic_load(&device->no_binaries))
        return;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) !=
            CL_SUCCESS ||
        bytes == 0 || bytes > MOST_BINARY_BYTES)
        return;
    unsigned char *binary = calloc(1, bytes);
    if (binary && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary,
                                   NULL) == CL_SUCCESS)
        copse__cl_binary_store(device->cache_folder, key, binary, bytes);
    free(binary);
    if (copse__now_ns() - start > build_ns) {
        atomic_store(&device->no_binaries, true);
        copse__cl_note_make(device->cache_folder, device->identity);
    }
}

static copse_status build(cl_program *out, copse__device *device,
                          const copse__cl_source *source, const char *own_options,
                          copse_error *err) {
    *out = NULL;
    copse__text options = {0}, key = {0};
    copse__text_add(&options, "%s%s%s", device->options, own_options[0] ? " " : "",
                    own_options);
    copse__text_add(&key, "%s%s\n%s.cl %s\n", device->identity,
                    options.data ? options.data : "", source->name, source->hash);
    copse_status status = copse__text_check(&options, err);
    if (status == COPSE_OK)
        status = copse__text_check(&key, err);
    if (status != COPSE_OK)
        goto out;
    if (device->cache_folder) {
        unsigned char *binary;
        size_t bytes;
        copse__cl_binary_load(&binary, &bytes, device->cache_folder, key.data);
        if (binary)
            *out = build_binary(device, options.data, binary, bytes);
        free(binary);
        if (*out)
            goto out;
    }
    uint64_t start = copse__now_ns();
    COPSE__TRY(build_source(out, device, source, options.data, err), out);
    if (device->cache_folder)
        store_binary(device, *out, key.data, copse__now_ns() - start);
out:
    copse__text_free(&options);
    copse__text_free(&key);
    return status;
}

/* The entry, added as BUILDING (*ours: the caller builds it) where it is new. Under the
 * lock. */
static copse_status find_or_add(copse__cl_program **out, bool *ours,
                                copse__device *device, const copse__cl_source *source,
                                const char *options, copse_error *err) {
    *ours = false;
    *out = NULL;
    for (copse__cl_program *p = device->programs; p; p = p->next)
        if (p->source == source && strcmp(p->options, options) == 0) {
            *out = p;
            return COPSE_OK;
        }
    copse__cl_program *made;
    copse_status status = copse__calloc(&made, 1, sizeof *made, err);
    if (status != COPSE_OK)
        return status;
    status = copse__strdup(&made->options, options, err);
    if (status != COPSE_OK) {
        free(made);
        return status;
    }
    made->source = source;
    made->state = COPSE__CL_BUILDING;
    made->next = device->programs;
    device->programs = made;
    *out = made;
    *ours = true;
    return COPSE_OK;
}

copse_status copse__cl_program_get(cl_program *out, copse__device *device,
                                   const copse__cl_source *source, const char *options,
                                   copse_error *err) {
    *out = NULL;
    copse__cl_program *entry;
    bool ours;
    pthread_mutex_lock(&device->lock);
    copse_status status = find_or_add(&entry, &ours, device, source, options, err);
    if (status != COPSE_OK)
        goto out;
    if (ours) {
        pthread_mutex_unlock(&device->lock);
        copse_error error = {0};
        cl_program program;
        status = build(&program, device, source, options, &error);
        pthread_mutex_lock(&device->lock);
        entry->program = program;
        entry->error = error;
        entry->state = status == COPSE_OK ? COPSE__CL_BUILT : COPSE__CL_BROKEN;
        pthread_cond_broadcast(&device->built);
    }
    while (entry->state == COPSE__CL_BUILDING)
        pthread_cond_wait(&device->built, &device->lock);
    if (entry->state == COPSE__CL_BUILT) {
        *out = entry->program;
    } else {
        status = entry->error.status;
        if (err)
            *err = entry->error;
    }
out:
    pthread_mutex_unlock(&device->lock);
    return status;
}

void copse__cl_programs_free(copse__device *device) {
    copse__cl_program *next;
    for (copse__cl_program *p = device->programs; p; p = next) {
        next = p->next;
        if (p->program)
            clReleaseProgram(p->program);
        free(p->options);
        free(p);
    }
    device->programs = NULL;
}
