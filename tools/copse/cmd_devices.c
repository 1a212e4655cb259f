/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "base/text.h"
#include "command.h"

static const tool_option options[] = {OPTION_ISOLATE};

static const tool_command command = {
    .program = "copse devices",
    .usage = "[options]",
    .summary =
        "Lists what --devices can name, one line a handle. * marks the handle that is "
        "used\nfor a physical device where several drive it. `cltopo` tells more.",
    .options = options,
    .option_count = COPSE__COUNT(options),
};

static int print_devices(bool isolate) {
    copse_error error = {0};
    copse__topo *topo;
    copse__topo_options opening = {.isolate = isolate ? COPSE__ISOLATE_ICD
                                                      : COPSE__ISOLATE_NONE};
    if (copse__topo_open(&topo, &opening, &error) != COPSE_OK)
        return copse_report(&error);
    copse__text text = {0};
    copse__describe_devices(topo, &text);
    int code = 0;
    if (copse__text_check(&text, &error) == COPSE_OK)
        fputs(text.data, stdout);
    else
        code = copse_report(&error);
    copse__text_free(&text);
    copse__topo_close(topo);
    return code;
}

int copse_cmd_devices(int argc, char **argv) {
    tool_parser parser;
    const char *value;
    bool isolate = true;
    int id;
    copse_log_to_stderr(COPSE_LOG_WARN);
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!copse_parse_isolate(&command, value, &isolate)) {
            id = TOOL_USAGE;
            break;
        }
    tool_end(&parser);
    if (id != TOOL_END)
        return id == TOOL_DONE ? 0 : 2;
    return print_devices(isolate);
}
