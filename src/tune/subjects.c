/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tune/tuner.h"

static copse__node_operand operand(const copse__graph *graph, copse__tensor_id id) {
    copse__node_operand made = {0};
    if (id == COPSE__NO_TENSOR)
        return made;
    const copse__tensor *tensor = &graph->tensors[id];
    made.present = true;
    made.dtype = tensor->dtype;
    made.rank = tensor->rank;
    memcpy(made.dim, tensor->dim, sizeof made.dim);
    return made;
}

static copse__node_spec spec_of(const copse__graph *graph, const copse__node *node) {
    copse__node_spec spec = {.op = node->op, .attrs = node->attrs};
    for (size_t i = 0; i < node->input_count; i++)
        spec.in[i] = operand(graph, node->inputs[i]);
    for (size_t i = 0; i < node->output_count; i++)
        spec.out[i] = operand(graph, node->outputs[i]);
    return spec;
}

static void count_one(const char *provider, const char *parameters, bool general,
                      void *user) {
    (void)general;
    (void)provider;
    (void)parameters;
    ++*(size_t *)user;
}

/* Whether an output lies in an input's memory: such a node cannot be run alone as it is here. */
static bool is_in_place(const copse__graph *graph, const copse__node *node) {
    for (size_t o = 0; o < node->output_count; o++)
        for (size_t i = 0; i < node->input_count; i++)
            if (node->outputs[o] != COPSE__NO_TENSOR &&
                node->inputs[i] != COPSE__NO_TENSOR &&
                graph->tensors[node->outputs[o]].storage ==
                    graph->tensors[node->inputs[i]].storage)
                return true;
    return false;
}

static int by_weight(const void *a, const void *b) {
    const copse__tune_subject *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return strcmp(x->key, y->key);
}

copse_status copse__tune_list_spec(copse__tune_list *list, const char *key,
                                   const copse__node_spec *spec, double weight,
                                   copse_error *err) {
    copse__tune_subject *to = NULL;
    copse_status status;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->subjects[i].key, key) == 0)
            to = &list->subjects[i];
    if (!to) {
        status = copse__grow(&list->subjects, &list->capacity, list->count + 1,
                             sizeof *list->subjects, err);
        if (status != COPSE_OK)
            return status;
        to = &list->subjects[list->count++];
        *to = (copse__tune_subject){.weight = 0};
        strncpy(to->key, key, sizeof to->key - 1);
    }
    copse__node_spec *grown =
        realloc(to->specs, (to->spec_count + 1) * sizeof *to->specs);
    if (!grown)
        return copse__fail_nomem(err, (to->spec_count + 1) * sizeof *to->specs);
    to->specs = grown;
    to->specs[to->spec_count++] = *spec;
    to->weight += weight;
    return COPSE_OK;
}

copse_status copse__tune_list_graph(copse__tune_list *list, copse__device *device,
                                    const copse__graph *graph, double least_flops,
                                    copse_error *err) {
    const copse__backend *backend = copse__backend_of(device);
    for (size_t n = 0; n < graph->node_count; n++) {
        const copse__node *node = &graph->nodes[n];
        char key[COPSE__TUNED_KEY];
        size_t ways = 0;
        double flops = copse__node_flops(graph, node, NULL);
        if (flops < least_flops || is_in_place(graph, node))
            continue;
        backend->candidates(device, graph, node, COPSE__EFFORT_THOROUGH, count_one,
                            &ways);
        if (ways < 2)
            continue;
        copse__tuned_key(key, graph, node);
        bool known = false;
        for (size_t i = 0; i < list->count && !known; i++) {
            known = strcmp(list->subjects[i].key, key) == 0;
            list->subjects[i].weight += known ? flops : 0;
        }
        if (known)
            continue;
        const copse__node_spec spec = spec_of(graph, node);
        copse_status status = copse__tune_list_spec(list, key, &spec, flops, err);
        if (status != COPSE_OK)
            return status;
    }
    if (list->count > 1)
        qsort(list->subjects, list->count, sizeof *list->subjects, by_weight);
    return COPSE_OK;
}

void copse__tune_list_free(copse__tune_list *list) {
    for (size_t i = 0; i < list->count; i++)
        free(list->subjects[i].specs);
    free(list->subjects);
    *list = (copse__tune_list){0};
}
