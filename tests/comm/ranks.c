/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/half.h"
#include "base/mem.h"
#include "support/check.h"

static size_t bytes_of(const ranks *all, size_t bucket) {
    return all->elements[bucket] * copse_dtype_bytes(all->dtype);
}

void ranks_make_buffers(ranks *all) {
    copse_error error;
    for (size_t r = 0; r < all->count; r++)
        for (size_t b = 0; b < all->bucket_count; b++) {
            const size_t bytes = bytes_of(all, b);
            ASSERT_OK(copse__backend_of(all->devices[r])
                          ->buffer_new(&all->buffers[r][b], all->devices[r],
                                       bytes > 0 ? bytes : 4,
                                       all->shared[r][b] ? COPSE__MEMORY_SHARED
                                                         : COPSE__MEMORY_DEVICE,
                                       &error));
            all->host[r][b] = malloc(bytes + 4);
        }
}

void ranks_free_buffers(ranks *all) {
    for (size_t r = 0; r < all->count; r++) {
        const copse__backend *backend = copse__backend_of(all->devices[r]);
        for (int q = 0; q < COPSE__QUEUE_COUNT; q++)
            if (backend->finish(all->devices[r], (copse__queue)q, NULL) != COPSE_OK)
                abort();
        for (size_t b = 0; b < all->bucket_count; b++) {
            backend->buffer_free(all->buffers[r][b]);
            free(all->host[r][b]);
        }
    }
}

float ranks_value(size_t rank, uint64_t step, size_t bucket, size_t element) {
    uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15u + step * 0xbf58476d1ce4e5b9u +
                 bucket * 0x94d049bb133111ebu + element * 0x2545f4914f6cdd1du;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    if (x % 1009 == 0)
        return -0.0f;
    return ldexpf((float)(int32_t)(uint32_t)x, -31 + (int)(x >> 40 & 15) - 8);
}

static copse__view view_of(const ranks *all, size_t rank, size_t bucket) {
    return (copse__view){all->buffers[rank][bucket], 0, bytes_of(all, bucket)};
}

/* What the rank gave last, as the dtype holds it. */
static float given(const ranks *all, size_t rank, size_t b, size_t e) {
    return all->dtype == COPSE_F16
               ? copse__half_to_float(((const uint16_t *)all->host[rank][b])[e])
               : ((const float *)all->host[rank][b])[e];
}

static void fill(ranks *all, size_t rank, uint64_t step, size_t b) {
    for (size_t e = 0; e < all->elements[b]; e++) {
        const float value =
            all->empty[rank] ? NAN : ranks_value(rank, all->same_values ? 0 : step, b, e);
        if (all->dtype == COPSE_F16)
            ((uint16_t *)all->host[rank][b])[e] = copse__half_from_float(value);
        else
            ((float *)all->host[rank][b])[e] = value;
    }
}

typedef struct player {
    ranks *all;
    size_t rank;
    uint64_t step, delay_ns;
} player;

/* Upload on the compute queue, whose mark is the bucket's `ready`, as a replica does. */
static copse_status play_step(const player *self, copse_error *error) {
    ranks *all = self->all;
    const size_t r = self->rank;
    copse__device *device = all->devices[r];
    const copse__backend *backend = copse__backend_of(device);
    copse_status status = COPSE_OK;
    if (all->status[r] != COPSE_OK) /* what a discarded step left may still run */
        status = backend->finish(device, COPSE__QUEUE_COMPUTE, error);
    for (size_t i = 0; i < all->bucket_count && status == COPSE_OK; i++) {
        const size_t b = all->backwards ? all->bucket_count - 1 - i : i;
        const size_t bytes = bytes_of(all, b);
        fill(all, r, self->step, b);
        copse__fence *ready = NULL;
        if (bytes > 0)
            status = backend->write(device, COPSE__QUEUE_COMPUTE, view_of(all, r, b),
                                    all->host[r][b], bytes, NULL, &ready, error);
        if (status == COPSE_OK)
            status = backend->flush(device, COPSE__QUEUE_COMPUTE, error);
        if (status == COPSE_OK && all->backwards && all->shared[r][b] && ready) {
            status = backend->fence_wait(ready, UINT64_MAX, error);
            backend->fence_free(ready);
            ready = NULL;
        }
        if (status == COPSE_OK)
            status =
                copse__allreduce_submit(all->engine, r, self->step, b, view_of(all, r, b),
                                        ready, !all->empty[r], error);
    }
    if (status == COPSE_OK) {
        status =
            copse__allreduce_wait(all->engine, r, self->step, &all->results[r], error);
    } else { /* its own call failed: the others need not wait for it */
        all->results[r].failed_rank = r;
        snprintf(error->text, sizeof error->text, "before its rank %zu was dropped", r);
        if (copse__allreduce_drop(all->engine, r, NULL) != COPSE_OK)
            abort();
    }
    return status;
}

