/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <math.h>
#include <philox.clh>
#include <stdio.h>
#include <string.h>

#include "backend/host/host.h"
#include "graph/layer.h"

/* Thousands of networks at random, sensible and hostile: each is refused in one sentence at
 * a place, or becomes a graph of which certain things always hold. */

#define NETWORKS 8000
#define MAX_LAYERS 9
#define MAX_KEYS 4

typedef struct dice {
    uint32_t network, draws;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
    copse_philox4 counter = {{d->draws++, d->network, 0, 0}};
    return copse_philox(counter, 2026, 0).v[0] % sides;
}

/* The memory that a network's specification points into. */
typedef struct network {
    copse__layer_spec layers[MAX_LAYERS];
    copse__layer_arg args[MAX_LAYERS][MAX_KEYS];
    char names[MAX_LAYERS][8], places[MAX_LAYERS][8];
    char *inputs[MAX_LAYERS][3];
    size_t count;
} network;

static double random_number(dice *d) {
    static const double odd[] = {0, -1, 2.5, 0.5, 2147483647, 1099511627776, NAN, 1e300};
    return roll(d, 12) == 0 ? odd[roll(d, COPSE__COUNT(odd))] : 1 + roll(d, 4);
}

static char *const words[] = {"same",   "valid",     "relu",  "softmax", "gelu",
                              "linear", "he_normal", "zeros", "rely"};

/* Mostly of the type that the key wants. */
static void random_value(dice *d, copse__key_type type, copse__value *value) {
    switch (roll(d, 20) == 0 ? (copse__key_type)roll(d, COPSE__KEY_SHAPE + 1) : type) {
    case COPSE__KEY_RATE:
    case COPSE__KEY_MOMENTUM:
    case COPSE__KEY_POSITIVE:
        *value =
            (copse__value){.kind = COPSE__VALUE_NUMBER, .number = roll(d, 11) / 10.0};
        break;
    case COPSE__KEY_BOOL:
        *value = (copse__value){.kind = COPSE__VALUE_BOOL, .boolean = roll(d, 2)};
        break;
    case COPSE__KEY_PADDING:
        *value = (copse__value){.kind = COPSE__VALUE_TEXT, .text = words[roll(d, 2)]};
        break;
    case COPSE__KEY_ACTIVATION:
        *value = (copse__value){.kind = COPSE__VALUE_TEXT, .text = words[2 + roll(d, 4)]};
        break;
    case COPSE__KEY_INITIALIZER:
        *value = (copse__value){.kind = COPSE__VALUE_TEXT, .text = words[6 + roll(d, 3)]};
        break;
    case COPSE__KEY_PAIR:
    case COPSE__KEY_SHAPE:
        *value = (copse__value){.kind = COPSE__VALUE_NUMBERS, .count = 1 + roll(d, 3)};
        if (type == COPSE__KEY_PAIR && roll(d, 20) > 0)
            value->count = 2;
        for (size_t i = 0; i < value->count; i++)
            value->numbers[i] = random_number(d);
        if (type == COPSE__KEY_SHAPE)
            value->numbers[0] = -1;
        break;
    default:
        *value = (copse__value){.kind = COPSE__VALUE_NUMBER, .number = random_number(d)};
    }
}

static void random_layer(dice *d, network *net, size_t index) {
    size_t kind_count;
    const copse__layer_kind *kinds = copse__layer_kinds(&kind_count);
    const copse__layer_kind *kind = &kinds[roll(d, (uint32_t)kind_count)];
    copse__layer_spec *spec = &net->layers[index];
    snprintf(net->places[index], sizeof net->places[index], "n:%zu", index);
    *spec = (copse__layer_spec){.kind = (char *)(uintptr_t)kind->name,
                                .place = net->places[index],
                                .args = net->args[index],
                                .inputs = net->inputs[index]};
    for (size_t k = 0; k < kind->key_count && spec->arg_count < MAX_KEYS; k++) {
        const copse__layer_key *key = &kind->keys[k];
        if (!(key->required ? roll(d, 40) > 0 : roll(d, 3) == 0))
            continue;
        copse__layer_arg *arg = &spec->args[spec->arg_count++];
        arg->key = (char *)(uintptr_t)(key->alias && roll(d, 2) ? key->alias : key->name);
        arg->place = net->places[index];
        random_value(d, key->type, &arg->value);
    }
    if (roll(d, 3) == 0) {
        snprintf(net->names[index], sizeof net->names[index], "l%zu", index);
        spec->name = net->names[index];
    }
    if (!kind->several_inputs && roll(d, 8) > 0)
        return;
    spec->input_count = 1 + kind->several_inputs;
    for (size_t i = 0; i < spec->input_count; i++) {
        size_t from = index - copse__min_size(index, roll(d, 3));
        bool named = from < index && net->layers[from].name;
        spec->inputs[i] = named ? net->names[from] : "input";
    }
}

