/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define LOCK_NAME ".lock"
#define LATEST "latest"
#define BEST "best"
#define BEST_EXPORT "best.safetensors"

struct copse__run_folder {
    char *path;
    int lock;
};

/* ---- Names ---- */

enum { NAME_BYTES = 48 };

static void step_name(char name[NAME_BYTES], uint64_t step) {
    snprintf(name, NAME_BYTES, "step-%08" PRIu64 ".safetensors", step);
}

/* Whether a file name is just what step_name makes. */
static bool parse_step(const char *name, uint64_t *step) {
    char again[NAME_BYTES];
    if (strncmp(name, "step-", 5) != 0 || !isdigit((unsigned char)name[5]))
        return false;
    errno = 0;
    *step = strtoull(name + 5, NULL, 10);
    if (errno != 0)
        return false;
    step_name(again, *step);
    return strcmp(name, again) == 0;
}

/* "config.yaml.tmp-123-4": what base/file.h leaves where a writer was killed. */
static bool is_leftover(const char *name) {
    const char *at = strstr(name, ".tmp-");
    return at && at[5] && strspn(at + 5, "0123456789-") == strlen(at + 5);
}

typedef struct step_list {
    uint64_t *steps; /* falling */
    size_t count, capacity;
} step_list;

static int compare_falling(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

static copse_status list_steps(const char *path, step_list *out, copse_error *err) {
    copse_status status = COPSE_OK;
    const struct dirent *entry;
    uint64_t step;
    *out = (step_list){0};
    DIR *folder = opendir(path);
    if (!folder)
        return copse__fail(err, COPSE_IO, errno, path, "cannot open the run folder: %s",
                           strerror(errno));
    while (status == COPSE_OK && (entry = readdir(folder)) != NULL) {
        if (!parse_step(entry->d_name, &step))
            continue;
        status = copse__grow(&out->steps, &out->capacity, out->count + 1,
                             sizeof *out->steps, err);
        if (status == COPSE_OK)
            out->steps[out->count++] = step;
    }
    closedir(folder);
    if (status != COPSE_OK) {
        free(out->steps);
        *out = (step_list){0};
    } else if (out->count > 0) {
        qsort(out->steps, out->count, sizeof *out->steps, compare_falling);
    }
    return status;
}

/* The step that `latest` or `best` names; *found is false where it does not (yet). */
static copse_status read_pointer(const char *path, const char *pointer, bool *found,
                                 uint64_t *step, copse_error *err) {
    char *file = NULL, *text = NULL;
    size_t bytes = 0;
    *found = false;
    copse_status status = copse__path_join(&file, path, pointer, err);
    if (status == COPSE_OK)
        status = copse__file_read(&text, &bytes, file, 256, err);
    if (status == COPSE_OK) {
        text[strcspn(text, "\r\n")] = '\0';
        *found = parse_step(text, step);
    }
    free(text);
    free(file);
    return status == COPSE_NOMEM ? status : COPSE_OK;
}

static copse_status write_pointer(const copse__run_folder *folder, const char *pointer,
                                  const char *name, copse_error *err) {
    char line[NAME_BYTES + 1];
    int length = snprintf(line, sizeof line, "%s\n", name);
    return copse__run_folder_put(folder, pointer, line, (size_t)length, err);
}

/* ---- Opening ---- */

static copse_status holds_run(const char *path, bool *out, copse_error *err) {
    static const char *const signs[] = {"config.yaml", "plan.json", "log.jsonl", LATEST};
    copse_status status = COPSE_OK;
    *out = false;
    for (size_t i = 0; i < COPSE__COUNT(signs) && !*out && status == COPSE_OK; i++) {
        char *file = NULL;
        status = copse__path_join(&file, path, signs[i], err);
        if (status == COPSE_OK)
            *out = copse__file_exists(file);
        free(file);
    }
    return status;
}

/* A folder nobody has yet: with a number behind the date where the date is taken. */
static copse_status make_new(const copse__run_folder_options *options, char **out,
                             copse_error *err) {
    const char *base = options->base ? options->base : "runs";
    char stamp[32] = "", name[256];
    struct tm parts;
    time_t now = time(NULL);
    *out = NULL;
    copse_status status = copse__make_folders(base, err);
    if (status != COPSE_OK)
        return status;
    if (localtime_r(&now, &parts))
        strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
    for (unsigned attempt = 1; attempt < 10000; attempt++) {
        char number[16] = "";
        if (attempt > 1)
            snprintf(number, sizeof number, "-%u", attempt);
        snprintf(name, sizeof name, "%.200s-%s%s", options->name ? options->name : "run",
                 stamp, number);
        char *path;
        status = copse__path_join(&path, base, name, err);
        if (status != COPSE_OK)
            return status;
        if (mkdir(path, 0777) == 0) {
            *out = path;
            return copse__sync_entry(path, err);
        }
        int code = errno;
        if (code != EEXIST)
            status = copse__fail(err, COPSE_IO, code, path,
                                 "cannot make the run folder: %s; choose one with --out",
                                 strerror(code));
        free(path);
        if (code != EEXIST)
            return status;
    }
    return copse__fail(err, COPSE_IO, EEXIST, base,
                       "there are too many runs of this name");
}

static copse_status lock_folder(copse__run_folder *folder, copse_error *err) {
    char *file, owner[32] = "";
    copse_status status = copse__path_join(&file, folder->path, LOCK_NAME, err);
    if (status != COPSE_OK)
        return status;
    folder->lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (folder->lock < 0) {
        status = copse__fail(err, COPSE_IO, errno, folder->path,
                             "cannot write to the run folder: %s; choose another with "
                             "--out",
                             strerror(errno));
    } else if (flock(folder->lock, LOCK_EX | LOCK_NB) != 0) {
        int code = errno;
        if (code == EWOULDBLOCK) {
            ssize_t got = pread(folder->lock, owner, sizeof owner - 1, 0);
            owner[got > 0 ? got : 0] = '\0';
            status = copse__fail(err, COPSE_INVALID, code, folder->path,
                                 "process %s is writing to this run folder; wait for it, "
                                 "or choose another with --out",
                                 owner[0] ? owner : "(unknown)");
        } else { /* a file system without locks */
            copse__log(COPSE_LOG_WARN,
                       "%s cannot be locked (%s): do not start a second run in it",
                       folder->path, strerror(code));
        }
    } else {
        int length = snprintf(owner, sizeof owner, "%ld", (long)getpid());
        /* For messages only: an unwritten number does no harm. */
        if (ftruncate(folder->lock, 0) != 0 ||
            pwrite(folder->lock, owner, (size_t)length, 0) != length)
            copse__log(COPSE_LOG_DEBUG, "%s holds no process number", file);
    }
    free(file);
    return status;
}

static void remove_leftovers(const char *path) {
    const struct dirent *entry;
    DIR *folder = opendir(path);
    if (!folder)
        return;
    while ((entry = readdir(folder)) != NULL)
        if (is_leftover(entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            copse__log(COPSE_LOG_WARN, "%s/%s cannot be removed: %s", path, entry->d_name,
                       strerror(errno));
    closedir(folder);
}

copse_status copse__run_folder_open(copse__run_folder **out,
                                    const copse__run_folder_options *options,
                                    copse_error *err) {
    *out = NULL;
    copse__run_folder *folder;
    bool held;
    copse_status status = copse__calloc(&folder, 1, sizeof *folder, err);
    if (status != COPSE_OK)
        return status;
    folder->lock = -1;
    if (!options->path) {
        COPSE__TRY(make_new(options, &folder->path, err), fail);
    } else {
        COPSE__TRY(copse__strdup(&folder->path, options->path, err), fail);
        COPSE__TRY(holds_run(folder->path, &held, err), fail);
        if (options->resume && !held) {
            status = copse__fail(err, COPSE_INVALID, 0, options->path,
                                 "there is no run in it to resume");
            goto fail;
        }
        if (!options->look)
            COPSE__TRY(copse__make_folders(options->path, err), fail);
    }
    if (!options->look)
        COPSE__TRY(lock_folder(folder, err), fail);
    COPSE__TRY(holds_run(folder->path, &held, err), fail);
    if (!options->resume && held) {
        status =
            copse__fail(err, COPSE_INVALID, 0, folder->path,
                        "it holds a run already; continue that one with --resume, or "
                        "choose another folder");
        goto fail;
    }
    if (!options->look)
        remove_leftovers(folder->path);
    *out = folder;
    return COPSE_OK;
fail:
    copse__run_folder_close(folder);
    return status;
}

void copse__run_folder_close(copse__run_folder *folder) {
    if (!folder)
        return;
    if (folder->lock >= 0)
        close(folder->lock);
    free(folder->path);
    free(folder);
}

const char *copse__run_folder_path(const copse__run_folder *folder) {
    return folder->path;
}

copse_status copse__run_folder_file(const copse__run_folder *folder, const char *name,
                                    char **out, copse_error *err) {
    return copse__path_join(out, folder->path, name, err);
}

copse_status copse__run_folder_put(const copse__run_folder *folder, const char *name,
                                   const void *data, size_t bytes, copse_error *err) {
    char *file;
    copse_status status = copse__run_folder_file(folder, name, &file, err);
    if (status == COPSE_OK)
        status = copse__file_write_atomic(file, data, bytes, err);
    free(file);
    return status;
}

/* ---- Saving ---- */

static void prune(const copse__run_folder *folder, uint64_t saved, uint64_t keep) {
    step_list list;
    uint64_t best = UINT64_MAX, stays = 0;
    bool has_best;
    /* Where it is not known which is the best, nothing is removed this time. */
    if (keep == 0 ||
        read_pointer(folder->path, BEST, &has_best, &best, NULL) != COPSE_OK ||
        list_steps(folder->path, &list, NULL) != COPSE_OK)
        return;
    for (size_t i = 0; i < list.count; i++) {
        char name[NAME_BYTES];
        char *file;
        /* The one just saved stays even where an older run left greater steps. */
        if (list.steps[i] == saved || stays++ < keep - 1 ||
            (has_best && list.steps[i] == best))
            continue;
        step_name(name, list.steps[i]);
        if (copse__run_folder_file(folder, name, &file, NULL) != COPSE_OK)
            continue;
        if (unlink(file) != 0)
            copse__log(COPSE_LOG_WARN, "the old checkpoint %s cannot be removed: %s",
                       file, strerror(errno));
        free(file);
    }
    free(list.steps);
}

/* Parameters and moving statistics alone, for whoever reads safetensors. */
static copse_status export_best(const copse__run_folder *folder,
                                const copse__checkpoint *checkpoint, copse_error *err) {
    static const copse__safetensors_note notes[] = {{"format", "np"}};
    copse__safetensor *tensors;
    size_t count = 0;
    char *file = NULL;
    copse_status status =
        copse__calloc(&tensors, checkpoint->tensor_count, sizeof *tensors, err);
    for (size_t i = 0; i < checkpoint->tensor_count && status == COPSE_OK; i++)
        if (strncmp(checkpoint->tensors[i].name, "optimizer/", 10) != 0)
            tensors[count++] = checkpoint->tensors[i];
    if (status == COPSE_OK)
        status = copse__run_folder_file(folder, BEST_EXPORT, &file, err);
    if (status == COPSE_OK)
        status = copse__safetensors_write(file, tensors, count, notes,
                                          COPSE__COUNT(notes), err);
    free(file);
    free(tensors);
    return status;
}

copse_status copse__run_folder_save(const copse__run_folder *folder,
                                    const copse__checkpoint *checkpoint, bool is_best,
                                    uint64_t keep, copse_error *err) {
    char name[NAME_BYTES];
    char *file;
    step_name(name, checkpoint->step);
    copse_status status = copse__run_folder_file(folder, name, &file, err);
    if (status == COPSE_OK)
        status = copse__checkpoint_write(file, checkpoint, err);
    free(file);
    if (status == COPSE_OK && is_best)
        status = export_best(folder, checkpoint, err);
    if (status == COPSE_OK && is_best)
        status = write_pointer(folder, BEST, name, err);
    if (status == COPSE_OK)
        status = write_pointer(folder, LATEST, name, err);
    if (status == COPSE_OK)
        prune(folder, checkpoint->step, keep);
    return status;
}

/* ---- Reading ---- */

static copse_status join_step(const char *path, uint64_t step, char **out,
                              copse_error *err) {
    char name[NAME_BYTES];
    step_name(name, step);
    return copse__path_join(out, path, name, err);
}

copse_status copse__run_folder_find(const char *path, copse__which_checkpoint which,
                                    char **out, copse_error *err) {
    const char *pointer = which == COPSE__CHECKPOINT_BEST ? BEST : LATEST;
    uint64_t step;
    step_list list = {0};
    bool found;
    *out = NULL;
    copse_status status = read_pointer(path, pointer, &found, &step, err);
    if (status != COPSE_OK)
        return status;
    if (found) {
        status = join_step(path, step, out, err);
        if (status != COPSE_OK || copse__file_exists(*out))
            return status;
        free(*out);
        *out = NULL;
    }
    /* A run killed before `latest` moved, or whose latest was taken away. */
    if (which == COPSE__CHECKPOINT_LATEST)
        status = list_steps(path, &list, err);
    if (status == COPSE_OK && list.count > 0)
        status = join_step(path, list.steps[0], out, err);
    else if (status == COPSE_OK)
        status =
            copse__fail(err, COPSE_IO, ENOENT, path,
                        "there is no %s checkpoint (step-….safetensors) in it", pointer);
    free(list.steps);
    return status;
}

/* Completes the message about a damaged checkpoint by the next older one that is whole. */
static void offer_older(const char *path, const char *damaged, copse_error *err) {
    step_list list;
    uint64_t step;
    const char *slash = strrchr(damaged, '/');
    if (!parse_step(slash ? slash + 1 : damaged, &step) ||
        list_steps(path, &list, NULL) != COPSE_OK)
        return;
    for (size_t i = 0; i < list.count; i++) {
        char *file;
        copse__checkpoint *older;
        if (list.steps[i] >= step ||
            join_step(path, list.steps[i], &file, NULL) != COPSE_OK)
            continue;
        bool whole = copse__checkpoint_read(&older, file, NULL) == COPSE_OK;
        if (whole) {
            copse__checkpoint_free(older);
            copse__fail(err, err->status, err->native, err->place,
                        "%s (step %" PRIu64
                        " is whole: move this file away, and the run goes on from there)",
                        err->text, list.steps[i]);
        }
        free(file);
        if (whole)
            break;
    }
    free(list.steps);
}

copse_status copse__run_folder_load(const char *path, copse__checkpoint **out,
                                    copse_error *err) {
    char *file;
    copse_error local;
    copse_error *to = err ? err : &local;
    *out = NULL;
    copse_status status =
        copse__run_folder_find(path, COPSE__CHECKPOINT_LATEST, &file, to);
    if (status != COPSE_OK)
        return status;
    status = copse__checkpoint_read(out, file, to);
    if (status == COPSE_FORMAT || status == COPSE_IO)
        offer_older(path, file, to);
    free(file);
    return status;
}
