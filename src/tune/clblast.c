/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/clblast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/bench.h"
#include "backend/clblast_sizes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { MOST_NAMES = 16, MOST_VALUES = 6, ROUNDS = 5 };

/* A parameter and the values it may have; 0 ends them (as a value it stands first). */
typedef struct range {
    const char *name;
    size_t values[MOST_VALUES];
    size_t count;
} range;

typedef struct kernel {
    const char *key;
    size_t m, n, k; /* of the product that CLBlast runs by it */
    range ranges[MOST_NAMES];
    const char *starts[6]; /* settings that suit some kind of device; NULL-terminated */
    bool (*can_be)(const size_t *values);
} kernel;

static const kernel kernels[COPSE__TUNE_CLBLAST_KERNELS] = {
    {"clblast Xgemm",
     512,
     512,
     512,
     {{"GEMMK", {0}, 1},
      {"KREG", {1}, 1},
      {"KWG", {16, 32, 64}, 3},
      {"KWI", {2, 8}, 2},
      {"MDIMA", {4, 8, 16, 32}, 4},
      {"MDIMC", {4, 8, 16, 32}, 4},
      {"MWG", {16, 32, 64, 128}, 4},
      {"NDIMB", {4, 8, 16, 32}, 4},
      {"NDIMC", {4, 8, 16, 32}, 4},
      {"NWG", {16, 32, 64, 128}, 4},
      {"SA", {0, 1}, 2},
      {"SB", {0, 1}, 2},
      {"STRM", {0, 1}, 2},
      {"STRN", {0, 1}, 2},
      {"VWM", {1, 2, 4, 8}, 4},
      {"VWN", {1, 2, 4, 8}, 4}},
     {"GEMMK=0 KREG=1 KWG=32 KWI=2 MDIMA=16 MDIMC=16 MWG=64 NDIMB=16 NDIMC=16 NWG=64 "
      "SA=1 "
      "SB=1 STRM=0 STRN=0 VWM=4 VWN=4",
      "GEMMK=0 KREG=1 KWG=16 KWI=2 MDIMA=8 MDIMC=8 MWG=64 NDIMB=8 NDIMC=8 NWG=64 SA=0 "
      "SB=0 "
      "STRM=0 STRN=0 VWM=4 VWN=4",
      "GEMMK=0 KREG=1 KWG=32 KWI=2 MDIMA=8 MDIMC=8 MWG=32 NDIMB=8 NDIMC=8 NWG=64 SA=0 "
      "SB=0 "
      "STRM=1 STRN=0 VWM=4 VWN=8",
      "GEMMK=0 KREG=1 KWG=32 KWI=2 MDIMA=4 MDIMC=4 MWG=32 NDIMB=4 NDIMC=4 NWG=32 SA=0 "
      "SB=0 "
      "STRM=0 STRN=0 VWM=8 VWN=4",
      NULL},
     copse__clblast_xgemm_can_be},
    {"clblast XgemmDirect",
     96,
     96,
     96,
     {{"KWID", {2, 8, 16}, 3},
      {"MDIMAD", {8, 16, 32}, 3},
      {"MDIMCD", {8, 16, 32}, 3},
      {"NDIMBD", {8, 16, 32}, 3},
      {"NDIMCD", {8, 16, 32}, 3},
      {"PADA", {0, 1}, 2},
      {"PADB", {0, 1}, 2},
      {"VWMD", {1, 2, 4, 8}, 4},
      {"VWND", {1, 2, 4, 8}, 4},
      {"WGD", {8, 16, 32, 64}, 4}},
     {"KWID=2 MDIMAD=8 MDIMCD=8 NDIMBD=8 NDIMCD=8 PADA=1 PADB=1 VWMD=1 VWND=1 WGD=8",
      "KWID=2 MDIMAD=8 MDIMCD=8 NDIMBD=8 NDIMCD=8 PADA=1 PADB=1 VWMD=4 VWND=4 WGD=32",
      "KWID=2 MDIMAD=16 MDIMCD=16 NDIMBD=16 NDIMCD=16 PADA=1 PADB=1 VWMD=2 VWND=2 WGD=32",
      NULL},
     copse__clblast_direct_can_be},
};

static size_t name_count(const kernel *k) {
    size_t count = 0;
    while (count < MOST_NAMES && k->ranges[count].name)
        count++;
    return count;
}

static void write_values(const kernel *k, const size_t *values, char out[256]) {
    size_t used = 0;
    for (size_t i = 0; i < name_count(k); i++)
        used += (size_t)snprintf(out + used, 256 - used, "%s%s=%zu", i ? " " : "",
                                 k->ranges[i].name, values[i]);
}

static void read_values(const kernel *k, const char *text, size_t *values) {
    const char *names[MOST_NAMES];
    for (size_t i = 0; i < name_count(k); i++)
        names[i] = k->ranges[i].name;
    copse__parameters_read(text, names, values, name_count(k)); /* our own texts */
}

