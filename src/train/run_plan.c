/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_plan.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/json.h"
#include "train/trainer_private.h"

#define MAX_PLAN_BYTES ((size_t)4 << 20)

/* ---- Writing --------------------------------------------------------------------------- */

static void write_text(copse__text *out, const char *key, const char *value) {
    copse__text_add(out, "\"%s\": ", key);
    copse__json_text(out, value);
}

static void write_providers(copse__text *out, const copse__replica *r) {
    const copse__graph *graph = r->train_graph ? r->train_graph : r->eval_graph;
    const copse__program *program = r->train ? r->train : r->eval;
    copse__text_add(out, ",\n      \"providers\": [");
    for (size_t n = 0; n < graph->node_count; n++) {
        /* A list: several nodes may come from one layer and have its name. */
        copse__text_add(out, "%s\n        { ", n ? "," : "");
        write_text(out, "node", graph->nodes[n].name);
        copse__text_add(out, ", ");
        write_text(out, "op", copse__op_name(graph->nodes[n].op));
        copse__text_add(out, ", ");
        write_text(out, "provider", copse__program_provider(program, n));
        if (copse__program_parameters(program, n)[0]) {
            copse__text_add(out, ", ");
            write_text(out, "parameters", copse__program_parameters(program, n));
        }
        copse__text_add(out, " }");
    }
    copse__text_add(out, "\n      ]");
}

/* The results that nodes have, also those that they cannot follow or that leave the choice to the device: without
 * them a resumed run would follow the one for the whole operation there. */
static void write_tuned(const copse__trainer *t, size_t rank, copse__text *out) {
    const copse__device *device = t->replicas[rank].device;
    const copse__backend *backend = copse__backend_of(device);
    const copse__tune_known *known = &t->tuned[rank];
    const char *joint = "";
    copse__tuning_id id;
    if (!backend->tune)
        return;
    backend->tuning_id(device, &id);
    copse__text_add(out, ",\n      ");
    write_text(out, "kernels", id.sources);
    copse__text_add(out, ", \"tuned\": [");
    for (size_t i = 0; i < known->count; i++) {
        if (!backend->tuned_found(device, i))
            continue;
        copse__text_add(out, "%s\n        { ", joint);
        joint = ",";
        write_text(out, "key", known->entries[i].key);
        copse__text_add(out, ", ");
        write_text(out, "provider", known->entries[i].provider);
        copse__text_add(out, ", ");
        write_text(out, "parameters", known->entries[i].parameters);
        copse__text_add(out, " }");
    }
    copse__text_add(out, "%s]", joint[0] ? "\n      " : "");
}

/* Numbers, not tensors; buckets hold more, as each tensor in them is aligned. */
static size_t count_parameters(const copse__trainer *t) {
    size_t count = 0;
    for (size_t p = 0; p < copse__trainer_main_graph(t)->parameter_count; p++)
        count += t->layout->places[p].elements;
    return count;
}

/* Shards that were changed on the way, so that a resumed run changes them at the same steps. */
static void write_cuts(const copse__trainer *t, copse__text *out) {
    if (t->cuts.count == 0)
        return;
    copse__text_add(out, ",\n  \"cuts\": [");
    for (size_t i = 0; i < t->cuts.count; i++) {
        const char *joint = "";
        copse__text_add(out, "%s\n    { \"step\": %llu, \"shards\": [", i ? "," : "",
                        (unsigned long long)t->cuts.steps[i]);
        for (size_t r = 0; r < t->replica_count; r++) {
            if (copse__trainer_is_lost(t, r))
                continue;
            copse__text_add(out, "%s%zu", joint,
                            t->cuts.shards[i * t->replica_count + r]);
            joint = ", ";
        }
        copse__text_add(out, "] }");
    }
    copse__text_add(out, "\n  ]");
}

