/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets that keep what another has decoded: in memory, or in a file.
 *
 * The file: a page of header, then for each sample its features, its labels and the XXH3 of both,
 * in the machine's byte order. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/table.h"

enum { PAGE = 4096, BATCH = 64 };

/* ---- Reading the other set once ------------------------------------------------------- */

typedef copse_status take_fn(void *user, const void *features, const void *labels,
                             copse_error *err);

/* Every sample in order, decoded by several threads. */
static copse_status read_all(copse_dataset *whole, take_fn *take, void *user,
                             size_t *left_out, copse_error *err) {
    copse_pipeline_options options = {.batch = BATCH, .epochs = 1, .prefetch = 4};
    copse_pipeline *pipeline;
    copse_status status = copse_pipeline_open(&pipeline, whole, &options, err);
    while (status == COPSE_OK) {
        const copse_batch *batch;
        status = copse_pipeline_next(pipeline, &batch, err);
        if (status != COPSE_OK || !batch)
            break;
        const unsigned char *features = batch->parts[0].features;
        const unsigned char *labels = batch->parts[0].labels;
        for (size_t i = 0; i < batch->rows && status == COPSE_OK; i++)
            status = take(user, features + i * whole->feature_bytes,
                          labels ? labels + i * whole->label_bytes : NULL, err);
        copse_pipeline_release(pipeline, batch);
    }
    copse_pipeline_stats stats = {0};
    if (pipeline)
        copse_pipeline_get_stats(pipeline, &stats);
    *left_out = whole->left_out + (size_t)stats.skipped;
    copse_pipeline_close(pipeline);
    return status;
}

/* What a cached set has in common with the one it was made from. */
static copse_status copy_shape(copse_dataset *set, const copse_dataset *whole,
                               copse_error *err) {
    set->features = whole->features;
    set->labels = whole->labels;
    set->feature_bytes = whole->feature_bytes;
    set->label_bytes = whole->label_bytes;
    set->resident = true;
    set->has_key = whole->has_key;
    set->key = whole->key;
    return copse__dataset_set_classes(set, whole->classes,
                                      (const char *const *)whole->class_names, err);
}

/* ---- In memory ------------------------------------------------------------------------ */

typedef struct keeper {
    copse_dataset *set;
    copse__table *table;
    size_t limit, feature_capacity, label_capacity;
} keeper;

static copse_status keep(void *user, const void *features, const void *labels,
                         copse_error *err) {
    keeper *k = user;
    copse_dataset *set = k->set;
    size_t f = set->feature_bytes, l = set->label_bytes, n = set->count;
    copse_status status =
        copse__check_memory((uint64_t)(n + 1) * (f + l), k->limit, set->name, err);
    if (status == COPSE_OK)
        status =
            copse__grow(&k->table->features, &k->feature_capacity, (n + 1) * f, 1, err);
    if (status == COPSE_OK && l)
        status = copse__grow(&k->table->labels, &k->label_capacity, (n + 1) * l, 1, err);
    if (status != COPSE_OK)
        return status;
    memcpy(k->table->features + n * f, features, f);
    if (l)
        memcpy(k->table->labels + n * l, labels, l);
    set->count++;
    return COPSE_OK;
}

copse_status copse_dataset_cache_memory(copse_dataset **out, copse_dataset *whole,
                                        size_t memory_limit_bytes, copse_error *err) {
    if (whole->resident) {
        *out = copse__dataset_retain(whole);
        return COPSE_OK;
    }
    *out = NULL;
    keeper k = {.limit = copse__memory_limit(memory_limit_bytes)};
    copse_status status = copse__table_new(&k.set, whole->name, err);
    if (status != COPSE_OK)
        return status;
    k.table = k.set->state;
    COPSE__TRY(copy_shape(k.set, whole, err), fail);
    if (whole->count != COPSE_COUNT_UNKNOWN) {
        size_t bytes;
        if (!copse__mul_size(whole->count, whole->feature_bytes + whole->label_bytes,
                             &bytes))
            bytes = SIZE_MAX;
        COPSE__TRY(copse__check_memory(bytes, k.limit, whole->name, err), fail);
    }
    COPSE__TRY(read_all(whole, keep, &k, &k.set->left_out, err), fail);
    *out = k.set;
    return COPSE_OK;
fail:
    copse_dataset_close(k.set);
    return status;
}

