/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_COMMAND_H
#define TOOLS_COPSE_COMMAND_H

#include <copse/status.h>
#include <stdbool.h>

#include "common/options.h"
#include "topo/topo.h"
#include "train/config.h"

/* One file a subcommand; each is a function from its arguments (argv[0] its own name) to the
 * exit code. */
int copse_cmd_bench(int argc, char **argv);
int copse_cmd_bench_allreduce(int argc, char **argv);
int copse_cmd_bench_gemm(int argc, char **argv);
int copse_cmd_bench_conv(int argc, char **argv);
int copse_cmd_bench_data(int argc, char **argv);
int copse_cmd_bench_eval(int argc, char **argv);
int copse_cmd_bench_step(int argc, char **argv);
int copse_cmd_convert(int argc, char **argv);
int copse_cmd_data(int argc, char **argv);
int copse_cmd_devices(int argc, char **argv);
int copse_cmd_eval(int argc, char **argv);
int copse_cmd_predict(int argc, char **argv);
int copse_cmd_selftest(int argc, char **argv);
int copse_cmd_summary(int argc, char **argv);
int copse_cmd_train(int argc, char **argv);
int copse_cmd_tune(int argc, char **argv);

/* 0 ok, 1 run failed, 2 usage or configuration, 4 no usable device, 5 data or file damaged,
 * 130 interrupted. */
int copse_exit_code(copse_status status);

/* Prints "copse: place: text" on stderr, with the native code where --verbose asked, and returns
 * the exit code. */
int copse_report(const copse_error *error);

/* Sends the library's lines of this level and worse to stderr. */
void copse_log_to_stderr(copse_log_level most);

/* Options that several subcommands have. */
enum {
    OPT_OUT = 1,
    OPT_DEVICES,
    OPT_SET,
    OPT_RESUME,
    OPT_DRY_RUN,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_NO_SELFTEST,
    OPT_ISOLATE,
    OPT_OWN /* the first id of a subcommand's own options */
};

#define OPTION_DEVICES                                                                    \
    {                                                                                     \
        OPT_DEVICES, "devices", 'd', "SEL",                                               \
            "Devices: all, gpu, cpu, host, 0:0, vendor=amd, name~=6600, …, separated\n" \
            "by commas, each with /N (sub-devices) or *W (shard weight)"                  \
    }
#define OPTION_SET                                                                       \
    {                                                                                    \
        OPT_SET, "set", 's', "KEY=VALUE",                                                \
            "Override the configuration: --set train.epochs=3 (repeatable)"              \
    }
#define OPTION_QUIET                                                                     \
    { OPT_QUIET, "quiet", 'q', NULL, "No progress, errors only" }
#define OPTION_VERBOSE                                                                   \
    { OPT_VERBOSE, "verbose", 'v', NULL, "Tell more, also what drivers say" }
#define OPTION_ISOLATE                                                                   \
    {                                                                                    \
        OPT_ISOLATE, "isolate", 0, "icd|none",                                           \
            "Ask drivers in a child process first (default icd)"                         \
    }

/* The topology and the devices that a selector names. Frees everything on failure. */
typedef struct copse_devices {
    copse__topo *topo;
    struct copse__device_choice *choices;
    size_t count;
} copse_devices;

copse_status copse_devices_open(copse_devices *out, const char *selector,
                                const char *bench, bool isolate, copse_error *err);
void copse_devices_close(copse_devices *devices);

/* "icd" or "none"; false (and a line on stderr) where it is neither. */
bool copse_parse_isolate(const tool_command *command, const char *value, bool *isolate);

/* Overrides as they are collected from --set. */
typedef struct copse_overrides {
    const char **items;
    size_t count, capacity;
} copse_overrides;

copse_status copse_overrides_add(copse_overrides *overrides, const char *item,
                                 copse_error *err);

/* A run folder's config.yaml, or a configuration file itself. free() it. */
copse_status copse_find_config(char **out, const char *run_or_config, copse_error *err);

#endif
