/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/known.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "tune/shipped.h"

const copse__tune_shipped *const copse__tune_shipped_all[] = {
    &copse__tune_shipped_pocl_x86_64,
    NULL,
};

/* One file a device, driver and version of the kernels: none is ever read for another. */
static copse_status user_path(char **out, const copse__tune_device *self,
                              const char *cache_folder, copse_error *err) {
    char name[160], hash[33], joined[80];
    *out = NULL;
    if (!cache_folder)
        return COPSE_OK;
    snprintf(joined, sizeof joined, "%s%s", self->build, self->sources);
    copse__hash128_hex(hash, copse__hash128_of(joined, strlen(joined)));
    snprintf(name, sizeof name, "tune-%s.json", hash);
    return copse__path_join(out, cache_folder, name, err);
}

static copse_status add(copse__tune_known *to, const copse__tuned *entry,
                        const char *origin, copse_error *err) {
    copse_status status =
        copse__grow(&to->entries, &to->capacity, to->count + 1, sizeof *to->entries, err);
    if (status == COPSE_OK)
        status = copse__grow(&to->origins, &to->origin_capacity, to->count + 1,
                             sizeof *to->origins, err);
    if (status != COPSE_OK)
        return status;
    to->entries[to->count] = *entry;
    to->origins[to->count++] = origin;
    return COPSE_OK;
}

/* What the user measured for a whole operation is worth more than what others did for one of its nodes. */
static bool is_covered(const copse__tune_known *known, size_t own, const char *key) {
    size_t length = strcspn(key, " ");
    for (size_t i = 0; i < own; i++)
        if (strlen(known->entries[i].key) == length &&
            strncmp(known->entries[i].key, key, length) == 0)
            return true;
    return false;
}

static copse_status add_all(copse__tune_known *to, const copse__tune_device *from,
                            const char *origin, copse_error *err) {
    size_t own = to->count;
    copse_status status = COPSE_OK;
    for (size_t i = 0; from && i < from->result_count && status == COPSE_OK; i++)
        if (!is_covered(to, own, from->results[i].tuned.key))
            status = add(to, &from->results[i].tuned, origin, err);
    return status;
}

static copse_status add_user(copse__tune_known *to, const copse__tune_device *self,
                             copse_error *err) {
    copse_error why = {0};
    if (!to->path || !copse__file_exists(to->path))
        return COPSE_OK;
    copse_status status = copse__tune_load(&to->user, to->path, &why);
    if (status == COPSE_NOMEM) {
        if (err)
            *err = why;
        return status;
    }
    if (status != COPSE_OK) {
        copse__log(COPSE_LOG_WARN, "%s is not used: %s", to->path, why.text);
        copse__tune_file_free(&to->user);
        return COPSE_OK;
    }
    return add_all(to, copse__tune_match(&to->user, self, true), to->path, err);
}

static copse_status add_shipped(copse__tune_known *to, const copse__tune_device *self,
                                copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; copse__tune_shipped_all[i] && status == COPSE_OK; i++) {
        const copse__tune_shipped *s = copse__tune_shipped_all[i];
        copse__tune_file_free(&to->shipped);
        status = copse__tune_parse(&to->shipped, s->text, s->bytes, s->name, err);
        const copse__tune_device *found =
            status == COPSE_OK ? copse__tune_match(&to->shipped, self, false) : NULL;
        if (found)
            return add_all(to, found, s->name, err);
    }
    return status;
}

static copse_status add_named(copse__tune_known *to, const copse__device *device,
                              const copse__tune_device *self, const char *path,
                              copse_error *err) {
    copse_status status = copse__strdup(&to->path, path, err);
    if (status == COPSE_OK)
        status = copse__tune_load(&to->user, path, err);
    if (status != COPSE_OK)
        return status;
    const copse__tune_device *found = copse__tune_match(&to->user, self, false);
    if (!found)
        copse__log(COPSE_LOG_WARN,
                   "%s: %s has no results for it, its driver and this version of copse; "
                   "it chooses by itself",
                   copse__device_get(device)->choice.label, path);
    return add_all(to, found, to->path, err);
}

copse_status copse__tune_known_open(copse__tune_known *out, const copse__device *device,
                                    const char *how, const char *cache_folder,
                                    copse_error *err) {
    copse__tuning_id id;
    copse_status status;
    *out = (copse__tune_known){0};
    if (strcmp(how, "off") == 0 || !copse__backend_of(device)->tune)
        return COPSE_OK;
    const copse__tune_device self = copse__tune_device_of(device, &id);
    if (strcmp(how, "auto") != 0) {
        status = add_named(out, device, &self, how, err);
    } else {
        status = user_path(&out->path, &self, cache_folder, err);
        if (status == COPSE_OK)
            status = add_user(out, &self, err);
        if (status == COPSE_OK)
            status = add_shipped(out, &self, err);
    }
    if (status != COPSE_OK)
        copse__tune_known_close(out);
    return status;
}

void copse__tune_known_close(copse__tune_known *known) {
    copse__tune_file_free(&known->user);
    copse__tune_file_free(&known->shipped);
    free(known->entries);
    free(known->origins);
    free(known->path);
    *known = (copse__tune_known){0};
}

bool copse__tune_known_has(const copse__tune_known *known, const char *key) {
    return copse__tuned_find(known->entries, known->count, key) != NULL;
}

/* ---- Keeping ---------------------------------------------------------------------------- */

static bool is_among(const copse__tune_result *results, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(results[i].tuned.key, key) == 0)
            return true;
    return false;
}

