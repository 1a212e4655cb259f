/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_DATASET_H
#define COPSE_DATA_DATASET_H

#include <copse/data.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/paths.h"

/* What one thread keeps between samples. */
typedef struct copse__scratch {
    unsigned char *file; /* a file's or record's bytes */
    size_t file_capacity;
    unsigned char *pixels; /* a decoded image */
    size_t pixel_capacity;
    unsigned char *stage[2]; /* samples between a pipeline's steps */
    size_t stage_capacity[2];
} copse__scratch;

void copse__scratch_free(copse__scratch *scratch);

/* A stream's sample as it is stored. Keeps its memory from one use to the next. */
typedef struct copse__raw {
    unsigned char *data;
    size_t bytes, capacity;
    uint64_t ordinal; /* in its pass */
    size_t left_out;  /* samples right before it, or before the pass's end */
    uint32_t file;    /* for messages */
    uint64_t offset;
} copse__raw;

void copse__raw_free(copse__raw *raw);

/* What a format does. */
typedef struct copse__dataset_ops {
    /* One sample of an indexable set, index < count; thread-safe. labels may be NULL. NULL: a
     * stream. */
    copse_status (*read)(copse_dataset *set, size_t index, copse__scratch *scratch,
                         void *features, void *labels, copse_error *err);
    /* Waits for what still arrives behind the opening, and says how that ended; thread-safe, also
     * where it was asked before. NULL: all is there. */
    copse_status (*arrive)(copse_dataset *set, copse_error *err);
    /* Where a sample is, for people: "images.gz, sample 7". */
    void (*locate)(const copse_dataset *set, size_t index, char *buffer, size_t bytes);
    /* Frees state only. */
    void (*close)(copse_dataset *set);

    /* Streams: a pass over the set, one thread at a time; and thread-safe decoding of what it
     * gave. `raw` keeps its memory; next() sets all but ordinal, at the end left_out alone. */
    copse_status (*start)(copse_dataset *set, void **pass, copse_error *err);
    copse_status (*next)(copse_dataset *set, void *pass, copse__raw *raw, bool *end,
                         copse_error *err);
    void (*stop)(copse_dataset *set, void *pass);
    copse_status (*decode)(copse_dataset *set, const copse__raw *raw,
                           copse__scratch *scratch, void *features, void *labels,
                           copse_error *err);
    void (*locate_raw)(const copse_dataset *set, const copse__raw *raw, char *buffer,
                       size_t bytes);

    /* The i-th of the files that samples come from, where the source's paths do not name them
     * all; NULL after the last. May be NULL. */
    const char *(*file)(const copse_dataset *set, size_t index);
} copse__dataset_ops;

struct copse_dataset {
    const copse__dataset_ops *ops;
    atomic_size_t references;
    char *name;
    copse_data_spec features, labels;
    size_t feature_bytes, label_bytes; /* label_bytes 0: no labels */
    size_t count;                      /* COPSE_COUNT_UNKNOWN: a stream */
    bool resident;                     /* read() is a copy from memory */
    bool skip_errors;                  /* as the source asked */
    size_t left_out;                   /* samples, when it was opened */
    bool has_key; /* key names source and files, for the file cache */
    copse__hash128 key;
    size_t classes;
    char **class_names; /* classes entries, or NULL */
    void *state;
};

/* An empty set with one reference, for an opening function to fill; close it on failure.
 */
copse_status copse__dataset_new(copse_dataset **out, const copse__dataset_ops *ops,
                                const char *name, copse_error *err);

/* Computes the byte sizes from the specs, refusing what does not fit a size_t. */
copse_status copse__dataset_set_specs(copse_dataset *set, const copse_data_spec *features,
                                      const copse_data_spec *labels, copse_error *err);

/* Copies names; NULL: none. */
copse_status copse__dataset_set_classes(copse_dataset *set, size_t classes,
                                        const char *const *names, copse_error *err);

copse_dataset *copse__dataset_retain(copse_dataset *set);

typedef struct copse__found_files {
    copse__paths paths, label_paths; /* of a source, expanded */
    bool ahead; /* what takes long may go on behind the opening (ops->arrive) */
} copse__found_files;

/* copse_dataset_open that may return before all samples are there: who reads one waits, and
 * copse__dataset_arrive, which is to be called before samples are relied on, tells of damage. */
copse_status copse__dataset_open_ahead(copse_dataset **out,
                                       const copse_data_source *source, copse_error *err);
/* NULL is allowed. */
copse_status copse__dataset_arrive(copse_dataset *set, copse_error *err);

/* Sets set->key from everything that decides what the samples are. */
copse_status copse__dataset_set_key(copse_dataset *set, const copse_data_source *source,
                                    const copse__found_files *files, copse_error *err);

/* The source's limit, or three quarters of the machine's memory. */
size_t copse__memory_limit(size_t wanted);

/* COPSE_NOMEM where bytes is above the limit, naming the file and the key to change. */
copse_status copse__check_memory(uint64_t bytes, size_t limit, const char *place,
                                 copse_error *err);

/* Opening functions, one a format. */
copse_status copse__idx_open(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err);
copse_status copse__cifar_open(copse_dataset **out, const copse_data_source *source,
                               const copse__found_files *files, copse_error *err);
copse_status copse__npy_open(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err);
copse_status copse__tfrecord_open(copse_dataset **out, const copse_data_source *source,
                                  const copse__found_files *files, copse_error *err);
copse_status copse__folder_open(copse_dataset **out, const copse_data_source *source,
                                const copse__found_files *files, copse_error *err);
copse_status copse__csv_open(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err);
copse_status copse__text_open(copse_dataset **out, const copse_data_source *source,
                              const copse__found_files *files, copse_error *err);
copse_status copse__synthetic_open(copse_dataset **out, const copse_data_source *source,
                                   const copse__found_files *files, copse_error *err);

#endif