/* The next setting that differs from `from` in one parameter; *at counts over calls. */
static bool neighbour(const kernel *k, const size_t *from, size_t *at, size_t *out) {
    for (;; ++*at) {
        size_t i = *at / MOST_VALUES, j = *at % MOST_VALUES;
        if (i >= name_count(k))
            return false;
        if (j >= k->ranges[i].count || k->ranges[i].values[j] == from[i])
            continue;
        memcpy(out, from, MOST_NAMES * sizeof *out);
        out[i] = k->ranges[i].values[j];
        if (k->can_be(out)) {
            ++*at;
            return true;
        }
    }
}

typedef struct walk {
    copse__device *device;
    const copse__tune_options *options;
    const kernel *kernel;
    copse__tune_subject subject;
    copse__tuned entries[1 + COPSE__TUNE_CLBLAST_KERNELS];
    size_t entry_count; /* beside the setting of the moment: what was chosen before */
    copse__node_run *yardstick;
    uint64_t end_ns;
    size_t tried, wrong;
    bool overridden; /* the kernel of the moment */
} walk;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static copse_status set_inputs(copse__node_run *run, const copse__case *made,
                               copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < 2 && status == COPSE_OK; i++) {
        float *values;
        size_t count = copse__node_operand_elements(&made->spec.in[i], &made->runs[0]);
        status = copse__calloc(&values, count, sizeof *values, err);
        if (status != COPSE_OK)
            return status;
        copse__case_fill(values, made, i, count, 1);
        status = copse__node_run_set(run, i, values, count, err);
        free(values);
    }
    return status;
}

/* Follows the chosen settings, this one (NULL: CLBlast's own) and the provider for products. */
static copse_status follow(walk *w, const char *provider, const char *parameters,
                           copse_error *err) {
    size_t count = w->entry_count;
    copse__tuned entries[2 + COPSE__TUNE_CLBLAST_KERNELS];
    memcpy(entries, w->entries, count * sizeof *entries);
    if (parameters)
        entries[count++] = (copse__tuned){w->kernel->key, "clblast", parameters};
    entries[count++] = (copse__tuned){"dense", provider, ""};
    return copse__backend_of(w->device)->tune(w->device, entries, count, err);
}

static copse_status prepare(walk *w, copse__node_run **out, const char *provider,
                            const char *parameters, copse_error *err) {
    copse__case made;
    copse__tune_case(&made, &w->subject.specs[0]);
    copse_status status = follow(w, provider, parameters, err);
    if (status == COPSE_OK)
        status = copse__node_run_new(out, w->device, &made.spec, err);
    if (status == COPSE_OK)
        status = set_inputs(*out, &made, err);
    if (status == COPSE_OK)
        status = copse__node_run_go(*out, &made.runs[0], &made.scalars, err);
    return status;
}

/* The setting's time in parts of the yardstick's, and in microseconds. */
static copse_status judge(walk *w, const char *parameters, double *share, double *us,
                          copse_error *err) {
    copse__node_run *run = NULL;
    copse__case made;
    double shares[ROUNDS], times[ROUNDS];
    copse_status status;
    copse__tune_case(&made, &w->subject.specs[0]);
    COPSE__TRY(prepare(w, &run, "clblast", parameters, err), out);
    for (size_t i = 0; i < ROUNDS; i++) {
        double theirs = 1, ours = 1;
        COPSE__TRY(copse__node_run_sample(&theirs, run, &made.runs[0], 3, err), out);
        COPSE__TRY(copse__node_run_sample(&ours, w->yardstick, &made.runs[0], 3, err),
                   out);
        shares[i] = theirs / ours;
        times[i] = theirs;
    }
    qsort(shares, ROUNDS, sizeof *shares, compare_doubles);
    qsort(times, ROUNDS, sizeof *times, compare_doubles);
    *share = shares[ROUNDS / 2];
    *us = times[ROUNDS / 2];
    w->tried++;
out:
    copse__node_run_free(run);
    return status;
}

static copse_status verify(walk *w, const char *parameters, copse_error *err) {
    copse__tuned entries[2 + COPSE__TUNE_CLBLAST_KERNELS];
    size_t count = w->entry_count;
    memcpy(entries, w->entries, count * sizeof *entries);
    entries[count++] = (copse__tuned){w->kernel->key, "clblast", parameters};
    entries[count++] = (copse__tuned){"dense", "clblast", ""};
    copse_status status =
        copse__backend_of(w->device)->tune(w->device, entries, count, err);
    if (status == COPSE_OK)
        status = copse__tune_verify_op(w->device, COPSE__OP_DENSE, true, err);
    return status == COPSE_OK
               ? copse__tune_verify(w->device, &w->subject, entries, count, true, err)
               : status;
}

