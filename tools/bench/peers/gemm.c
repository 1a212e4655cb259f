/* SPDX-License-Identifier: Apache-2.0
 *
 * copse's dense products beside OpenBLAS's, call by call in turns, on the same cores, as JSON lines:
 *
 *   bench_gemm LIBOPENBLAS DEVICE THREADS [auto|off|FILE [M,N,K]...]
 *
 * Each turn runs one side for some milliseconds; the median of the ratios of neighbouring turns is what
 * counts. OpenBLAS's threads spin for some 0.1 s and more after a call, which takes a core from whoever comes next:
 * they are told to do so for half a millisecond only, and a pause follows. Results of both are compared first. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/bench.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "topo/topo.h"
#include "tune/known.h"

enum { TURNS = 15, NO_TRANS = 111, TRANS = 112, ROW_MAJOR = 101 };
#define TURN_US 20000.0

typedef void sgemm_32(int, int, int, int, int, int, float, const float *, int,
                      const float *, int, float, float *, int);
typedef void sgemm_64(int, int, int, long, long, long, float, const float *, long,
                      const float *, long, float, float *, long);

typedef struct blas {
    sgemm_32 *narrow;
    sgemm_64 *wide;
} blas;

static void *symbol(void *library, const char *name) {
    return dlsym(library, name);
}

static bool open_blas(blas *out, const char *path, int threads) {
    setenv("OPENBLAS_THREAD_TIMEOUT", "20", 0); /* 2^20 cycles; read when it is loaded */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*set)(int) = NULL;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    void *narrow = symbol(library, "cblas_sgemm"), *wide = NULL, *setter;
    if (!narrow)
        wide = symbol(library, "cblas_sgemm64_");
    if (!narrow && !wide)
        wide = symbol(library, "scipy_cblas_sgemm64_");
    setter = symbol(library, "openblas_set_num_threads");
    if (!setter)
        setter = symbol(library, "openblas_set_num_threads64_");
    if (!setter)
        setter = symbol(library, "scipy_openblas_set_num_threads64_");
    memcpy(&out->narrow, &narrow, sizeof narrow);
    memcpy(&out->wide, &wide, sizeof wide);
    memcpy(&set, &setter, sizeof setter);
    if ((!narrow && !wide) || !set) {
        fprintf(stderr, "%s: no OpenBLAS\n", path);
        return false;
    }
    set(threads);
    return true;
}

typedef struct product {
    const char *form;
    size_t m, n, k;
    float *a, *b, *c;
} product;

static void call_blas(const blas *with, const product *p) {
    bool ta = strcmp(p->form, "tn") == 0, tb = strcmp(p->form, "nt") == 0;
    size_t lda = ta ? p->m : p->k, ldb = tb ? p->k : p->n;
    if (with->narrow)
        with->narrow(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)p->m,
                     (int)p->n, (int)p->k, 1, p->a, (int)lda, p->b, (int)ldb, 0, p->c,
                     (int)p->n);
    else
        with->wide(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (long)p->m,
                   (long)p->n, (long)p->k, 1, p->a, (long)lda, p->b, (long)ldb, 0, p->c,
                   (long)p->n);
}

static double blas_turn(const blas *with, const product *p, size_t calls) {
    uint64_t start = copse__now_ns();
    for (size_t i = 0; i < calls; i++)
        call_blas(with, p);
    return (double)(copse__now_ns() - start) * 1e-3 / (double)calls;
}

static float *numbers(size_t count, unsigned seed) {
    float *made = malloc(count * sizeof *made);
    for (size_t i = 0; made && i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        made[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
    return made;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, double part) {
    qsort(values, TURNS, sizeof *values, compare_doubles);
    return values[(size_t)(part * (TURNS - 1) + 0.5)];
}

/* The worst difference in parts of the largest result. */
static double difference(const product *p, const float *got) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < p->m * p->n; i++) {
        largest = fmax(largest, fabs((double)p->c[i]));
        worst = fmax(worst, fabs((double)p->c[i] - (double)got[i]));
    }
    return worst / largest;
}

