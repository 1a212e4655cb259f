/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "io/json.h"
#include "session.h"
#include "spread.h"
#include "train/bench.h"

enum { OPT_CONFIG = OPT_OWN, OPT_BATCH, OPT_SECONDS, OPT_SCALING, OPT_JSON };

#define BLOCK_S 0.25 /* of a turn */
#define LEAST_ROUNDS 5
#define MOST_ROUNDS SPREAD_MOST

static const tool_option options[] = {
    {OPT_CONFIG, "config", 'c', "CONFIG", "The same as naming it without an option"},
    OPTION_DEVICES,
    {OPT_BATCH, "batch", 'b', "N", "Global batch (--set train.batch=N)"},
    {OPT_SCALING, "scaling", 'x', NULL,
     "Each device alone too, with the same global batch, in turns\nwith all together"},
    {OPT_SECONDS, "seconds", 't', "S",
     "Time to measure for, of each set of devices (default 4)"},
    {OPT_JSON, "json", 0, NULL, "JSON lines also on a terminal"},
    OPTION_SET,
    {OPT_NO_SELFTEST, "no-selftest", 0, NULL,
     "Skip the quick check of each device's kernels"},
    OPTION_ISOLATE,
    OPTION_VERBOSE,
};

static const tool_command command = {
    .program = "copse bench step",
    .usage = "CONFIG [options]",
    .summary =
        "Samples a second of whole training steps (data, upload, forward, backward, "
        "reduction,\nupdate) as `copse train CONFIG` makes them, after a warm-up: the "
        "median of blocks of\n0.25 s, with the least and the most. Blocks of the same "
        "steps "
        "with a wait after each\npart alternate with them and tell where a step's time "
        "goes, by device: upload (what\nthe step before did not hide), compute (forward "
        "and backward), others (until the last\ndevice has computed), reduce, update; "
        "and "
        "waiting for data.\nExposed communication: from the end of the last device's "
        "backward pass until the sum\nof all gradients is on the device that gets it "
        "last, "
        "as part of the step.\nEfficiency (--scaling): the samples a second of all "
        "together over the sum of those of\neach alone, the median over rounds in which "
        "they take turns; of processor time: the\ntime that the shards take alone over "
        "that of a step of all (of devices that are CPUs);\nof the best blocks: of each "
        "set's "
        "fastest, which a loaded machine disturbs least.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .most_operands = 1,
};

typedef struct request {
    copse_session_options session;
    double seconds;
    bool scaling, json;
    char batch[48]; /* an override; the session's list borrows it */
} request;

/* A set of devices whose steps are measured. */
typedef struct subject {
    copse__step_bench bench;
    copse__trainer *trainer;
    const copse__device_choice *choices;
    size_t count;
    double *rates, *cpu; /* by round: samples a second, processor seconds a sample */
    uint64_t steps;
} subject;

/* Of the timed blocks, by round. */
typedef struct parts {
    double *step, *data, *exposed;
    double *device[5]; /* [round * devices + rank], in the order of part_names */
} parts;

static const char *const part_names[5] = {"upload", "compute", "others", "reduce",
                                          "update"};

typedef struct measuring {
    const request *wanted;
    copse__config *config;
    copse__datasets sets;
    copse_devices devices;
    subject *subjects; /* all, then each alone */
    size_t subject_count, rounds;
    parts parts;
    copse__step_parts *block_parts;
    long peak_kib; /* of all together */
} measuring;

/* ---- Measuring ------------------------------------------------------------------------- */

static copse_status open_subject(measuring *m, subject *s, size_t first, size_t count,
                                 copse_error *err) {
    copse_status status;
    s->choices = m->devices.choices + first;
    s->count = count;
    copse__trainer_hooks hooks = copse__step_bench_hooks(&s->bench);
    copse__trainer_options opening = {.choices = s->choices,
                                      .choice_count = count,
                                      .topo = m->devices.topo,
                                      .training = true,
                                      .selftest =
                                          m->wanted->session.selftest && s == m->subjects,
                                      .hooks = &hooks};
    COPSE__TRY(copse__calloc(&s->rates, m->rounds, sizeof *s->rates, err), out);
    COPSE__TRY(copse__calloc(&s->cpu, m->rounds, sizeof *s->cpu, err), out);
    COPSE__TRY(copse__trainer_open(&s->trainer, m->config, &m->sets, &opening, err), out);
    s->bench.trainer = s->trainer;
    copse__step_block warm = {0};
    COPSE__TRY(copse__step_bench_run(&s->bench, BLOCK_S, false, &warm, err), out);
out:
    return status;
}

