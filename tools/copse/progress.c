/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

#define REDRAW_NS 100000000u /* ten times a second on a terminal */
#define LINE_NS 5000000000u  /* every five seconds elsewhere */

void progress_begin(progress *p, bool quiet, bool verbose) {
    const char *term = getenv("TERM");
    *p = (progress){.quiet = quiet, .verbose = verbose};
    p->terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    p->color = p->terminal && !getenv("NO_COLOR");
}

static int terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
        return size.ws_col;
    return 80;
}

void progress_clear(progress *p) {
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

void progress_notice(progress *p, const char *what) {
    progress_clear(p);
    if (p->quiet || !p->terminal || !what)
        return;
    fprintf(stderr, "%s ...", what);
    fflush(stderr);
    p->drawn = true;
}

/* "1:05", "2:03:10". */
static const char *format_time(char *buffer, size_t capacity, double seconds) {
    if (!(seconds >= 0) || seconds > 360000)
        seconds = 0;
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(buffer, capacity, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buffer, capacity, "%ld:%02ld", s / 60, s % 60);
    return buffer;
}

static void draw_bar(char *buffer, size_t capacity, double part, int width) {
    size_t used = 0;
    int full = (int)(part * width);
    for (int i = 0; i < width && used + 4 < capacity; i++) {
        const char *cell = i < full ? "\u2501" : i == full ? "\u257a" : "\u2500";
        memcpy(buffer + used, cell, 3);
        used += 3;
    }
    buffer[used] = '\0';
}

static void describe(char *line, size_t capacity, const copse__progress *now,
                     double elapsed, uint64_t done) {
    char rate[32], left[32];
    double per_batch = done ? elapsed / (double)done : 0;
    double seen = now->epoch_score.samples ? (double)now->epoch_score.samples : 0;
    double share = now->index ? (double)done / (double)now->index : 0;
    copse__format_count(rate, sizeof rate,
                        elapsed > 0 ? (unsigned long long)(seen * share / elapsed) : 0);
    format_time(left, sizeof left, per_batch * (double)(now->count - now->index));
    int used;
    if (now->evaluating)
        used = snprintf(line, capacity, "%s %" PRIu64 "/%" PRIu64, now->set, now->index,
                        now->count);
    else
        used = snprintf(line, capacity,
                        "epoch %" PRIu64 "/%" PRIu64 "  step %" PRIu64 "/%" PRIu64,
                        now->epoch + 1, now->epochs, now->index, now->count);
    if (now->epoch_score.samples)
        snprintf(line + used, capacity - (size_t)used,
                 "  loss %.4f  accuracy %.4f  %s samples/s  %s left",
                 copse__score_loss(&now->epoch_score),
                 copse__score_accuracy(&now->epoch_score), rate, left);
    else if (now->evaluating) /* a prediction, which has no score */
        snprintf(line + used, capacity - (size_t)used, "  %s left", left);
}

void progress_step(progress *p, const copse__progress *now) {
    uint64_t clock = copse__now_ns();
    if (now->index <= 1 || p->start_ns == 0) {
        p->start_ns = clock - (uint64_t)(now->seconds * 1e9);
        p->drawn_ns = p->terminal ? 0 : clock;
        p->started_at = now->index - 1;
    }
    uint64_t gap = p->terminal ? REDRAW_NS : LINE_NS;
    if (p->quiet || clock - p->drawn_ns < gap)
        return;
    p->drawn_ns = clock;
    char line[256];
    describe(line, sizeof line, now, (double)(clock - p->start_ns) * 1e-9,
             now->index - p->started_at);
    if (!p->terminal) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    int room = terminal_columns() - (int)strlen(line) - 3;
    char bar[256] = "";
    if (room >= 8)
        draw_bar(bar, sizeof bar, (double)now->index / (double)now->count,
                 room > 30 ? 30 : room);
    fprintf(stderr, "\r\033[K%s%s%s  %.*s", p->color ? "\033[32m" : "", bar,
            p->color ? "\033[0m" : "", terminal_columns() - 2, line);
    fflush(stderr);
    p->drawn = true;
}

void progress_say(progress *p, const char *line) {
    progress_clear(p);
    if (!p->quiet && line)
        fprintf(stderr, "%s\n", line);
}

void progress_epoch(progress *p, const copse__epoch_report *report, uint64_t epochs) {
    progress_clear(p);
    p->start_ns = 0;
    if (p->quiet)
        return;
    char rate[32], time[32];
    copse__format_count(rate, sizeof rate, (unsigned long long)report->samples_per_s);
    format_time(time, sizeof time, report->seconds);
    fprintf(stderr, "epoch %*" PRIu64 "/%" PRIu64 "  loss %.4f  accuracy %.4f",
            (int)(epochs >= 10 ? 2 : 1), report->epoch + 1, epochs,
            copse__score_loss(&report->train), copse__score_accuracy(&report->train));
    if (report->validated)
        fprintf(stderr, "  val_loss %.4f  val_accuracy %.4f",
                copse__score_loss(&report->validation),
                copse__score_accuracy(&report->validation));
    fprintf(stderr, "  %s samples/s  %s", rate, time);
    if (report->train.skipped + report->validation.skipped > 0)
        fprintf(stderr, "  %" PRIu64 " samples left out",
                report->train.skipped + report->validation.skipped);
    if (p->verbose && report->seconds > 0)
        fprintf(stderr, "  waited for data %.1f %% of the time",
                100 * report->data_wait_seconds / report->seconds);
    fputc('\n', stderr);
}