static copse_status compare(copse__device *device, const blas *with, product *p,
                            int threads, copse_error *err) {
    double ours[TURNS], theirs[TURNS], ratios[TURNS], us, blas_us;
    copse__node_spec spec;
    copse__node_run *run;
    copse_scalars scalars = {0};
    copse__extents extents = {{0}};
    float *got = malloc(p->m * p->n * sizeof *got);
    copse_status status;
    copse__bench_gemm_spec(&spec, p->form, p->m, p->n, p->k);
    extents.of[COPSE__BATCH] = spec.in[0].dim[0].size;
    COPSE__TRY(copse__node_run_new(&run, device, &spec, err), out);
    COPSE__TRY(copse__node_run_set(run, 0, p->a, p->m * p->k, err), out);
    COPSE__TRY(copse__node_run_set(run, 1, p->b, p->k * p->n, err), out);
    COPSE__TRY(copse__node_run_go(run, &extents, &scalars, err), out);
    COPSE__TRY(copse__node_run_get(run, 0, got, p->m * p->n, err), out);
    call_blas(with, p);
    double apart = difference(p, got);
    COPSE__TRY(copse__node_run_sample(&us, run, &extents, 1, err), out);
    blas_us = blas_turn(with, p, 1);
    size_t calls = (size_t)(TURN_US / us) + 1,
           blas_calls = (size_t)(TURN_US / blas_us) + 1;
    for (size_t i = 0; i < TURNS; i++) {
        theirs[i] = blas_turn(with, p, blas_calls);
        if (threads > 1)
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        COPSE__TRY(copse__node_run_sample(&ours[i], run, &extents, calls, err), out);
        ratios[i] = theirs[i] / ours[i];
    }
    double flops = 2e-3 * (double)p->m * (double)p->n * (double)p->k;
    double middle = quantile(ratios, 0.5);
    printf("{\"bench\":\"gemm_openblas\",\"form\":\"%s\",\"m\":%zu,\"n\":%zu,\"k\":%zu,"
           "\"threads\":%d,\"gflops\":%.1f,\"openblas_gflops\":%.1f,\"ratio\":{"
           "\"median\":%.3f,"
           "\"low\":%.3f,\"high\":%.3f},\"apart\":%.1e,\"provider\":\"%s\","
           "\"parameters\":\"%s\"}\n",
           p->form, p->m, p->n, p->k, threads, flops / quantile(ours, 0.5),
           flops / quantile(theirs, 0.5), middle, quantile(ratios, 0.25),
           quantile(ratios, 0.75), apart, copse__node_run_provider(run),
           copse__node_run_parameters(run));
    fflush(stdout);
    copse__node_run_free(run);
    if (!(apart < 1e-4))
        status = copse__fail(err, COPSE_KERNEL, 0, "bench_gemm",
                             "the results differ by %g", apart);
out:
    free(got);
    return status;
}

static copse_status all_forms(copse__device *device, const blas *with, size_t m, size_t n,
                              size_t k, int threads, copse_error *err) {
    static const char *const forms[] = {"nn", "nt", "tn"};
    copse_status status = COPSE_OK;
    for (size_t f = 0; f < 3 && status == COPSE_OK; f++) {
        product p = {forms[f],         m, n, k, numbers(m * k, 1), numbers(k * n, 2),
                     numbers(m * n, 3)};
        status = compare(device, with, &p, threads, err);
        free(p.a);
        free(p.b);
        free(p.c);
    }
    return status;
}

static copse_status open_device(copse__device **out, copse__tune_known *known,
                                const char *selector, const char *tune,
                                copse_error *err) {
    copse__topo *topo = NULL;
    copse__device_choice *choices = NULL;
    size_t count;
    char *cache = NULL;
    const copse__topo_options options = {.isolate = COPSE__ISOLATE_NONE};
    copse_status status;
    COPSE__TRY(copse__cache_folder(&cache, err), out);
    COPSE__TRY(copse__topo_open(&topo, &options, err), out);
    COPSE__TRY(copse__select_devices(topo, selector, &choices, &count, err), out);
    const copse__device_options opening = {.cache_folder = cache};
    COPSE__TRY(copse__device_open(out, &choices[0], &opening, err), out);
    COPSE__TRY(copse__tune_known_open(known, *out, tune, cache, err), out);
    if (known->count > 0)
        status = copse__backend_of(*out)->tune(*out, known->entries, known->count, err);
out:
    free(choices);
    copse__topo_close(topo);
    free(cache);
    return status;
}

int main(int argc, char **argv) {
    static const size_t usual[][3] = {
        {256, 256, 256},  {512, 512, 512},  {1024, 1024, 1024}, {2048, 2048, 2048},
        {256, 128, 5408}, {256, 128, 7200}, {256, 784, 128},    {128, 512, 512}};
    copse__device *device = NULL;
    copse__tune_known known = {0};
    copse_error error = {0};
    blas with;
    if (argc < 4) {
        fprintf(stderr, "usage: bench_gemm LIBOPENBLAS DEVICE THREADS [auto|off|FILE "
                        "[M,N,K]...]\n");
        return 2;
    }
    int threads = atoi(argv[3]);
    if (!open_blas(&with, argv[1], threads))
        return 2;
    copse_status status =
        open_device(&device, &known, argv[2], argc > 4 ? argv[4] : "auto", &error);
    for (int i = 5; i < argc && status == COPSE_OK; i++) {
        size_t m, n, k;
        if (sscanf(argv[i], "%zu,%zu,%zu", &m, &n, &k) == 3)
            status = all_forms(device, &with, m, n, k, threads, &error);
    }
    for (size_t i = 0; argc <= 5 && i < COPSE__COUNT(usual) && status == COPSE_OK; i++)
        status = all_forms(device, &with, usual[i][0], usual[i][1], usual[i][2], threads,
                           &error);
    if (status != COPSE_OK)
        fprintf(stderr, "bench_gemm: %s: %s\n", error.place, error.text);
    copse__device_close(device);
    copse__tune_known_close(&known);
    return status == COPSE_OK ? 0 : 1;
}
