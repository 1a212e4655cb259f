/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of image files, with a folder for each class. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/image.h"

enum { DEPTH_MOST = 32 };

#define FILE_MOST ((size_t)1 << 30)

typedef struct item {
    char *path;
    size_t label;
    size_t rank, of; /* number in its class, and the class's size */
} item;

typedef struct folder {
    item *items;
    size_t count, capacity;
    copse_image_options image;
} folder;

/* ---- Finding files -------------------------------------------------------------------- */

static bool is_image_name(const char *name) {
    static const char *const endings[] = {".png", ".jpg", ".jpeg"};
    size_t n = strlen(name);
    for (size_t i = 0; i < COPSE__COUNT(endings); i++) {
        size_t e = strlen(endings[i]);
        if (n > e && strcasecmp(name + n - e, endings[i]) == 0)
            return name[0] != '.';
    }
    return false;
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static copse_status add_item(folder *f, const char *path, size_t label,
                             copse_error *err) {
    copse_status status =
        copse__grow(&f->items, &f->capacity, f->count + 1, sizeof *f->items, err);
    if (status == COPSE_OK)
        status = copse__strdup(&f->items[f->count].path, path, err);
    if (status == COPSE_OK)
        f->items[f->count++].label = label;
    return status;
}

/* All images below path, in the order of their paths. */
static copse_status collect(folder *f, const char *path, size_t label, int depth,
                            copse_error *err) {
    copse__paths names;
    if (depth > DEPTH_MOST)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "folders are nested more than %d deep; is there a link to a "
                           "folder above?",
                           DEPTH_MOST);
    copse_status status = copse__paths_list(&names, path, err);
    for (size_t i = 0; i < names.count && status == COPSE_OK; i++) {
        char *below;
        status = copse__path_join(&below, path, names.items[i], err);
        if (status != COPSE_OK)
            break;
        if (is_folder(below))
            status = collect(f, below, label, depth + 1, err);
        else if (is_image_name(names.items[i]))
            status = add_item(f, below, label, err);
        free(below);
    }
    copse__paths_free(&names);
    return status;
}

static void number_class(folder *f, size_t from) {
    for (size_t i = from; i < f->count; i++) {
        f->items[i].rank = i - from;
        f->items[i].of = f->count - from;
    }
}

/* By (rank + 1/2) / size: an even spread of every class. */
static int by_spread(const void *a_pointer, const void *b_pointer) {
    __extension__ typedef unsigned __int128 wide;
    const item *a = a_pointer, *b = b_pointer;
    wide left = (wide)(2 * a->rank + 1) * b->of, right = (wide)(2 * b->rank + 1) * a->of;
    if (left != right)
        return left < right ? -1 : 1;
    return a->label < b->label ? -1 : a->label > b->label;
}

/* ---- Classes -------------------------------------------------------------------------- */

/* The folders in root, or the source's names of them. */
static copse_status find_classes(copse__paths *classes, const copse__paths *names,
                                 const char *root, const copse_data_source *source,
                                 copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < source->class_count && status == COPSE_OK; i++)
        status = copse__paths_add(classes, source->class_names[i], err);
    for (size_t i = 0; i < names->count && status == COPSE_OK; i++) {
        char *path;
        status = copse__path_join(&path, root, names->items[i], err);
        if (status != COPSE_OK)
            break;
        bool known = source->class_count == 0, class = is_folder(path);
        for (size_t c = 0; c < source->class_count; c++)
            known = known || strcmp(source->class_names[c], names->items[i]) == 0;
        free(path);
        if (class && !known)
            return copse__fail(
                err, COPSE_CONFIG, 0, root,
                "its folder '%s' is none of the classes; the sets of a run "
                "need the same classes",
                names->items[i]);
        if (class && source->class_count == 0)
            status = copse__paths_add(classes, names->items[i], err);
    }
    return status;
}

static copse_status collect_class(folder *f, const char *root, const char *name,
                                  size_t label, bool skip_errors, copse_error *err) {
    char *path;
    size_t from = f->count;
    copse_status status = copse__path_join(&path, root, name, err);
    if (status != COPSE_OK)
        return status;
    if (is_folder(path))
        status = collect(f, path, label, 0, err);
    if (status == COPSE_OK && f->count == from && !skip_errors)
        status = copse__fail(err, COPSE_FORMAT, 0, path,
                             "there is no .png, .jpg or .jpeg file for this class; add "
                             "some or remove it");
    else if (status == COPSE_OK && f->count == from)
        copse__log(COPSE_LOG_WARN, "class '%s' has no image in %s", name, root);
    number_class(f, from);
    free(path);
    return status;
}

