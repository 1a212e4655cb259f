/* SPDX-License-Identifier: Apache-2.0 */
#include "train/board.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/tfevents.h"

struct copse__board {
    const copse__config *config;
    char *validation_folder;
    int64_t start;
    copse__tfevents *train;
    copse__tfevents *validation; /* NULL until there is something to write */
    double learning_rate;        /* of the last step */
};

copse_status copse__board_open(copse__board **out, const copse__config *config,
                               const char *folder, copse__position at, copse_error *err) {
    *out = NULL;
    if (!config->log.tensorboard)
        return COPSE_OK;
    copse__board *board;
    char *train = NULL;
    copse_status status = copse__calloc(&board, 1, sizeof *board, err);
    if (status != COPSE_OK)
        return status;
    board->config = config;
    /* TensorBoard forgets older points from here on. Curves over epochs and over steps share
     * a folder, so this can only be right for one of the two. */
    board->start = (int64_t)(config->log.update_freq > 0 ? at.step : at.epoch);
    COPSE__TRY(copse__path_join(&board->validation_folder, folder, "validation", err),
               out);
    COPSE__TRY(copse__path_join(&train, folder, "train", err), out);
    COPSE__TRY(copse__tfevents_open(&board->train, train, board->start, err), out);
    *out = board;
    board = NULL;
out:
    free(train);
    copse__board_close(board);
    return status;
}

void copse__board_close(copse__board *board) {
    if (!board)
        return;
    copse__tfevents_close(board->train);
    copse__tfevents_close(board->validation);
    free(board->validation_folder);
    free(board);
}

copse_status copse__board_step(copse__board *board, const copse__progress *progress,
                               copse_error *err) {
    if (!board)
        return COPSE_OK;
    uint64_t every = board->config->log.update_freq;
    board->learning_rate = progress->learning_rate;
    if (every == 0 || progress->step % every != 0)
        return COPSE_OK;
    int64_t step = (int64_t)progress->step;
    copse_status status = copse__tfevents_scalar(board->train, "batch_loss", step,
                                                 copse__score_loss(&progress->last), err);
    if (status == COPSE_OK)
        status = copse__tfevents_scalar(board->train, "batch_accuracy", step,
                                        copse__score_accuracy(&progress->last), err);
    return status;
}

static copse_status write_score(copse__tfevents *writer, int64_t epoch,
                                const copse__score *score, copse_error *err) {
    copse_status status = copse__tfevents_scalar(writer, "epoch_loss", epoch,
                                                 copse__score_loss(score), err);
    return status == COPSE_OK ? copse__tfevents_scalar(writer, "epoch_accuracy", epoch,
                                                       copse__score_accuracy(score), err)
                              : status;
}

static copse_status write_histograms(copse__board *board, int64_t epoch,
                                     copse__trainer *trainer, copse_error *err) {
    float *values = NULL;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < copse__trainer_state_count(trainer); i++) {
        copse__state_item item = copse__trainer_state_item(trainer, i);
        char tag[320];
        if (item.slot)
            continue;
        free(values);
        COPSE__TRY(copse__calloc(&values, item.elements, sizeof *values, err), out);
        COPSE__TRY(copse__trainer_state_read(trainer, i, values, err), out);
        snprintf(tag, sizeof tag, "%s/histogram", item.name);
        COPSE__TRY(copse__tfevents_histogram(board->train, tag, epoch, values,
                                             item.elements, err),
                   out);
    }
out:
    free(values);
    return status;
}

copse_status copse__board_epoch(copse__board *board, const copse__epoch_report *report,
                                copse__trainer *trainer, copse_error *err) {
    if (!board)
        return COPSE_OK;
    int64_t epoch = (int64_t)report->epoch;
    uint64_t every = board->config->log.histogram_freq;
    copse_status status;
    COPSE__TRY(write_score(board->train, epoch, &report->train, err), out);
    COPSE__TRY(copse__tfevents_scalar(board->train, "epoch_learning_rate", epoch,
                                      board->learning_rate, err),
               out);
    if (report->validated && !board->validation)
        COPSE__TRY(copse__tfevents_open(&board->validation, board->validation_folder,
                                        board->start, err),
                   out);
    if (report->validated)
        COPSE__TRY(write_score(board->validation, epoch, &report->validation, err), out);
    if (every > 0 && (report->epoch + 1) % every == 0)
        status = write_histograms(board, epoch, trainer, err);
out:
    return status;
}