static void random_network(dice *d, network *net, copse__model_options *options) {
    static const copse_dtype dtypes[] = {COPSE_F32, COPSE_U8};
    memset(net, 0, sizeof *net);
    net->count = 1 + roll(d, MAX_LAYERS);
    for (size_t i = 0; i < net->count; i++)
        random_layer(d, net, i);
    *options = (copse__model_options){.sample_rank = roll(d, 5),
                                      .sample_dtype = dtypes[roll(d, 2)],
                                      .scale = 1,
                                      .max_batch = 1 + roll(d, 9)};
    for (size_t i = 0; i < options->sample_rank; i++)
        options->sample_shape[i] = 1 + roll(d, 12);
}

/* Every operand is there before it is read, and written once. */
static void check_order(const copse__graph *graph, unsigned char *written) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        copse__role role = graph->tensors[i].role;
        ck_assert_uint_lt(graph->tensors[i].storage, graph->tensor_count);
        written[i] = role == COPSE__ROLE_INPUT || role == COPSE__ROLE_LABEL ||
                     role == COPSE__ROLE_PARAMETER || role == COPSE__ROLE_STATE;
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        for (size_t j = 0; j < node->input_count; j++)
            if (node->inputs[j] != COPSE__NO_TENSOR)
                ck_assert_msg(written[graph->tensors[node->inputs[j]].storage],
                              "%s reads what is not written yet", node->name);
        for (size_t j = 0; j < node->output_count; j++) {
            copse__tensor_id id = node->outputs[j];
            if (id == COPSE__NO_TENSOR)
                continue;
            ck_assert_uint_eq(graph->tensors[id].storage, id);
            ck_assert_msg(!written[id], "%s writes a second time", node->name);
            written[id] = 1;
        }
    }
}

static void check_graph(const copse__graph *graph) {
    copse_error error = {0};
    unsigned char *written = calloc(graph->tensor_count, 1);
    check_order(graph, written);
    free(written);
    uint32_t last = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        ASSERT_OK(copse__host_check(graph, &graph->nodes[i], &error));
        ck_assert(i == 0 || graph->nodes[i].call > last); /* so they are unique */
        last = graph->nodes[i].call;
        ck_assert(isfinite(copse__node_flops(graph, &graph->nodes[i], NULL)));
    }
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const copse__parameter *parameter = &graph->parameters[i];
        ck_assert_uint_eq(parameter->gradient != COPSE__NO_TENSOR, graph->training);
        if (graph->training)
            ck_assert(copse__tensor_same_shape(&graph->tensors[parameter->tensor],
                                               &graph->tensors[parameter->gradient]));
    }
}

static void check_twins(const copse__graph *a, const copse__graph *b) {
    ck_assert_uint_eq(a->parameter_count, b->parameter_count);
    ck_assert_uint_eq(a->state_count, b->state_count);
    for (size_t i = 0; i < a->parameter_count; i++)
        ck_assert_str_eq(a->tensors[a->parameters[i].tensor].name,
                         b->tensors[b->parameters[i].tensor].name);
    for (size_t i = 0; i < a->forward_count; i++)
        for (size_t j = 0; j < b->forward_count; j++)
            if (a->nodes[i].call == b->nodes[j].call)
                ck_assert_str_eq(a->nodes[i].name, b->nodes[j].name);
}

/* Trained with targets of whatever shape the network gives. */
static void check_training(const network *net, copse__model_options options,
                           const copse__graph *inference) {
    copse_error error = {0};
    const copse__tensor *output = &inference->tensors[inference->output];
    copse__graph *graph;
    options.training = true;
    options.loss = COPSE__LOSS_MEAN_SQUARED_ERROR;
    options.target_rank = output->rank - 1;
    for (size_t i = 1; i < output->rank; i++)
        options.target_shape[i - 1] = output->dim[i].size;
    ASSERT_OK(copse__model_build(&graph, net->layers, net->count, &options, &error));
    check_graph(graph);
    check_twins(graph, inference);
    copse__graph_free(graph);
}

START_TEST(test_random_networks_are_refused_or_whole) {
    static network net;
    size_t built = 0, refused = 0;
    for (uint32_t i = 0; i < NETWORKS; i++) {
        dice d = {.network = i};
        copse__model_options options;
        copse__graph *graph;
        copse_error error = {0};
        random_network(&d, &net, &options);
        copse_status status =
            copse__model_build(&graph, net.layers, net.count, &options, &error);
        if (status == COPSE_OK) {
            check_graph(graph);
            check_training(&net, options, graph);
            copse__graph_free(graph);
            built++;
            continue;
        }
        ck_assert_msg(status == COPSE_CONFIG || status == COPSE_UNSUPPORTED,
                      "network %u: %s: %s", i, copse_status_name(status), error.text);
        ck_assert_msg(strncmp(error.place, "n:", 2) == 0 && strlen(error.text) > 10,
                      "network %u: '%s' at '%s'", i, error.text, error.place);
        refused++;
    }
    /* Both ways are taken often. */
    ck_assert_uint_gt(built, NETWORKS / 20);
    ck_assert_uint_gt(refused, NETWORKS / 20);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph random");
    ADD_TEST(suite, test_random_networks_are_refused_or_whole);
    return run_suite(suite);
}
