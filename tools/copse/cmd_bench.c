/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "command.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} benches[] = {
    {"gemm", copse_cmd_bench_gemm, "Matrix products, as dense layers make them"},
    {"conv", copse_cmd_bench_conv, "Convolutions and their gradients"},
    {"allreduce", copse_cmd_bench_allreduce,
     "Sums over devices, beside the machine's physical limit"},
    {"step", copse_cmd_bench_step,
     "Whole training steps: where their time goes, and what devices gain together"},
    {"eval", copse_cmd_bench_eval, "Passes over a test set: evaluation, or prediction"},
    {"data", copse_cmd_bench_data, "Samples a second of the input, stage by stage"},
};

static void print_help(FILE *to) {
    fputs(
        "Usage: copse bench WHAT [options]\n\nMeasures, and verifies what it measured.\n"
        "JSON lines; a table on a terminal.\n\n",
        to);
    for (size_t i = 0; i < COPSE__COUNT(benches); i++)
        fprintf(to, "  %-10s %s\n", benches[i].name, benches[i].summary);
}

int copse_cmd_bench(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    for (size_t i = 0; i < COPSE__COUNT(benches); i++)
        if (strcmp(argv[1], benches[i].name) == 0)
            return benches[i].run(argc - 1, argv + 1);
    fprintf(stderr, "copse bench: '%s' is no benchmark; see copse bench --help\n",
            argv[1]);
    return 2;
}