static copse_status run_plain(subject *s, size_t round, copse_error *err) {
    copse__step_block block = {0};
    copse_status status = copse__step_bench_run(&s->bench, BLOCK_S, false, &block, err);
    if (status != COPSE_OK)
        return status;
    s->rates[round] = (double)block.rows / block.seconds;
    s->cpu[round] = block.cpu_seconds / (double)block.rows;
    s->steps += block.steps;
    return COPSE_OK;
}

static copse_status run_timed(measuring *m, size_t round, copse_error *err) {
    subject *all = &m->subjects[0];
    copse__step_block block = {.parts = m->block_parts};
    copse_status status = copse__step_bench_run(&all->bench, BLOCK_S, true, &block, err);
    if (status != COPSE_OK)
        return status;
    m->parts.step[round] = block.seconds / (double)block.steps;
    m->parts.data[round] = block.data;
    m->parts.exposed[round] = block.exposed;
    for (size_t r = 0; r < all->count; r++) {
        const copse__step_parts *of = &block.parts[r];
        const double values[5] = {of->upload, of->compute, of->others, of->reduce,
                                  of->update};
        for (size_t p = 0; p < 5; p++)
            m->parts.device[p][round * all->count + r] = values[p];
    }
    return COPSE_OK;
}

static copse_status measure(measuring *m, copse_error *err) {
    copse_status status;
    struct rusage usage;
    const size_t devices = m->devices.count;
    COPSE__TRY(copse__calloc(&m->subjects, 1 + devices, sizeof *m->subjects, err), out);
    COPSE__TRY(copse__calloc(&m->block_parts, devices, sizeof *m->block_parts, err), out);
    COPSE__TRY(copse__calloc(&m->parts.step, m->rounds, sizeof(double), err), out);
    COPSE__TRY(copse__calloc(&m->parts.data, m->rounds, sizeof(double), err), out);
    COPSE__TRY(copse__calloc(&m->parts.exposed, m->rounds, sizeof(double), err), out);
    for (size_t p = 0; p < 5; p++)
        COPSE__TRY(
            copse__calloc(&m->parts.device[p], m->rounds * devices, sizeof(double), err),
            out);
    m->subject_count = 1;
    COPSE__TRY(open_subject(m, &m->subjects[0], 0, devices, err), out);
    getrusage(RUSAGE_SELF, &usage); /* before others add to it */
    m->peak_kib = usage.ru_maxrss;
    for (size_t i = 0; m->wanted->scaling && i < devices; i++) {
        m->subject_count++;
        COPSE__TRY(open_subject(m, &m->subjects[1 + i], i, 1, err), out);
    }
    for (size_t round = 0; round < m->rounds; round++) {
        for (size_t i = 0; i < m->subject_count; i++)
            COPSE__TRY(run_plain(&m->subjects[i], round, err), out);
        COPSE__TRY(run_timed(m, round, err), out);
    }
out:
    return status;
}

/* ---- Reporting ------------------------------------------------------------------------- */

static void add_devices(copse__text *out, const measuring *m, const subject *s) {
    copse__text_add(out, "{\"bench\":\"step\",\"config\":");
    copse__json_text(out, m->config->path);
    copse__text_add(out, ",\"devices\":[");
    for (size_t i = 0; i < s->count; i++) {
        copse__text_add(out, "%s", i ? "," : "");
        copse__json_text(out, s->choices[i].label);
    }
    copse__text_add(out, "],\"shards\":[");
    for (size_t i = 0; i < s->count; i++)
        copse__text_add(out, "%s%zu", i ? "," : "", copse__trainer_shard(s->trainer, i));
    copse__text_add(out, "],\"batch\":%" PRIu64 ",\"steps\":%" PRIu64,
                    m->config->train.batch, s->steps);
    spread_add(out, "samples_per_s", spread_of(s->rates, m->rounds, 1), 1, 1);
    spread_add(out, "cpu_us_per_sample", spread_of(s->cpu, m->rounds, 1), 1e6, 2);
}

static spread exposed_part(const measuring *m) {
    double part[MOST_ROUNDS];
    for (size_t i = 0; i < m->rounds; i++)
        part[i] = m->parts.exposed[i] / m->parts.step[i];
    return spread_of(part, m->rounds, 1);
}

