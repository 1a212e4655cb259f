/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/data.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan.h"
#include "table.h"

int make_plan(session *s, tool_plan *out) {
    copse__device_choice *choices = NULL;
    double *weights = NULL;
    size_t count = 0;
    copse_error error;
    *out = (tool_plan){0};
    copse_status status =
        copse__select_devices(s->topo, s->options->select, &choices, &count, &error);
    if (status == COPSE_OK)
        status = copse__rank_plan_make(&out->plan, s->topo, choices, count,
                                       s->options->plan_bytes, &error);
    if (status == COPSE_OK)
        status = copse__calloc(&out->shards, count, sizeof out->shards[0], &error);
    if (status == COPSE_OK)
        status = copse__calloc(&weights, count, sizeof weights[0], &error);
    for (size_t i = 0; status == COPSE_OK && i < count; i++)
        weights[i] = out->plan->weights_known ? out->plan->ranks[i].weight : 1;
    if (status == COPSE_OK)
        status =
            copse_shard_split(s->options->batch, count, weights, out->shards, &error);
    free(choices);
    free(weights);
    if (status == COPSE_OK)
        return EXIT_OK;
    free_plan(out);
    return complain(&error);
}

void free_plan(tool_plan *plan) {
    copse__rank_plan_free(plan->plan);
    free(plan->shards);
    *plan = (tool_plan){0};
}

static void fill_table(table *t, const session *s, const tool_plan *made) {
    static const char *const columns[][2] = {{"rank", "rank"},
                                             {"device", "device"},
                                             {"name", "name"},
                                             {"numa", "NUMA"},
                                             {"weight", "weight"},
                                             {"shard_samples", "shard"},
                                             {"staging", "staging"},
                                             {"d2h_GBps", "down GB/s"},
                                             {"h2d_GBps", "up GB/s"},
                                             {"duplex_GBps", "duplex GB/s"},
                                             {NULL, NULL}};
    const copse__rank_plan *plan = made->plan;
    table_begin(t, columns);
    for (uint32_t i = 0; i < plan->count; i++) {
        const copse__rank *r = &plan->ranks[i];
        const double rates[] = {r->down, r->up, r->duplex};
        table_row(t);
        table_int(t, i);
        table_text(t, r->choice.label);
        table_text(t, r->choice.name);
        table_int(t, r->physical >= 0 ? s->topo->physicals[r->physical].numa : -1);
        table_add(t, plan->weights_known ? json_real(r->weight) : json_null());
        table_int(t, (long long)made->shards[i]);
        table_text(t, r->path);
        for (size_t k = 0; k < COPSE__COUNT(rates); k++)
            table_add(t, rates[k] > 0 ? json_real(rates[k]) : json_null());
    }
}

/* "((0+1)+(2+3))+4" from the merges. */
static void tree_words(const copse__rank_plan *plan, copse__text *out) {
    char **part = calloc(plan->count ? plan->count : 1, sizeof *part);
    for (uint32_t i = 0; part && i < plan->count; i++)
        if (asprintf(&part[i], "%u", i) < 0)
            part[i] = NULL;
    for (uint32_t i = 0; part && i + 1 < plan->count; i++) {
        const copse__merge *m = &plan->merges[i];
        char *made = NULL;
        bool last = i + 2 == plan->count;
        if (!part[m->into] || !part[m->from] ||
            asprintf(&made, last ? "%s+%s" : "(%s+%s)", part[m->into], part[m->from]) < 0)
            made = NULL;
        free(part[m->into]);
        free(part[m->from]);
        part[m->into] = made;
        part[m->from] = NULL;
    }
    if (part && plan->count && part[0])
        copse__text_add(out, "%s", part[0]);
    for (uint32_t i = 0; part && i < plan->count; i++)
        free(part[i]);
    free(part);
}

static void add_time(copse__text *out, const char *word, double seconds) {
    if (seconds < 0)
        copse__text_add(out, "  %s not known (measure with: cltopo bench)\n", word);
    else
        copse__text_add(out, "  %s %.3f ms\n", word, seconds * 1e3);
}