/* ---- In a file ------------------------------------------------------------------------ */

typedef struct header {
    char magic[8];           /* "COPSEDC" */
    uint32_t version, order; /* order: 0x01020304 as this machine writes it */
    copse__hash128 key;
    uint64_t count, feature_bytes, label_bytes;
    uint64_t hash; /* of what stands before it */
} header;

typedef struct mapping {
    unsigned char *data;
    size_t bytes, stride;
} mapping;

static uint64_t header_hash(const header *h) {
    return copse__hash64(h, offsetof(header, hash));
}

static copse_status mapped_read(copse_dataset *set, size_t index, copse__scratch *scratch,
                                void *features, void *labels, copse_error *err) {
    const mapping *m = set->state;
    (void)scratch;
    size_t f = set->feature_bytes, l = set->label_bytes;
    const unsigned char *sample = m->data + PAGE + index * m->stride;
    uint64_t hash;
    memcpy(&hash, sample + f + l, sizeof hash);
    if (copse__hash64(sample, f + l) != hash)
        return copse__fail(err, COPSE_FORMAT, 0, set->name,
                           "sample %zu of this cache is damaged; delete the file, it is "
                           "built again",
                           index);
    memcpy(features, sample, f);
    if (labels)
        memcpy(labels, sample + f, l);
    return COPSE_OK;
}

static void mapped_locate(const copse_dataset *set, size_t index, char *buffer,
                          size_t bytes) {
    snprintf(buffer, bytes, "%s, sample %zu", set->name, index);
}

static void mapped_close(copse_dataset *set) {
    mapping *m = set->state;
    if (m && m->data)
        munmap(m->data, m->bytes);
    free(m);
}

static const copse__dataset_ops mapped_ops = {
    .read = mapped_read, .locate = mapped_locate, .close = mapped_close};

/* Whether the mapped file is a whole cache of `whole`. */
static bool fits(const mapping *m, const copse_dataset *whole, uint64_t *count) {
    header h;
    if (m->bytes < PAGE)
        return false;
    memcpy(&h, m->data, sizeof h);
    size_t bytes;
    if (memcmp(h.magic, "COPSEDC", 8) != 0 || h.version != 1 || h.order != 0x01020304 ||
        h.hash != header_hash(&h) || memcmp(&h.key, &whole->key, sizeof h.key) != 0 ||
        h.feature_bytes != whole->feature_bytes || h.label_bytes != whole->label_bytes ||
        h.count == 0 || !copse__mul_size((size_t)h.count, m->stride, &bytes))
        return false;
    *count = h.count;
    return bytes == m->bytes - PAGE;
}

static copse_status map_file(mapping *m, const char *path, copse_error *err) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return COPSE_OK;
    if (fd < 0 || fstat(fd, &info) != 0) {
        copse_status status = copse__fail(err, COPSE_IO, errno, path,
                                          "cannot open it: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data != MAP_FAILED) {
            m->data = data;
            m->bytes = (size_t)info.st_size;
        }
    }
    close(fd);
    return COPSE_OK;
}

/* *out is NULL where the file is missing or is not whole's cache. */
static copse_status open_cache(copse_dataset **out, copse_dataset *whole,
                               const char *path, copse_error *err) {
    copse_dataset *set;
    mapping *m;
    uint64_t count;
    *out = NULL;
    copse_status status = copse__dataset_new(&set, &mapped_ops, path, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&m, 1, sizeof *m, err), out);
    set->state = m;
    m->stride = whole->feature_bytes + whole->label_bytes + sizeof(uint64_t);
    COPSE__TRY(map_file(m, path, err), out);
    if (!m->data || !fits(m, whole, &count))
        goto out;
    set->count = (size_t)count;
    set->left_out = whole->left_out;
    if (whole->count != COPSE_COUNT_UNKNOWN && whole->count >= set->count)
        set->left_out += whole->count - set->count;
    COPSE__TRY(copy_shape(set, whole, err), out);
    *out = set;
    set = NULL;