static void add_parts(copse__text *out, const measuring *m) {
    const subject *all = &m->subjects[0];
    spread exposed = exposed_part(m);
    copse__text_add(out, ",\"exposed_comm\":%.4f", exposed.median);
    spread_add(out, "exposed_comm_spread", exposed, 1, 4);
    spread_add(out, "timed_step_ms", spread_of(m->parts.step, m->rounds, 1), 1e3, 3);
    copse__text_add(out, ",\"data_ms\":%.3f",
                    spread_of(m->parts.data, m->rounds, 1).median * 1e3);
    copse__text_add(out, ",\"parts_ms\":[");
    for (size_t r = 0; r < all->count; r++) {
        copse__text_add(out, "%s{\"device\":", r ? "," : "");
        copse__json_text(out, all->choices[r].label);
        for (size_t p = 0; p < 5; p++)
            copse__text_add(
                out, ",\"%s\":%.3f", part_names[p],
                spread_of(m->parts.device[p] + r, m->rounds, all->count).median * 1e3);
        copse__text_add(out, "}");
    }
    copse__text_add(out, "],\"memory\":[");
    for (size_t r = 0; r < all->count; r++) {
        copse__memory_report memory;
        copse__trainer_memory(all->trainer, r, &memory);
        copse__text_add(out, "%s{\"device\":", r ? "," : "");
        copse__json_text(out, all->choices[r].label);
        copse__text_add(out,
                        ",\"bytes\":%zu,\"planned_bytes\":%zu,"
                        "\"peak_bytes\":%zu,\"pinned_peak_bytes\":%zu}",
                        memory.now.device, memory.planned.device, memory.peak.device,
                        memory.peak.pinned);
    }
    copse__text_add(out, "],\"peak_rss_bytes\":%lld", (long long)m->peak_kib * 1024);
}

/* How much of what the devices do alone they do together; and of processor time. */
static void efficiencies(const measuring *m, spread *speed, spread *cpu, double *best) {
    double bests = 0, speeds[MOST_ROUNDS], cpus[MOST_ROUNDS];
    const subject *all = &m->subjects[0];
    for (size_t i = 0; i < m->rounds; i++) {
        double rate = 0, alone = 0;
        for (size_t r = 0; r < all->count; r++) {
            const subject *one = &m->subjects[1 + r];
            rate += one->rates[i];
            alone += one->cpu[i] * (double)copse__trainer_shard(all->trainer, r);
        }
        speeds[i] = all->rates[i] / rate;
        cpus[i] = alone / ((double)m->config->train.batch * all->cpu[i]);
    }
    for (size_t r = 0; r < all->count; r++)
        bests += spread_of(m->subjects[1 + r].rates, m->rounds, 1).most;
    *best = spread_of(all->rates, m->rounds, 1).most / bests;
    *speed = spread_of(speeds, m->rounds, 1);
    *cpu = spread_of(cpus, m->rounds, 1);
}

static copse_status print_json(const measuring *m, copse_error *err) {
    copse__text out = {0};
    for (size_t i = 0; i < m->subject_count; i++) {
        add_devices(&out, m, &m->subjects[i]);
        if (i == 0)
            add_parts(&out, m);
        copse__text_add(&out, "}\n");
    }
    if (m->subject_count > 1) {
        spread speed, cpu;
        double best;
        efficiencies(m, &speed, &cpu, &best);
        copse__text_add(&out,
                        "{\"bench\":\"step_scaling\",\"devices\":%zu,\"rounds\":%zu",
                        m->devices.count, m->rounds);
        spread_add(&out, "efficiency", speed, 1, 4);
        spread_add(&out, "cpu_efficiency", cpu, 1, 4);
        copse__text_add(&out, ",\"efficiency_of_bests\":%.4f}\n", best);
    }
    copse_status status = copse__text_check(&out, err);
    if (status == COPSE_OK)
        fputs(out.data, stdout);
    copse__text_free(&out);
    return status;
}

static void print_rates(const measuring *m) {
    printf("%-28s %8s %12s %22s %14s\n", "devices", "steps", "samples/s", "least to most",
           "cpu us/sample");
    for (size_t i = 0; i < m->subject_count; i++) {
        const subject *s = &m->subjects[i];
        spread rate = spread_of(s->rates, m->rounds, 1);
        char name[64];
        snprintf(name, sizeof name, s->count > 1 ? "%s and %zu more" : "%s",
                 s->choices[0].label, s->count - 1);
        printf("%-28s %8" PRIu64 " %12.1f %10.1f %11.1f %14.2f\n", name, s->steps,
               rate.median, rate.least, rate.most,
               spread_of(s->cpu, m->rounds, 1).median * 1e6);
    }
}

static void print_table(const measuring *m) {
    const subject *all = &m->subjects[0];
    char bytes[32];
    print_rates(m);
    printf("\n%-20s %6s", "ms of a timed step", "shard");
    for (size_t p = 0; p < 5; p++)
        printf(" %9s", part_names[p]);
    putchar('\n');
    for (size_t r = 0; r < all->count; r++) {
        printf("%-20s %6zu", all->choices[r].label,
               copse__trainer_shard(all->trainer, r));
        for (size_t p = 0; p < 5; p++)
            printf(" %9.3f",
                   spread_of(m->parts.device[p] + r, m->rounds, all->count).median * 1e3);
        putchar('\n');
    }
    printf("whole %.3f ms, of it waiting for data %.3f ms\n",
           spread_of(m->parts.step, m->rounds, 1).median * 1e3,
           spread_of(m->parts.data, m->rounds, 1).median * 1e3);
    spread exposed = exposed_part(m);
    printf(
        "exposed communication %.1f %% of the step (%.1f to %.1f); peak memory %s\n",
        exposed.median * 100, exposed.least * 100, exposed.most * 100,
        copse__format_bytes(bytes, sizeof bytes, (unsigned long long)m->peak_kib * 1024));
    if (m->subject_count > 1) {
        spread speed, cpu;
        double best;
        efficiencies(m, &speed, &cpu, &best);
        printf(
            "efficiency %.3f (%.3f to %.3f), of the best blocks %.3f, of processor time "
            "%.3f (%.3f to %.3f)\n",
            speed.median, speed.least, speed.most, best, cpu.median, cpu.least, cpu.most);
    }
}

