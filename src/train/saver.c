/* SPDX-License-Identifier: Apache-2.0 */
#include "train/saver.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

typedef enum saver_state {
    STATE_IDLE,      /* the copy belongs to the caller */
    STATE_SUBMITTED, /* the copy belongs to the thread */
    STATE_LEAVING
} saver_state;

struct copse__saver {
    const copse__run_folder *folder;
    uint64_t keep;
    copse__jsonl *log;
    copse__pool pool; /* names and tensors */
    copse__safetensor *tensors;
    void *memory;
    copse__checkpoint checkpoint;
    bool is_best;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    saver_state state;
    bool has_result;
    copse__saved result;
};

static void *write_checkpoints(void *user) {
    copse__saver *saver = user;
    pthread_mutex_lock(&saver->lock);
    for (;;) {
        while (saver->state == STATE_IDLE)
            pthread_cond_wait(&saver->changed, &saver->lock);
        if (saver->state == STATE_LEAVING)
            break;
        pthread_mutex_unlock(&saver->lock);
        copse__saved result = {.step = saver->checkpoint.step};
        uint64_t start = copse__now_ns();
        copse_error why = {0};
        if (copse__jsonl_sync(saver->log, &why) != COPSE_OK) /* the weights matter more */
            copse__log(COPSE_LOG_WARN, "%s: %s", why.place, why.text);
        result.status =
            copse__run_folder_save(saver->folder, &saver->checkpoint, saver->is_best,
                                   saver->keep, &result.error);
        result.seconds = (double)(copse__now_ns() - start) * 1e-9;
        pthread_mutex_lock(&saver->lock);
        /* A failure nobody has asked for yet is not hidden by a later success. */
        if (!saver->has_result || saver->result.status == COPSE_OK)
            saver->result = result;
        saver->has_result = true;
        saver->state = STATE_IDLE;
        pthread_cond_broadcast(&saver->changed);
    }
    pthread_mutex_unlock(&saver->lock);
    return NULL;
}

static copse_status tensor_bytes(const copse__safetensor *tensor, size_t *out,
                                 copse_error *err) {
    size_t bytes = copse_dtype_bytes(tensor->dtype);
    bool fits = bytes > 0;
    for (size_t d = 0; d < tensor->rank && fits; d++)
        fits = copse__mul_size(bytes, tensor->shape[d], &bytes);
    if (!fits || bytes > SIZE_MAX / 4)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "the tensor '%.100s' has an impossible type or shape",
                           tensor->name);
    *out = copse__round_up(bytes, 64);
    return COPSE_OK;
}

/* One block for all tensors, each at a multiple of 64 bytes. */
static copse_status lay_out(copse__saver *saver, const copse__safetensor *tensors,
                            size_t count, copse_error *err) {
    size_t total = 0, bytes = 0, at = 0;
    copse_status status =
        copse__pool_alloc(&saver->pool, &saver->tensors, count, sizeof *tensors, err);
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        status = tensor_bytes(&tensors[i], &bytes, err);
        if (status == COPSE_OK && !copse__add_size(total, bytes, &total))
            status = copse__fail_nomem(err, UINT64_MAX);
    }
    if (status == COPSE_OK)
        status = copse__calloc(&saver->memory, total, 1, err);
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        char *name;
        status = copse__pool_strdup(&saver->pool, &name, tensors[i].name, err);
        if (status == COPSE_OK)
            status = tensor_bytes(&tensors[i], &bytes, err);
        saver->tensors[i] = tensors[i];
        saver->tensors[i].name = name;
        saver->tensors[i].data = (char *)saver->memory + at;
        at += bytes;
    }
    saver->checkpoint.tensors = saver->tensors;
    saver->checkpoint.tensor_count = count;
    return status;
}

/* With every signal blocked: they are for the caller's threads. */
static int start_thread(copse__saver *saver) {
    sigset_t all, before;
    sigfillset(&all);
    int code = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (code != 0)
        return code;
    code = pthread_create(&saver->thread, NULL, write_checkpoints, saver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static void saver_free(copse__saver *saver) {
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->lock);
    copse__pool_free(&saver->pool);
    free(saver->memory);
    free(saver);
}

copse_status copse__saver_open(copse__saver **out, const copse__run_folder *folder,
                               uint64_t keep, copse__jsonl *log,
                               const copse__safetensor *tensors, size_t tensor_count,
                               copse_error *err) {
    *out = NULL;
    copse__saver *saver;
    copse_status status = copse__calloc(&saver, 1, sizeof *saver, err);
    if (status != COPSE_OK)
        return status;
    saver->folder = folder;
    saver->keep = keep;
    saver->log = log;
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    COPSE__TRY(lay_out(saver, tensors, tensor_count, err), fail);
    int code = start_thread(saver);
    if (code != 0) {
        status = copse__fail(err, COPSE_NOMEM, code, NULL,
                             "no thread could be started for writing checkpoints: %s",
                             strerror(code));
        goto fail;
    }
    *out = saver;
    return COPSE_OK;
fail:
    saver_free(saver);
    return status;
}

static void wait_idle(copse__saver *saver) {
    while (saver->state == STATE_SUBMITTED)
        pthread_cond_wait(&saver->changed, &saver->lock);
}

copse__checkpoint *copse__saver_begin(copse__saver *saver) {
    pthread_mutex_lock(&saver->lock);
    wait_idle(saver);
    pthread_mutex_unlock(&saver->lock);
    return &saver->checkpoint;
}

void *copse__saver_memory(copse__saver *saver, size_t index) {
    return (void *)(uintptr_t)saver->tensors[index].data;
}

void copse__saver_submit(copse__saver *saver, bool is_best) {
    pthread_mutex_lock(&saver->lock);
    saver->is_best = is_best;
    saver->state = STATE_SUBMITTED;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

bool copse__saver_result(copse__saver *saver, bool wait, copse__saved *out) {
    pthread_mutex_lock(&saver->lock);
    if (wait)
        wait_idle(saver);
    bool found = saver->has_result;
    if (found)
        *out = saver->result;
    saver->has_result = false;
    pthread_mutex_unlock(&saver->lock);
    return found;
}

void copse__saver_close(copse__saver *saver) {
    if (!saver)
        return;
    pthread_mutex_lock(&saver->lock);
    wait_idle(saver);
    saver->state = STATE_LEAVING;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
    pthread_join(saver->thread, NULL);
    saver_free(saver);
}
