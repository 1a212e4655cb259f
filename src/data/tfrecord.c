/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets of TFRecord files. Plain files are indexed by walking from length to length, and can
 * then be read in any order; a compressed one can only be read from its start, so that a set with
 * one is a stream. Checksums of the data are verified whenever a record is read. */
#include "io/tfrecord.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "data/example.h"

enum { OPEN_FILES_MOST = 256 };

typedef struct entry {
    uint64_t at;    /* of the record's head */
    uint64_t bytes; /* of its data */
} entry;

typedef struct records {
    copse__example_reader reader;
    copse__paths paths;
    copse__packing *packings; /* one a file */
    /* Indexed sets: */
    entry *entries;
    size_t entry_capacity;
    size_t *first; /* of each file */
    int *fds;      /* one a file; -1 where there are too many: opened for each read */
} records;

static void describe(const records *r, size_t file, uint64_t at, char *buffer,
                     size_t bytes) {
    snprintf(buffer, bytes, "%s, record at byte %" PRIu64, r->paths.items[file], at);
}

/* ---- Files ---------------------------------------------------------------------------- */

static copse_status open_file(int *fd, const char *path, copse_error *err) {
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                           strerror(errno));
    return COPSE_OK;
}

static copse_status read_at(int fd, const char *path, void *out, size_t bytes,
                            uint64_t at, copse_error *err) {
    unsigned char *to = out;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return copse__fail(err, COPSE_IO, errno, path,
                               "cannot read it at byte %" PRIu64 ": %s", at,
                               strerror(errno));
        if (got == 0)
            return copse__fail(
                err, COPSE_FORMAT, 0, path,
                "it ends within a record at byte %" PRIu64 "; fetch the file again", at);
        to += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return COPSE_OK;
}

/* ---- Indexed sets --------------------------------------------------------------------- */

static copse_status scan_records(records *r, int fd, uint64_t file_bytes,
                                 const char *path, size_t *count, copse_error *err) {
    for (uint64_t at = 0; at < file_bytes;) {
        unsigned char head[COPSE__RECORD_HEAD];
        uint64_t bytes, left = file_bytes - at;
        if (left < COPSE__RECORD_HEAD)
            return copse__fail(err, COPSE_FORMAT, 0, path,
                               "it ends within a record's length at byte %" PRIu64
                               "; fetch the file again",
                               at);
        copse_status status = read_at(fd, path, head, sizeof head, at, err);
        if (status != COPSE_OK)
            return status;
        if (!copse__tfrecord_head_ok(head, &bytes))
            return copse__fail(err, COPSE_FORMAT, 0, path,
                               "a record's length is damaged at byte %" PRIu64
                               " (wrong checksum); fetch the file again",
                               at);
        left -= COPSE__RECORD_HEAD;
        if (left < COPSE__RECORD_TAIL || bytes > left - COPSE__RECORD_TAIL)
            return copse__fail(err, COPSE_FORMAT, 0, path,
                               "it ends within the record at byte %" PRIu64
                               "; fetch the file again",
                               at);
        status = copse__grow(&r->entries, &r->entry_capacity, *count + 1,
                             sizeof *r->entries, err);
        if (status != COPSE_OK)
            return status;
        r->entries[(*count)++] = (entry){at, bytes};
        at += COPSE__RECORD_HEAD + bytes + COPSE__RECORD_TAIL;
    }
    return COPSE_OK;
}

