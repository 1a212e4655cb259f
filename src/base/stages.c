/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stages.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

void copse__stages_next(copse__stages *stages, const char *name) {
    uint64_t now = copse__now_ns();
    copse__stage *last = stages->count ? &stages->of[stages->count - 1] : NULL;
    if (last && !last->end_ns)
        last->end_ns = now;
    if (!name)
        return;
    if (stages->count == COPSE__MAX_STAGES) {
        last->end_ns = 0;
        return;
    }
    stages->of[stages->count++] = (copse__stage){.name = name, .begin_ns = now};
}

double copse__stages_seconds(const copse__stages *stages) {
    if (stages->count == 0)
        return 0;
    uint64_t end_ns = stages->of[stages->count - 1].end_ns;
    return (double)((end_ns ? end_ns : copse__now_ns()) - stages->of[0].begin_ns) * 1e-9;
}

void copse__stages_log(const copse__stages *stages, const char *what) {
    copse__text line = {0};
    if (!copse__log_wanted(COPSE_LOG_DEBUG))
        return;
    copse__text_add(&line, "%s: %.3f s", what, copse__stages_seconds(stages));
    for (size_t i = 0; i < stages->count; i++) {
        const copse__stage *stage = &stages->of[i];
        copse__text_add(&line, "%s %s %.3f", i ? "," : ":", stage->name,
                        (double)(stage->end_ns - stage->begin_ns) * 1e-9);
    }
    if (copse__text_check(&line, NULL) == COPSE_OK)
        copse__log(COPSE_LOG_DEBUG, "%s", line.data);
    copse__text_free(&line);
}
