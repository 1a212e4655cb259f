/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cltopo.h"
#include "common/parse_time.h"

typedef struct command_entry {
    const char *name;
    const char *operands;
    const char *text;
} command_entry;

static const command_entry commands[] = {
    {"tree", "", "the machine: NUMA nodes, bridges, devices and their OpenCL handles"},
    {"list", "", "one line a device"},
    {"matrix", "", "how near each two devices are, and the CPUs near each"},
    {"plan", "",
     "ranks, reduction tree, shards and the modelled limit of a training run"},
    {"bench", "", "measure transfers, launches, arithmetic and memory of each device"},
    {"check", "", "test the requirements; without any, that a device can be used"},
    {"diff", "A B", "what differs between two saved reports"},
    {"doctor", "",
     "ask every installed driver alone, and say what to do about a bad one"},
};

typedef enum option_id {
    OPTION_FORMAT,
    OPTION_OUTPUT,
    OPTION_INPUT,
    OPTION_HWLOC_XML,
    OPTION_REQUIRE,
    OPTION_STRICT,
    OPTION_LABELS,
    OPTION_SELECT,
    OPTION_ALL_HANDLES,
    OPTION_PROBE_TIMEOUT,
    OPTION_ISOLATE,
    OPTION_REDACT,
    OPTION_BYTES,
    OPTION_BATCH,
    OPTION_BUDGET,
    OPTION_VERBOSE,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_GENERATE
} option_id;

typedef struct option_entry {
    option_id id;
    char letter;
    const char *name;
    const char *value;   /* NULL: takes none */
    const char *choices; /* for completion: words, "@file", or NULL */
    const char *text;    /* NULL: not shown */
} option_entry;

/* The one table: --help, the man page and the completion are made from it. */
static const option_entry entries[] = {
    {OPTION_FORMAT, 'f', "format", "FORMAT", "text json jsonl csv dot svg",
     "text, json, jsonl, csv, dot or svg"},
    {OPTION_OUTPUT, 'o', "output", "FILE", "@file",
     "write there, whole or not at all, instead of to the standard output"},
    {OPTION_INPUT, 'i', "input", "FILE", "@file",
     "replay a report saved with --format json"},
    {OPTION_HWLOC_XML, 0, "hwloc-xml", "FILE", "@file",
     "replay a topology saved by hwloc's lstopo"},
    {OPTION_REQUIRE, 'r', "require", "EXPR",
     "gpus>= devices>= cpus>= mem>= ext() vendor() driver() h2d() d2h() path()",
     "demand something, as gpus>=2 or ext(cl_khr_fp16); may be repeated; exit 3 where "
     "one is false or not known"},
    {OPTION_STRICT, 0, "strict", NULL, NULL, "exit 1 where a driver crashed or hung"},
    {OPTION_LABELS, 0, "labels", NULL, NULL,
     "print stable labels of this machine for a CI runner"},
    {OPTION_SELECT, 's', "select", "SEL", "all gpu cpu accelerator host",
     "only these devices: all, gpu, cpu, accelerator, host, P:D, pci:ADDRESS, "
     "vendor=TAG, platform~=TEXT, name~=TEXT, each with /N and *W"},
    {OPTION_ALL_HANDLES, 'a', "all-handles", NULL, NULL,
     "a line for every handle, not only for the preferred one of a device"},
    {OPTION_PROBE_TIMEOUT, 0, "probe-timeout", "TIME", "2s 10s 60s",
     "how long a driver may take to answer (10s)"},
    {OPTION_ISOLATE, 0, "isolate", "icd|none", "icd none",
     "ask the drivers in child processes (icd, the default) or in this one (none)"},
    {OPTION_REDACT, 0, "redact", NULL, NULL, "hide host name and device UUIDs"},
    {OPTION_BYTES, 0, "bytes", "SIZE", "1MiB 64MiB 1GiB",
     "plan: bytes of gradients that a step sums (64MiB)"},
    {OPTION_BATCH, 0, "batch", "N", "64 256 1024", "plan: samples of a step (256)"},
    {OPTION_BUDGET, 0, "budget", "TIME", "2s 10s 60s",
     "bench: time for each device, about (10s)"},
    {OPTION_VERBOSE, 'v', "verbose", NULL, NULL, "say more on the standard error"},
    {OPTION_HELP, 'h', "help", NULL, NULL, "this text"},
    {OPTION_VERSION, 0, "version", NULL, NULL, "the version"},
    {OPTION_GENERATE, 0, "generate", "man|bash", NULL, NULL},
};