static copse_status scan_file(copse_dataset *set, size_t file, copse_error *err) {
    records *r = set->state;
    const char *path = r->paths.items[file];
    int fd;
    copse_status status = open_file(&fd, path, err);
    if (status != COPSE_OK)
        return status;
    struct stat info;
    copse_error error = {0};
    if (fstat(fd, &info) != 0)
        status = copse__fail(&error, COPSE_IO, errno, path, "cannot read it: %s",
                             strerror(errno));
    else
        status = scan_records(r, fd, (uint64_t)info.st_size, path, &set->count, &error);
    if (status == COPSE_FORMAT && set->skip_errors) {
        copse__log(COPSE_LOG_WARN, "the rest of a file is left out: %s: %s", error.place,
                   error.text);
        status = COPSE_OK;
        set->left_out++; /* at least one */
    }
    if (status != COPSE_OK && err)
        *err = error;
    if (status == COPSE_OK && r->paths.count <= OPEN_FILES_MOST)
        r->fds[file] = fd;
    else
        close(fd);
    return status;
}

static size_t file_of(const records *r, size_t index) {
    size_t low = 0, high = r->paths.count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (r->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void records_locate(const copse_dataset *set, size_t index, char *buffer,
                           size_t bytes) {
    const records *r = set->state;
    describe(r, file_of(r, index), r->entries[index].at, buffer, bytes);
}

/* Head, data and tail in one read, into scratch->file; the data is *record. */
static copse_status read_record(const records *r, size_t index, copse__scratch *scratch,
                                const unsigned char **record, copse_error *err) {
    size_t file = file_of(r, index), framing = COPSE__RECORD_HEAD + COPSE__RECORD_TAIL;
    const char *path = r->paths.items[file];
    entry e = r->entries[index];
    copse_status status = copse__grow(&scratch->file, &scratch->file_capacity,
                                      (size_t)e.bytes + framing, 1, err);
    if (status != COPSE_OK)
        return status;
    int fd = r->fds[file];
    if (fd < 0)
        status = open_file(&fd, path, err);
    if (status == COPSE_OK)
        status = read_at(fd, path, scratch->file, (size_t)e.bytes + framing, e.at, err);
    if (fd >= 0 && fd != r->fds[file])
        close(fd);
    if (status != COPSE_OK)
        return status;
    uint64_t bytes;
    *record = scratch->file + COPSE__RECORD_HEAD;
    if (copse__tfrecord_head_ok(scratch->file, &bytes) && bytes == e.bytes &&
        copse__tfrecord_data_ok(*record, (size_t)bytes, *record + bytes))
        return COPSE_OK;
    return copse__fail(err, COPSE_FORMAT, 0, path,
                       "the record at byte %" PRIu64
                       " is damaged (wrong checksum); fetch the file again",
                       e.at);
}

/* The place is only made for an error: writing it costs as much as reading a small record. */
static copse_status records_read(copse_dataset *set, size_t index,
                                 copse__scratch *scratch, void *features, void *labels,
                                 copse_error *err) {
    const records *r = set->state;
    const unsigned char *record;
    copse_status status = read_record(r, index, scratch, &record, err);
    if (status != COPSE_OK)
        return status;
    copse_error error;
    status = copse__example_read(&r->reader, record, (size_t)r->entries[index].bytes,
                                 NULL, scratch, features, labels, &error);
    if (status != COPSE_OK && err) {
        *err = error;
        records_locate(set, index, err->place, sizeof err->place);
    }
    return status;
}

static void records_close(copse_dataset *set) {
    records *r = set->state;
    if (!r)
        return;
    for (size_t i = 0; r->fds && i < r->paths.count; i++)
        if (r->fds[i] >= 0)
            close(r->fds[i]);
    free(r->fds);
    free(r->first);
    free(r->entries);
    free(r->packings);
    copse__example_free(&r->reader);
    copse__paths_free(&r->paths);
    free(r);
}

static const copse__dataset_ops indexed_ops = {
    .read = records_read, .locate = records_locate, .close = records_close};

/* ---- Streams -------------------------------------------------------------------------- */

typedef struct pass {
    size_t file; /* that is open, or the next one */
    copse__input *input;
} pass;

static copse_status records_start(copse_dataset *set, void **out, copse_error *err) {
    (void)set;
    pass *p;
    copse_status status = copse__calloc(&p, 1, sizeof *p, err);
    *out = p;
    return status;
}

static void close_file(pass *p) {
    copse__input_close(p->input);
    p->input = NULL;
    p->file++;
}

static copse_status next_in_file(records *r, pass *p, copse__raw *raw, bool *file_end,
                                 bool *lost, copse_error *err) {
    *lost = true;
    if (!p->input) {
        copse_status status = copse__input_open(&p->input, r->paths.items[p->file],
                                                r->packings[p->file], err);
        if (status != COPSE_OK)
            return status;
    }
    raw->file = (uint32_t)p->file;
    raw->offset = copse__input_offset(p->input);
    return copse__tfrecord_next(p->input, &raw->data, &raw->capacity, &raw->bytes,
                                file_end, lost, err);
}

static copse_status records_next(copse_dataset *set, void *pass_pointer, copse__raw *raw,
                                 bool *end, copse_error *err) {
    records *r = set->state;
    pass *p = pass_pointer;
    raw->left_out = 0;
    while (p->file < r->paths.count) {
        bool file_end = false, lost;
        copse_error error = {0};
        copse_status status = next_in_file(r, p, raw, &file_end, &lost, &error);
        if (status == COPSE_OK && !file_end) {
            *end = false;
            return COPSE_OK;
        }
        bool can_skip =
            set->skip_errors && (status == COPSE_FORMAT || status == COPSE_IO);
        if (status != COPSE_OK && !can_skip) {
            if (err)
                *err = error;
            return status;
        }
        if (status != COPSE_OK) {
            copse__log(COPSE_LOG_WARN, "%s left out: %s: %s",
                       lost ? "the rest of a file is" : "sample", error.place,
                       error.text);
            raw->left_out++; /* of a rest at least one */
        }
        if (file_end || lost)
            close_file(p);
    }
    *end = true;
    return COPSE_OK;
}

static void records_stop(copse_dataset *set, void *pass_pointer) {
    (void)set;
    pass *p = pass_pointer;
    copse__input_close(p->input);
    free(p);
}

static void records_locate_raw(const copse_dataset *set, const copse__raw *raw,
                               char *buffer, size_t bytes) {
    describe(set->state, raw->file, raw->offset, buffer, bytes);
}

static copse_status records_decode(copse_dataset *set, const copse__raw *raw,
                                   copse__scratch *scratch, void *features, void *labels,
                                   copse_error *err) {
    const records *r = set->state;
    copse_error error;
    copse_status status = copse__example_read(&r->reader, raw->data, raw->bytes, NULL,
                                              scratch, features, labels, &error);
    if (status != COPSE_OK && err) {
        *err = error;
        records_locate_raw(set, raw, err->place, sizeof err->place);
    }
    return status;
}

static const copse__dataset_ops stream_ops = {.locate = records_locate,
                                              .close = records_close,
                                              .start = records_start,
                                              .next = records_next,
                                              .stop = records_stop,
                                              .decode = records_decode,
                                              .locate_raw = records_locate_raw};

/* ---- Opening -------------------------------------------------------------------------- */

static copse_status find_packings(records *r, bool *packed, copse_error *err) {
    copse_status status =
        copse__calloc(&r->packings, r->paths.count, sizeof *r->packings, err);
    for (size_t i = 0; i < r->paths.count && status == COPSE_OK; i++) {
        status = copse__tfrecord_packing(&r->packings[i], r->paths.items[i], err);
        *packed = *packed || r->packings[i] != COPSE__PACKING_PLAIN;
    }
    return status;
}

static copse_status scan_files(copse_dataset *set, copse_error *err) {
    records *r = set->state;
    copse_status status = copse__calloc(&r->first, r->paths.count, sizeof *r->first, err);
    if (status == COPSE_OK)
        status = copse__calloc(&r->fds, r->paths.count, sizeof *r->fds, err);
    for (size_t i = 0; i < r->paths.count && status == COPSE_OK; i++)
        r->fds[i] = -1;
    for (size_t i = 0; i < r->paths.count && status == COPSE_OK; i++) {
        r->first[i] = set->count;
        status = scan_file(set, i, err);
    }
    return status;
}

static copse_status no_records(const copse_dataset *set, copse_error *err) {
    return copse__fail(err, COPSE_FORMAT, 0, set->name,
                       "there is no record in it; check the paths");
}

static copse_status settle_indexed(copse_dataset *set, const copse_data_source *source,
                                   copse__scratch *scratch, copse_error *err) {
    records *r = set->state;
    copse_status status = set->count ? COPSE_FORMAT : no_records(set, err);
    for (size_t i = 0; i < set->count && status == COPSE_FORMAT; i++) {
        const unsigned char *record;
        char place[256];
        records_locate(set, i, place, sizeof place);
        copse__example_free(&r->reader);
        status = read_record(r, i, scratch, &record, err);
        if (status == COPSE_OK)
            status =
                copse__example_settle(&r->reader, source, record,
                                      (size_t)r->entries[i].bytes, place, scratch, err);
        if (!set->skip_errors)
            break;
    }
    return status;
}

static copse_status settle_stream(copse_dataset *set, const copse_data_source *source,
                                  copse__scratch *scratch, copse_error *err) {
    records *r = set->state;
    copse__raw raw = {0};
    void *started;
    bool end = false;
    copse_status status = records_start(set, &started, err);
    if (status != COPSE_OK)
        return status;
    do {
        status = records_next(set, started, &raw, &end, err);
        if (status == COPSE_OK && end)
            status = no_records(set, err);
        if (status != COPSE_OK)
            break;
        char place[256];
        records_locate_raw(set, &raw, place, sizeof place);
        copse__example_free(&r->reader);
        status = copse__example_settle(&r->reader, source, raw.data, raw.bytes, place,
                                       scratch, err);
    } while (status == COPSE_FORMAT && set->skip_errors);
    records_stop(set, started);
    copse__raw_free(&raw);
    return status;
}

static copse_status open_records(copse_dataset *set, const copse_data_source *source,
                                 copse_error *err) {
    records *r = set->state;
    copse__scratch scratch = {0};
    bool packed = false;
    copse_status status = find_packings(r, &packed, err);
    if (status != COPSE_OK)
        return status;
    if (packed) {
        set->ops = &stream_ops;
        set->count = COPSE_COUNT_UNKNOWN;
        status = settle_stream(set, source, &scratch, err);
    } else {
        status = scan_files(set, err);
        if (status == COPSE_OK)
            status = settle_indexed(set, source, &scratch, err);
    }
    copse__scratch_free(&scratch);
    if (status == COPSE_OK)
        status = copse__dataset_set_specs(
            set, &r->reader.features.spec,
            r->reader.has_labels ? &r->reader.labels.spec : NULL, err);
    return status;
}

copse_status copse__tfrecord_open(copse_dataset **out, const copse_data_source *source,
                                  const copse__found_files *files, copse_error *err) {
    copse_dataset *set;
    records *r;
    copse_status status =
        copse__dataset_new(&set, &indexed_ops, files->paths.items[0], err);
    if (status != COPSE_OK)
        return status;
    set->skip_errors = source->skip_errors;
    COPSE__TRY(copse__calloc(&r, 1, sizeof *r, err), fail);
    set->state = r;
    for (size_t i = 0; i < files->paths.count; i++)
        COPSE__TRY(copse__paths_add(&r->paths, files->paths.items[i], err), fail);
    COPSE__TRY(open_records(set, source, err), fail);
    COPSE__TRY(
        copse__dataset_set_classes(set, source->class_count, source->class_names, err),
        fail);
    *out = set;
    return COPSE_OK;
fail:
    copse_dataset_close(set);
    return status;
}
