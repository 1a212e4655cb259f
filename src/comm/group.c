/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/group.h>
#include <string.h>

#include "backend/tensor.h"
#include "base/mem.h"
#include "comm/allreduce.h"
#include "comm/sum.h"

/* Chunks of what does not pass the engine, and how many may be under way. */
#define CHUNK_BYTES ((size_t)1 << 20)
#define SLOTS 4u

struct copse_group {
    size_t count;
    copse__device **devices;
    copse_group_options options;
    copse__allreduce *engine; /* of the last size and dtype */
    size_t engine_elements;
    copse_dtype engine_dtype;
    uint64_t step;
    copse__buffer **staging; /* one a rank, SLOTS chunks; NULL until it is needed */
    bool broken;
};

static const char *label_of(const copse_group *group, size_t rank) {
    return copse__device_get(group->devices[rank])->choice.label;
}

copse_status copse_group_new(copse_group **out, copse_device *const devices[],
                             size_t count, const copse_group_options *options,
                             copse_error *err) {
    *out = NULL;
    if (count < 1 || count > 64)
        return copse__fail(err, COPSE_INVALID, 0, "group",
                           "a group has 1 to 64 devices, not %zu", count);
    copse_group *group = NULL;
    copse_status status = copse__calloc(&group, 1, sizeof *group, err);
    if (status != COPSE_OK)
        return status;
    group->count = count;
    if (options != NULL)
        group->options = *options;
    COPSE__TRY(copse__calloc(&group->devices, count, sizeof *group->devices, err), out);
    COPSE__TRY(copse__calloc(&group->staging, count, sizeof *group->staging, err), out);
    for (size_t r = 0; r < count; r++)
        group->devices[r] = devices[r]->device;
    *out = group;
    group = NULL;
out:
    copse_group_free(group);
    return status;
}

void copse_group_free(copse_group *group) {
    if (group == NULL)
        return;
    copse__allreduce_free(group->engine);
    for (size_t r = 0; group->staging != NULL && r < group->count && !group->broken; r++)
        if (group->staging[r] != NULL)
            copse__backend_of(group->devices[r])->buffer_free(group->staging[r]);
    free(group->staging);
    free(group->devices);
    free(group);
}

/* tensors[r] on the group's device r, all of the first one's dtype and `elements`. */
static copse_status check(const copse_group *group, copse_tensor *const tensors[],
                          size_t elements, bool sums, copse_error *err) {
    if (group->broken)
        return copse__fail(err, COPSE_INVALID, 0, "group",
                           "an earlier operation of this group failed; free it");
    for (size_t r = 0; r < group->count; r++) {
        if (tensors[r]->device->device != group->devices[r])
            return copse__fail(err, COPSE_INVALID, 0, label_of(group, r),
                               "tensor %zu is on another device than the group's", r);
        if (tensors[r]->elements != elements || tensors[r]->dtype != tensors[0]->dtype)
            return copse__fail(err, COPSE_INVALID, 0, label_of(group, r),
                               "tensor %zu has %zu elements of %s where %zu of %s belong",
                               r, tensors[r]->elements,
                               copse_dtype_name(tensors[r]->dtype), elements,
                               copse_dtype_name(tensors[0]->dtype));
    }
    if (sums && tensors[0]->dtype != COPSE_F32 && tensors[0]->dtype != COPSE_F16)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, "group",
                           "sums are of f32 or f16, not %s",
                           copse_dtype_name(tensors[0]->dtype));
    return COPSE_OK;
}

/* Where tensors of one operation are n times as large as those of the other. */
static copse_status times(const copse_group *group, const copse_tensor *one, size_t *out,
                          copse_error *err) {
    if (copse__mul_size(one->elements, group->count, out))
        return COPSE_OK;
    return copse__fail(err, COPSE_INVALID, 0, "group", "the tensors are too large");
}

/* ---- all-reduce ---- */

static copse_status take_engine(copse_group *group, const copse_tensor *like,
                                copse_error *err) {
    if (group->engine != NULL && group->engine_elements == like->elements &&
        group->engine_dtype == like->dtype)
        return COPSE_OK;
    copse__allreduce_free(group->engine);
    group->engine = NULL;
    group->engine_elements = like->elements;
    group->engine_dtype = like->dtype;
    const copse__allreduce_options options = {.devices = group->devices,
                                              .rank_count = group->count,
                                              .bucket_elements = &group->engine_elements,
                                              .bucket_count = 1,
                                              .dtype = like->dtype,
                                              .fail_ns = group->options.stall_ns,
                                              .reducer_threads = group->options.threads};
    const copse_status status = copse__allreduce_new(&group->engine, &options, err);
    group->broken = status == COPSE_TIMEOUT;
    return status;
}

