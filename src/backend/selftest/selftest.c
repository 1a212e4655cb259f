/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/selftest.h"

#include <stdio.h>

#include "backend/selftest/compare.h"
#include "base/mem.h"

typedef struct session {
    copse__device *device, *host;
    const copse__selftest_options *options;
    copse__selftest_fn *fn;
    void *user;
    size_t wrong;
    copse_error first; /* of the wrong ones */
} session;

/* One operand's bytes on both sides. */
typedef struct scratch {
    void *input, *got, *want;
} scratch;

static void free_scratch(scratch *s) {
    free(s->input);
    free(s->got);
    free(s->want);
    *s = (scratch){0};
}

/* Room for the largest operand. */
static copse_status make_scratch(scratch *s, const copse__case *made, copse_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < COPSE__MAX_INPUTS + COPSE__MAX_OUTPUTS; i++) {
        const copse__node_operand *operand = i < COPSE__MAX_INPUTS
                                                 ? &made->spec.in[i]
                                                 : &made->spec.out[i - COPSE__MAX_INPUTS];
        if (operand->present)
            bytes = copse__max_size(bytes, copse__node_operand_elements(operand, NULL) *
                                               copse_dtype_bytes(operand->dtype));
    }
    copse_status status = copse__calloc(&s->input, bytes, 1, err);
    if (status == COPSE_OK)
        status = copse__calloc(&s->got, bytes, 1, err);
    if (status == COPSE_OK)
        status = copse__calloc(&s->want, bytes, 1, err);
    return status;
}

static copse_status set_inputs(const copse__case *made, const copse__extents *extents,
                               uint64_t seed, scratch *s, copse__node_run *a,
                               copse__node_run *b, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__MAX_INPUTS && status == COPSE_OK; i++) {
        if (!made->spec.in[i].present)
            continue;
        size_t elements = copse__node_operand_elements(&made->spec.in[i], extents);
        copse__case_fill(s->input, made, i, elements, seed);
        status = copse__node_run_set(a, i, s->input, elements, err);
        if (status == COPSE_OK)
            status = copse__node_run_set(b, i, s->input, elements, err);
    }
    return status;
}

static copse_status compare_outputs(const copse__case *made,
                                    const copse__extents *extents, scratch *s,
                                    copse__node_run *device, copse__node_run *host,
                                    copse__worst *worst, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS && status == COPSE_OK; i++) {
        if (!made->spec.out[i].present)
            continue;
        size_t elements = copse__node_operand_elements(&made->spec.out[i], extents);
        status = copse__node_run_get(device, i, s->got, elements, err);
        if (status == COPSE_OK)
            status = copse__node_run_get(host, i, s->want, elements, err);
        if (status == COPSE_OK)
            copse__compare(worst, made, i, s->got, s->want, elements);
    }
    return status;
}

/* All runs of a case on both sides; result->batch is that of the worst, or of the one that
 * failed. */
static copse_status compare_runs(const copse__case *made, copse__node_run *device,
                                 copse__node_run *host, copse__selftest_result *result,
                                 copse__worst *worst, copse_error *err) {
    scratch s = {0};
    copse_status status = make_scratch(&s, made, err);
    for (size_t i = 0; i < made->run_count && status == COPSE_OK; i++) {
        const copse__extents *extents = &made->runs[i];
        size_t worst_batch = result->batch;
        double before = worst->error;
        result->batch = extents->of[COPSE__BATCH];
        COPSE__TRY(set_inputs(made, extents, result->seed, &s, device, host, err), out);
        COPSE__TRY(copse__node_run_go(host, extents, &made->scalars, err), out);
        COPSE__TRY(copse__node_run_go(device, extents, &made->scalars, err), out);
        COPSE__TRY(compare_outputs(made, extents, &s, device, host, worst, err), out);
        if (i > 0 && !(worst->error > before))
            result->batch = worst_batch;
    }
out:
    free_scratch(&s);
    return status;
}

copse_status copse__case_run(copse__device *device, copse__device *host,
                             const copse__case *made, copse__selftest_result *result,
                             copse__worst *worst, char provider[static 64],
                             copse_error *err) {
    copse__node_run *run = NULL, *reference = NULL;
    copse_status status;
    COPSE__TRY(copse__node_run_new(&run, device, &made->spec, err), out);
    snprintf(provider, 64, "%s", copse__node_run_provider(run));
    COPSE__TRY(copse__node_run_new(&reference, host, &made->spec, err), out);
    COPSE__TRY(compare_runs(made, run, reference, result, worst, err), out);
out:
    copse__node_run_free(run);
    copse__node_run_free(reference);
    return status;
}

static copse_status visit(const copse__case *made, void *user, copse_error *err) {
    session *t = user;
    copse__worst worst = {0};
    copse_error own = {0};
    char provider[64] = "";
    copse__selftest_result result = {.op = made->spec.op,
                                     .name = made->name,
                                     .provider = provider,
                                     .seed = t->options->seed,
                                     .text = ""};
    result.status =
        copse__case_run(t->device, t->host, made, &result, &worst, provider, &own);
    result.error = worst.error;
    if (result.status == COPSE_OK && !(worst.error <= 1))
        result.status =
            copse__fail(&own, COPSE_KERNEL, 0, copse__device_get(t->device)->choice.label,
                        "%s by %s, batch %zu, seed %llu: %s", made->name, provider,
                        result.batch, (unsigned long long)result.seed, worst.text);
    if (result.status != COPSE_OK)
        result.text = own.text;
    if (t->fn)
        t->fn(&result, t->user);
    if (result.status == COPSE_KERNEL && t->wrong++ == 0)
        t->first = own;
    if (result.status == COPSE_OK || result.status == COPSE_KERNEL ||
        result.status == COPSE_UNSUPPORTED)
        return COPSE_OK;
    return copse__fail(err, result.status, own.native, own.place, "%s: %s", made->name,
                       own.text);
}

copse_status copse__selftest_run(copse__device *device,
                                 const copse__selftest_options *options,
                                 copse__selftest_fn *fn, void *user, copse_error *err) {
    static void (*const families[])(copse__case_sink *) = {
        copse__cases_dense, copse__cases_conv,        copse__cases_pool,
        copse__cases_norm,  copse__cases_elementwise, copse__cases_loss,
        copse__cases_update};
    session t = {.device = device, .options = options, .fn = fn, .user = user};
    copse__device_choice choice = {
        .api = COPSE__API_HOST, .part_count = 1, .label = "host"};
    copse_status status = copse__device_open(&t.host, &choice, NULL, err);
    if (status != COPSE_OK)
        return status;
    copse__case_sink sink = {.level = options->level,
                             .ops = options->ops,
                             .visit = visit,
                             .user = &t,
                             .err = err};
    for (size_t i = 0; i < COPSE__COUNT(families); i++)
        families[i](&sink);
    copse__device_close(t.host);
    if (sink.status != COPSE_OK)
        return sink.status;
    if (t.wrong > 0)
        return copse__fail(err, COPSE_KERNEL, t.first.native, t.first.place,
                           "%zu of the self-test's cases are wrong; the first: %s",
                           t.wrong, t.first.text);
    return COPSE_OK;
}
