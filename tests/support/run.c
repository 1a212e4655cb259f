/* SPDX-License-Identifier: Apache-2.0 */
#include "support/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "support/check.h"

#define SIDE 8
#define CLASSES 4

static copse_error error;

static copse_status read_sample(void *user, size_t index, void *features, void *labels,
                                copse_error *err) {
    const test_run *run = user;
    if (run && run->lost_from > 0 && index >= run->lost_from)
        return copse__fail(err, COPSE_IO, 0, "bands", "sample %zu is lost", index);
    unsigned char *pixels = features;
    int32_t label = (int32_t)(index % CLASSES);
    for (size_t i = 0; i < SIDE * SIDE; i++) {
        size_t key[2] = {index, i};
        unsigned noise = (unsigned)(copse__hash64(key, sizeof key) & 63);
        pixels[i] = (unsigned char)(noise + (i / SIDE / 2 == (size_t)label ? 150 : 0));
    }
    memcpy(labels, &label, sizeof label);
    return COPSE_OK;
}

static copse_dataset *make_set(size_t samples, test_run *run) {
    copse_data_callbacks callbacks = {
        .read = read_sample,
        .user = run,
        .name = "bands",
        .count = samples,
        .features = {.dtype = COPSE_U8, .rank = 3, .shape = {SIDE, SIDE, 1}},
        .labels = {.dtype = COPSE_I32},
        .has_labels = true,
        .classes = CLASSES,
    };
    copse_dataset *set;
    ASSERT_OK(copse_dataset_from_callbacks(&set, &callbacks, &error));
    return set;
}

void test_run_open(test_run *run, const char *yaml, size_t samples, size_t replicas,
                   const double *weights) {
    *run = (test_run){.replicas = replicas};
    char text[4096];
    int length = snprintf(text, sizeof text,
                          "data:\n  format: idx\n  train: {images: x, labels: y}\n"
                          "  scale: 0.00392156862745098\n  shuffle: {seed: 3}\n%s",
                          yaml);
    ASSERT_OK(copse__config_parse(&run->config, text, (size_t)length, "test.yaml", NULL,
                                  0, &error));
    run->sets.train = make_set(samples, run);
    run->sets.test = make_set(samples / 2 + 1, NULL);
    run->sets.classes = CLASSES;
    for (size_t r = 0; r < replicas; r++) {
        run->choices[r] = (copse__device_choice){.api = COPSE__API_HOST,
                                                 .part_count = 1,
                                                 .weight = weights ? weights[r] : 1,
                                                 .order = r};
        snprintf(run->choices[r].label, sizeof run->choices[r].label, "host@%zu", r);
    }
}

static copse_status keep_loss(void *user, const copse__progress *now, copse_error *err) {
    test_run *run = user;
    copse_status status = copse__grow(&run->losses, &run->loss_capacity,
                                      run->loss_count + 1, sizeof *run->losses, err);
    if (status == COPSE_OK)
        run->losses[run->loss_count++] = copse__score_loss(&now->last);
    if (run->stop_after_steps > 0 && now->step == run->stop_after_steps)
        copse__trainer_stop(run->trainer);
    if (status == COPSE_OK && run->look_at > 0 && now->step == run->look_at)
        status = copse__trainer_hash(run->trainer, &run->seen_hash, err);
    return status;
}

static void keep_event(void *user, const copse__trainer_event *event) {
    test_run *run = user;
    run->events++;
    snprintf(run->last_event, sizeof run->last_event, "%s", event->what);
    if (strcmp(event->what, "device_lost") == 0) {
        snprintf(run->last_device, sizeof run->last_device, "%s", event->device);
        snprintf(run->last_why, sizeof run->last_why, "%s", event->why);
        run->lost_after = event->step;
    }
    if (run->on_event)
        run->on_event(run, event);
}

copse__trainer_hooks test_run_hooks(test_run *run) {
    return (copse__trainer_hooks){.on_step = keep_loss,
                                  .needs_state = run->needs_state,
                                  .on_event = keep_event,
                                  .user = run};
}

void test_run_start(test_run *run) {
    copse__trainer_hooks hooks = test_run_hooks(run);
    size_t total = 0;
    for (size_t r = 0; r < run->replicas; r++)
        total += run->shards[r];
    copse__trainer_options options = {.choices = run->choices,
                                      .choice_count = run->replicas,
                                      .shards = total ? run->shards : NULL,
                                      .training = true,
                                      .backend = run->backend,
                                      .hooks = &hooks};
    ASSERT_OK(
        copse__trainer_open(&run->trainer, run->config, &run->sets, &options, &error));
}

void test_run_close(test_run *run) {
    copse__trainer_close(run->trainer);
    copse__datasets_close(&run->sets);
    copse__config_free(run->config);
    free(run->losses);
}
