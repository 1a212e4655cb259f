/* SPDX-License-Identifier: Apache-2.0 */
#include "common/options.h"

#include <copse/status.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tool_option help_option = {
    .id = TOOL_DONE, .name = "help", .help = "Show this help"};
static const tool_option version_option = {
    .id = TOOL_DONE, .name = "version", .help = "Show the version"};

void tool_complain(const tool_command *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", command->program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static void print_option(const tool_option *option) {
    char left[64];
    int used = option->letter ? snprintf(left, sizeof left, "  -%c, ", option->letter)
                              : snprintf(left, sizeof left, "      ");
    snprintf(left + used, sizeof left - (size_t)used, "--%s%s%s", option->name,
             option->argument ? " " : "", option->argument ? option->argument : "");
    const char *help = option->help;
    printf(strlen(left) < 30 ? "%-30s" : "%s\n                              ", left);
    for (const char *line = help;;) {
        size_t length = strcspn(line, "\n");
        printf("%.*s\n", (int)length, line);
        if (!line[length])
            break;
        line += length + 1;
        printf("                              ");
    }
}

void tool_help(const tool_command *command) {
    printf("Usage: %s %s\n\n%s\n\nOptions:\n", command->program, command->usage,
           command->summary);
    for (size_t i = 0; i < command->option_count; i++)
        print_option(&command->options[i]);
    print_option(&help_option);
    print_option(&version_option);
}

void tool_begin(tool_parser *parser, const tool_command *command, int argc, char **argv) {
    *parser = (tool_parser){.command = command, .argc = argc, .at = 1, .argv = argv};
    parser->operands = calloc((size_t)argc + 1, sizeof *parser->operands);
}

void tool_end(tool_parser *parser) {
    free(parser->operands);
    parser->operands = NULL;
}

static int finish(tool_parser *p) {
    const tool_command *c = p->command;
    if (!p->operands) {
        tool_complain(c, "no memory");
        return TOOL_USAGE;
    }
    if (p->operand_count >= c->least_operands && p->operand_count <= c->most_operands)
        return TOOL_END;
    if (p->operand_count < c->least_operands)
        tool_complain(c, "an argument is missing; usage: %s %s", c->program, c->usage);
    else
        tool_complain(c, "too many arguments, from '%s' on; usage: %s %s",
                      p->operands[c->most_operands], c->program, c->usage);
    return TOOL_USAGE;
}

static int take(tool_parser *p, const tool_option *option, const char *attached,
                const char **value) {
    *value = attached;
    if (option == &help_option) {
        tool_help(p->command);
        return TOOL_DONE;
    }
    if (option == &version_option) {
        printf("%.*s %s\n", (int)strcspn(p->command->program, " "), p->command->program,
               copse_version());
        return TOOL_DONE;
    }
    if (!option->argument && attached) {
        tool_complain(p->command, "--%s takes no argument", option->name);
        return TOOL_USAGE;
    }
    if (option->argument && !attached) {
        if (p->at >= p->argc) {
            tool_complain(p->command, "--%s needs an argument: %s", option->name,
                          option->argument);
            return TOOL_USAGE;
        }
        *value = p->argv[p->at++];
    }
    return option->id;
}

/* NULL: none or several; *count tells. An exact name wins. */
static const tool_option *find_long(const tool_parser *p, const char *name, size_t length,
                                    size_t *count) {
    const tool_option *found = NULL;
    *count = 0;
    for (size_t i = 0; i < p->command->option_count + 2; i++) {
        const tool_option *option = i < p->command->option_count ? &p->command->options[i]
                                    : i == p->command->option_count ? &help_option
                                                                    : &version_option;
        if (strncmp(option->name, name, length) != 0)
            continue;
        if (option->name[length] == '\0') {
            *count = 1;
            return option;
        }
        found = option;
        ++*count;
    }
    return *count == 1 ? found : NULL;
}

static int next_long(tool_parser *p, const char *text, const char **value) {
    size_t length = strcspn(text, "="), count;
    const tool_option *option = find_long(p, text, length, &count);
    if (!option) {
        tool_complain(p->command, "%s option '--%.*s'; see %s --help",
                      count ? "ambiguous" : "unknown", (int)length, text,
                      p->command->program);
        return TOOL_USAGE;
    }
    return take(p, option, text[length] ? text + length + 1 : NULL, value);
}

static int next_letter(tool_parser *p, const char **value) {
    char letter = *p->letters++;
    for (size_t i = 0; i < p->command->option_count; i++) {
        const tool_option *option = &p->command->options[i];
        if (option->letter != letter)
            continue;
        const char *attached = NULL;
        if (option->argument && *p->letters) {
            attached = p->letters;
            p->letters = "";
        }
        return take(p, option, attached, value);
    }
    if (letter == 'h')
        return take(p, &help_option, NULL, value);
    tool_complain(p->command, "unknown option '-%c'; see %s --help", letter,
                  p->command->program);
    return TOOL_USAGE;
}

int tool_next(tool_parser *p, const char **value) {
    *value = NULL;
    if (!p->operands)
        return finish(p);
    for (;;) {
        if (p->letters && *p->letters)
            return next_letter(p, value);
        if (p->at >= p->argc)
            return finish(p);
        const char *text = p->argv[p->at++];
        if (p->only_operands || text[0] != '-' || text[1] == '\0')
            p->operands[p->operand_count++] = text;
        else if (strcmp(text, "--") == 0)
            p->only_operands = 1;
        else if (text[1] == '-')
            return next_long(p, text + 2, value);
        else
            p->letters = text + 1;
    }
}
