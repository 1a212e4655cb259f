/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TYPES_H
#define COPSE_TYPES_H

#include <copse/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* code, name (safetensors' spelling is its upper case), bytes of an element */
#define COPSE_DTYPE_MAP(X)                                                               \
    X(COPSE_F32, "f32", 4)                                                               \
    X(COPSE_F16, "f16", 2)                                                               \
    X(COPSE_F64, "f64", 8)                                                               \
    X(COPSE_U8, "u8", 1)                                                                 \
    X(COPSE_I8, "i8", 1)                                                                 \
    X(COPSE_U16, "u16", 2)                                                               \
    X(COPSE_I16, "i16", 2)                                                               \
    X(COPSE_U32, "u32", 4)                                                               \
    X(COPSE_I32, "i32", 4)                                                               \
    X(COPSE_U64, "u64", 8)                                                               \
    X(COPSE_I64, "i64", 8)

typedef enum copse_dtype {
#define COPSE_DTYPE_ENUM(code, name, bytes) code,
    COPSE_DTYPE_MAP(COPSE_DTYPE_ENUM)
#undef COPSE_DTYPE_ENUM
} copse_dtype;

/* "f32"; "unknown" for a value that is none. */
COPSE_API const char *copse_dtype_name(copse_dtype dtype);
/* 4 for COPSE_F32; 0 for a value that is none. */
COPSE_API size_t copse_dtype_bytes(copse_dtype dtype);

#define COPSE_MAX_RANK 6

#ifdef __cplusplus
}
#endif
#endif