void add_help(copse__text *out) {
    copse__text_add(out,
                    "Usage: cltopo [COMMAND] [OPTION]...\n\n"
                    "Shows what compute devices a machine has, which OpenCL handles "
                    "are the same device,\nwhat is near what, and how fast the paths "
                    "are.\n\nCommands (tree where none is given):\n");
    for (size_t i = 0; i < COPSE__COUNT(commands); i++)
        copse__text_add(
            out, "  %s%s%-*s %s\n", commands[i].name, commands[i].operands[0] ? " " : "",
            (int)(10 - strlen(commands[i].name) - (commands[i].operands[0] ? 1 : 0)),
            commands[i].operands, commands[i].text);
    copse__text_add(out, "\nOptions:\n");
    for (size_t i = 0; i < COPSE__COUNT(entries); i++) {
        const option_entry *e = &entries[i];
        char left[64], letter[8] = "    ";
        if (!e->text)
            continue;
        if (e->letter)
            copse__put(letter, sizeof letter, "-%c, ", e->letter);
        copse__put(left, sizeof left, "%s--%s%s%s", letter, e->name, e->value ? " " : "",
                   e->value ? e->value : "");
        copse__text_add(out, "  %-28s", left);
        /* Wrapped at 90 columns. */
        size_t column = 30;
        for (const char *word = e->text; *word;) {
            size_t length = strcspn(word, " ");
            if (column + length + 1 > 90) {
                copse__text_add(out, "\n%30s", "");
                column = 30;
            }
            copse__text_add(out, " %.*s", (int)length, word);
            column += length + 1;
            word += length + (word[length] == ' ');
        }
        copse__text_add(out, "\n");
    }
    copse__text_add(out, "\nExit codes: 0 ok, 1 failed (diff: they differ), 2 usage, 3 a "
                         "requirement is false,\n4 no usable device, 5 a file "
                         "is\nmissing, damaged or cannot be written.\n");
}

void add_man_options(copse__text *out) {
    for (size_t i = 0; i < COPSE__COUNT(commands); i++)
        copse__text_add(out, "*%s*%s%s%s\n\t%s\n\n", commands[i].name,
                        commands[i].operands[0] ? " _" : "", commands[i].operands,
                        commands[i].operands[0] ? "_" : "", commands[i].text);
    copse__text_add(out, "# OPTIONS\n\n");
    for (size_t i = 0; i < COPSE__COUNT(entries); i++) {
        const option_entry *e = &entries[i];
        if (!e->text)
            continue;
        if (e->letter)
            copse__text_add(out, "*-%c*, ", e->letter);
        copse__text_add(out, "*--%s*%s%s%s\n\t", e->name, e->value ? " _" : "",
                        e->value ? e->value : "", e->value ? "_" : "");
        /* scdoc reads these as markup. */
        for (const char *c = e->text; *c; c++)
            copse__text_add(out, strchr("_*\\#", *c) ? "\\%c" : "%c", *c);
        copse__text_add(out, "\n\n");
    }
}

