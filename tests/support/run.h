/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_RUN_H
#define TESTS_SUPPORT_RUN_H

#include "train/trainer.h"

/* A training run on made data, for tests: `samples` samples of shape (shape, rank) uint8 in `classes` classes, in
 * which the class shows (a bright band), so that a network can learn it. */
typedef struct test_run {
    copse__config *config;
    copse__datasets sets;
    copse__device_choice choices[8];
    size_t replicas;
    size_t
        lost_from; /* samples of the training set from here on cannot be read; 0: all can */
    size_t shards[8]; /* all 0: decided by weights */
    double *losses;   /* of each step so far */
    size_t loss_count, loss_capacity;
    uint64_t stop_after_steps;                      /* 0: never */
    bool (*needs_state)(void *user, uint64_t step); /* a hook; user: the run */
    uint64_t look_at, seen_hash;   /* of the weights, behind this step; 0: of none */
    const copse__backend *backend; /* NULL: the host's */
    void (*on_event)(void *user, const copse__trainer_event *event); /* user: the run */
    size_t events;                                                   /* that came */
    char last_event[32], last_device[64], last_why[768];
    uint64_t lost_after; /* the step of the last "device_lost" */
    copse__trainer *trainer;
} test_run;

/* Every replica is the host backend. yaml: a configuration's model and train sections. Failures end the test. */
void test_run_open(test_run *run, const char *yaml, size_t samples, size_t replicas,
                   const double *weights);
/* Opens the trainer on run->choices. */
void test_run_start(test_run *run);
void test_run_close(test_run *run);

/* Hooks that record each step's loss and the events. */
copse__trainer_hooks test_run_hooks(test_run *run);

#endif
