/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "train/replica_walk.h"

copse_status copse__replica_evaluate(copse__replica *r, const copse__share *share,
                                     const copse__share *next, float *outputs,
                                     copse_error *err) {
    copse_status status = COPSE_OK;
    copse__walk w = copse__walk_begin(r, false, share, next->rows > 0 ? next : NULL);
    r->stage = "while a batch was evaluated";
    copse__replica_begin_results(r, share->rows);
    if (w.count == 0 && w.next)
        return copse__replica_load(r, false, w.next, err);
    for (size_t k = 0; k < w.count; k++) {
        copse__extents extents = copse__walk_extents(&w, k);
        COPSE__TRY(
            copse__program_run(w.program, *w.slot, 0, w.graph->node_count, &extents, err),
            out);
        COPSE__TRY(copse__program_collect(w.program, *w.slot, &extents, err), out);
        COPSE__TRY(copse__walk_upload_next(&w, k, err), out);
        COPSE__TRY(copse__walk_take(&w, k, *w.slot, 0, err), out);
        if (outputs) {
            COPSE__TRY(copse__program_read_output(w.program, &extents, outputs, err),
                       out);
            outputs +=
                copse__tensor_elements(&w.graph->tensors[w.graph->output], &extents);
        }
        copse__walk_turn(&w);
        COPSE__TRY(copse__replica_wanted(r, err), out);
    }
out:
    return status;
}

copse_status copse__replica_trial(copse__replica *r, size_t rows, copse_error *err) {
    copse__extents extents = copse__shard_extents(r->train_graph, rows);
    size_t slot = r->train_slot, end = r->train_graph->node_count;
    copse_status status = copse__program_run(r->train, slot, 0, end, &extents, err);
    if (status == COPSE_OK)
        status = copse__program_collect(r->train, slot, &extents, err);
    return status == COPSE_OK ? copse__program_wait(r->train, slot, UINT64_MAX, err)
                              : status;
}