void add_bash_completion(copse__text *out) {
    copse__text_add(out, "# bash completion of cltopo, made from its option table\n"
                         "_cltopo() {\n    local word=${COMP_WORDS[COMP_CWORD]} "
                         "before=${COMP_WORDS[COMP_CWORD-1]}\n    case $before in\n");
    for (size_t i = 0; i < COPSE__COUNT(entries); i++) {
        const option_entry *e = &entries[i];
        if (!e->text || !e->value)
            continue;
        copse__text_add(out, "    ");
        if (e->letter)
            copse__text_add(out, "-%c|", e->letter);
        copse__text_add(out, "--%s)\n        ", e->name);
        if (e->choices && !strcmp(e->choices, "@file"))
            copse__text_add(out, "COMPREPLY=($(compgen -f -- \"$word\"))\n");
        else
            copse__text_add(out, "COMPREPLY=($(compgen -W '%s' -- \"$word\"))\n",
                            e->choices ? e->choices : "");
        copse__text_add(out, "        return ;;\n");
    }
    copse__text_add(out, "    esac\n    if [[ $word == -* ]]; then\n        "
                         "COMPREPLY=($(compgen -W '");
    const char *blank = "";
    for (size_t i = 0; i < COPSE__COUNT(entries); i++)
        if (entries[i].text) {
            copse__text_add(out, "%s--%s", blank, entries[i].name);
            blank = " ";
        }
    copse__text_add(out, "' -- \"$word\"))\n    elif ((COMP_CWORD == 1)); then\n        "
                         "COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < COPSE__COUNT(commands); i++)
        copse__text_add(out, "%s%s", i ? " " : "", commands[i].name);
    copse__text_add(out, "' -- \"$word\"))\n    else\n        COMPREPLY=($(compgen -f -- "
                         "\"$word\"))\n    fi\n}\ncomplete -F _cltopo cltopo\n");
}

static bool parse_size(const char *text, unsigned long long *out) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},       {"B", 1},         {"kB", 1e3},
                 {"KB", 1e3},   {"MB", 1e6},      {"GB", 1e9},
                 {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824.0}};
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value <= 0)
        return false;
    for (size_t i = 0; i < COPSE__COUNT(units); i++)
        if (!strcmp(end, units[i].unit)) {
            value *= units[i].factor;
            *out = value < 1e18 ? (unsigned long long)value : 0;
            return *out > 0;
        }
    return false;
}

static bool set_format(options *out, const char *value) {
    static const char *const names[] = {"text", "json", "jsonl", "csv", "dot", "svg"};
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        if (!strcmp(value, names[i])) {
            out->format = (output_format)i;
            return true;
        }
    return false;
}

static bool set_batch(options *out, const char *value) {
    char *end = NULL;
    errno = 0;
    out->batch = isdigit((unsigned char)value[0]) ? strtoul(value, &end, 10) : 0;
    return out->batch > 0 && !errno && end && !*end && out->batch <= 1000000000;
}

static bool set_option(options *out, option_id id, const char *value) {
    switch (id) {
    case OPTION_FORMAT:
        return set_format(out, value);
    case OPTION_OUTPUT:
        out->output = value;
        return value[0] != '\0';
    case OPTION_INPUT:
        out->input = value;
        return value[0] != '\0';
    case OPTION_HWLOC_XML:
        out->hwloc_xml = value;
        return value[0] != '\0';
    case OPTION_REQUIRE:
        if (out->require_count == MAX_REQUIREMENTS)
            return false;
        out->require[out->require_count++] = value;
        return true;
    case OPTION_STRICT:
        return out->strict = true;
    case OPTION_LABELS:
        return out->labels = true;
    case OPTION_SELECT:
        out->select = value;
        return true;
    case OPTION_ALL_HANDLES:
        return out->all_handles = true;
    case OPTION_PROBE_TIMEOUT:
        return tool_parse_time(value, &out->probe_timeout_s) &&
               out->probe_timeout_s <= 86400;
    case OPTION_ISOLATE:
        out->no_isolation = !strcmp(value, "none");
        return out->no_isolation || !strcmp(value, "icd");
    case OPTION_REDACT:
        return out->redact = true;
    case OPTION_BYTES:
        return parse_size(value, &out->plan_bytes);
    case OPTION_BATCH:
        return set_batch(out, value);
    case OPTION_BUDGET:
        return tool_parse_time(value, &out->budget_s) && out->budget_s <= 86400;
    case OPTION_VERBOSE:
        return out->verbose = true;
    case OPTION_HELP:
        return out->help = true;
    case OPTION_VERSION:
        return out->version = true;
    case OPTION_GENERATE:
        out->generate = value;
        return !strcmp(value, "man") || !strcmp(value, "bash");
    }
    return false;
}

