/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "graph/layer.h"
#include "graph/names.h"

/* Far above any network that is written as a list; bounds the work on a hostile one. */
#define MAX_LAYERS 10000

#define INPUT SIZE_MAX /* the index of no layer: the network's input */

typedef struct model {
    copse__builder builder;
    const copse__layer_spec *layers;
    size_t layer_count;
    const copse__model_options *options;
    const copse__layer_kind **kinds;
    char **names;
    bool *used;             /* whether a later layer reads it */
    copse__tensor_id input; /* what layers read: uploaded as it is, or cast */
} model;

static copse_status check_options(const copse__model_options *options, copse_error *err) {
    if (options->sample_rank >= COPSE_MAX_RANK)
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "a sample has %zu dimensions, but %d are the most",
                           options->sample_rank, COPSE_MAX_RANK - 1);
    for (size_t i = 0; i < options->sample_rank; i++)
        if (options->sample_shape[i] == 0)
            return copse__fail(err, COPSE_CONFIG, 0, NULL,
                               "dimension %zu of a sample is 0", i + 1);
    if (options->max_batch == 0)
        return copse__fail(err, COPSE_INVALID, 0, NULL, "the batch must not be 0");
    if (!isfinite(options->scale) || !isfinite(options->offset))
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "scale and offset of the data must be finite");
    if (options->training && options->loss == COPSE__LOSS_NONE)
        return copse__fail(err, COPSE_INVALID, 0, NULL, "training needs a loss");
    return COPSE_OK;
}

static bool castable(copse_dtype dtype) {
    switch (dtype) {
    case COPSE_U8:
    case COPSE_I8:
    case COPSE_U16:
    case COPSE_I16:
    case COPSE_I32:
    case COPSE_F16:
    case COPSE_F32:
    case COPSE_F64:
        return true;
    default:
        return false;
    }
}

/* The uploaded samples, and a cast where they are not yet the floats that layers read. */
static copse_status make_input(model *m, copse_error *err) {
    const copse__model_options *o = m->options;
    copse__builder *b = &m->builder;
    copse__dim dim[COPSE_MAX_RANK] = {{o->max_batch, COPSE__BATCH}};
    for (size_t i = 0; i < o->sample_rank; i++)
        dim[i + 1] = copse__fixed(o->sample_shape[i]);
    if (!castable(o->sample_dtype))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, NULL,
                           "samples of type %s cannot be read by a network",
                           copse_dtype_name(o->sample_dtype));
    b->layer = COPSE__INPUT_NAME;
    copse_status status =
        copse__build_tensor(b, NULL, o->sample_dtype, COPSE__ROLE_INPUT,
                            o->sample_rank + 1, dim, &b->graph->input, err);
    m->input = b->graph->input;
    if (status != COPSE_OK ||
        (o->sample_dtype == COPSE_F32 && o->scale == 1 && o->offset == 0))
        return status;
    return copse__build_cast(b, o->scale, o->offset, b->graph->input, &m->input, err);
}

static copse_status unknown_input(const model *m, size_t index, const char *name,
                                  copse_error *err) {
    const copse__layer_spec *spec = &m->layers[index];
    char hint[128] = "";
    for (size_t i = index; i < m->layer_count; i++)
        if (strcmp(m->names[i], name) == 0)
            return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                               "layer '%s' reads '%s', which does not stand before it",
                               m->names[index], name);
    const char **known;
    copse_status status = copse__calloc(&known, index + 1, sizeof *known, err);
    if (status != COPSE_OK)
        return status;
    known[0] = COPSE__INPUT_NAME;
    for (size_t i = 0; i < index; i++)
        known[i + 1] = m->names[i];
    copse__suggest_text(hint, sizeof hint, name, known, index + 1);
    free(known);
    return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                       "layer '%s' reads '%.64s', but no layer is named so%s",
                       m->names[index], name, hint);
}

