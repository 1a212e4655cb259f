/* SPDX-License-Identifier: Apache-2.0 */
#include "data/stream.h"

#include "data/shuffle.h"

copse_status copse__feed_init(copse__feed *feed, copse_dataset *set, uint64_t seed,
                              size_t window, copse_error *err) {
    *feed = (copse__feed){.set = set, .seed = seed, .window_most = window};
    if (window == 0)
        return COPSE_OK;
    return copse__calloc(&feed->window, window, sizeof *feed->window, err);
}

static void stop(copse__feed *feed) {
    if (feed->passing)
        feed->set->ops->stop(feed->set, feed->pass);
    feed->passing = false;
    feed->pass = NULL;
}

copse_status copse__feed_start(copse__feed *feed, uint64_t epoch, copse_error *err) {
    stop(feed);
    feed->epoch = epoch;
    feed->read = feed->drawn = 0;
    feed->window_count = 0;
    feed->ended = false;
    copse_status status = feed->set->ops->start(feed->set, &feed->pass, err);
    feed->passing = status == COPSE_OK;
    return status;
}

static copse_status read_one(copse__feed *feed, copse__raw *raw, copse_error *err) {
    copse_status status =
        feed->set->ops->next(feed->set, feed->pass, raw, &feed->ended, err);
    if (status == COPSE_OK && !feed->ended)
        raw->ordinal = feed->read++;
    else if (status == COPSE_OK)
        feed->left_out = raw->left_out;
    return status;
}

static uint64_t draw(uint64_t seed, uint64_t epoch, uint64_t number, size_t bound) {
    return copse__bounded(copse__draw64(seed, epoch, number, COPSE__DRAW_BUFFER), bound);
}

copse_status copse__feed_next(copse__feed *feed, copse__raw *raw, bool *end,
                              copse_error *err) {
    copse_status status;
    if (feed->window_most == 0) {
        status = feed->ended ? COPSE_OK : read_one(feed, raw, err);
        *end = feed->ended;
        return status;
    }
    while (!feed->ended && feed->window_count < feed->window_most) {
        status = read_one(feed, &feed->window[feed->window_count], err);
        if (status != COPSE_OK)
            return status;
        if (!feed->ended)
            feed->window_count++;
    }
    *end = feed->window_count == 0;
    if (*end)
        return COPSE_OK;
    size_t at = (size_t)draw(feed->seed, feed->epoch, feed->drawn++, feed->window_count);
    size_t last = --feed->window_count;
    copse__raw drawn = feed->window[at];
    feed->window[at] = feed->window[last];
    feed->window[last] = *raw;
    *raw = drawn;
    return COPSE_OK;
}

void copse__feed_free(copse__feed *feed) {
    if (!feed->set)
        return;
    stop(feed);
    for (size_t i = 0; feed->window && i < feed->window_most; i++)
        copse__raw_free(&feed->window[i]);
    free(feed->window);
    *feed = (copse__feed){0};
}

copse_status copse__window_order(uint64_t *order, size_t count, uint64_t seed,
                                 uint64_t epoch, size_t window, copse_error *err) {
    uint64_t *held;
    window = copse__min_size(window, count);
    copse_status status = copse__calloc(&held, window, sizeof *held, err);
    if (status != COPSE_OK)
        return status;
    size_t read = 0, filled = 0;
    for (size_t i = 0; i < count; i++) {
        while (filled < window && read < count)
            held[filled++] = read++;
        size_t at = (size_t)draw(seed, epoch, i, filled);
        order[i] = held[at];
        held[at] = held[--filled];
    }
    free(held);
    return COPSE_OK;
}
