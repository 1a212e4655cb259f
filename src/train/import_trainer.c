/* SPDX-License-Identifier: Apache-2.0 */
#include "train/import_trainer.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/checkpoint.h"
#include "train/import.h"

typedef struct targets {
    copse__import_target *items;
    copse__state_item *states; /* what the items' names and shapes are of */
    size_t *indices;           /* of the trainer's items */
    size_t count;
} targets;

static void free_targets(targets *all) {
    free(all->items);
    free(all->states);
    free(all->indices);
}

/* Parameters and moving statistics; no optimizer slots. */
static copse_status list_targets(targets *all, const copse__trainer *trainer,
                                 copse_error *err) {
    size_t count = copse__trainer_state_count(trainer);
    const copse__graph *graph = copse__trainer_graph(trainer);
    copse_status status;
    *all = (targets){0};
    COPSE__TRY(copse__calloc(&all->items, count, sizeof *all->items, err), out);
    COPSE__TRY(copse__calloc(&all->states, count, sizeof *all->states, err), out);
    COPSE__TRY(copse__calloc(&all->indices, count, sizeof *all->indices, err), out);
    for (size_t i = 0; i < count; i++) {
        copse__state_item *state = &all->states[all->count];
        copse__import_target *target = &all->items[all->count];
        *state = copse__trainer_state_item(trainer, i);
        if (state->slot)
            continue;
        target->name = state->name;
        target->rank = state->rank;
        memcpy(target->shape, state->shape, sizeof target->shape);
        if (state->rank == 2)
            copse__import_find_image(graph, state->name, target->image);
        all->indices[all->count++] = i;
    }
out:
    return status;
}

copse_status copse__import_into(copse__trainer *trainer, const copse__config_init *init,
                                copse_error *err) {
    copse__weights_file *file = NULL;
    copse__import_match *matches = NULL;
    float *values = NULL;
    targets all;
    copse_status status = list_targets(&all, trainer, err);
    if (status != COPSE_OK)
        goto out;
    COPSE__TRY(copse__checkpoint_verify(init->file, err), out);
    COPSE__TRY(copse__weights_open(&file, init->file, err), out);
    COPSE__TRY(copse__calloc(&matches, all.count, sizeof *matches, err), out);
    COPSE__TRY(copse__import_match_all(file, init->file, all.items, all.count,
                                       init->layout, init->partial, matches, err),
               out);
    for (size_t t = 0; t < all.count; t++) {
        if (matches[t].item == COPSE__NOT_IMPORTED)
            continue;
        free(values);
        COPSE__TRY(copse__calloc(&values, all.states[t].elements, sizeof *values, err),
                   out);
        COPSE__TRY(copse__import_read(file, &all.items[t], &matches[t], values, err),
                   out);
        COPSE__TRY(copse__trainer_state_write(trainer, all.indices[t], values, err), out);
    }
out:
    free(values);
    free(matches);
    copse__weights_close(file);
    free_targets(&all);
    return status;
}