static void add_words(session *s, const tool_plan *made) {
    const copse__rank_plan *plan = made->plan;
    copse__text *out = &s->out;
    char text[32];
    copse__text_add(out, "\nrank order: %s\n", plan->hash);
    if (plan->count < 2) {
        copse__text_add(out, "one rank: nothing to sum\n");
        return;
    }
    copse__text_add(out, "sum of gradients: ");
    tree_words(plan, out);
    copse__text_add(out,
                    plan->weights_known
                        ? "\nshards: by weight; of measured devices that is their rate "
                          "of products, and copse train measures its own network\n"
                        : "\nshards: equal, since the speed of a device is not known "
                          "(measure with: cltopo bench; or give *W)\n");
    copse__text_add(out, "modelled limit of summing %s:\n",
                    copse__format_bytes(text, sizeof text, s->options->plan_bytes));
    if (plan->link_s > 0 || plan->link_s < 0)
        add_time(out, "T_link", plan->link_s);
    else
        copse__text_add(out, "  T_link none: all gradients are mapped\n");
    add_time(out, "T_mem ", plan->memory_s);
    add_time(out, "T_cpu ", plan->cpu_s);
    if (plan->bound[0])
        copse__text_add(out, "  bound by %s\n", plan->bound);
}

static json_t *time_or_null(double seconds) {
    return seconds < 0 ? json_null() : json_real(seconds * 1e6);
}

static int plan_json(session *s, table *t, const tool_plan *made) {
    const copse__rank_plan *plan = made->plan;
    json_t *merges = json_array();
    copse__text tree = {0}, ranks = {0};
    tree_words(plan, &tree);
    for (uint32_t i = 0; i + 1 < plan->count; i++)
        json_array_append_new(merges, json_pack("{s:I,s:I,s:I}", "into",
                                                (json_int_t)plan->merges[i].into, "from",
                                                (json_int_t)plan->merges[i].from, "level",
                                                (json_int_t)plan->merges[i].level));
    session inner = {.options = s->options};
    int code = table_write(t, &inner, "ranks");
    json_t *root =
        code == EXIT_OK && inner.out.data ? json_loads(inner.out.data, 0, NULL) : NULL;
    copse__text_free(&inner.out);
    copse__text_free(&ranks);
    bool good =
        root && json_object_set_new(root, "merges", merges) == 0 &&
        json_object_set_new(root, "sum", json_string(tree.data ? tree.data : "")) == 0 &&
        json_object_set_new(root, "order_hash", json_string(plan->hash)) == 0 &&
        json_object_set_new(root, "gradient_bytes",
                            json_sprintf("%llu", s->options->plan_bytes)) == 0 &&
        json_object_set_new(root, "batch", json_integer((json_int_t)s->options->batch)) ==
            0 &&
        json_object_set_new(root, "link_us", time_or_null(plan->link_s)) == 0 &&
        json_object_set_new(root, "mem_us", time_or_null(plan->memory_s)) == 0 &&
        json_object_set_new(root, "cpu_us", time_or_null(plan->cpu_s)) == 0 &&
        json_object_set_new(root, "bound",
                            plan->bound[0] ? json_string(plan->bound) : json_null()) ==
            0 &&
        add_json(&s->out, root, true);
    copse__text_free(&tree);
    json_decref(root);
    if (!good)
        complain_text("the host has no memory for the plan");
    return good ? EXIT_OK : EXIT_RUN_FAILED;
}

int run_plan(session *s) {
    tool_plan made;
    table t;
    if (s->options->format == FORMAT_DOT)
        return write_dot(s, true);
    if (s->options->format == FORMAT_SVG)
        return write_svg(s, true);
    int code = make_plan(s, &made);
    if (code != EXIT_OK)
        return code;
    fill_table(&t, s, &made);
    if (s->options->format == FORMAT_JSON) {
        code = plan_json(s, &t, &made);
    } else {
        code = table_write(&t, s, "ranks");
        if (code == EXIT_OK && s->options->format == FORMAT_TEXT)
            add_words(s, &made);
    }
    free_plan(&made);
    return code;
}