/* Indices of the layers that layer `index` reads, into the row of its own. */
static copse_status find_inputs(model *m, size_t index, copse__layer_info *info,
                                copse_error *err) {
    const copse__layer_spec *spec = &m->layers[index];
    info->input_count = spec->input_count == 0 ? 1 : spec->input_count;
    copse_status status =
        copse__calloc(&info->inputs, info->input_count, sizeof *info->inputs, err);
    if (status != COPSE_OK)
        return status;
    info->inputs[0] = index == 0 ? INPUT : index - 1;
    for (size_t i = 0; i < spec->input_count; i++) {
        const char *name = spec->inputs[i];
        size_t found = INPUT;
        if (strcmp(name, COPSE__INPUT_NAME) != 0) {
            found = 0;
            while (found < index && strcmp(m->names[found], name) != 0)
                found++;
            if (found == index)
                return unknown_input(m, index, name, err);
        }
        info->inputs[i] = found;
    }
    for (size_t i = 0; i < info->input_count; i++)
        if (info->inputs[i] != INPUT)
            m->used[info->inputs[i]] = true;
    bool several = m->kinds[index]->several_inputs;
    if (several && info->input_count < 2)
        return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                           "layer '%s' needs two or more inputs, such as inputs: [a, b]",
                           m->names[index]);
    if (!several && info->input_count > 1)
        return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                           "layer '%s' takes one input, but %zu are named",
                           m->names[index], info->input_count);
    return COPSE_OK;
}

/* A grayscale sample (H, W) before a layer of images is (H, W, 1). */
static copse_status with_channels(model *m, copse__tensor_id *x, copse_error *err) {
    const copse__tensor of = m->builder.graph->tensors[*x];
    if (of.rank != 3)
        return COPSE_OK;
    copse__dim dim[] = {of.dim[0], of.dim[1], of.dim[2], copse__fixed(1)};
    return copse__build_view(&m->builder, "channels", *x, 4, dim, x, err);
}

static copse_status build_layer(model *m, size_t index, copse_error *err) {
    copse__graph *graph = m->builder.graph;
    const copse__layer_kind *kind = m->kinds[index];
    copse__layer_info *info = &graph->layers[index]; /* room for all was made */
    copse__layer_config config;
    copse__tensor_id *inputs = NULL;
    *info = (copse__layer_info){.output = COPSE__NO_TENSOR,
                                .first_parameter = graph->parameter_count,
                                .first_state = graph->state_count};
    graph->layer_count = index + 1;
    m->builder.layer = m->names[index];
    m->builder.place = m->layers[index].place;
    copse_status status;
    COPSE__TRY(copse__strdup(&info->name, m->names[index], err), out);
    COPSE__TRY(copse__strdup(&info->kind, kind->title, err), out);
    COPSE__TRY(
        copse__layer_config_read(&config, kind, &m->layers[index], m->names[index], err),
        out);
    COPSE__TRY(find_inputs(m, index, info, err), out);
    COPSE__TRY(copse__calloc(&inputs, info->input_count, sizeof *inputs, err), out);
    for (size_t i = 0; i < info->input_count; i++) {
        inputs[i] =
            info->inputs[i] == INPUT ? m->input : graph->layers[info->inputs[i]].output;
        /* By the wiring, not by the tensor: where a dropout layer hands its input on, as in
         * inference, the layer after it still does not read the sample itself. */
        if (kind->images && info->inputs[i] == INPUT)
            COPSE__TRY(with_channels(m, &inputs[i], err), out);
    }
    COPSE__TRY(kind->build(&m->builder, &config, m->options->training, inputs,
                           info->input_count, &info->output, err),
               out);
    info->parameter_count = graph->parameter_count - info->first_parameter;
    info->state_count = graph->state_count - info->first_state;
out:
    free(inputs);
    return status;
}

static copse_status check_all_used(const model *m, copse_error *err) {
    for (size_t i = 0; i + 1 < m->layer_count; i++)
        if (!m->used[i])
            return copse__fail(err, COPSE_CONFIG, 0, m->layers[i].place,
                               "no layer reads the output of layer '%s', and it is not "
                               "the last: name it in a layer's inputs, or remove it",
                               m->names[i]);
    return COPSE_OK;
}