static copse_status find_items(copse_dataset *set, const char *root,
                               const copse_data_source *source, bool *labelled,
                               copse_error *err) {
    folder *f = set->state;
    copse__paths names = {0}, classes = {0};
    copse_status status = copse__paths_list(&names, root, err);
    if (status == COPSE_OK)
        status = find_classes(&classes, &names, root, source, err);
    *labelled = classes.count > 0;
    for (size_t c = 0; c < classes.count && status == COPSE_OK; c++)
        status = collect_class(f, root, classes.items[c], c, source->skip_errors, err);
    if (status == COPSE_OK && !*labelled) {
        status = collect(f, root, 0, 0, err);
        number_class(f, 0);
    }
    if (status == COPSE_OK && f->count == 0)
        status =
            copse__fail(err, COPSE_FORMAT, 0, root,
                        "there is no .png, .jpg or .jpeg file in it; check the path");
    if (status == COPSE_OK) {
        qsort(f->items, f->count, sizeof *f->items, by_spread);
        status = copse__dataset_set_classes(set, classes.count,
                                            (const char *const *)classes.items, err);
    }
    copse__paths_free(&names);
    copse__paths_free(&classes);
    return status;
}

/* ---- The dataset ---------------------------------------------------------------------- */

static copse_status read_file(const char *path, copse__scratch *scratch, size_t *bytes,
                              copse_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    copse_status status = COPSE_OK;
    *bytes = 0;
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                             strerror(errno));
        goto out;
    }
    if ((size_t)info.st_size > FILE_MOST) {
        status = copse__fail(err, COPSE_FORMAT, 0, path, "it is too large for an image");
        goto out;
    }
    COPSE__TRY(copse__grow(&scratch->file, &scratch->file_capacity,
                           (size_t)info.st_size + 1, 1, err),
               out);
    while (*bytes < (size_t)info.st_size) {
        ssize_t got = read(fd, scratch->file + *bytes, (size_t)info.st_size - *bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = copse__fail(err, COPSE_IO, errno, path, "cannot read it: %s",
                                 strerror(errno));
            goto out;
        }
        if (got == 0)
            break;
        *bytes += (size_t)got;
    }
out:
    if (fd >= 0)
        close(fd);
    return status;
}

static copse_status folder_read(copse_dataset *set, size_t index, copse__scratch *scratch,
                                void *features, void *labels, copse_error *err) {
    const folder *f = set->state;
    const item *it = &f->items[index];
    size_t bytes;
    copse_status status = read_file(it->path, scratch, &bytes, err);
    if (status == COPSE_OK)
        status = copse__image_read(features, &set->features, &f->image, scratch->file,
                                   bytes, it->path, scratch, err);
    if (status == COPSE_OK && labels)
        *(int32_t *)labels = (int32_t)it->label;
    return status;
}

static void folder_locate(const copse_dataset *set, size_t index, char *buffer,
                          size_t bytes) {
    const folder *f = set->state;
    snprintf(buffer, bytes, "%s", f->items[index].path);
}

static void folder_close(copse_dataset *set) {
    folder *f = set->state;
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++)
        free(f->items[i].path);
    free(f->items);
    free(f);
}

static const char *folder_file(const copse_dataset *set, size_t index) {
    const folder *f = set->state;
    return index < f->count ? f->items[index].path : NULL;
}

static const copse__dataset_ops folder_ops = {.read = folder_read,
                                              .locate = folder_locate,
                                              .close = folder_close,
                                              .file = folder_file};

/* From the first image that can be decoded. */
static copse_status find_spec(copse_dataset *set, bool labelled, copse_error *err) {
    folder *f = set->state;
    copse__scratch scratch = {0};
    copse_data_spec features, labels = {.dtype = COPSE_I32};
    copse_status status = COPSE_FORMAT;
    for (size_t i = 0; i < f->count; i++) {
        size_t bytes = 0;
        if (f->image.height == 0)
            status = read_file(f->items[i].path, &scratch, &bytes, err);
        else
            status = COPSE_OK;
        if (status == COPSE_OK)
            status = copse__image_spec(&features, &f->image, scratch.file, bytes,
                                       f->items[i].path, &scratch, err);
        if (status == COPSE_OK || !set->skip_errors)
            break;
    }
    copse__scratch_free(&scratch);
    if (status == COPSE_OK)
        status = copse__dataset_set_specs(set, &features, labelled ? &labels : NULL, err);
    return status;
}

copse_status copse__folder_open(copse_dataset **out, const copse_data_source *source,
                                const copse__found_files *files, copse_error *err) {
    const char *root = files->paths.items[0];
    copse_dataset *set;
    folder *f;
    bool labelled;
    if (files->paths.count != 1 || !is_folder(root))
        return copse__fail(err, COPSE_CONFIG, 0, root,
                           "folder data is one folder with a folder for each class");
    copse_status status = copse__dataset_new(&set, &folder_ops, root, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&f, 1, sizeof *f, err), fail);
    set->state = f;
    set->skip_errors = source->skip_errors;
    f->image = source->image;
    COPSE__TRY(find_items(set, root, source, &labelled, err), fail);
    set->count = f->count;
    COPSE__TRY(find_spec(set, labelled, err), fail);
    *out = set;
    return COPSE_OK;
fail:
    copse_dataset_close(set);
    return status;
}
