/* SPDX-License-Identifier: Apache-2.0 */
#include "train/replica.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plan/fuse.h"

static copse_status build(copse__graph **out, const copse__network *network,
                          size_t max_rows, bool training, copse_error *err) {
    copse__model_options options = network->options;
    options.max_batch = copse__max_size(max_rows, 1);
    options.training = training;
    return copse__model_build(out, network->layers, network->layer_count, &options, err);
}

static copse_status build_graphs(copse__replica *r, const copse__network *network,
                                 bool training, copse_error *err) {
    copse_status status = COPSE_OK;
    if (training)
        status = build(&r->train_graph, network, r->sizes.train_rows, true, err);
    if (status == COPSE_OK)
        status = build(&r->eval_graph, network, r->sizes.eval_rows, false, err);
    return status;
}

/* What is fused depends on what the device can run. */
static copse_status fuse_graphs(copse__replica *r, copse_error *err) {
    copse_status status = COPSE_OK;
    if (r->train_graph)
        status = copse__fuse(r->train_graph, r->device, NULL, err);
    return status == COPSE_OK ? copse__fuse(r->eval_graph, r->device, NULL, err) : status;
}

copse_status copse__replica_open(copse__replica *r, size_t rank,
                                 const copse__device_choice *choice,
                                 const copse__device_options *device_options,
                                 const copse__network *network, copse__sizes sizes,
                                 bool training, copse_error *err) {
    copse_status status;
    *r = (copse__replica){.rank = rank, .sizes = sizes, .stage = "while it was opened"};
    COPSE__TRY(build_graphs(r, network, training, err), fail);
    COPSE__TRY(copse__device_open(&r->device, choice, device_options, err), fail);
    COPSE__TRY(fuse_graphs(r, err), fail);
    return COPSE_OK;
fail:
    copse__replica_close(r);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------- */

size_t copse__layout_bytes(const copse__layout *layout) {
    size_t elements = 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        elements += layout->buckets[b].elements;
    return elements * sizeof(float);
}

/* Of one sum of all gradients on its way to the host. */
static size_t part_bytes(const copse__layout *layout) {
    return copse__max_size(copse__layout_bytes(layout), 4);
}

/* By the functions of those who allocate it. */
static copse_status measure(copse__replica *r, const copse__optimizer *optimizer,
                            copse_error *err) {
    copse_status status = COPSE_OK;
    const copse__plan *plans[] = {r->eval_plan, r->train_plan};
    size_t plan_count = r->train_plan ? 2 : 1;
    size_t bytes = copse__store_bucket_bytes(r->layout), state = 0;
    copse__memory_bytes update = {0};
    copse__replica_memory *m = &r->memory;
    *m = (copse__replica_memory){.weights = bytes};
    m->arena = copse__store_arena_bytes(plans, plan_count);
    for (size_t i = 0; i < plan_count; i++) {
        copse__memory_bytes program = copse__program_bytes(plans[i]);
        m->inputs += program.device;
        m->pinned += program.pinned;
        state = copse__max_size(state, plans[i]->state_bytes);
    }
    m->others = copse__memory_lines(state) + copse__memory_lines(sizeof(copse_scalars));
    if (!r->train_graph)
        return COPSE_OK;
    m->gradients = bytes;
    m->slots = r->slot_count * bytes;
    COPSE__TRY(
        copse__partials_measure(r->device, r->layout, r->sizes.levels, &m->sums, err),
        out);
    COPSE__TRY(copse__updater_measure(r->device, r->layout, optimizer, &update, err),
               out);
    m->others += update.device;
    m->pinned +=
        update.pinned + r->sizes.parts * copse__memory_lines(part_bytes(r->layout));
out:
    return status;
}

/* Bytes that do not depend on the shard's size, and bytes that grow with it. */
static size_t fixed_bytes(const copse__replica *r) {
    const copse__replica_memory *m = &r->memory;
    return m->weights + m->gradients + m->slots + m->sums + m->others;
}

static size_t growing_bytes(const copse__replica *r) {
    return r->memory.arena + r->memory.inputs;
}

copse__memory_bytes copse__replica_bytes(const copse__replica *r) {
    return (copse__memory_bytes){.device = fixed_bytes(r) + growing_bytes(r),
                                 .pinned = r->memory.pinned};
}

size_t copse__replica_room(const copse__replica *r) {
    size_t total = copse__device_get(r->device)->caps.total_bytes;
    size_t fixed = fixed_bytes(r), growing = copse__max_size(growing_bytes(r), 1);
    double fits = (double)copse__max_size(r->sizes.train_rows, 1) *
                  (total > fixed ? (double)(total - fixed) : 0) / (double)growing;
    return fits < 1e15 ? (size_t)fits : SIZE_MAX;
}

/* Says that a device is too small before its driver is asked for what it cannot give. */
static copse_status check_total(const copse__replica *r, copse_error *err) {
    const copse__device_base *base = copse__device_get(r->device);
    size_t fixed = fixed_bytes(r), growing = growing_bytes(r);
    size_t rows = copse__max_size(r->sizes.train_rows, r->sizes.eval_rows);
    if (fixed + growing <= base->caps.total_bytes)
        return COPSE_OK;
    size_t room = base->caps.total_bytes > fixed ? base->caps.total_bytes - fixed : 0;
    double fits = (double)rows * (double)room / (double)growing;
    return copse__fail(
        err, COPSE_DEVICE_MEMORY, 0, base->choice.label,
        "the model needs %zu bytes for parameters and %zu for a shard of "
        "%zu samples, but the device has %zu; a shard of at most %.0f would fit",
        fixed, growing, rows, base->caps.total_bytes, fits);
}

copse_status copse__replica_plan(copse__replica *r, const copse__layout *layout,
                                 const copse__optimizer *optimizer, copse_error *err) {
    r->layout = layout;
    r->slot_count = r->train_graph ? copse__optimizer_slots(optimizer) : 0;
    copse_status status =
        copse__plan_new(&r->eval_plan, r->eval_graph, layout, r->device, err);
    if (status == COPSE_OK && r->train_graph)
        status = copse__plan_new(&r->train_plan, r->train_graph, layout, r->device, err);
    if (status == COPSE_OK)
        status = measure(r, optimizer, err);
    return status == COPSE_OK ? check_total(r, err) : status;
}

/* ---- Preparing ------------------------------------------------------------------------- */

static void free_parts(copse__replica *r) {
    const copse__backend *backend = r->device ? copse__backend_of(r->device) : NULL;
    if (r->parts_read)
        backend->fence_free(r->parts_read);
    r->parts_read = NULL;
    for (size_t i = 0; r->parts && i < r->sizes.parts; i++)
        backend->buffer_free(r->parts[i]);
    free(r->parts);
    free(r->part_ranges);
    r->parts = NULL;
    r->part_ranges = NULL;
}

static copse_status new_parts(copse__replica *r, copse_error *err) {
    size_t count = r->sizes.parts;
    copse_status status = copse__calloc(&r->parts, count, sizeof *r->parts, err);
    if (status == COPSE_OK)
        status = copse__calloc(&r->part_ranges, count, sizeof *r->part_ranges, err);
    for (size_t i = 0; i < count && status == COPSE_OK; i++)
        status = copse__backend_of(r->device)->buffer_new(
            &r->parts[i], r->device, part_bytes(r->layout), COPSE__MEMORY_STAGING, err);
    return status;
}

/* Everything that depends on the sizes; the store is there. */
static copse_status prepare_programs(copse__replica *r, copse_error *err) {
    copse_status status;
    if (r->train_graph) {
        COPSE__TRY(
            copse__program_new(&r->train, r->train_graph, r->train_plan, r->store, err),
            out);
        COPSE__TRY(copse__partials_new(&r->partials, r->store, r->sizes.levels, err),
                   out);
        COPSE__TRY(new_parts(r, err), out);
    }
    COPSE__TRY(copse__program_new(&r->eval, r->eval_graph, r->eval_plan, r->store, err),
               out);
out:
    return status; /* what was made is freed by copse__replica_close */
}

copse_status copse__replica_prepare(copse__replica *r, const copse__optimizer *optimizer,
                                    copse_error *err) {
    copse_status status;
    bool training = r->train_graph != NULL;
    const copse__plan *plans[] = {r->eval_plan, r->train_plan};
    COPSE__TRY(copse__store_new(&r->store, r->device, r->layout, r->slot_count, training,
                                plans, training ? 2 : 1, err),
               out);
    COPSE__TRY(prepare_programs(r, err), out);
    if (training)
        COPSE__TRY(copse__updater_new(&r->updater, r->store, optimizer, err), out);
out:
    return status;
}

/* A device may be thousands of times slower than others; nobody waits for its whole passes before it is known to be
 * wanted. */
#define LONG_PASS_NS UINT64_C(2000000000)
#define FEW 64 /* the part of the rows that is tried first */

static copse_status run_once(copse__program *program, const copse__graph *graph,
                             size_t slot, size_t rows, copse_error *err) {
    copse__extents extents = copse__shard_extents(graph, rows);
    copse_status status =
        copse__program_run(program, slot, 0, graph->node_count, &extents, err);
    if (status == COPSE_OK)
        status = copse__program_collect(program, slot, &extents, err);
    return status == COPSE_OK ? copse__program_wait(program, slot, UINT64_MAX, err)
                              : status;
}

static size_t planned_bytes(const copse__graph *graph) {
    size_t input = copse__tensor_bytes(&graph->tensors[graph->input], NULL);
    return graph->label == COPSE__NO_TENSOR
               ? input
               : copse__max_size(
                     input, copse__tensor_bytes(&graph->tensors[graph->label], NULL));
}

/* A program in each slot, which is all zeros then (labels that are none must never be read), with few rows first; with
 * all that it is made for where that does not take long. *pass_ns: what a pass over these takes, or would by the line
 * through two small ones; *row_ns: what a row adds by that line. */
static copse_status warm_up_program(copse__program *program, const copse__graph *graph,
                                    size_t rows, const void *zeros, uint64_t *pass_ns,
                                    double *row_ns, copse_error *err) {
    const size_t counts[2] = {copse__max_size(rows / FEW, 1),
                              copse__min_size(copse__max_size(rows / FEW, 1) * 4, rows)};
    copse__extents all = copse__shard_extents(graph, rows);
    copse_status status = COPSE_OK;
    double least[2] = {INFINITY, INFINITY};
    for (size_t slot = 0; slot < COPSE__INPUT_SLOTS && status == COPSE_OK; slot++)
        status = copse__program_upload(program, slot, zeros, zeros, &all, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < COPSE__INPUT_SLOTS; i++) /* the first runs may compile */
        for (size_t c = 0; c < 2; c++) {
            uint64_t begun = copse__now_ns();
            status = run_once(program, graph, i, counts[c], err);
            if (status != COPSE_OK)
                return status;
            least[c] = fmin(least[c], (double)(copse__now_ns() - begun));
        }
    *row_ns = counts[1] > counts[0]
                  ? fmax(0, least[1] - least[0]) / (double)(counts[1] - counts[0])
                  : 0;
    double pass = least[1] + (double)(rows - counts[1]) * *row_ns;
    for (size_t slot = 0;
         slot < COPSE__INPUT_SLOTS && counts[1] < rows && pass < (double)LONG_PASS_NS;
         slot++) {
        uint64_t begun = copse__now_ns();
        status = run_once(program, graph, slot, rows, err);
        if (status != COPSE_OK)
            return status;
        pass = (double)(copse__now_ns() - begun);
    }
    *pass_ns = (uint64_t)pass;
    return COPSE_OK;
}

/* Every program once in each slot, and every addition. Gradients and moments are overwritten. */
static copse_status warm_up_programs(copse__replica *r, copse_error *err) {
    copse_status status;
    copse__program *programs[] = {r->eval, r->train};
    const copse__graph *graphs[] = {r->eval_graph, r->train_graph};
    void *zeros;
    r->pass_ns = 0;
    r->row_ns = 0;
    size_t bytes = planned_bytes(r->eval_graph);
    if (r->train_graph)
        bytes = copse__max_size(bytes, planned_bytes(r->train_graph));
    status = copse__calloc(&zeros, bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < COPSE__COUNT(programs) && programs[i]; i++) {
        size_t rows = i == 0 ? r->sizes.eval_rows : r->sizes.train_rows;
        uint64_t took;
        COPSE__TRY(warm_up_program(programs[i], graphs[i], copse__max_size(rows, 1),
                                   zeros, &took, &r->row_ns, err),
                   out);
        r->pass_ns = took > r->pass_ns ? took : r->pass_ns;
    }
    for (size_t l = 0; r->partials && l < r->sizes.levels; l++)
        COPSE__TRY(copse__partials_push(r->partials, err), out);
    for (size_t l = 0; r->partials && l < r->sizes.levels; l++)
        COPSE__TRY(copse__partials_merge(r->partials, err), out);
    COPSE__TRY(copse__backend_of(r->device)->finish(r->device, COPSE__QUEUE_COMPUTE, err),
               out);
out:
    /* Where that fails, too, the device may still read them. */
    if (status == COPSE_OK || copse__backend_of(r->device)->finish(
                                  r->device, COPSE__QUEUE_UPLOAD, NULL) == COPSE_OK)
        free(zeros);
    return status;
}

copse_status copse__replica_warm_up(copse__replica *r, copse_error *err) {
    copse_status status;
    COPSE__TRY(warm_up_programs(r, err), out);
    if (r->updater) {
        uint64_t ignored;
        COPSE__TRY(copse__updater_check(r->updater, 0, err), out);
        COPSE__TRY(copse__updater_checked(r->updater, 0, &ignored, err), out);
        COPSE__TRY(copse__updater_apply(r->updater, err), out);
        COPSE__TRY(copse__updater_hash(r->updater, &ignored, err), out);
    }
    if (r->sizes.parts > 0)
        COPSE__TRY(copse__partials_check(r->partials, err), out);
    COPSE__TRY(copse__store_clear(r->store, err), out);
out:
    return status;
}

/* ---- Other sizes ----------------------------------------------------------------------- */

static void free_programs(copse__replica *r) {
    copse__partials_free(r->partials);
    copse__program_free(r->train);
    copse__program_free(r->eval);
    free_parts(r);
    r->partials = NULL;
    r->train = r->eval = NULL;
}

static void free_plans(copse__replica *r) {
    copse__plan_free(r->train_plan);
    copse__plan_free(r->eval_plan);
    copse__graph_free(r->train_graph);
    copse__graph_free(r->eval_graph);
    r->train_plan = r->eval_plan = NULL;
    r->train_graph = r->eval_graph = NULL;
}

static bool same_sizes(copse__sizes a, copse__sizes b) {
    return a.train_rows == b.train_rows && a.eval_rows == b.eval_rows &&
           a.levels == b.levels && a.parts == b.parts;
}

copse_status copse__replica_resize(copse__replica *r, const copse__network *network,
                                   const copse__optimizer *optimizer, copse__sizes sizes,
                                   copse_error *err) {
    if (same_sizes(r->sizes, sizes))
        return COPSE_OK;
    copse__replica planned = {.rank = r->rank, .device = r->device, .sizes = sizes};
    copse_status status = build_graphs(&planned, network, r->train_graph != NULL, err);
    if (status == COPSE_OK)
        status = fuse_graphs(&planned, err);
    if (status == COPSE_OK)
        status = copse__replica_plan(&planned, r->layout, optimizer, err);
    if (status != COPSE_OK) {
        free_plans(&planned);
        return status;
    }
    free_programs(r);
    free_plans(r);
    r->sizes = sizes;
    r->memory = planned.memory;
    r->train_graph = planned.train_graph;
    r->eval_graph = planned.eval_graph;
    r->train_plan = planned.train_plan;
    r->eval_plan = planned.eval_plan;
    r->train_slot = r->eval_slot = 0;
    const copse__plan *plans[] = {r->eval_plan, r->train_plan};
    COPSE__TRY(copse__store_replan(r->store, plans, r->train_plan ? 2 : 1, err), out);
    COPSE__TRY(prepare_programs(r, err), out);
    COPSE__TRY(warm_up_programs(r, err), out);
out:
    return status;
}

void copse__replica_close(copse__replica *r) {
    if (atomic_load(&r->lost))
        return;
    copse__updater_free(r->updater);
    free_programs(r);
    copse__store_free(r->store);
    free_plans(r);
    copse__device_close(r->device);
    free(r->metrics);
    free(r->moments);
    *r = (copse__replica){0};
}

void copse__replica_forget(copse__replica *r) {
    if (!atomic_load(&r->lost))
        return;
    free_plans(r);
    free(r->metrics);
    free(r->moments);
    free(r->part_ranges);
    r->metrics = r->moments = NULL;
    r->part_ranges = NULL;
}

copse__extents copse__shard_extents(const copse__graph *graph, size_t rows) {
    copse__extents extents = {.of = {[COPSE__BATCH] = rows}};
    const copse__tensor *input = &graph->tensors[graph->input];
    for (size_t d = 0; d < input->rank; d++)
        if (input->dim[d].symbol == COPSE__TIME)
            extents.of[COPSE__TIME] = input->dim[d].size;
    return extents;
}
