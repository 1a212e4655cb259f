/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/tuned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct line {
    char *text;
    size_t used;
} line;

static void add(line *to, const char *text) {
    int length = snprintf(to->text + to->used, COPSE__TUNED_KEY - to->used, "%s", text);
    if (length > 0)
        to->used = copse__min_size(to->used + (size_t)length, COPSE__TUNED_KEY - 1);
}

static void add_operand(line *to, const copse__graph *graph, copse__tensor_id id) {
    char text[32];
    if (id == COPSE__NO_TENSOR) {
        add(to, " -");
        return;
    }
    const copse__tensor *tensor = &graph->tensors[id];
    for (size_t d = 0; d < tensor->rank; d++) {
        snprintf(text, sizeof text, "%s%zu", d ? "x" : " ", tensor->dim[d].size);
        add(to, text);
    }
    if (tensor->dtype != COPSE_F32)
        add(to, copse_dtype_name(tensor->dtype));
}

static bool has_window(copse__op op) {
    return op == COPSE__OP_CONV2D || op == COPSE__OP_CONV2D_GRAD_INPUT ||
           op == COPSE__OP_CONV2D_GRAD_FILTER || op == COPSE__OP_CONV2D_MAX_POOL ||
           op == COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT ||
           op == COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER || op == COPSE__OP_MAX_POOL2D ||
           op == COPSE__OP_MAX_POOL2D_GRAD || op == COPSE__OP_AVG_POOL2D ||
           op == COPSE__OP_AVG_POOL2D_GRAD;
}

const char *copse__tuned_key(char buffer[static COPSE__TUNED_KEY],
                             const copse__graph *graph, const copse__node *node) {
    line to = {.text = buffer};
    add(&to, copse__op_name(node->op));
    for (size_t i = 0; i < node->input_count; i++)
        add_operand(&to, graph, node->inputs[i]);
    add(&to, " >");
    for (size_t i = 0; i < node->output_count; i++)
        add_operand(&to, graph, node->outputs[i]);
    if (node->attrs.act != COPSE__ACT_NONE) {
        add(&to, " ");
        add(&to, copse__activation_name(node->attrs.act));
    }
    if (has_window(node->op)) {
        const copse__window *w = &node->attrs.window;
        char text[160];
        snprintf(text, sizeof text,
                 " kernel %zux%zu stride %zux%zu dilation %zux%zu pad %zux%zu",
                 (size_t)w->kernel_h, (size_t)w->kernel_w, (size_t)w->stride_h,
                 (size_t)w->stride_w, (size_t)w->dilation_h, (size_t)w->dilation_w,
                 (size_t)w->pad_top, (size_t)w->pad_left);
        add(&to, text);
    }
    return buffer;
}

const copse__tuned *copse__tuned_find(const copse__tuned *entries, size_t count,
                                      const char *key) {
    size_t op_length = strcspn(key, " ");
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i].key, key) == 0)
            return &entries[i];
    for (size_t i = 0; i < count; i++)
        if (strlen(entries[i].key) == op_length &&
            strncmp(entries[i].key, key, op_length) == 0)
            return &entries[i];
    return NULL;
}

static bool read_number(const char **at, size_t *out) {
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    unsigned long long number = strtoull(*at, &end, 10);
    if (errno != 0 || number > UINT32_MAX)
        return false;
    *out = (size_t)number;
    *at = end;
    return true;
}

bool copse__parameters_read(const char *parameters, const char *const *names,
                            size_t *values, size_t count) {
    uint64_t seen = 0;
    for (const char *at = parameters; *at;) {
        size_t length = strcspn(at, "= "), i = 0;
        while (i < count &&
               (strlen(names[i]) != length || strncmp(names[i], at, length) != 0))
            i++;
        if (i == count || i >= 64 || seen >> i & 1 || at[length] != '=')
            return false;
        seen |= (uint64_t)1 << i;
        at += length + 1;
        if (!read_number(&at, &values[i]))
            return false;
        if (*at == ' ' && at[1])
            at++;
        else if (*at)
            return false;
    }
    return true;
}
