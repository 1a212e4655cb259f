/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/build.h"
#include "graph/model.h"
#include "graph/names.h"

enum { COLUMN_LAYER, COLUMN_SHAPE, COLUMN_PARAMETERS, COLUMN_INPUTS, COLUMN_COUNT };

static const char *const titles[COLUMN_COUNT] = {"Layer (type)", "Output Shape",
                                                 "Param #", "Connected to"};

typedef struct row {
    copse__text cell[COLUMN_COUNT];
} row;

/* Columns on a terminal: bytes of UTF-8 that begin a character. */
static size_t width_of(const char *text) {
    size_t width = 0;
    for (; text && *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static size_t parameters_of(const copse__graph *graph, const copse__layer_info *layer) {
    size_t count = 0;
    for (size_t i = 0; i < layer->parameter_count; i++)
        count += copse__tensor_elements(
            &graph->tensors[graph->parameters[layer->first_parameter + i].tensor], NULL);
    return count;
}

static size_t states_of(const copse__graph *graph, const copse__layer_info *layer) {
    size_t count = 0;
    for (size_t i = 0; i < layer->state_count; i++)
        count +=
            2 *
            copse__tensor_elements(
                &graph->tensors[graph->states[layer->first_state + i].moving_mean], NULL);
    return count;
}

/* Each layer reads just the one before it. */
static bool is_chain(const copse__graph *graph) {
    for (size_t i = 0; i < graph->layer_count; i++)
        if (graph->layers[i].input_count != 1 ||
            graph->layers[i].inputs[0] != (i == 0 ? SIZE_MAX : i - 1))
            return false;
    return true;
}

static void fill_row(row *r, const copse__graph *graph, const copse__layer_info *layer) {
    char buffer[COPSE__SHAPE_TEXT];
    copse__text_add(&r->cell[COLUMN_LAYER], "%s (%s)", layer->name, layer->kind);
    copse__text_add(
        &r->cell[COLUMN_SHAPE], "%s",
        copse__tensor_shape_text(&graph->tensors[layer->output], buffer, sizeof buffer));
    copse__text_add(
        &r->cell[COLUMN_PARAMETERS], "%s",
        copse__format_count(buffer, sizeof buffer,
                            parameters_of(graph, layer) + states_of(graph, layer)));
    for (size_t i = 0; i < layer->input_count; i++)
        copse__text_add(&r->cell[COLUMN_INPUTS], "%s%s", i == 0 ? "" : ", ",
                        layer->inputs[i] == SIZE_MAX
                            ? COPSE__INPUT_NAME
                            : graph->layers[layer->inputs[i]].name);
}

static void fill_input_row(row *r, const copse__graph *graph) {
    char buffer[COPSE__SHAPE_TEXT];
    copse__text_add(&r->cell[COLUMN_LAYER], COPSE__INPUT_NAME " (InputLayer)");
    copse__text_add(
        &r->cell[COLUMN_SHAPE], "%s",
        copse__tensor_shape_text(&graph->tensors[graph->input], buffer, sizeof buffer));
    copse__text_add(&r->cell[COLUMN_PARAMETERS], "0");
    copse__text_add(&r->cell[COLUMN_INPUTS], "-");
}

static void add_repeated(copse__text *out, char c, size_t count) {
    while (count-- > 0)
        copse__text_add_bytes(out, &c, 1);
}

/* Numbers to the right, text to the left, nothing after the last column. */
static void add_line(copse__text *out, const char *const cells[COLUMN_COUNT],
                     const size_t widths[COLUMN_COUNT], size_t columns) {
    for (size_t c = 0; c < columns; c++) {
        size_t blank = widths[c] - width_of(cells[c]);
        if (c > 0)
            copse__text_add(out, "  ");
        if (c == COLUMN_PARAMETERS)
            add_repeated(out, ' ', blank);
        copse__text_add(out, "%s", cells[c]);
        if (c != COLUMN_PARAMETERS && c + 1 < columns)
            add_repeated(out, ' ', blank);
    }
    copse__text_add(out, "\n");
}

static void add_rule(copse__text *out, char c, size_t width) {
    add_repeated(out, c, width);
    copse__text_add(out, "\n");
}

static void add_table(copse__text *out, const row *rows, size_t row_count,
                      size_t columns) {
    size_t widths[COLUMN_COUNT], total = 2 * (columns - 1);
    for (size_t c = 0; c < columns; c++) {
        widths[c] = width_of(titles[c]);
        for (size_t r = 0; r < row_count; r++)
            widths[c] = copse__max_size(widths[c], width_of(rows[r].cell[c].data));
        total += widths[c];
    }
    add_rule(out, '_', total);
    add_line(out, titles, widths, columns);
    add_rule(out, '=', total);
    for (size_t r = 0; r < row_count; r++) {
        const char *cells[COLUMN_COUNT];
        for (size_t c = 0; c < COLUMN_COUNT; c++)
            cells[c] = rows[r].cell[c].data ? rows[r].cell[c].data : "";
        add_line(out, cells, widths, columns);
    }
    add_rule(out, '=', total);
}

static void add_count(copse__text *out, const char *what, size_t count) {
    char number[32], bytes[32];
    copse__text_add(
        out, "%s: %s (%s)\n", what, copse__format_count(number, sizeof number, count),
        copse__format_bytes(bytes, sizeof bytes, count * copse_dtype_bytes(COPSE_F32)));
}

double copse__graph_forward_flops(const copse__graph *graph) {
    copse__extents one = {.of = {[COPSE__BATCH] = 1, [COPSE__TIME] = 1}};
    double flops = 0;
    for (size_t i = 0; i < graph->forward_count; i++) {
        const copse__node *node = &graph->nodes[i];
        if (node->outputs[0] != graph->metrics)
            flops += copse__node_flops(graph, node, &one);
    }
    return flops;
}

static void add_totals(copse__text *out, const copse__graph *graph) {
    size_t trainable = 0, fixed = 0;
    char number[32];
    for (size_t i = 0; i < graph->layer_count; i++) {
        trainable += parameters_of(graph, &graph->layers[i]);
        fixed += states_of(graph, &graph->layers[i]);
    }
    add_count(out, "Total params", trainable + fixed);
    add_count(out, "Trainable params", trainable);
    add_count(out, "Non-trainable params", fixed);
    double flops = copse__graph_forward_flops(graph);
    if (flops < 1e18)
        copse__format_count(number, sizeof number, (unsigned long long)flops);
    else
        snprintf(number, sizeof number, "%.3g", flops);
    copse__text_add(out, "Forward FLOPs per sample: %s\n", number);
}

copse_status copse__model_summary(const copse__graph *graph, copse__text *out,
                                  copse_error *err) {
    bool chain = is_chain(graph);
    size_t row_count = graph->layer_count + !chain;
    row *rows;
    copse_status status = copse__calloc(&rows, row_count, sizeof *rows, err);
    if (status != COPSE_OK)
        return status;
    if (!chain)
        fill_input_row(&rows[0], graph);
    for (size_t i = 0; i < graph->layer_count; i++)
        fill_row(&rows[i + !chain], graph, &graph->layers[i]);
    add_table(out, rows, row_count, chain ? COLUMN_INPUTS : COLUMN_COUNT);
    add_totals(out, graph);
    status = copse__text_check(out, err);
    for (size_t i = 0; i < row_count; i++)
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            if (status == COPSE_OK)
                status = copse__text_check(&rows[i].cell[c], err);
            copse__text_free(&rows[i].cell[c]);
        }
    free(rows);
    return status;
}
