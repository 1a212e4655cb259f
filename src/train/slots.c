/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "train/trainer_private.h"

copse_status copse__slot_alloc(void *user, size_t replica, size_t bytes, void **out,
                               copse_error *err) {
    copse__slot_memory *memory = user;
    *out = NULL;
    size_t before = memory->capacity;
    copse_status status = copse__grow(&memory->buffers, &memory->capacity,
                                      memory->count + 1, sizeof *memory->buffers, err);
    if (status == COPSE_OK && memory->capacity != before) {
        void *ranks = realloc(memory->ranks, memory->capacity * sizeof *memory->ranks);
        if (!ranks)
            return copse__fail_nomem(err, memory->capacity * sizeof *memory->ranks);
        memory->ranks = ranks;
    }
    if (status != COPSE_OK)
        return status;
    copse__device *device = memory->trainer->replicas[replica].device;
    const copse__backend *backend = copse__backend_of(device);
    copse__buffer *buffer;
    status = backend->buffer_new(&buffer, device, copse__round_up(bytes ? bytes : 1, 4),
                                 COPSE__MEMORY_STAGING, err);
    if (status != COPSE_OK)
        return status;
    memory->buffers[memory->count] = buffer;
    memory->ranks[memory->count++] = replica;
    *out = backend->buffer_host(buffer);
    return COPSE_OK;
}

void copse__slot_free(void *user, size_t replica, void *address) {
    copse__slot_memory *memory = user;
    const copse__backend *backend =
        copse__backend_of(memory->trainer->replicas[replica].device);
    for (size_t i = 0; i < memory->count; i++) {
        if (memory->ranks[i] != replica ||
            backend->buffer_host(memory->buffers[i]) != address)
            continue;
        backend->buffer_free(memory->buffers[i]);
        memory->count--;
        memory->buffers[i] = memory->buffers[memory->count];
        memory->ranks[i] = memory->ranks[memory->count];
        break;
    }
    if (memory->count == 0) {
        free(memory->buffers);
        free(memory->ranks);
        *memory = (copse__slot_memory){.trainer = memory->trainer};
    }
}