/* A better setting takes best's place. Only what is a device's fault is an error. */
static copse_status consider(walk *w, const char *parameters, char best[256],
                             double *share, double *us, copse_error *err) {
    double own = 0, own_us = 0;
    copse_error why = {0};
    w->overridden = true;
    copse_status status = judge(w, parameters, &own, &own_us, &why);
    if (status == COPSE_OK && own < 0.97 * *share) {
        status = verify(w, parameters, &why);
        if (status == COPSE_OK) {
            snprintf(best, 256, "%s", parameters);
            *share = own;
            *us = own_us;
        }
    }
    if (status == COPSE_KERNEL) {
        w->wrong++;
        copse__log(COPSE_LOG_WARN, "%s: %s with %s is not chosen: %s",
                   copse__device_get(w->device)->choice.label, w->kernel->key, parameters,
                   why.text);
        return COPSE_OK;
    }
    const copse__backend *backend = copse__backend_of(w->device);
    if (status == COPSE_UNSUPPORTED || status == COPSE_DEVICE_MEMORY ||
        (status == COPSE_DEVICE && backend->is_launch_fault &&
         backend->is_launch_fault(&why)))
        return COPSE_OK;
    if (status != COPSE_OK && err)
        *err = why;
    return status;
}

static bool is_over(const walk *w) {
    return copse__now_ns() >= w->end_ns ||
           (w->options->stop && w->options->stop(w->options->user));
}

static copse_status walk_around(walk *w, char best[256], double *share, double *us,
                                copse_error *err) {
    bool moved = true;
    while (moved && !is_over(w)) {
        size_t from[MOST_NAMES] = {0}, next[MOST_NAMES], at = 0;
        char text[256];
        moved = false;
        read_values(w->kernel, best, from);
        while (!moved && !is_over(w) && neighbour(w->kernel, from, &at, next)) {
            double before = *share;
            write_values(w->kernel, next, text);
            copse_status status = consider(w, text, best, share, us, err);
            if (status != COPSE_OK)
                return status;
            moved = *share < before;
        }
    }
    return COPSE_OK;
}

static copse_status tune_kernel(walk *w, copse__pool *pool, copse__tune_result *out,
                                bool *found, copse_error *err) {
    double share = 0, us = 0, default_share = 0;
    char best[256] = "", *parameters = NULL;
    copse__node_spec spec;
    copse_status status;
    *found = false;
    copse__bench_gemm_spec(&spec, "nn", w->kernel->m, w->kernel->n, w->kernel->k);
    w->subject = (copse__tune_subject){.key = "dense", .specs = &spec, .spec_count = 1};
    w->tried = w->wrong = 0;
    w->overridden = false;
    COPSE__TRY(prepare(w, &w->yardstick, "rows", NULL, err), out);
    COPSE__TRY(judge(w, NULL, &share, &us, err), out);
    default_share = share;
    for (size_t i = 0; w->kernel->starts[i] && !is_over(w); i++)
        COPSE__TRY(consider(w, w->kernel->starts[i], best, &share, &us, err), out);
    if (best[0])
        COPSE__TRY(walk_around(w, best, &share, &us, err), out);
    if (!best[0])
        goto out;
    COPSE__TRY(copse__pool_strdup(pool, &parameters, best, err), out);
    *out = (copse__tune_result){.tuned = {w->kernel->key, "clblast", parameters},
                                .us = us,
                                .default_us = us * default_share / share};
    w->entries[w->entry_count++] = out->tuned;
    *found = true;
    if (w->options->on_subject)
        w->options->on_subject(&(copse__tune_progress){.key = w->kernel->key,
                                                       .result = out,
                                                       .tried = w->tried,
                                                       .wrong = w->wrong},
                               w->options->user);
out:
    copse__node_run_free(w->yardstick);
    w->yardstick = NULL;
    return status;
}

copse_status copse__tune_clblast(copse__tune_result *results, size_t *count,
                                 copse__pool *pool, copse__device *device,
                                 const copse__tune_options *options, bool *spoilt,
                                 copse_error *err) {
    walk w = {.device = device, .options = options};
    copse_status status = COPSE_OK;
    *count = 0;
    *spoilt = false;
    for (size_t i = 0; i < COPSE__TUNE_CLBLAST_KERNELS && status == COPSE_OK; i++) {
        bool found;
        double share = options->seconds / COPSE__TUNE_CLBLAST_KERNELS;
        w.kernel = &kernels[i];
        w.end_ns = copse__now_ns() + (uint64_t)(share * 1e9);
        status = tune_kernel(&w, pool, &results[*count], &found, err);
        *count += found;
        *spoilt |= w.overridden && !found;
    }
    if (status == COPSE_OK)
        status = copse__backend_of(device)->tune(device, w.entries, w.entry_count, err);
    return status;
}
