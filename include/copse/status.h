/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_STATUS_H
#define COPSE_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define COPSE_API __attribute__((visibility("default")))
#define COPSE_CHECKED __attribute__((warn_unused_result))
#define COPSE_PRINTF(format_index, first_index)                                          \
    __attribute__((format(printf, format_index, first_index)))
#else
#define COPSE_API
#define COPSE_CHECKED
#define COPSE_PRINTF(format_index, first_index)
#endif

/* The one list of outcomes: code, name, message. Tools map them to exit codes. */
#define COPSE_STATUS_MAP(X)                                                              \
    X(COPSE_OK, "ok", "success")                                                         \
    X(COPSE_INVALID, "invalid", "an argument or option is wrong")                        \
    X(COPSE_CONFIG, "config", "the configuration is wrong")                              \
    X(COPSE_NOMEM, "nomem", "the host has no memory left")                               \
    X(COPSE_IO, "io", "a file cannot be read or written")                                \
    X(COPSE_FORMAT, "format", "a file is damaged or of another format")                  \
    X(COPSE_NODEVICE, "nodevice", "there is no usable device")                           \
    X(COPSE_DEVICE, "device", "a device or its driver failed")                           \
    X(COPSE_DEVICE_MEMORY, "device_memory", "a device has too little memory")            \
    X(COPSE_KERNEL, "kernel", "a kernel does not build or computes wrong numbers")       \
    X(COPSE_UNSUPPORTED, "unsupported", "this combination is not supported")             \
    X(COPSE_NUMERIC, "numeric", "a number is not finite")                                \
    X(COPSE_DRIFT, "drift", "replicas hold different parameters")                        \
    X(COPSE_TIMEOUT, "timeout", "a deadline passed")                                     \
    X(COPSE_PEER, "peer", "another worker failed")                                       \
    X(COPSE_INTERRUPTED, "interrupted", "stopped on request")                            \
    X(COPSE_UNMET, "unmet", "a stated requirement is false")                             \
    X(COPSE_INTERNAL, "internal", "an error in copse itself")

typedef enum copse_status {
#define COPSE_STATUS_ENUM(code, name, message) code,
    COPSE_STATUS_MAP(COPSE_STATUS_ENUM)
#undef COPSE_STATUS_ENUM
} copse_status;

/* Where a function takes a copse_error *, it may be NULL; it is written on failure only.
 */
typedef struct copse_error {
    copse_status status;
    int32_t native;  /* the OpenCL, errno or MPI code behind it; 0 where there is none */
    char place[256]; /* "file:line:column", a path or a device; "" where there is none */
    char text[768];  /* one sentence that says what is wrong and what to do */
} copse_error;

/* Static strings, never NULL: "device", "a device or its driver failed". */
COPSE_API const char *copse_status_name(copse_status status);
COPSE_API const char *copse_status_message(copse_status status);

typedef enum copse_log_level {
    COPSE_LOG_ERROR,
    COPSE_LOG_WARN,
    COPSE_LOG_INFO,
    COPSE_LOG_DEBUG
} copse_log_level;

/* Called with one line, without a newline, from any thread; calls never overlap. */
typedef void copse_log_fn(copse_log_level level, const char *line, void *user);

/* The library is silent until a sink is set. fn NULL: silent again. user is borrowed and
 * must outlive the sink. Thread-safe. */
COPSE_API void copse_log_set(copse_log_fn *fn, copse_log_level most, void *user);

/* "0.1.0". Static. */
COPSE_API const char *copse_version(void);

#ifdef __cplusplus
}
#endif
#endif