copse_status copse__trainer_plan(copse__trainer *t, copse__text *out, copse_error *err) {
    copse__text_add(out,
                    "{\n  \"schema\": \"copse-plan/1\",\n  \"batch\": %zu,\n"
                    "  \"parameters\": %zu,\n  \"buckets\": [",
                    t->batch, count_parameters(t));
    for (size_t b = 0; b < t->layout->bucket_count; b++)
        copse__text_add(out, "%s%zu", b ? ", " : "", t->layout->buckets[b].elements);
    copse__text_add(out, "],\n  \"replicas\": [");
    const char *joint = "";
    for (size_t r = 0; r < t->replica_count; r++) {
        const copse__device_choice *c = &t->choices[r];
        if (copse__trainer_is_lost(t, r))
            continue; /* resumed without it, the run goes on as it does now */
        copse__text_add(out, "%s\n    { ", joint);
        joint = ",";
        write_text(out, "device", c->label);
        copse__text_add(out, ", ");
        write_text(out, "name", c->name);
        copse__text_add(out, ", ");
        write_text(out, "platform", c->platform_name);
        copse__text_add(out, ", ");
        write_text(out, "driver", c->driver);
        copse__text_add(out, ", \"shard\": %zu", t->shards[r]);
        if (t->allreduce && copse__takes_part(t, r)) {
            copse__text_add(out, ", ");
            write_text(out, "staging",
                       copse__allreduce_path(t->allreduce, t->engine_ranks[r]) ==
                               COPSE__PATH_MAPPED
                           ? "mapped"
                           : "copied");
        }
        write_tuned(t, r, out);
        write_providers(out, &t->replicas[r]);
        copse__text_add(out, "\n    }");
    }
    copse__text_add(out, "\n  ]");
    write_cuts(t, out);
    copse__text_add(out, "\n}\n");
    return copse__text_check(out, err);
}

/* ---- Reading --------------------------------------------------------------------------- */

struct copse__run_plan {
    json_t *replicas;
    size_t count;
    size_t *shards;
    copse__cuts cuts;
    copse__tuned_list *tuned; /* by replica */
};

/* The shards are those of the whole batch. */
static copse_status check_batch(const copse__run_plan *plan, const json_t *root,
                                const char *path, copse_error *err) {
    size_t sum = 0;
    bool fits = true;
    for (size_t r = 0; r < plan->count; r++)
        fits &= copse__add_size(sum, plan->shards[r], &sum);
    json_int_t batch = json_integer_value(json_object_get(root, "batch"));
    return fits && batch > 0 && (size_t)batch == sum
               ? COPSE_OK
               : copse__fail(err, COPSE_FORMAT, 0, path,
                             "its shards do not add up to its batch of %lld samples; "
                             "remove the file, and the checkpoint's is taken",
                             (long long)batch);
}

/* One change of shards: {"step": 110, "shards": [96, 32]}, which add up as those of the plan do. */
static copse_status parse_cut(copse__run_plan *plan, json_t *cut, uint64_t *last,
                              bool *good, copse_error *err) {
    json_t *step = json_object_get(cut, "step"), *shards = json_object_get(cut, "shards");
    size_t *values, sum = 0, wanted = 0;
    json_int_t at = json_integer_value(step);
    *good = json_is_integer(step) && at >= 0 && json_array_size(shards) == plan->count &&
            (plan->cuts.count == 0 || (uint64_t)at > *last);
    if (!*good)
        return COPSE_OK;
    *last = (uint64_t)at;
    copse_status status = copse__calloc(&values, plan->count, sizeof *values, err);
    for (size_t r = 0; r < plan->count && status == COPSE_OK; r++) {
        json_int_t value = json_integer_value(json_array_get(shards, r));
        *good = *good && value >= 0 && copse__add_size(sum, (size_t)value, &sum);
        values[r] = (size_t)value;
        wanted += plan->shards[r];
    }
    *good = *good && sum == wanted;
    if (status == COPSE_OK)
        status = copse__cuts_add(&plan->cuts, plan->count, *last, values, err);
    free(values);
    return status;
}

