/* SPDX-License-Identifier: Apache-2.0 */
#include "train/bench.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

#define LEAST_STEPS 3

static double cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* Sums; copse__step_bench_run makes means of them. */
static void add_parts(copse__step_bench *b) {
    copse__step_block *block = b->block;
    uint64_t computed = 0;
    double exposed = 0;
    for (size_t r = 0; r < copse__trainer_replicas(b->trainer); r++) {
        const copse__step_times *t = copse__trainer_times(b->trainer, r);
        if (t && t->computed_ns > computed)
            computed = t->computed_ns;
    }
    for (size_t r = 0; r < copse__trainer_replicas(b->trainer); r++) {
        const copse__step_times *t = copse__trainer_times(b->trainer, r);
        if (!t)
            continue;
        double reduce = seconds_between(computed, t->summed_ns);
        exposed = reduce > exposed ? reduce : exposed;
        if (!block->parts)
            continue;
        copse__step_parts *part = &block->parts[r];
        part->upload += seconds_between(t->begin_ns, t->uploaded_ns);
        part->compute += seconds_between(t->uploaded_ns, t->computed_ns);
        part->others += seconds_between(t->computed_ns, computed);
        part->reduce += reduce;
        part->update += seconds_between(t->summed_ns, t->updated_ns);
    }
    block->exposed += exposed;
}

static copse_status on_step(void *user, const copse__progress *progress,
                            copse_error *err) {
    copse__step_bench *b = user;
    (void)err;
    if (!b->begun) {
        b->begun = true;
        b->cpu_begun_s = cpu_seconds();
        b->begun_ns = copse__now_ns();
        return COPSE_OK;
    }
    copse__step_block *block = b->block;
    block->steps++;
    block->rows += progress->rows;
    block->seconds = seconds_between(b->begun_ns, copse__now_ns());
    block->cpu_seconds = cpu_seconds() - b->cpu_begun_s;
    block->data += progress->data_seconds;
    if (b->timed)
        add_parts(b);
    if (block->steps >= LEAST_STEPS && block->seconds >= b->wanted_s)
        copse__trainer_stop(b->trainer);
    return COPSE_OK;
}

static bool needs_no_state(void *user, uint64_t step) {
    (void)user;
    (void)step;
    return false;
}

copse__trainer_hooks copse__step_bench_hooks(copse__step_bench *bench) {
    return (copse__trainer_hooks){
        .on_step = on_step, .needs_state = needs_no_state, .user = bench};
}

copse_status copse__step_bench_run(copse__step_bench *b, double seconds, bool timed,
                                   copse__step_block *block, copse_error *err) {
    size_t replicas = copse__trainer_replicas(b->trainer);
    copse__step_parts *parts = block->parts;
    *block = (copse__step_block){.parts = parts};
    if (parts)
        memset(parts, 0, replicas * sizeof *parts);
    b->block = block;
    b->wanted_s = seconds;
    b->timed = timed;
    b->begun = false;
    copse__trainer_time_steps(b->trainer, timed);
    copse_status status = copse__trainer_fit(b->trainer, err);
    if (status == COPSE_OK)
        return copse__fail(err, COPSE_INTERNAL, 0, NULL,
                           "the training ended before the block was measured");
    if (status != COPSE_INTERRUPTED)
        return status;
    const double steps = (double)block->steps;
    block->data /= steps;
    block->exposed /= steps;
    for (size_t r = 0; parts && r < replicas; r++) {
        parts[r].upload /= steps;
        parts[r].compute /= steps;
        parts[r].others /= steps;
        parts[r].reduce /= steps;
        parts[r].update /= steps;
    }
    return COPSE_OK;
}