out:
    copse_dataset_close(set);
    return status;
}

typedef struct builder {
    copse__atomic_file *file;
    copse_dataset *whole;
    unsigned char *record;
    uint64_t count;
} builder;

static copse_status add_record(void *user, const void *features, const void *labels,
                               copse_error *err) {
    builder *b = user;
    size_t f = b->whole->feature_bytes, l = b->whole->label_bytes;
    memcpy(b->record, features, f);
    if (l)
        memcpy(b->record + f, labels, l);
    uint64_t hash = copse__hash64(b->record, f + l);
    memcpy(b->record + f + l, &hash, sizeof hash);
    b->count++;
    return copse__atomic_write(b->file, b->record, f + l + sizeof hash, err);
}

static copse_status put_header(builder *b, const char *path, copse_error *err) {
    header h = {.magic = "COPSEDC",
                .version = 1,
                .order = 0x01020304,
                .key = b->whole->key,
                .count = b->count,
                .feature_bytes = b->whole->feature_bytes,
                .label_bytes = b->whole->label_bytes};
    h.hash = header_hash(&h);
    if (pwrite(copse__atomic_fd(b->file), &h, sizeof h, 0) != sizeof h)
        return copse__fail(err, COPSE_IO, errno, path, "cannot write it: %s",
                           strerror(errno));
    return COPSE_OK;
}

/* A file that never was a cache is somebody's and stays. */
static copse_status check_replaceable(const char *path, copse_error *err) {
    header h = {.magic = ""};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return COPSE_OK;
    ssize_t got = read(fd, &h, sizeof h);
    close(fd);
    /* A damaged cache keeps its magic or its version and byte order. */
    if (got <= 0 || memcmp(h.magic, "COPSEDC", 8) == 0 ||
        (h.version == 1 && h.order == 0x01020304))
        return COPSE_OK;
    return copse__fail(err, COPSE_IO, EEXIST, path,
                       "it is no cache of copse's and would be overwritten; name another "
                       "file or remove it");
}

static copse_status build_cache(copse_dataset *whole, const char *path, size_t *left_out,
                                copse_error *err) {
    copse_status refused = check_replaceable(path, err);
    if (refused != COPSE_OK)
        return refused;
    static const unsigned char blank[PAGE];
    builder b = {.whole = whole};
    copse__log(COPSE_LOG_INFO, "building the cache %s", path);
    copse_status status = copse__atomic_open(&b.file, path, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(
        copse__calloc(&b.record, whole->feature_bytes + whole->label_bytes + 8, 1, err),
        out);
    COPSE__TRY(copse__atomic_write(b.file, blank, PAGE, err), out);
    COPSE__TRY(read_all(whole, add_record, &b, left_out, err), out);
    COPSE__TRY(put_header(&b, path, err), out);
    status = copse__atomic_commit(b.file, err);
    b.file = NULL;
out:
    copse__atomic_abort(b.file);
    free(b.record);
    return status;
}

copse_status copse_dataset_cache_file(copse_dataset **out, copse_dataset *whole,
                                      const char *path, bool *built, copse_error *err) {
    *out = NULL;
    if (built)
        *built = false;
    if (!whole->has_key)
        return copse__fail(
            err, COPSE_INVALID, 0, whole->name,
            "a callback's data cannot be cached in a file, as nothing says "
            "when it changes; cache it in memory");
    copse_status status = open_cache(out, whole, path, err);
    if (status != COPSE_OK || *out)
        return status;
    size_t left_out = 0;
    status = build_cache(whole, path, &left_out, err);
    if (status == COPSE_OK)
        status = open_cache(out, whole, path, err);
    if (status == COPSE_OK && !*out)
        status = copse__fail(err, COPSE_IO, 0, path,
                             "the cache was changed while it was built; is another "
                             "program writing it?");
    if (status == COPSE_OK)
        (*out)->left_out = left_out;
    if (built)
        *built = status == COPSE_OK;
    return status;
}
