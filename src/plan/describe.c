/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/describe.h"

#include <string.h>

typedef struct description {
    const copse__graph *graph;
    const copse__plan *plan;
    copse__device *device;
    copse__text *out;
} description;

/* "relu(sum)", "dropout(0.25, …)", "tanh'(y) * (…)": a value with all that it is made of. */
static void add_value(const description *d, const copse__node *node, uint8_t value) {
    const copse__expression *e = &node->attrs.expression;
    if (value < COPSE__MAX_INPUTS) {
        copse__text_add(d->out, "%s", d->graph->tensors[node->inputs[value]].name);
        return;
    }
    const copse__term *term = &e->terms[value - COPSE__MAX_INPUTS];
    const char *act = copse__activation_name((copse__activation)term->act);
    switch ((copse__op)term->op) {
    case COPSE__OP_ADD:
        copse__text_add(d->out, "(");
        add_value(d, node, term->a);
        copse__text_add(d->out, " + ");
        add_value(d, node, term->b);
        break;
    case COPSE__OP_ACTIVATION:
        copse__text_add(d->out, "%s(", act);
        add_value(d, node, term->a);
        break;
    case COPSE__OP_ACTIVATION_GRAD:
        copse__text_add(d->out, "(%s'(", act);
        add_value(d, node, term->a);
        copse__text_add(d->out, ") * ");
        add_value(d, node, term->b);
        break;
    default: /* DROPOUT */
        copse__text_add(d->out, "dropout(%g, ", (double)term->rate);
        add_value(d, node, term->a);
    }
    copse__text_add(d->out, ")");
}

static void add_place(const description *d, const copse__placement *at) {
    static const char *const homes[] = {"nowhere",   "arena", "weights",
                                        "gradients", "state", "moments",
                                        "input",     "label", "metrics"};
    bool blocks = at->home == COPSE__HOME_ARENA || at->home == COPSE__HOME_WEIGHT ||
                  at->home == COPSE__HOME_GRADIENT;
    copse__text_add(d->out, "%s", homes[at->home]);
    if (blocks)
        copse__text_add(d->out, " %u", at->block);
    copse__text_add(d->out, " at %zu", at->offset);
}

static void add_output(const description *d, const copse__node *node, size_t o) {
    const copse__tensor *tensor = &d->graph->tensors[node->outputs[o]];
    char shape[192], bytes[32];
    copse__text_add(
        d->out, "      %-34s %-22s %10s  ", tensor->name,
        copse__tensor_shape_text(tensor, shape, sizeof shape),
        copse__format_bytes(bytes, sizeof bytes, copse__tensor_bytes(tensor, NULL)));
    add_place(d, &d->plan->tensors[node->outputs[o]]);
    if (node->op == COPSE__OP_ELEMENTWISE) {
        copse__text_add(d->out, " = ");
        add_value(d, node, node->attrs.expression.results[o]);
    }
    copse__text_add(d->out, "\n");
}

static void add_node(const description *d, size_t n) {
    const copse__node *node = &d->graph->nodes[n];
    const char *provider =
        copse__backend_of(d->device)->provider(d->device, d->graph, node);
    char bytes[32];
    copse__text_add(d->out, "%4zu  %-34s %-28s %s", n, node->name,
                    copse__op_name(node->op), provider ? provider : "none");
    if (node->attrs.act != COPSE__ACT_NONE)
        copse__text_add(d->out, ", %s", copse__activation_name(node->attrs.act));
    copse__text_add(d->out, "\n");
    if (node->absorbed)
        copse__text_add(d->out, "      with %s\n", node->absorbed);
    for (size_t o = 0; o < node->output_count; o++)
        if (node->outputs[o] != COPSE__NO_TENSOR)
            add_output(d, node, o);
    const copse__placement *workspace = &d->plan->workspaces[n];
    if (workspace->bytes == 0)
        return;
    copse__text_add(d->out, "      %-34s %-22s %10s  ", "workspace", "",
                    copse__format_bytes(bytes, sizeof bytes, workspace->bytes));
    add_place(d, workspace);
    copse__text_add(d->out, "\n");
}

void copse__plan_describe(copse__text *out, const copse__graph *graph,
                          const copse__plan *plan, copse__device *device) {
    description d = {graph, plan, device, out};
    for (size_t n = 0; n < graph->node_count; n++) {
        if (n == 0 || n == graph->forward_count)
            copse__text_add(out, n == 0 ? "Forward:\n" : "Backward:\n");
        add_node(&d, n);
    }
}