/* ---- The command ----------------------------------------------------------------------- */

static bool any_lost(const measuring *m) {
    for (size_t i = 0; i < m->subject_count; i++)
        for (size_t r = 0; m->subjects[i].trainer && r < m->subjects[i].count; r++)
            if (copse__trainer_is_lost(m->subjects[i].trainer, r))
                return true;
    return false;
}

static void close_all(measuring *m) {
    for (size_t i = 0; m->subjects && i < m->subject_count; i++) {
        copse__trainer_close(m->subjects[i].trainer);
        free(m->subjects[i].rates);
        free(m->subjects[i].cpu);
    }
    free(m->subjects);
    free(m->block_parts);
    free(m->parts.step);
    free(m->parts.data);
    free(m->parts.exposed);
    for (size_t p = 0; p < 5; p++)
        free(m->parts.device[p]);
    copse_devices_close(&m->devices);
    copse__datasets_close(&m->sets);
    copse__config_free(m->config);
}

static copse_status open_all(measuring *m, copse_error *err) {
    const copse_session_options *o = &m->wanted->session;
    copse_status status;
    COPSE__TRY(copse__config_load(&m->config, o->config_path, o->overrides.items,
                                  o->overrides.count, err),
               out);
    m->config->train.validate = false;
    m->config->train.epochs = UINT32_MAX; /* blocks end by themselves */
    m->config->train.steps = 0;
    m->config->train.on_device_loss =
        COPSE__ON_FAULT_STOP; /* half of them is no result */
    COPSE__TRY(copse__datasets_open(&m->sets, m->config, true, err), out);
    COPSE__TRY(copse_devices_open(&m->devices,
                                  o->devices ? o->devices : m->config->devices.select,
                                  m->config->devices.bench, o->isolate, err),
               out);
out:
    return status;
}

static int run(request *wanted) {
    copse_error error = {0};
    double rounds = wanted->seconds / BLOCK_S;
    measuring m = {.wanted = wanted,
                   .rounds = rounds < LEAST_ROUNDS  ? LEAST_ROUNDS
                             : rounds > MOST_ROUNDS ? MOST_ROUNDS
                                                    : (size_t)rounds};
    copse_status status = open_all(&m, &error);
    if (status == COPSE_OK)
        status = measure(&m, &error);
    if (status == COPSE_OK && !wanted->json && isatty(STDOUT_FILENO))
        print_table(&m);
    else if (status == COPSE_OK)
        status = print_json(&m, &error);
    int code = status == COPSE_OK ? 0 : copse_report(&error);
    if (any_lost(&m)) { /* its driver may hold up all that comes after */
        fflush(NULL);
        _exit(code);
    }
    close_all(&m);
    return code;
}

static bool take(void *user, int id, const char *value) {
    request *r = user;
    char *end;
    copse_error error = {0};
    switch (id) {
    case OPT_CONFIG:
        r->session.operand = value;
        return true;
    case OPT_BATCH:
        snprintf(r->batch, sizeof r->batch, "train.batch=%s", value);
        if (strlen(value) < 32 &&
            copse_overrides_add(&r->session.overrides, r->batch, &error) == COPSE_OK)
            return true;
        tool_complain(&command, "--batch takes a number, not '%s'", value);
        return false;
    case OPT_SECONDS:
        r->seconds = strtod(value, &end);
        if (!*end && r->seconds > 0 && r->seconds <= 3600)
            return true;
        tool_complain(&command, "--seconds takes a time, not '%s'", value);
        return false;
    default:
        r->scaling |= id == OPT_SCALING;
        r->json |= id == OPT_JSON;
        return true;
    }
}

int copse_cmd_bench_step(int argc, char **argv) {
    request wanted = {.session = {.isolate = true, .selftest = true, .training = true},
                      .seconds = 4};
    int code = copse_session_parse(&command, argc, argv, &wanted.session, take, &wanted);
    if (code < 0)
        code = run(&wanted);
    copse_session_options_free(&wanted.session);
    return code;
}