static copse_status parse_cuts(copse__run_plan *plan, json_t *root, const char *path,
                               copse_error *err) {
    json_t *cuts = json_object_get(root, "cuts");
    uint64_t last = 0;
    for (size_t i = 0; i < json_array_size(cuts); i++) {
        bool good;
        copse_status status = parse_cut(plan, json_array_get(cuts, i), &last, &good, err);
        if (status != COPSE_OK)
            return status;
        if (!good)
            return copse__fail(
                err, COPSE_FORMAT, 0, path,
                "change %zu of its shards is damaged; remove the file, and "
                "the checkpoint's is taken",
                i + 1);
    }
    return COPSE_OK;
}

/* A replica's "tuned": [{"key", "provider", "parameters"}]; a plan of before there was such a list has none. Texts
 * are those of the JSON. */
static copse_status parse_tuned(json_t *replica, copse__tuned_list *out, bool *good,
                                copse_error *err) {
    json_t *list = json_object_get(replica, "tuned");
    copse__tuned *entries;
    out->kernels = json_string_value(json_object_get(replica, "kernels"));
    *good = !list || json_is_array(list);
    if (!*good || json_array_size(list) == 0)
        return COPSE_OK;
    copse_status status =
        copse__calloc(&entries, json_array_size(list), sizeof *entries, err);
    if (status != COPSE_OK)
        return status;
    out->entries = entries;
    out->count = json_array_size(list);
    for (size_t i = 0; i < out->count; i++) {
        json_t *from = json_array_get(list, i);
        entries[i].key = json_string_value(json_object_get(from, "key"));
        entries[i].provider = json_string_value(json_object_get(from, "provider"));
        entries[i].parameters = json_string_value(json_object_get(from, "parameters"));
        *good = *good && entries[i].key && entries[i].provider && entries[i].parameters;
    }
    return COPSE_OK;
}

static copse_status parse_all_tuned(copse__run_plan *plan, json_t *replicas,
                                    const char *path, copse_error *err) {
    copse_status status =
        copse__calloc(&plan->tuned, plan->count, sizeof *plan->tuned, err);
    for (size_t r = 0; r < plan->count && status == COPSE_OK; r++) {
        bool good;
        status = parse_tuned(json_array_get(replicas, r), &plan->tuned[r], &good, err);
        if (status == COPSE_OK && !good)
            status = copse__fail(err, COPSE_FORMAT, 0, path,
                                 "what replica %zu was tuned to is damaged; remove the "
                                 "file, and the checkpoint's is taken",
                                 r);
    }
    return status;
}

static copse_status read_plan(copse__run_plan *plan, const char *path, const char *data,
                              size_t bytes, copse_error *err) {
    json_error_t why;
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &why);
    json_t *replicas = json_object_get(root, "replicas");
    copse_status status = COPSE_OK;
    if (!json_is_array(replicas) || json_array_size(replicas) == 0) {
        status = copse__fail(err, COPSE_FORMAT, 0, path,
                             "it is no plan of a run%s%s; remove it, and the "
                             "checkpoint's is taken",
                             root ? "" : ": ", root ? "" : why.text);
        goto out;
    }
    plan->count = json_array_size(replicas);
    COPSE__TRY(copse__calloc(&plan->shards, plan->count, sizeof *plan->shards, err), out);
    for (size_t r = 0; r < plan->count; r++) {
        json_t *shard = json_object_get(json_array_get(replicas, r), "shard");
        if (!json_is_integer(shard) || json_integer_value(shard) < 0) {
            status = copse__fail(err, COPSE_FORMAT, 0, path,
                                 "replica %zu has no shard; remove the file, and the "
                                 "checkpoint's is taken",
                                 r);
            goto out;
        }
        plan->shards[r] = (size_t)json_integer_value(shard);
    }
    COPSE__TRY(check_batch(plan, root, path, err), out);
    COPSE__TRY(parse_cuts(plan, root, path, err), out);
    COPSE__TRY(parse_all_tuned(plan, replicas, path, err), out);
    plan->replicas = json_incref(replicas);
out:
    json_decref(root);
    return status;
}

