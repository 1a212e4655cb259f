/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "graph/model.h"
#include "session.h"

enum { OPT_PLAN = OPT_OWN };

static const tool_option options[] = {
    {OPT_PLAN, "plan", 'p', NULL,
     "Also what each device runs a step: nodes in their order, their\nproviders, what "
     "was fused, where every tensor lies"},
    OPTION_DEVICES,
    OPTION_SET,
    OPTION_ISOLATE,
};

static const tool_command command = {
    .program = "copse summary",
    .usage = "CONFIG [options]",
    .summary =
        "Prints the layers with their output shapes and parameters, the memory that "
        "training\ntakes on each device, and the gradient buckets. Trains nothing.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

typedef struct part {
    const char *what;
    size_t bytes;
} part;

/* Those that are none are left out. */
static void print_parts(const char *of, const part *parts, size_t count) {
    char text[32];
    printf("%-10s", of);
    const char *between = "";
    for (size_t i = 0; i < count; i++) {
        if (parts[i].bytes == 0)
            continue;
        printf("%s%s %s", between, parts[i].what,
               copse__format_bytes(text, sizeof text, parts[i].bytes));
        between = ", ";
    }
    putchar('\n');
}

static void print_memory(const copse_session *s, size_t rank) {
    copse__memory_report m;
    copse__trainer_memory(s->trainer, rank, &m);
    const part device[] = {{"weights", m.plan.weights},
                           {"gradients", m.plan.gradients},
                           {"optimizer", m.plan.slots},
                           {"sums of gradients", m.plan.sums},
                           {"activations and workspaces", m.plan.arena},
                           {"inputs and metrics", m.plan.inputs},
                           {"others", m.plan.others}};
    const part pinned[] = {{"batches made ready", m.batches},
                           {"results", m.plan.pinned},
                           {"gradients on their way", m.exchange},
                           {"batches of evaluation", m.evaluation}};
    print_parts(s->devices.choices[rank].label, device, COPSE__COUNT(device));
    print_parts("  on host", pinned, COPSE__COUNT(pinned));
}

static void print_devices(const copse_session *s) {
    char bytes[32];
    copse__memory_report m;
    printf("\n%-10s %-36s %12s %14s\n", "Device", "Name", "Shard", "Device memory");
    for (size_t r = 0; r < s->devices.count; r++) {
        copse__trainer_memory(s->trainer, r, &m);
        printf("%-10s %-36.36s %5zu of %-4zu %14s\n", s->devices.choices[r].label,
               s->devices.choices[r].name, copse__trainer_shard(s->trainer, r),
               (size_t)s->config->train.batch,
               copse__format_bytes(bytes, sizeof bytes, m.planned.device));
    }
    printf("\nMemory, and what is pinned of the host's:\n");
    for (size_t r = 0; r < s->devices.count; r++)
        print_memory(s, r);
}

static void print_buckets(const copse__trainer *trainer) {
    const copse__layout *layout = copse__trainer_layout(trainer);
    char bytes[32];
    printf("\nGradient buckets, in the order in which they are reduced:\n");
    for (size_t b = 0; b < layout->bucket_count; b++) {
        size_t parameters = 0;
        for (size_t p = 0; p < layout->parameter_count; p++)
            parameters += layout->places[p].bucket == b;
        printf("  %zu  %10s  %zu parameters\n", b,
               copse__format_bytes(bytes, sizeof bytes,
                                   layout->buckets[b].elements * sizeof(float)),
               parameters);
    }
}

static bool take(void *user, int id, const char *value) {
    bool *plan = user;
    (void)value;
    if (id == OPT_PLAN)
        *plan = true;
    return true;
}

static copse_status print_nodes(const copse_session *s, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t r = 0; r < s->devices.count && status == COPSE_OK; r++) {
        copse__text text = {0};
        copse__trainer_describe(s->trainer, r, &text);
        status = copse__text_check(&text, err);
        if (status == COPSE_OK)
            printf("\nA step on %s (%s), at %zu samples:\n%s",
                   s->devices.choices[r].label, s->devices.choices[r].name,
                   copse__trainer_shard(s->trainer, r), text.data);
        copse__text_free(&text);
    }
    return status;
}

static copse_status print_plan(const copse_session *s, bool nodes, copse_error *err) {
    copse__text table = {0};
    copse_status status =
        copse__model_summary(copse__trainer_graph(s->trainer), &table, err);
    if (status == COPSE_OK)
        status = copse__text_check(&table, err);
    if (status == COPSE_OK) {
        fputs(table.data, stdout);
        print_devices(s);
        print_buckets(s->trainer);
    }
    copse__text_free(&table);
    if (status == COPSE_OK && nodes)
        status = print_nodes(s, err);
    return status;
}

static int run(const copse_session_options *opening, bool nodes) {
    copse_error error = {0};
    copse_session session;
    if (copse_session_open(&session, opening, &error) != COPSE_OK)
        return copse_report(&error);
    copse_status status = print_plan(&session, nodes, &error);
    copse_session_close(&session);
    return status == COPSE_OK ? 0 : copse_report(&error);
}

int copse_cmd_summary(int argc, char **argv) {
    copse_session_options opening = {
        .isolate = true, .plan_only = true, .training = true};
    bool nodes = false;
    int code = copse_session_parse(&command, argc, argv, &opening, take, &nodes);
    if (code < 0)
        code = run(&opening, nodes);
    copse_session_options_free(&opening);
    return code;
}