/* `--name`, `--name=value`, `-x`; *value at the = where there is one. */
static const option_entry *find_option(const char *word, const char **value) {
    *value = NULL;
    if (word[1] != '-') {
        for (size_t i = 0; i < COPSE__COUNT(entries); i++)
            if (entries[i].letter && entries[i].letter == word[1] && !word[2])
                return &entries[i];
        return NULL;
    }
    size_t length = strcspn(word + 2, "=");
    if (word[2 + length] == '=')
        *value = word + 2 + length + 1;
    for (size_t i = 0; i < COPSE__COUNT(entries); i++)
        if (strlen(entries[i].name) == length &&
            !strncmp(entries[i].name, word + 2, length))
            return &entries[i];
    return NULL;
}

static int add_operand(options *out, const char *word) {
    if (!out->command) {
        for (size_t i = 0; i < COPSE__COUNT(commands); i++)
            if (!strcmp(word, commands[i].name)) {
                out->command = commands[i].name;
                return EXIT_OK;
            }
        complain_text("'%s' is no command; see cltopo --help", word);
        return EXIT_USAGE;
    }
    if (strcmp(out->command, "diff") != 0 || out->operand_count == MAX_OPERANDS) {
        complain_text("'%s' is one argument too many; see cltopo --help", word);
        return EXIT_USAGE;
    }
    out->operands[out->operand_count++] = word;
    return EXIT_OK;
}

static int check_together(const options *o) {
    bool diff = o->command && !strcmp(o->command, "diff");
    if (o->help || o->version || o->generate)
        return EXIT_OK;
    if (diff && o->operand_count != 2) {
        complain_text("diff wants two saved reports");
        return EXIT_USAGE;
    }
    if (o->labels && o->command) {
        complain_text("--labels stands without a command");
        return EXIT_USAGE;
    }
    if (o->input && o->hwloc_xml) {
        complain_text("--input and --hwloc-xml are two machines: give one of them");
        return EXIT_USAGE;
    }
    bool replay = o->input || o->hwloc_xml;
    if (replay && o->command &&
        (!strcmp(o->command, "bench") || !strcmp(o->command, "doctor"))) {
        complain_text("%s needs the machine itself, not a saved one", o->command);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

int parse_options(options *out, int argc, char *argv[]) {
    *out = (options){.plan_bytes = 64ull << 20, .batch = 256, .budget_s = 10};
    bool only_operands = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = NULL;
        if (only_operands || word[0] != '-' || !word[1]) {
            int code = add_operand(out, word);
            if (code != EXIT_OK)
                return code;
            continue;
        }
        if (!strcmp(word, "--")) {
            only_operands = true;
            continue;
        }
        const option_entry *e = find_option(word, &value);
        if (!e) {
            complain_text("'%s' is no option; see cltopo --help", word);
            return EXIT_USAGE;
        }
        if (e->value && !value && i + 1 < argc)
            value = argv[++i];
        if (e->value ? !value : value != NULL) {
            complain_text("--%s takes %s", e->name, e->value ? e->value : "no value");
            return EXIT_USAGE;
        }
        if (!set_option(out, e->id, value ? value : "")) {
            complain_text("--%s does not take '%s': %s", e->name, value ? value : "",
                          e->text ? e->text : e->value);
            return EXIT_USAGE;
        }
    }
    return check_together(out);
}
