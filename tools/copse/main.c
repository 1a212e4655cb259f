/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "command.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"train", copse_cmd_train, "Train the network of a configuration"},
    {"eval", copse_cmd_eval, "Loss and metrics of a trained network on its test set"},
    {"predict", copse_cmd_predict, "Outputs of a trained network for samples of a file"},
    {"summary", copse_cmd_summary, "Layers, shapes, parameters, memory"},
    {"bench", copse_cmd_bench, "How fast it is here, verified"},
    {"devices", copse_cmd_devices, "What --devices can name"},
    {"data", copse_cmd_data, "What is in a configuration's data, and how it looks"},
    {"convert", copse_cmd_convert, "Datasets from one format to another"},
    {"tune", copse_cmd_tune, "What each device runs fastest, for later runs"},
    {"selftest", copse_cmd_selftest, "Every kernel on each device against the host"},
};

static void print_help(FILE *to) {
    fputs("Usage: copse COMMAND [options]\n\n"
          "Trains neural networks on every OpenCL device of a machine at once.\n\n"
          "Commands:\n",
          to);
    for (size_t i = 0; i < COPSE__COUNT(commands); i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`copse COMMAND --help` tells more. Exit codes: 0 ok, 1 run failed, 2 usage "
          "or\n"
          "configuration (also a configuration file that cannot be read), 4 no usable "
          "device,\n5 another file is missing, damaged or cannot be written, 130 "
          "interrupted (after saving).\n",
          to);
}

/* A result that did not reach standard output is no success. */
static int close_output(int code) {
    bool failed = ferror(stdout) != 0;
    failed |= fflush(stdout) != 0;
    if (!failed)
        return code;
    fprintf(stderr, "copse: standard output cannot be written: %s\n", strerror(errno));
    return code == 0 ? 1 : code;
}

int main(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return close_output(argc < 2 ? 2 : 0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("copse %s\n", copse_version());
        return close_output(0);
    }
    for (size_t i = 0; i < COPSE__COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return close_output(commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "copse: '%s' is no command; see copse --help\n", argv[1]);
    return 2;
}
