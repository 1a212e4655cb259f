/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COMMON_OPTIONS_H
#define TOOLS_COMMON_OPTIONS_H

#include <stddef.h>

/* Command lines from one table: what is parsed, what --help prints, what the man page says. */

typedef struct tool_option {
    int id;               /* > 0 */
    const char *name;     /* "devices": --devices */
    char letter;          /* 'q': -q too; 0: none */
    const char *argument; /* "SEL"; NULL: a flag */
    const char *help;
} tool_option;

typedef struct tool_command {
    const char *program;        /* "copse train": how messages begin */
    const char *usage;          /* "CONFIG [options]" */
    const char *summary;        /* a sentence or a few */
    const tool_option *options; /* without --help and --version */
    size_t option_count;
    size_t least_operands, most_operands;
} tool_command;

enum {
    TOOL_END = 0,    /* no more options: the operands are all known now */
    TOOL_USAGE = -1, /* a usage error; its line has been printed on stderr */
    TOOL_DONE = -2   /* --help or --version has been printed: leave with 0 */
};

typedef struct tool_parser {
    const tool_command *command;
    int argc, at;
    char **argv;
    const char *letters; /* rest of a cluster such as -qv */
    const char **operands;
    size_t operand_count;
    int only_operands; /* after "--" */
} tool_parser;

/* argv[0] is the command's own name and is skipped. */
void tool_begin(tool_parser *parser, const tool_command *command, int argc, char **argv);

/* The next option's id, with its argument in *value; or one of the above. Options and operands may be
 * mixed; a long option may be shortened as far as it stays unique. */
int tool_next(tool_parser *parser, const char **value);

void tool_end(tool_parser *parser);

/* What --help prints, on stdout. */
void tool_help(const tool_command *command);

/* One line on stderr: "copse train: FORMAT". */
void tool_complain(const tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
