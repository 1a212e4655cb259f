/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "topo/model.h"

size_t copse__balanced_tree(uint32_t n, copse__merge *out) {
    size_t count = 0;
    uint32_t level = 0;
    for (uint64_t stride = 1; stride < n; stride *= 2, level++)
        for (uint64_t i = 0; i + stride < n; i += 2 * stride)
            out[count++] = (copse__merge){(uint32_t)i, (uint32_t)(i + stride), level};
    return count;
}

static const copse__measure *find_measure(const copse__topo *topo, int handle,
                                          const char *what, const char *path) {
    const copse__measure *best = NULL;
    for (size_t i = 0; i < topo->measure_count; i++) {
        const copse__measure *m = &topo->measures[i];
        if (m->handle != handle || strcmp(m->what, what) != 0 || !m->verified ||
            m->devices > 1 || (path && strcmp(m->path, path) != 0))
            continue;
        if (!best || m->median > best->median)
            best = m;
    }
    return best;
}

static double rate(const copse__topo *topo, int handle, const char *what,
                   const char *path) {
    const copse__measure *m = find_measure(topo, handle, what, path);
    return m ? m->median : 0;
}

/* Seconds that a GB takes down and up again through its memory's mapping; infinite where that was not
 * measured, 0 where nothing moves. */
static double mapping_time(const copse__topo *topo, const copse__rank *rank) {
    const copse__measure *down = find_measure(topo, rank->handle, "d2h", "map");
    const copse__measure *up = find_measure(topo, rank->handle, "h2d", "map");
    if (!down || !up)
        return INFINITY;
    return (down->moves ? 1 / down->median : 0) + (up->moves ? 1 / up->median : 0);
}

/* Of the copies the path whose slower direction is fastest; mapping where memory is the host's and that
 * takes less time, or where nothing is known of either. */
static void choose_path(const copse__topo *topo, copse__rank *rank, bool unified) {
    static const char *const paths[] = {"read_pinned", "copy_pinned", "use_host_ptr"};
    double best = 0;
    for (size_t i = 0; i < COPSE__COUNT(paths); i++) {
        const copse__measure *down = find_measure(topo, rank->handle, "d2h", paths[i]);
        const copse__measure *up = find_measure(topo, rank->handle, "h2d", paths[i]);
        if (!down || !up || !down->moves || !up->moves ||
            fmin(down->median, up->median) <= best)
            continue;
        best = fmin(down->median, up->median);
        copse__put(rank->path, sizeof rank->path, "%s", paths[i]);
        rank->down = down->median;
        rank->up = up->median;
        rank->duplex = rate(topo, rank->handle, "duplex", paths[i]);
    }
    double mapping = unified ? mapping_time(topo, rank) : INFINITY;
    rank->measured = best > 0 || isfinite(mapping);
    rank->mapped = unified && (!rank->measured || best == 0 ||
                               mapping < 1 / rank->down + 1 / rank->up);
    if (!rank->mapped)
        return;
    copse__put(rank->path, sizeof rank->path, "map");
    rank->down = rank->up = rank->duplex = 0;
}

static const copse__handle *handle_of(const copse__topo *topo,
                                      const copse__device_choice *choice) {
    for (size_t i = 0; i < topo->handle_count; i++)
        if (choice->api == COPSE__API_OPENCL &&
            topo->handles[i].platform == choice->platform_index &&
            topo->handles[i].device == choice->device_index)
            return &topo->handles[i];
    return NULL;
}

static void fill_rank(const copse__topo *topo, copse__rank *rank,
                      const copse__device_choice *choice) {
    const copse__handle *h = handle_of(topo, choice);
    *rank = (copse__rank){
        .choice = *choice, .physical = -1, .handle = -1, .weight = choice->weight};
    if (h) {
        rank->physical = h->physical;
        rank->handle = (int)(h - topo->handles);
    }
    if (rank->weight <= 0 && h)
        rank->weight = rate(topo, rank->handle, "gemm_f32", NULL) /
                       (choice->part_count ? choice->part_count : 1);
    choose_path(topo, rank, !h || h->unified == 1);
}

static void hash_order(copse__rank_plan *plan) {
    copse__text text = {0};
    for (uint32_t i = 0; i < plan->count; i++) {
        const copse__device_choice *c = &plan->ranks[i].choice;
        copse__text_add(&text, "%s|%s|%s|%u/%u\n", c->platform_name, c->name, c->driver,
                        c->part_index, c->part_count);
    }
    copse__hash128_hex(plan->hash,
                       copse__hash128_of(text.data ? text.data : "", text.length));
    copse__text_free(&text);
}

static double link_time(const copse__rank_plan *plan, double bytes) {
    double worst = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const copse__rank *r = &plan->ranks[i];
        if (r->mapped)
            continue;
        if (r->down <= 0 || r->up <= 0)
            return -1;
        worst = fmax(worst, bytes / (r->down * 1e9));
        worst = fmax(worst, bytes / (r->up * 1e9));
        if (r->duplex > 0)
            worst = fmax(worst, 2 * bytes / (r->duplex * 1e9));
    }
    return worst;
}

static void model(copse__rank_plan *plan, double bytes) {
    double n = plan->count, moved = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        moved += plan->ranks[i].mapped ? 2 : 4;
    plan->link_s = plan->memory_s = plan->cpu_s = plan->count < 2 ? 0 : -1;
    plan->bound = "";
    if (plan->count < 2)
        return;
    plan->link_s = link_time(plan, bytes);
    plan->memory_s = plan->memory_rate > 0 ? moved * bytes / plan->memory_rate : -1;
    plan->cpu_s = plan->sum_rate > 0 ? n * bytes / plan->sum_rate : -1;
    if (plan->link_s < 0 || plan->memory_s < 0 || plan->cpu_s < 0)
        return;
    plan->bound = plan->link_s >= plan->memory_s && plan->link_s >= plan->cpu_s ? "link"
                  : plan->memory_s >= plan->cpu_s                               ? "mem"
                                                                                : "cpu";
}

copse_status copse__rank_plan_make(copse__rank_plan **out, const copse__topo *topo,
                                   const copse__device_choice *choices, size_t count,
                                   uint64_t gradient_bytes, copse_error *err) {
    copse__rank_plan *plan = NULL;
    *out = NULL;
    copse_status status = copse__calloc(&plan, 1, sizeof *plan, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&plan->ranks, count, sizeof plan->ranks[0], err), out);
    COPSE__TRY(copse__calloc(&plan->merges, count, sizeof plan->merges[0], err), out);
    plan->count = (uint32_t)count;
    plan->weights_known = true;
    for (size_t i = 0; i < count; i++) {
        fill_rank(topo, &plan->ranks[i], &choices[i]);
        plan->weights_known = plan->weights_known && plan->ranks[i].weight > 0;
    }
    copse__balanced_tree(plan->count, plan->merges);
    plan->memory_rate = 1e9 * rate(topo, -1, "host_copy", NULL);
    plan->sum_rate = 1e9 * rate(topo, -1, "host_sum", NULL);
    hash_order(plan);
    model(plan, (double)gradient_bytes);
out:
    if (status != COPSE_OK)
        copse__rank_plan_free(plan);
    else
        *out = plan;
    return status;
}

void copse__rank_plan_free(copse__rank_plan *plan) {
    if (!plan)
        return;
    free(plan->ranks);
    free(plan->merges);
    free(plan);
}
