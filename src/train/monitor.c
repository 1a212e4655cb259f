/* SPDX-License-Identifier: Apache-2.0 */
#include "train/monitor.h"

#include <math.h>
#include <string.h>

bool copse__metric_is_loss(const char *metric) {
    size_t n = strlen(metric);
    return n >= 4 && strcmp(metric + n - 4, "loss") == 0;
}

/* Better than `than` by more than min_delta. */
static bool is_better(const copse__config_monitor *m, double value, double than) {
    bool less = m->mode == COPSE__MODE_MIN ||
                (m->mode == COPSE__MODE_AUTO && copse__metric_is_loss(m->metric));
    return less ? value + m->min_delta < than : value - m->min_delta > than;
}

static bool improves(const copse__config_monitor *m, const copse__monitor_state *state,
                     double value) {
    return isfinite(value) && (!state->has_best || is_better(m, value, state->best));
}

copse__early_decision
copse__early_stopping_epoch(const copse__config_early_stopping *config,
                            copse__monitor_state *state, uint64_t epoch, double value) {
    copse__early_decision made = {0};
    state->stopped = false;
    if (epoch < config->start_from_epoch)
        return made;
    state->wait++;
    if (improves(&config->monitor, state, value)) {
        state->has_best = true;
        state->best = value;
        made.better = true;
        if (isnan(config->baseline) ||
            is_better(&config->monitor, value, config->baseline))
            state->wait = 0;
        return made;
    }
    made.stop = state->wait >= config->monitor.patience && epoch > 0;
    state->stopped = made.stop;
    return made;
}

bool copse__early_stopping_stands(const copse__config_early_stopping *config,
                                  const copse__monitor_state *state) {
    return config->enabled && state->stopped && state->wait >= config->monitor.patience;
}

double copse__plateau_epoch(const copse__config_plateau *config,
                            copse__monitor_state *state, double value, double rate) {
    if (state->cooldown > 0) {
        state->cooldown--;
        state->wait = 0;
    }
    if (improves(&config->monitor, state, value)) {
        state->has_best = true;
        state->best = value;
        state->wait = 0;
        return rate;
    }
    if (state->cooldown > 0 || ++state->wait < config->monitor.patience)
        return rate;
    double old = (double)(float)rate;
    if (old <= (double)(float)config->min_lr)
        return rate;
    state->cooldown = config->cooldown;
    state->wait = 0;
    return (double)(float)fmax(old * config->factor, config->min_lr);
}