copse_status copse_group_allreduce_sum(copse_group *group, copse_tensor *const part[],
                                       copse_error *err) {
    copse_status status = check(group, part, part[0]->elements, true, err);
    if (status == COPSE_OK)
        status = take_engine(group, part[0], err);
    if (status != COPSE_OK)
        return status;
    for (size_t r = 0; r < group->count && status == COPSE_OK; r++)
        status = copse__allreduce_submit(group->engine, r, group->step, 0,
                                         copse__tensor_view(part[r]), NULL, true, err);
    for (size_t r = 0; r < group->count && status == COPSE_OK; r++)
        status = copse__allreduce_wait(group->engine, r, group->step, NULL, err);
    group->step++;
    group->broken = status != COPSE_OK;
    return status;
}

/* ---- what is copied chunk by chunk ---- */

static copse_status take_staging(copse_group *group, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t r = 0; r < group->count && status == COPSE_OK; r++)
        if (group->staging[r] == NULL)
            status = copse__backend_of(group->devices[r])
                         ->buffer_new(&group->staging[r], group->devices[r],
                                      SLOTS * CHUNK_BYTES, COPSE__MEMORY_STAGING, err);
    return status;
}

static char *slot(const copse_group *group, size_t rank, size_t chunk) {
    char *host =
        copse__backend_of(group->devices[rank])->buffer_host(group->staging[rank]);
    return host + chunk % SLOTS * CHUNK_BYTES;
}

/* The chunk of a tensor; its bytes are 0 past the end. */
static copse__view chunk_of(const copse_tensor *tensor, size_t chunk) {
    const size_t at = copse__min_size(chunk * CHUNK_BYTES, tensor->bytes);
    return (copse__view){tensor->buffer, at,
                         copse__min_size(CHUNK_BYTES, tensor->bytes - at)};
}

static copse_status wait_and_free(const copse_group *group, size_t rank,
                                  copse__fence **fence, copse_error *err) {
    if (*fence == NULL)
        return COPSE_OK;
    const copse__backend *backend = copse__backend_of(group->devices[rank]);
    const uint64_t limit =
        group->options.stall_ns ? group->options.stall_ns : UINT64_C(60000000000);
    const copse_status status = backend->fence_wait(*fence, limit, err);
    if (status == COPSE_OK)
        backend->fence_free(*fence);
    *fence = NULL; /* of a lost device: left alone */
    return status;
}

static copse_status start_read(copse_group *group, size_t rank, void *host,
                               copse__view from, copse__fence **done, copse_error *err) {
    const copse__backend *backend = copse__backend_of(group->devices[rank]);
    copse_status status = backend->read(group->devices[rank], COPSE__QUEUE_DOWNLOAD, host,
                                        from, from.bytes, NULL, done, err);
    return status == COPSE_OK
               ? backend->flush(group->devices[rank], COPSE__QUEUE_DOWNLOAD, err)
               : status;
}

static copse_status start_write(copse_group *group, size_t rank, const void *host,
                                copse__view to, copse__fence **done, copse_error *err) {
    const copse__backend *backend = copse__backend_of(group->devices[rank]);
    copse_status status = backend->write(group->devices[rank], COPSE__QUEUE_UPLOAD, to,
                                         host, to.bytes, NULL, done, err);
    return status == COPSE_OK
               ? backend->flush(group->devices[rank], COPSE__QUEUE_UPLOAD, err)
               : status;
}

/* Uploads of all ranks that are under way, by slot. */
typedef struct uploads {
    copse__fence *fences[SLOTS][64];
} uploads;

static copse_status drain(const copse_group *group, uploads *going, size_t chunk,
                          copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t r = 0; r < group->count && status == COPSE_OK; r++)
        status = wait_and_free(group, r, &going->fences[chunk % SLOTS][r], err);
    return status;
}