static copse_status build_layers(model *m, copse_error *err) {
    copse__graph *graph = m->builder.graph;
    copse_status status = copse__grow(&graph->layers, &graph->layer_capacity,
                                      m->layer_count, sizeof *graph->layers, err);
    for (size_t i = 0; status == COPSE_OK && i < m->layer_count; i++)
        status = build_layer(m, i, err);
    if (status == COPSE_OK)
        status = check_all_used(m, err);
    if (status == COPSE_OK)
        graph->output = graph->layers[m->layer_count - 1].output;
    return status;
}

/* Whether the outputs are probabilities already, and the loss knows: a mistake that trains,
 * badly. */
static void warn_about_logits(const model *m) {
    const copse__graph *graph = m->builder.graph;
    bool softmax = false;
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == COPSE__OP_SOFTMAX)
            softmax = graph->nodes[i].outputs[0] == graph->tensors[graph->output].storage;
    if (softmax && m->options->from_logits)
        copse__log(COPSE_LOG_WARN,
                   "the network ends in a softmax, but the loss expects logits: remove "
                   "the softmax, or use from_logits: false");
    if (!softmax && !m->options->from_logits)
        copse__log(COPSE_LOG_WARN,
                   "the loss expects probabilities (from_logits: false), but the network "
                   "does not end in a softmax");
}

static copse_status add_cross_entropy(model *m, copse_error *err) {
    const copse__model_options *o = m->options;
    copse__builder *b = &m->builder;
    copse__graph *graph = b->graph;
    const copse__tensor x = graph->tensors[graph->output];
    char shape[COPSE__SHAPE_TEXT], labels[COPSE__SHAPE_TEXT];
    copse__tensor label = {.rank = o->target_rank + 1, .dim = {x.dim[0]}};
    for (size_t i = 0; i < o->target_rank; i++)
        label.dim[i + 1] = copse__fixed(o->target_shape[i]);
    copse__tensor rows = x;
    rows.rank = x.rank - 1;
    if (x.rank < 2 || !copse__tensor_same_shape(&rows, &label))
        return copse__fail(
            err, COPSE_CONFIG, 0, b->place,
            "the network's output of shape %s does not go with labels of shape %s: it "
            "must have one more axis, the classes%s",
            copse__build_shape(b, graph->output, shape),
            copse__tensor_shape_text(&label, labels, sizeof labels),
            x.rank > label.rank + 1 ? " (is a flatten layer missing?)" : "");
    if (copse__tensor_columns(&x) < o->class_count)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "the data has %zu classes, but the network's output has the "
                           "shape %s: give its last layer %zu units",
                           o->class_count, copse__build_shape(b, graph->output, shape),
                           o->class_count);
    warn_about_logits(m);
    bool soft = o->soft_labels && o->training;
    copse_status status =
        soft ? copse__build_tensor(b, "label", COPSE_F32, COPSE__ROLE_LABEL, x.rank,
                                   x.dim, &graph->label, err)
             : copse__build_tensor(b, "label", COPSE_I32, COPSE__ROLE_LABEL, label.rank,
                                   label.dim, &graph->label, err);
    if (status != COPSE_OK)
        return status;
    return copse__build_cross_entropy(b, graph->output, graph->label, o->from_logits,
                                      &graph->metrics, err);
}

/* Equal, or one side has a last axis of 1 that the other leaves out, as Keras allows. */
static bool target_fits(const copse__tensor *x, const copse__model_options *o) {
    size_t rank = x->rank - 1, target_rank = o->target_rank;
    if (rank == target_rank + 1 && x->dim[rank].size == 1)
        rank--;
    else if (target_rank == rank + 1 && o->target_shape[target_rank - 1] == 1)
        target_rank--;
    if (rank != target_rank)
        return false;
    for (size_t i = 0; i < rank; i++)
        if (x->dim[i + 1].size != o->target_shape[i])
            return false;
    return true;
}

