/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"

struct copse__slot_entry {
    size_t rank;
    copse__buffer *buffer; /* NULL: plain memory */
    void *address;
};

static bool is_lost(const copse__trainer *t, size_t rank) {
    return atomic_load(&t->replicas[rank].lost);
}

/* On the heap, where it stays if the driver does not come back. */
typedef struct request {
    copse__trainer *trainer;
    size_t bytes;
    copse__buffer *buffer;
} request;

static copse_status alloc_one(size_t rank, void *user, copse_error *err) {
    request *asked = user;
    copse__device *device = asked->trainer->replicas[rank].device;
    return copse__backend_of(device)->buffer_new(&asked->buffer, device, asked->bytes,
                                                 COPSE__MEMORY_STAGING, err);
}

/* Pinned memory of the rank's device, or NULL where there is none to be had. */
static copse_status alloc_pinned(copse__trainer *t, size_t rank, size_t bytes,
                                 copse__buffer **out, copse_error *err) {
    *out = NULL;
    if (is_lost(t, rank))
        return COPSE_OK;
    request *asked;
    copse_error why = {0};
    copse_status status = copse__calloc(&asked, 1, sizeof *asked, err);
    if (status != COPSE_OK)
        return status;
    *asked = (request){.trainer = t, .bytes = bytes};
    status = copse__workers_run_on(t->workers, rank, alloc_one, asked, &why);
    if (status == COPSE_OK)
        *out = asked->buffer;
    if (!copse__workers_is_out(t->workers, rank))
        free(asked);
    if (status == COPSE_DEVICE || status == COPSE_TIMEOUT) {
        copse__trainer_lose(t, rank, status, NULL);
        return COPSE_OK; /* of no use to it any more, but a pipeline wants it */
    }
    if (status == COPSE_DEVICE_MEMORY) {
        copse__log(COPSE_LOG_WARN, "%s: batches travel through plain memory: %s",
                   t->choices[rank].label, why.text);
        return COPSE_OK;
    }
    if (status != COPSE_OK && err)
        *err = why;
    return status;
}

copse_status copse__slot_alloc(void *user, size_t replica, size_t bytes, void **out,
                               copse_error *err) {
    copse__slot_memory *memory = user;
    copse__slot_entry entry = {.rank = replica};
    *out = NULL;
    copse_status status = copse__grow(&memory->entries, &memory->capacity,
                                      memory->count + 1, sizeof *memory->entries, err);
    if (status != COPSE_OK)
        return status;
    bytes = copse__round_up(copse__max_size(bytes, 1), 4);
    status = alloc_pinned(memory->trainer, replica, bytes, &entry.buffer, err);
    if (status == COPSE_OK && !entry.buffer)
        status = copse__calloc(&entry.address, bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    if (entry.buffer)
        entry.address = copse__backend_of(memory->trainer->replicas[replica].device)
                            ->buffer_host(entry.buffer);
    memory->entries[memory->count++] = entry;
    *out = entry.address;
    return COPSE_OK;
}

static copse_status free_one(size_t rank, void *user, copse_error *err) {
    request *asked = user;
    (void)err;
    copse__backend_of(asked->trainer->replicas[rank].device)->buffer_free(asked->buffer);
    return COPSE_OK;
}

/* In the rank's thread, which can be left alone where its driver does not come back from it. */
static void release(const copse__slot_memory *memory, copse__slot_entry entry) {
    copse__trainer *t = memory->trainer;
    request *asked;
    if (!entry.buffer)
        free(entry.address);
    if (!entry.buffer || is_lost(t, entry.rank) ||
        copse__calloc(&asked, 1, sizeof *asked, NULL) != COPSE_OK)
        return;
    *asked = (request){.trainer = t, .buffer = entry.buffer};
    copse_status status =
        copse__workers_run_on(t->workers, entry.rank, free_one, asked, NULL);
    if (status != COPSE_OK)
        copse__trainer_lose(t, entry.rank, status, NULL);
    if (!copse__workers_is_out(t->workers, entry.rank))
        free(asked);
}

void copse__slot_free(void *user, size_t replica, void *address) {
    copse__slot_memory *memory = user;
    for (size_t i = 0; i < memory->count; i++) {
        copse__slot_entry entry = memory->entries[i];
        if (entry.rank != replica || entry.address != address)
            continue;
        release(memory, entry);
        memory->entries[i] = memory->entries[--memory->count];
        break;
    }
    if (memory->count == 0) {
        free(memory->entries);
        *memory = (copse__slot_memory){.trainer = memory->trainer};
    }
}