copse_status copse_group_broadcast(copse_group *group, size_t root,
                                   copse_tensor *const part[], copse_error *err) {
    copse_status status = check(group, part, part[0]->elements, false, err);
    if (status == COPSE_OK && root >= group->count)
        status =
            copse__fail(err, COPSE_INVALID, 0, "group", "there is no rank %zu", root);
    if (status == COPSE_OK)
        status = take_staging(group, err);
    if (status != COPSE_OK || group->count == 1)
        return status;
    const size_t chunks = (part[root]->bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    copse__fence *reads[SLOTS] = {0};
    uploads going = {0};
    /* One chunk is read ahead while its predecessor goes out. */
    for (size_t c = 0; c <= chunks; c++) {
        if (c < chunks) {
            COPSE__TRY(drain(group, &going, c, err), out);
            COPSE__TRY(start_read(group, root, slot(group, root, c),
                                  chunk_of(part[root], c), &reads[c % SLOTS], err),
                       out);
        }
        if (c == 0)
            continue;
        COPSE__TRY(wait_and_free(group, root, &reads[(c - 1) % SLOTS], err), out);
        for (size_t r = 0; r < group->count; r++)
            if (r != root)
                COPSE__TRY(start_write(group, r, slot(group, root, c - 1),
                                       chunk_of(part[r], c - 1),
                                       &going.fences[(c - 1) % SLOTS][r], err),
                           out);
    }
    for (size_t s = 0; s < SLOTS; s++)
        COPSE__TRY(drain(group, &going, s, err), out);
out:
    group->broken = status != COPSE_OK;
    return status;
}

copse_status copse_group_all_gather(copse_group *group, copse_tensor *const from[],
                                    copse_tensor *const to[], copse_error *err) {
    size_t elements;
    copse_status status = check(group, from, from[0]->elements, false, err);
    if (status == COPSE_OK)
        status = times(group, from[0], &elements, err);
    if (status == COPSE_OK)
        status = check(group, to, elements, false, err);
    if (status == COPSE_OK && from[0]->dtype != to[0]->dtype)
        status = copse__fail(err, COPSE_INVALID, 0, "group", "the dtypes differ");
    if (status != COPSE_OK)
        return status;
    /* Slices begin where no device promises to copy from: the whole passes host memory. */
    char *whole = malloc(to[0]->bytes);
    if (whole == NULL)
        return copse__fail_nomem(err, to[0]->bytes);
    copse__fence *fences[64] = {0};
    for (size_t r = 0; r < group->count; r++)
        COPSE__TRY(start_read(group, r, whole + r * from[r]->bytes,
                              copse__tensor_view(from[r]), &fences[r], err),
                   out);
    for (size_t r = 0; r < group->count; r++)
        COPSE__TRY(wait_and_free(group, r, &fences[r], err), out);
    for (size_t r = 0; r < group->count; r++)
        COPSE__TRY(
            start_write(group, r, whole, copse__tensor_view(to[r]), &fences[r], err),
            out);
    for (size_t r = 0; r < group->count; r++)
        COPSE__TRY(wait_and_free(group, r, &fences[r], err), out);
out:
    group->broken = status != COPSE_OK;
    if (!group->broken) /* else a device may still write to it */
        free(whole);
    return status;
}

/* Sums one chunk of all ranks, which lies in their slots, into the host's result. */
static void sum_chunk(const copse_group *group, const copse__sum_plan *plan,
                      copse_dtype dtype, size_t chunk, size_t bytes, char *result) {
    const void *sources[64];
    void *targets[] = {result + chunk * CHUNK_BYTES};
    copse__sum_found found = {0};
    for (size_t r = 0; r < group->count; r++)
        sources[r] = slot(group, r, chunk);
    copse__sum_run(plan, copse__sum_isa_best(), dtype, sources, targets, 1,
                   bytes / copse_dtype_bytes(dtype), false, &found);
}

static copse_status reduce_to_host(copse_group *group, copse_tensor *const from[],
                                   char *result, copse_error *err) {
    copse__tree_range parts[64];
    copse__sum_plan plan;
    for (size_t r = 0; r < group->count; r++)
        parts[r] = (copse__tree_range){r, 1};
    copse_status status =
        copse__sum_plan_make(&plan, group->count, parts, group->count, err);
    if (status == COPSE_OK)
        status = take_staging(group, err);
    if (status != COPSE_OK)
        return status;
    const size_t chunks = (from[0]->bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    uploads going = {0}; /* downloads here */
    for (size_t c = 0; c < chunks + SLOTS - 1 && status == COPSE_OK; c++) {
        for (size_t r = 0; r < group->count && c < chunks && status == COPSE_OK; r++)
            status = start_read(group, r, slot(group, r, c), chunk_of(from[r], c),
                                &going.fences[c % SLOTS][r], err);
        if (status != COPSE_OK || c + 1 < SLOTS || c + 1 - SLOTS >= chunks)
            continue;
        const size_t due = c + 1 - SLOTS;
        status = drain(group, &going, due, err);
        if (status == COPSE_OK)
            sum_chunk(group, &plan, from[0]->dtype, due, chunk_of(from[0], due).bytes,
                      result);
    }
    return status;
}

copse_status copse_group_reduce_scatter_sum(copse_group *group,
                                            copse_tensor *const from[],
                                            copse_tensor *const to[], copse_error *err) {
    size_t elements;
    copse_status status = check(group, to, to[0]->elements, true, err);
    if (status == COPSE_OK)
        status = times(group, to[0], &elements, err);
    if (status == COPSE_OK)
        status = check(group, from, elements, true, err);
    if (status == COPSE_OK && from[0]->dtype != to[0]->dtype)
        status = copse__fail(err, COPSE_INVALID, 0, "group", "the dtypes differ");
    if (status != COPSE_OK)
        return status;
    char *result = malloc(from[0]->bytes);
    if (result == NULL)
        return copse__fail_nomem(err, from[0]->bytes);
    copse__fence *fences[64] = {0};
    COPSE__TRY(reduce_to_host(group, from, result, err), out);
    for (size_t r = 0; r < group->count; r++)
        COPSE__TRY(start_write(group, r, result + r * to[r]->bytes,
                               copse__tensor_view(to[r]), &fences[r], err),
                   out);
    for (size_t r = 0; r < group->count; r++)
        COPSE__TRY(wait_and_free(group, r, &fences[r], err), out);
out:
    group->broken = status != COPSE_OK;
    if (!group->broken)
        free(result);
    return status;
}
