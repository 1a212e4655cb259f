/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/stages.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/sum.h"

#define SLOTS 8u
#define TRIES 3
/* Small buckets are copied so often that the driver's answer time is not counted as copying. */
#define LEAST_BYTES ((size_t)4 << 20)

typedef struct stage_rank {
    copse__device *device;
    const copse__backend *backend;
    copse__buffer *buffer, *slots; /* slots NULL: mapped */
} stage_rank;

struct copse__stages {
    stage_rank rank[64];
    size_t ranks, bytes, chunk_bytes;
    copse__sum_plan plan;
    copse__sum_isa isa;
    char *chunks; /* one a rank: what is summed */
};

/* Waits for what a failure left behind. False: the device is lost and keeps its slots. */
static bool is_idle(const stage_rank *rank) {
    return rank->backend->finish(rank->device, COPSE__QUEUE_DOWNLOAD, NULL) == COPSE_OK &&
           rank->backend->finish(rank->device, COPSE__QUEUE_UPLOAD, NULL) == COPSE_OK;
}

copse_status copse__stages_open(copse__stages **out, copse__device *const *devices,
                                copse__buffer *const *buffers,
                                const copse__stage_path *paths, size_t ranks,
                                size_t bytes, size_t chunk_bytes, copse_error *err) {
    *out = NULL;
    copse__stages *made = NULL;
    copse__tree_range parts[64];
    copse_status status = copse__calloc(&made, 1, sizeof *made, err);
    if (status != COPSE_OK)
        return status;
    made->ranks = ranks;
    made->bytes = bytes;
    made->chunk_bytes = chunk_bytes;
    made->isa = copse__sum_isa_best();
    for (size_t r = 0; r < ranks; r++) {
        stage_rank *rank = &made->rank[r];
        *rank = (stage_rank){.device = devices[r],
                             .backend = copse__backend_of(devices[r]),
                             .buffer = buffers[r]};
        parts[r] = (copse__tree_range){r, 1};
        if (paths[r] == COPSE__PATH_MAPPED)
            continue;
        COPSE__TRY(rank->backend->buffer_new(&rank->slots, rank->device,
                                             SLOTS * chunk_bytes, COPSE__MEMORY_STAGING,
                                             err),
                   out);
        memset(rank->backend->buffer_host(rank->slots), 0, SLOTS * chunk_bytes);
    }
    made->chunks = aligned_alloc(4096, ranks * chunk_bytes);
    if (made->chunks == NULL) {
        status = copse__fail_nomem(err, ranks * chunk_bytes);
        goto out;
    }
    memset(made->chunks, 0, ranks * chunk_bytes);
    COPSE__TRY(copse__sum_plan_make(&made->plan, ranks, parts, ranks, err), out);
    *out = made;
    made = NULL;
out:
    copse__stages_close(made);
    return status;
}

void copse__stages_close(copse__stages *stages) {
    if (stages == NULL)
        return;
    for (size_t r = 0; r < stages->ranks; r++)
        if (stages->rank[r].slots != NULL && is_idle(&stages->rank[r]))
            stages->rank[r].backend->buffer_free(stages->rank[r].slots);
    free(stages->chunks);
    free(stages);
}

/* Enqueues all bytes of a rank one way, a chunk a command. */
static copse_status send(copse__stages *stages, stage_rank *rank, bool down,
                         copse_error *err) {
    const copse__queue queue = down ? COPSE__QUEUE_DOWNLOAD : COPSE__QUEUE_UPLOAD;
    copse_status status = COPSE_OK;
    char *slots = rank->backend->buffer_host(rank->slots);
    size_t slot = 0;
    for (size_t at = 0; at < stages->bytes && status == COPSE_OK;
         at += stages->chunk_bytes) {
        const size_t bytes = copse__min_size(stages->chunk_bytes, stages->bytes - at);
        const copse__view view = {rank->buffer, at, bytes};
        char *host = slots + slot++ % SLOTS * stages->chunk_bytes;
        status = down ? rank->backend->read(rank->device, queue, host, view, bytes, NULL,
                                            NULL, err)
                      : rank->backend->write(rank->device, queue, view, host, bytes, NULL,
                                             NULL, err);
    }
    return status == COPSE_OK ? rank->backend->flush(rank->device, queue, err) : status;
}

/* Seconds of the fastest of a few tries. */
static copse_status copy(copse__stages *stages, stage_rank *rank, bool down, bool up,
                         double *seconds, copse_error *err) {
    const size_t rounds = (LEAST_BYTES - 1) / stages->bytes + 1;
    copse_status status = COPSE_OK;
    for (int try = 0; try < TRIES; try++) {
        const uint64_t begin = copse__now_ns();
        for (size_t i = 0; i < rounds; i++) {
            if (down)
                COPSE__TRY(send(stages, rank, true, err), out);
            if (up)
                COPSE__TRY(send(stages, rank, false, err), out);
        }
        if (down)
            COPSE__TRY(rank->backend->finish(rank->device, COPSE__QUEUE_DOWNLOAD, err),
                       out);
        if (up)
            COPSE__TRY(rank->backend->finish(rank->device, COPSE__QUEUE_UPLOAD, err),
                       out);
        const double took = (double)(copse__now_ns() - begin) * 1e-9 / (double)rounds;
        *seconds = try == 0 || took < *seconds ? took : *seconds;
    }
out:
    return status;
}

static double sum_all(const copse__stages *stages) {
    void *at[64];
    for (size_t r = 0; r < stages->ranks; r++)
        at[r] = stages->chunks + r * stages->chunk_bytes;
    copse__sum_found found = {0};
    double best = 0;
    for (int try = 0; try < TRIES; try++) {
        const uint64_t begin = copse__now_ns();
        for (size_t done = 0; done < stages->bytes; done += stages->chunk_bytes)
            copse__sum_run(&stages->plan, stages->isa, COPSE_F32, (const void *const *)at,
                           at, stages->ranks,
                           copse__min_size(stages->chunk_bytes, stages->bytes - done) /
                               sizeof(float),
                           false, &found);
        const double took = (double)(copse__now_ns() - begin) * 1e-9;
        best = try == 0 || took < best ? took : best;
    }
    return best;
}

copse_status copse__stages_run(copse__stages *stages, copse__stage_times *out,
                               copse_error *err) {
    copse_status status = COPSE_OK;
    *out = (copse__stage_times){.sum = sum_all(stages)};
    for (size_t r = 0; r < stages->ranks; r++) {
        stage_rank *rank = &stages->rank[r];
        if (rank->slots == NULL)
            continue;
        COPSE__TRY(copy(stages, rank, true, false, &out->down[r], err), out);
        COPSE__TRY(copy(stages, rank, false, true, &out->up[r], err), out);
        COPSE__TRY(copy(stages, rank, true, true, &out->duplex[r], err), out);
    }
out:
    return status;
}