static copse_status add_mean_squared_error(model *m, copse_error *err) {
    const copse__model_options *o = m->options;
    copse__builder *b = &m->builder;
    copse__graph *graph = b->graph;
    const copse__tensor x = graph->tensors[graph->output];
    if (!target_fits(&x, o)) {
        char shape[COPSE__SHAPE_TEXT], wanted[COPSE__SHAPE_TEXT];
        copse__tensor target = {.rank = o->target_rank + 1, .dim = {x.dim[0]}};
        for (size_t i = 0; i < o->target_rank; i++)
            target.dim[i + 1] = copse__fixed(o->target_shape[i]);
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "the network's output has the shape %s, but the targets have "
                           "%s",
                           copse__build_shape(b, graph->output, shape),
                           copse__tensor_shape_text(&target, wanted, sizeof wanted));
    }
    copse_status status = copse__build_tensor(b, "label", COPSE_F32, COPSE__ROLE_LABEL,
                                              x.rank, x.dim, &graph->label, err);
    if (status != COPSE_OK)
        return status;
    return copse__build_mean_squared_error(b, graph->output, graph->label,
                                           &graph->metrics, err);
}

static copse_status add_loss(model *m, copse_error *err) {
    if (m->options->loss == COPSE__LOSS_NONE)
        return COPSE_OK;
    if (m->options->target_rank >= COPSE_MAX_RANK)
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "a target has %zu dimensions, but %d are the most",
                           m->options->target_rank, COPSE_MAX_RANK - 1);
    m->builder.layer = "loss";
    return m->options->loss == COPSE__LOSS_MEAN_SQUARED_ERROR
               ? add_mean_squared_error(m, err)
               : add_cross_entropy(m, err);
}

static copse_status build(model *m, copse_error *err) {
    copse__graph *graph = m->builder.graph;
    copse_status status = make_input(m, err);
    if (status == COPSE_OK)
        status = build_layers(m, err);
    if (status == COPSE_OK)
        status = add_loss(m, err);
    if (status != COPSE_OK)
        return status;
    graph->training = m->options->training;
    graph->forward_count = graph->node_count;
    return graph->training ? copse__graph_backward(graph, err) : COPSE_OK;
}

/* The layers' kinds and names. */
static copse_status begin(model *m, copse_error *err) {
    copse_status status;
    size_t count = m->layer_count;
    if (count == 0 || count > MAX_LAYERS)
        return copse__fail(err, COPSE_CONFIG, 0, count ? m->layers[0].place : NULL,
                           "a model has 1 to %d layers, not %zu", MAX_LAYERS, count);
    COPSE__TRY(copse__calloc(&m->kinds, count, sizeof *m->kinds, err), out);
    COPSE__TRY(copse__calloc(&m->names, count, sizeof *m->names, err), out);
    COPSE__TRY(copse__calloc(&m->used, count, sizeof *m->used, err), out);
    for (size_t i = 0; i < count; i++)
        COPSE__TRY(copse__layer_kind_find(&m->kinds[i], &m->layers[i], err), out);
    status = copse__layer_names(m->names, m->kinds, m->layers, count, err);
out:
    return status;
}

static void end(model *m) {
    for (size_t i = 0; m->names && i < m->layer_count; i++)
        free(m->names[i]);
    free(m->names);
    free(m->kinds);
    free(m->used);
}

copse_status copse__model_check(const copse__layer_spec *layers, size_t layer_count,
                                copse_error *err) {
    model m = {.layers = layers, .layer_count = layer_count};
    copse_status status = begin(&m, err);
    for (size_t i = 0; i < layer_count && status == COPSE_OK; i++) {
        copse__layer_config config;
        copse__layer_info wiring = {0};
        status =
            copse__layer_config_read(&config, m.kinds[i], &layers[i], m.names[i], err);
        if (status == COPSE_OK)
            status = find_inputs(&m, i, &wiring, err);
        free(wiring.inputs);
    }
    if (status == COPSE_OK)
        status = check_all_used(&m, err);
    end(&m);
    return status;
}

copse_status copse__model_build(copse__graph **out, const copse__layer_spec *layers,
                                size_t layer_count, const copse__model_options *options,
                                copse_error *err) {
    copse__graph *graph = NULL;
    model m = {.layers = layers, .layer_count = layer_count, .options = options};
    copse_status status;
    *out = NULL;
    COPSE__TRY(check_options(options, err), out);
    COPSE__TRY(begin(&m, err), out);
    COPSE__TRY(copse__graph_new(&graph, err), out);
    m.builder.graph = graph;
    COPSE__TRY(build(&m, err), out);
    *out = graph;
    graph = NULL;
out:
    end(&m);
    copse__graph_free(graph);
    return status;
}
