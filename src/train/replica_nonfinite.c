/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "train/replica_walk.h"

static bool is_finite(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* False where they are not; what cannot be read is not looked at. */
static bool outputs_are_finite(const copse__walk *w, const copse__node *node,
                               const copse__extents *extents) {
    bool fine = true;
    for (size_t o = 0; o < node->output_count && fine; o++) {
        copse__tensor_id id = node->outputs[o];
        if (id == COPSE__NO_TENSOR || w->graph->tensors[id].dtype != COPSE_F32)
            continue;
        size_t count = copse__tensor_elements(&w->graph->tensors[id], extents);
        float *values = NULL;
        if (copse__calloc(&values, count, sizeof *values, NULL) != COPSE_OK)
            return true;
        if (copse__program_read_tensor(w->program, id, extents, values, NULL) != COPSE_OK)
            return true; /* the device may still be at it: the memory stays */
        fine = is_finite(values, count);
        free(values);
    }
    return fine;
}

const char *copse__replica_find_nonfinite(copse__replica *r, const copse__step *step) {
    copse__walk w = copse__walk_begin(r, true, &step->share, NULL);
    for (size_t k = 0; k < w.count; k++) {
        copse__share part = copse__walk_share(&w, w.share, k);
        copse__extents extents = copse__walk_extents(&w, k);
        if (copse__walk_upload(&w, *w.slot, part, NULL) != COPSE_OK ||
            copse__replica_send_scalars(r, step, part.first_row, NULL) != COPSE_OK)
            return NULL;
        for (size_t n = 0; n < w.graph->node_count; n++) {
            const copse__node *node = &w.graph->nodes[n];
            if (copse__program_run(w.program, *w.slot, n, n + 1, &extents, NULL) !=
                COPSE_OK)
                return NULL;
            if (!outputs_are_finite(&w, node, &extents))
                return node->name;
        }
    }
    return NULL;
}
