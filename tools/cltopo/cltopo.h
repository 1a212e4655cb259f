/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLTOPO_H
#define CLTOPO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/text.h"
#include "topo/model.h"

/* Exit codes, the same for all tools of copse. */
enum {
    EXIT_OK = 0,
    EXIT_RUN_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_UNMET = 3,
    EXIT_NO_DEVICE = 4,
    EXIT_DAMAGED = 5
};

typedef enum output_format {
    FORMAT_TEXT,
    FORMAT_JSON,
    FORMAT_JSONL,
    FORMAT_CSV,
    FORMAT_DOT,
    FORMAT_SVG
} output_format;

enum { MAX_REQUIREMENTS = 64, MAX_OPERANDS = 2 };

typedef struct options {
    const char *command; /* of the table of commands */
    const char *operands[MAX_OPERANDS];
    int operand_count;
    output_format format;
    const char *output;
    const char *input, *hwloc_xml;
    const char *require[MAX_REQUIREMENTS];
    int require_count;
    bool strict, labels, all_handles, redact, verbose, help, version;
    const char *select;
    double probe_timeout_s; /* 0: the default */
    bool no_isolation;
    unsigned long long plan_bytes; /* of the gradients, for plan */
    unsigned long batch;           /* global batch, for plan */
    double budget_s;               /* of bench, a device */
    const char *generate;          /* "man" or "bash": for the build */
} options;

/* options.c. Fills *out; on a usage error prints one line to stderr and returns EXIT_USAGE.
 */
int parse_options(options *out, int argc, char *argv[]);
/* The whole of --help; the OPTIONS part of the man page; the bash completion. */
void add_help(copse__text *out);
void add_man_options(copse__text *out);
void add_bash_completion(copse__text *out);

/* What a subcommand works on and writes to. */
typedef struct session {
    const options *options;
    copse__topo *topo;
    copse__text out;
    bool colour, unicode;
} session;

/* Each returns an exit code; its data go to s->out, its messages to stderr. */
int run_tree(session *s);
int run_list(session *s);
int run_matrix(session *s);
int run_plan(session *s);
int run_bench(session *s);
int run_check(session *s);
int run_labels(session *s);
int run_diff(session *s);
int run_doctor(session *s);

/* The picture formats of the machine; with_plan adds the ranks and their tree. */
int write_svg(session *s, bool with_plan);
int write_dot(session *s, bool with_plan);

/* One line to stderr, "cltopo: …", and the exit code that belongs to the status. */
int complain(const copse_error *error);
int exit_code_of(copse_status status);
void complain_text(const char *format, ...) COPSE_PRINTF(1, 2);
int refuse_format(const session *s);

/* Small words that several writers use. */
const char *short_name(const copse__topo *topo, size_t physical, char *out,
                       size_t capacity);
const char *link_text(const copse__link *link, char *out, size_t capacity);
/* "fp16 fp64 sub-groups", what is known to be there. */
const char *features_text(const copse__handle *handle, char *out, size_t capacity);
/* Nodes that are worth showing: compute devices, network cards and what is above them. free()
 * it; NULL: no memory. */
bool *nodes_to_show(const copse__topo *topo);
bool is_network(const copse__node *node);
/* "root port", "switch", "port", "bridge". */
const char *bridge_word(const copse__topo *topo, size_t node);
/* The physical device at a node; -1: none. */
int physical_at(const copse__topo *topo, size_t node);

#endif