static void *play(void *user) {
    const player *self = user;
    if (self->delay_ns > 0) {
        const struct timespec time = {(time_t)(self->delay_ns / 1000000000u),
                                      (long)(self->delay_ns % 1000000000u)};
        nanosleep(&time, NULL);
    }
    self->all->status[self->rank] = play_step(self, &self->all->errors[self->rank]);
    return NULL;
}

void ranks_run_step(ranks *all, uint64_t step, const uint64_t *delay_ns) {
    pthread_t threads[RANKS_MAX];
    player players[RANKS_MAX];
    for (size_t r = 0; r < all->count; r++) {
        if (all->gone[r])
            continue;
        players[r] = (player){all, r, step, delay_ns ? delay_ns[r] : 0};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, play, &players[r]), 0);
    }
    for (size_t r = 0; r < all->count; r++)
        if (!all->gone[r])
            pthread_join(threads[r], NULL);
}

void ranks_read(ranks *all, size_t rank, size_t bucket, void *out) {
    copse__device *device = all->devices[rank];
    const copse__backend *backend = copse__backend_of(device);
    copse_error error;
    if (all->elements[bucket] == 0)
        return;
    ASSERT_OK(backend->read(device, COPSE__QUEUE_COMPUTE, out, view_of(all, rank, bucket),
                            bytes_of(all, bucket), NULL, NULL, &error));
    ASSERT_OK(backend->finish(device, COPSE__QUEUE_COMPUTE, &error));
}

uint64_t ranks_hash(ranks *all, size_t rank) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t b = 0; b < all->bucket_count; b++) {
        const size_t bytes = bytes_of(all, b);
        uint64_t *words = calloc(1, bytes + 8);
        ck_assert_ptr_nonnull(words);
        ranks_read(all, rank, b, words);
        for (size_t i = 0; i < bytes / 8 + 1; i++)
            hash = (hash ^ words[i]) * 0x100000001b3u;
        free(words);
    }
    return hash;
}

static bool tree(const ranks *all, size_t lo, size_t count, const float *values,
                 float *sum) {
    if (count == 1) {
        *sum = values[lo];
        return !all->empty[lo] && !all->gone[lo];
    }
    size_t split = 1;
    while (split * 2 < count)
        split *= 2;
    float a = 0, b = 0;
    const bool left = tree(all, lo, split, values, &a);
    const bool right = tree(all, lo + split, count - split, values, &b);
    *sum = left && right ? a + b : left ? a : b;
    return left || right;
}

/* The bits of the sum of one element; aborts where it is far from the sum in double. */
static uint32_t expected_bits(ranks *all, size_t b, size_t e) {
    float values[RANKS_MAX], expected;
    double sum = 0, magnitude = 0;
    for (size_t r = 0; r < all->count; r++) {
        values[r] = given(all, r, b, e);
        if (all->empty[r] || all->gone[r])
            continue;
        sum += (double)values[r];
        magnitude += fabs((double)values[r]);
    }
    if (!tree(all, 0, all->count, values, &expected))
        expected = 0.0f;
    uint32_t bits;
    double slack = 4 * 0x1p-24 * magnitude;
    memcpy(&bits, &expected, sizeof bits);
    if (all->dtype == COPSE_F16) { /* rounded once, to 11 bits or the smallest half */
        bits = copse__half_from_float(expected);
        expected = copse__half_to_float((uint16_t)bits);
        slack += 0x1p-11 * fabs(sum) + 0x1p-25;
    }
    /* Check notes every assertion in a file: too slow for each element. */
    if (!(fabs((double)expected - sum) <= slack))
        ck_abort_msg("the tree's sum %a is far from %a", (double)expected, sum);
    return bits;
}

void ranks_check(ranks *all) {
    const size_t size = copse_dtype_bytes(all->dtype);
    for (size_t b = 0; b < all->bucket_count; b++) {
        const size_t elements = all->elements[b];
        uint32_t *expected = malloc((elements + 1) * sizeof *expected);
        char *got = malloc((elements + 1) * size);
        for (size_t e = 0; e < elements; e++)
            expected[e] = expected_bits(all, b, e);
        for (size_t r = 0; r < all->count; r++) {
            if (all->gone[r])
                continue;
            ranks_read(all, r, b, got);
            for (size_t e = 0; e < elements; e++) {
                uint32_t bits = 0;
                memcpy(&bits, got + e * size, size);
                if (bits != expected[e])
                    ck_abort_msg("rank %zu of %zu, bucket %zu, element %zu: %x, not %x",
                                 r, all->count, b, e, bits, expected[e]);
            }
        }
        free(expected);
        free(got);
    }
}
