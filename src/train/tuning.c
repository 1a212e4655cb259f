/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"
#include "tune/first_use.h"

/* What a run's devices follow: a recorded plan's choices, or what is known of each device; where nothing is
 * known of a heavy node yet, a few seconds of measuring, whose results are kept and recorded. */

/* At first use, for all replicas. */
#define FIRST_USE_SECONDS 3.0
/* A lighter node ends in less than about 0.1 ms: its choice hardly matters, and is hard to measure. */
#define HEAVY_FLOPS 5e6

typedef struct turn {
    copse__trainer *trainer;
    const copse__trainer_options *options;
    const char *cache_folder;
    size_t rank;
    double seconds; /* left for measuring */
} turn;

static copse_status follow(copse__trainer *t, size_t rank, copse_error *err) {
    const copse__tune_known *known = &t->tuned[rank];
    copse__device *device = t->replicas[rank].device;
    return copse__backend_of(device)->tune(device, known->entries, known->count, err);
}

static bool may_measure(const turn *now) {
    const copse__trainer *t = now->trainer;
    return t->training && !now->options->plan_only && now->cache_folder &&
           strcmp(t->config->devices.tune, "auto") == 0 && now->seconds > 0;
}

static copse_status take_recorded(copse__tune_known *to, const copse__tuned_list *from,
                                  copse_error *err) {
    copse_status status =
        copse__calloc(&to->entries, from->count, sizeof *to->entries, err);
    if (status == COPSE_OK)
        status = copse__calloc(&to->origins, from->count, sizeof *to->origins, err);
    for (size_t i = 0; i < from->count && status == COPSE_OK; i++) {
        const copse__tuned *e = &from->entries[i];
        char *key, *provider = NULL, *parameters = NULL;
        status = copse__pool_strdup(&to->user.pool, &key, e->key, err);
        if (status == COPSE_OK)
            status = copse__pool_strdup(&to->user.pool, &provider, e->provider, err);
        if (status == COPSE_OK)
            status = copse__pool_strdup(&to->user.pool, &parameters, e->parameters, err);
        to->entries[i] = (copse__tuned){key, provider, parameters};
        to->origins[i] = "plan.json";
    }
    to->count = status == COPSE_OK ? from->count : 0;
    return status;
}

/* The recorded choices of this rank; NULL where none are to be followed. */
static const copse__tuned_list *recorded(const turn *now) {
    const copse__trainer *t = now->trainer;
    const copse__device *device = t->replicas[now->rank].device;
    const copse__tuned_list *list =
        now->options->tuned ? &now->options->tuned[now->rank] : NULL;
    copse__tuning_id id;
    if (!list || !list->kernels)
        return list;
    copse__backend_of(device)->tuning_id(device, &id);
    if (strcmp(list->kernels, id.sources) == 0)
        return list;
    if (list->count > 0)
        copse__log(
            COPSE_LOG_WARN,
            "%s: the run was planned with the kernels of another version of copse: "
            "what was tuned then is not used, and its numbers are equal up to "
            "rounding only",
            t->choices[now->rank].label);
    return NULL;
}

static copse_status find(const turn *now, copse_error *err) {
    const copse__trainer *t = now->trainer;
    const char *how = t->config->devices.tune;
    if (recorded(now))
        return take_recorded(&t->tuned[now->rank], recorded(now), err);
    /* Whole devices and parts of them are tuned apart, but must give the same bits there. */
    if (t->config->train.reproducible == COPSE__REPRODUCIBLE_DEVICES)
        how = "off";
    return copse__tune_known_open(&t->tuned[now->rank], t->replicas[now->rank].device,
                                  how, now->cache_folder, err);
}

static bool has_unknown(const copse__tune_list *list, const copse__tune_known *known) {
    for (size_t i = 0; i < list->count; i++)
        if (!copse__tune_known_has(known, list->subjects[i].key))
            return true;
    return false;
}

static copse_status tune_one(size_t rank, void *user, copse_error *err) {
    turn *now = user;
    copse__trainer *t = now->trainer;
    copse__tune_list list = {0};
    if (rank != now->rank || !copse__backend_of(t->replicas[rank].device)->tune)
        return COPSE_OK;
    t->replicas[rank].stage = "while its kernels were timed";
    copse_status status = find(now, err);
    if (status == COPSE_OK)
        status = follow(t, rank, err);
    if (status != COPSE_OK || now->options->tuned || !may_measure(now) ||
        t->config->train.reproducible == COPSE__REPRODUCIBLE_DEVICES)
        return status;
    status = copse__tune_list_graph(&list, t->replicas[rank].device,
                                    t->replicas[rank].train_graph, HEAVY_FLOPS, err);
    if (status == COPSE_OK && has_unknown(&list, &t->tuned[rank])) {
        copse__trainer_tell(t, "timing kernels for this network, once");
        status = copse__tune_first_use(&t->tuned[rank], t->replicas[rank].device, &list,
                                       now->cache_folder, now->seconds, err);
        if (status == COPSE_OK)
            status = follow(t, rank, err);
    }
    copse__tune_list_free(&list);
    return status;
}

/* One after the other: devices may share what they are measured with, and equal ones their results. */
copse_status copse__trainer_tune(copse__trainer *t, const copse__trainer_options *options,
                                 const char *cache_folder, copse_error *err) {
    turn now = {.trainer = t,
                .options = options,
                .cache_folder = cache_folder,
                .seconds = FIRST_USE_SECONDS / (double)t->replica_count};
    copse_status status =
        copse__calloc(&t->tuned, t->replica_count, sizeof *t->tuned, err);
    for (now.rank = 0; now.rank < t->replica_count && status == COPSE_OK; now.rank++)
        status = copse__workers_run(t->workers, tune_one, &now, NULL, err);
    return status;
}

/* Those that some launch follows, with where they are from. */
void copse__trainer_tell_tuned(const copse__trainer *t, size_t rank) {
    const copse__device *device = t->replicas[rank].device;
    const copse__tune_known *known = &t->tuned[rank];
    if (!t->tuned || !copse__backend_of(device)->tuned_used ||
        !copse__log_wanted(COPSE_LOG_INFO))
        return;
    for (size_t i = 0; i < known->count; i++)
        if (copse__backend_of(device)->tuned_used(device, i))
            copse__log(COPSE_LOG_INFO, "%s: %s: %s%s%s (%s)", t->choices[rank].label,
                       known->entries[i].key, known->entries[i].provider,
                       known->entries[i].parameters[0] ? " " : "",
                       known->entries[i].parameters, known->origins[i]);
}

void copse__trainer_free_tuned(copse__trainer *t) {
    for (size_t r = 0; t->tuned && r < t->replica_count; r++)
        copse__tune_known_close(&t->tuned[r]);
    free(t->tuned);
    t->tuned = NULL;
}

copse_status copse__trainer_list_nodes(const copse__trainer *t, size_t rank,
                                       copse__tune_list *list, copse_error *err) {
    const copse__replica *r = &t->replicas[rank];
    if (!copse__backend_of(r->device)->candidates)
        return COPSE_OK;
    copse_status status = copse__tune_list_graph(list, r->device, r->eval_graph, 1, err);
    if (status == COPSE_OK && r->train_graph)
        status = copse__tune_list_graph(list, r->device, r->train_graph, 1, err);
    return status;
}

copse__device *copse__trainer_device(const copse__trainer *t, size_t rank) {
    return t->replicas[rank].device;
}
