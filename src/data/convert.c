/* SPDX-License-Identifier: Apache-2.0 */
#include "data/convert.h"

#include <stdint.h>
#include <string.h>

#include "base/half.h"

copse_dtype copse__label_dtype(copse_dtype dtype) {
    return dtype == COPSE_F16 || dtype == COPSE_F32 || dtype == COPSE_F64 ? COPSE_F32
                                                                          : COPSE_I32;
}

/* Any element as a double and, where it is an integer, as its exact 64 bits. */
typedef struct number {
    double real;
    int64_t integer;
    bool fits; /* integer is the value */
} number;

static number from_real(double real) {
    number made = {.real = real};
    made.fits = real >= -0x1p63 && real < 0x1p63 && (double)(int64_t)real == real;
    made.integer = made.fits ? (int64_t)real : 0;
    return made;
}

static number from_integer(int64_t value) {
    return (number){.real = (double)value, .integer = value, .fits = true};
}

#define LOAD(type, at)                                                                   \
    type value;                                                                          \
    memcpy(&value, (const type *)in + (at), sizeof value)

#define LOADER(name, type, expression)                                                   \
    static number load_##name(const void *in, size_t at) {                               \
        LOAD(type, at);                                                                  \
        return expression;                                                               \
    }

LOADER(f32, float, from_real((double)value))
LOADER(f64, double, from_real(value))
LOADER(f16, uint16_t, from_real((double)copse__half_to_float(value)))
LOADER(u8, uint8_t, from_integer(value))
LOADER(i8, int8_t, from_integer(value))
LOADER(u16, uint16_t, from_integer(value))
LOADER(i16, int16_t, from_integer(value))
LOADER(u32, uint32_t, from_integer(value))
LOADER(i32, int32_t, from_integer(value))
LOADER(i64, int64_t, from_integer(value))

static number load_u64(const void *in, size_t at) {
    LOAD(uint64_t, at);
    if (value <= INT64_MAX)
        return from_integer((int64_t)value);
    return (number){.real = (double)value};
}

static number (*const loaders[])(const void *, size_t) = {
    [COPSE_F32] = load_f32, [COPSE_F16] = load_f16, [COPSE_F64] = load_f64,
    [COPSE_U8] = load_u8,   [COPSE_I8] = load_i8,   [COPSE_U16] = load_u16,
    [COPSE_I16] = load_i16, [COPSE_U32] = load_u32, [COPSE_I32] = load_i32,
    [COPSE_U64] = load_u64, [COPSE_I64] = load_i64,
};

double copse__get_number(copse_dtype dtype, const void *element) {
    return loaders[dtype](element, 0).real;
}

bool copse__convert(copse_dtype to, void *out, copse_dtype from, const void *in,
                    size_t count, size_t *bad) {
    number (*load)(const void *, size_t) = loaders[from];
    if (to == COPSE_F32) {
        float *reals = out;
        for (size_t i = 0; i < count; i++)
            reals[i] = (float)load(in, i).real;
        return true;
    }
    int32_t *integers = out;
    for (size_t i = 0; i < count; i++) {
        number got = load(in, i);
        if (!got.fits || got.integer < INT32_MIN || got.integer > INT32_MAX) {
            *bad = i;
            return false;
        }
        integers[i] = (int32_t)got.integer;
    }
    return true;
}

void copse__swap_bytes(void *data, size_t element_bytes, size_t count) {
    unsigned char *at = data;
    for (size_t i = 0; i < count; i++, at += element_bytes)
        for (size_t low = 0, high = element_bytes - 1; low < high; low++, high--) {
            unsigned char kept = at[low];
            at[low] = at[high];
            at[high] = kept;
        }
}
