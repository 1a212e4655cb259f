/* SPDX-License-Identifier: Apache-2.0 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "topo/select.h"

int copse_exit_code(copse_status status) {
    switch (status) {
    case COPSE_OK:
        return 0;
    case COPSE_INVALID:
    case COPSE_CONFIG:
    case COPSE_UNSUPPORTED:
        return 2;
    case COPSE_UNMET:
        return 3;
    case COPSE_NODEVICE:
        return 4;
    case COPSE_IO:
    case COPSE_FORMAT:
        return 5;
    case COPSE_INTERRUPTED:
        return 130;
    default:
        return 1;
    }
}

int copse_report(const copse_error *error) {
    fprintf(stderr, "copse: %s%s%s\n", error->place, error->place[0] ? ": " : "",
            error->text[0] ? error->text : copse_status_message(error->status));
    return copse_exit_code(error->status);
}

static void print_line(copse_log_level level, const char *line, void *user) {
    (void)user;
    static const char *const prefixes[] = {
        [COPSE_LOG_ERROR] = "copse: ",
        [COPSE_LOG_WARN] = "copse: warning: ",
        [COPSE_LOG_INFO] = "copse: ",
        [COPSE_LOG_DEBUG] = "copse: ",
    };
    fprintf(stderr, "%s%s\n", prefixes[level], line);
}

void copse_log_to_stderr(copse_log_level most) {
    copse_log_set(print_line, most, NULL);
}

copse_status copse_devices_open(copse_devices *out, const char *selector,
                                const char *bench, bool isolate, copse_error *err) {
    *out = (copse_devices){0};
    copse__topo_options options = {.isolate =
                                       isolate ? COPSE__ISOLATE_ICD : COPSE__ISOLATE_NONE,
                                   .bench_json = bench};
    copse_status status = copse__topo_open(&out->topo, &options, err);
    if (status == COPSE_OK)
        status =
            copse__select_devices(out->topo, selector, &out->choices, &out->count, err);
    if (status != COPSE_OK)
        copse_devices_close(out);
    return status;
}

void copse_devices_close(copse_devices *devices) {
    free(devices->choices);
    copse__topo_close(devices->topo);
    *devices = (copse_devices){0};
}

bool copse_parse_isolate(const tool_command *command, const char *value, bool *isolate) {
    *isolate = strcmp(value, "none") != 0;
    if (!*isolate || strcmp(value, "icd") == 0)
        return true;
    tool_complain(command, "--isolate takes icd or none, not '%s'", value);
    return false;
}

copse_status copse_overrides_add(copse_overrides *overrides, const char *item,
                                 copse_error *err) {
    copse_status status =
        copse__grow(&overrides->items, &overrides->capacity, overrides->count + 1,
                    sizeof *overrides->items, err);
    if (status == COPSE_OK)
        overrides->items[overrides->count++] = item;
    return status;
}

copse_status copse_find_config(char **out, const char *run_or_config, copse_error *err) {
    struct stat info;
    if (stat(run_or_config, &info) == 0 && S_ISDIR(info.st_mode))
        return copse__path_join(out, run_or_config, "config.yaml", err);
    return copse__strdup(out, run_or_config, err);
}