/* Nobody measured it: first use left the node to the device. A result for the whole operation says more. */
static bool is_outdone(const copse__tune_result *old, const copse__tune_result *results,
                       size_t count) {
    char op[COPSE__TUNED_KEY];
    if (strcmp(old->tuned.provider, COPSE__TUNED_DEFAULT) != 0 || old->us > 0)
        return false;
    snprintf(op, sizeof op, "%.*s", (int)strcspn(old->tuned.key, " "), old->tuned.key);
    return is_among(results, count, op);
}

/* Of equal keys the new results stay, or without `replace` the old ones. */
static copse_status merge(copse__tune_device *to, const copse__tune_device *old,
                          const copse__tune_result *results, size_t count, bool replace,
                          copse_error *err) {
    size_t kept = old ? old->result_count : 0;
    copse_status status =
        copse__calloc(&to->results, kept + count, sizeof *to->results, err);
    if (status != COPSE_OK)
        return status;
    to->result_count = 0;
    for (size_t i = 0; i < kept; i++)
        if (!replace || (!is_among(results, count, old->results[i].tuned.key) &&
                         !is_outdone(&old->results[i], results, count)))
            to->results[to->result_count++] = old->results[i];
    for (size_t i = 0; i < count; i++)
        if (replace || !is_among(to->results, kept, results[i].tuned.key))
            to->results[to->result_count++] = results[i];
    return COPSE_OK;
}

/* The file is read, changed and written by one process at a time. */
static copse_status write_merged(const char *path, const copse__tune_file *old,
                                 const copse__tune_device *self,
                                 const copse__tune_result *results, size_t count,
                                 bool replace, copse_error *err) {
    copse__tune_device *devices = NULL, own = *self;
    copse__text text = {0};
    size_t used = 0;
    const copse__tune_device *before = copse__tune_match(old, self, true);
    copse_status status =
        copse__calloc(&devices, old->device_count + 1, sizeof *devices, err);
    if (status == COPSE_OK)
        status = merge(&own, before, results, count, replace, err);
    if (status == COPSE_OK) {
        for (size_t i = 0; i < old->device_count; i++)
            if (&old->devices[i] != before)
                devices[used++] = old->devices[i];
        devices[used++] = own;
        copse__tune_write(&text, devices, used);
        status = copse__text_check(&text, err);
    }
    if (status == COPSE_OK)
        status = copse__file_write_atomic(path, text.data, text.length, err);
    copse__text_free(&text);
    free(devices);
    free(own.results);
    return status;
}

static int lock_beside(const char *path, copse_error *err) {
    copse__text name = {0};
    int lock = -1;
    copse__text_add(&name, "%s.lock", path);
    if (copse__text_check(&name, err) == COPSE_OK) {
        lock = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (lock < 0 || flock(lock, LOCK_EX) != 0) {
            copse__fail(err, COPSE_IO, errno, name.data, "cannot lock it: %s",
                        strerror(errno));
            if (lock >= 0)
                close(lock);
            lock = -1;
        }
    }
    copse__text_free(&name);
    return lock;
}

typedef struct keeping {
    const char *path;
    bool replace; /* results of equal keys */
    bool ours;    /* a file of ours in the cache: a damaged one is made anew */
} keeping;

static copse_status keep(const keeping *how, const copse__device *device,
                         const copse__tune_result *results, size_t count,
                         copse_error *err) {
    const char *path = how->path;
    copse__tuning_id id;
    copse__tune_file old = {0};
    copse_error why = {0};
    const copse__tune_device self = copse__tune_device_of(device, &id);
    int lock = lock_beside(path, err);
    if (lock < 0)
        return COPSE_IO;
    copse_status status = COPSE_OK;
    if (copse__file_exists(path)) {
        status = copse__tune_load(&old, path, &why);
        if (status == COPSE_FORMAT && how->ours) {
            copse__log(COPSE_LOG_WARN, "%s is replaced: %s", path, why.text);
            copse__tune_file_free(&old);
            status = COPSE_OK;
        } else if (status != COPSE_OK && err) {
            *err = why;
        }
    }
    if (status == COPSE_OK)
        status = write_merged(path, &old, &self, results, count, how->replace, err);
    copse__tune_file_free(&old);
    close(lock);
    return status;
}

copse_status copse__tune_keep_in(const char *path, const copse__device *device,
                                 const copse__tune_result *results, size_t count,
                                 copse_error *err) {
    const keeping how = {.path = path, .replace = true};
    return keep(&how, device, results, count, err);
}

copse_status copse__tune_check_target(const char *path, copse_error *err) {
    copse__tune_file there = {0};
    char *folder = NULL;
    copse_status status = COPSE_OK;
    if (copse__file_exists(path)) {
        status = copse__tune_load(&there, path, err);
        copse__tune_file_free(&there);
        if (status != COPSE_OK)
            return status;
    }
    const char *slash = strrchr(path, '/');
    COPSE__TRY(copse__strdup(&folder, slash ? path : ".", err), out);
    if (slash)
        folder[slash == path ? 1 : slash - path] = '\0';
    if (access(folder, W_OK | X_OK) != 0)
        status = copse__fail(err, COPSE_IO, errno, folder, "cannot write there: %s",
                             strerror(errno));
out:
    free(folder);
    return status;
}

copse_status copse__tune_keep(const copse__device *device, const char *cache_folder,
                              const copse__tune_result *results, size_t count,
                              bool replace, copse_error *err) {
    copse__tuning_id id;
    char *path;
    const copse__tune_device self = copse__tune_device_of(device, &id);
    copse_status status = user_path(&path, &self, cache_folder, err);
    if (status != COPSE_OK || !path)
        return status;
    status = copse__make_folders(cache_folder, err);
    if (status == COPSE_OK)
        status = keep(&(keeping){.path = path, .replace = replace, .ours = true}, device,
                      results, count, err);
    free(path);
    return status;
}