copse_status copse__run_plan_parse(copse__run_plan **out, const char *place,
                                   const char *data, size_t bytes, copse_error *err) {
    copse__run_plan *plan;
    *out = NULL;
    copse_status status = copse__calloc(&plan, 1, sizeof *plan, err);
    if (status == COPSE_OK)
        status = read_plan(plan, place, data, bytes, err);
    if (status == COPSE_OK)
        *out = plan;
    else
        copse__run_plan_free(plan);
    return status;
}

copse_status copse__run_plan_load(copse__run_plan **out, const copse__run_folder *folder,
                                  const char *copy, copse_error *err) {
    copse_status status;
    char *path = NULL, *data = NULL;
    size_t bytes;
    *out = NULL;
    COPSE__TRY(copse__run_folder_file(folder, "plan.json", &path, err), out);
    bool there = copse__file_exists(path);
    if (!there && (!copy || !*copy))
        goto out;
    if (there)
        COPSE__TRY(copse__file_read(&data, &bytes, path, MAX_PLAN_BYTES, err), out);
    else
        copse__log(COPSE_LOG_WARN, "%s is gone; the checkpoint's copy is taken", path);
    status = copse__run_plan_parse(out, path, there ? data : copy,
                                   there ? bytes : strlen(copy), err);
out:
    free(data);
    free(path);
    return status;
}

void copse__run_plan_free(copse__run_plan *plan) {
    if (!plan)
        return;
    json_decref(plan->replicas);
    for (size_t r = 0; plan->tuned && r < plan->count; r++)
        free((void *)(size_t)plan->tuned[r].entries);
    free(plan->tuned);
    free(plan->shards);
    copse__cuts_free(&plan->cuts);
    free(plan);
}

static bool same_text(json_t *replica, const char *key, const char *value) {
    const char *recorded = json_string_value(json_object_get(replica, key));
    return recorded && strcmp(recorded, value) == 0;
}

void copse__run_plan_devices(const copse__run_plan *plan, copse__text *out) {
    for (size_t r = 0; r < plan->count; r++) {
        const char *label = json_string_value(
            json_object_get(json_array_get(plan->replicas, r), "device"));
        copse__text_add(out, "%s%s", r ? ", " : "", label ? label : "?");
    }
}

const size_t *copse__run_plan_match(const copse__run_plan *plan,
                                    const copse__device_choice *choices,
                                    size_t choice_count, uint64_t step) {
    if (plan->count != choice_count)
        return NULL;
    for (size_t r = 0; r < choice_count; r++) {
        json_t *replica = json_array_get(plan->replicas, r);
        if (!same_text(replica, "device", choices[r].label) ||
            !same_text(replica, "name", choices[r].name) ||
            !same_text(replica, "driver", choices[r].driver))
            return NULL;
    }
    const size_t *shards = plan->shards;
    for (size_t i = 0; i < plan->cuts.count; i++)
        if (i == 0 || plan->cuts.steps[i] <= step)
            shards = plan->cuts.shards + i * plan->count;
    return shards;
}

const copse__cuts *copse__run_plan_cuts(const copse__run_plan *plan) {
    return &plan->cuts;
}

const copse__tuned_list *copse__run_plan_tuned(const copse__run_plan *plan) {
    return plan->tuned;
}

bool copse__run_plan_same_kernels(const copse__run_plan *plan, const char *now) {
    json_t *root = json_loads(now, 0, NULL);
    json_t *replicas = json_object_get(root, "replicas");
    bool same = json_array_size(replicas) == plan->count;
    for (size_t r = 0; r < plan->count && same; r++) {
        json_t *before = json_array_get(plan->replicas, r);
        json_t *own = json_array_get(replicas, r);
        json_t *providers = json_object_get(before, "providers");
        /* Other shards, from before or after a change of them, may well have others. */
        same = !providers ||
               !json_equal(json_object_get(before, "shard"),
                           json_object_get(own, "shard")) ||
               json_equal(providers, json_object_get(own, "providers"));
    }
    json_decref(root);
    return same;
}
