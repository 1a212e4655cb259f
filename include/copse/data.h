/* SPDX-License-Identifier: Apache-2.0
 *
 * Data: datasets (one sample at a time, from files or from a callback) and pipelines
 * (shuffled batches of a whole run, read ahead by worker threads into memory that devices
 * can upload from).
 *
 * Everything here is deterministic: which sample is in which row of which batch depends
 * on the dataset, the seed, the epoch and the batch size, never on threads, replicas or
 * timing.
 */
#ifndef COPSE_DATA_H
#define COPSE_DATA_H

#include <copse/status.h>
#include <copse/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Datasets -------------------------------------------------------------------------
 */

/* One sample's feature or label, without a batch dimension: rank 0 is a single number.
 * Images are height, width, channels. */
typedef struct copse_data_spec {
    copse_dtype dtype;
    size_t rank;
    size_t shape[COPSE_MAX_RANK];
} copse_data_spec;

/* Elements, and bytes, of one sample. */
COPSE_API size_t copse_data_spec_elements(const copse_data_spec *spec);
COPSE_API size_t copse_data_spec_bytes(const copse_data_spec *spec);

/* format, name in a configuration */
#define COPSE_DATA_FORMAT_MAP(X)                                                         \
    X(COPSE_DATA_IDX, "idx")                                                             \
    X(COPSE_DATA_CIFAR10, "cifar10")                                                     \
    X(COPSE_DATA_CIFAR100, "cifar100")                                                   \
    X(COPSE_DATA_NPY, "npy")                                                             \
    X(COPSE_DATA_TFRECORD, "tfrecord")                                                   \
    X(COPSE_DATA_FOLDER, "folder")                                                       \
    X(COPSE_DATA_CSV, "csv")                                                             \
    X(COPSE_DATA_TEXT, "text")                                                           \
    X(COPSE_DATA_SYNTHETIC, "synthetic")

typedef enum copse_data_format {
#define COPSE_DATA_FORMAT_ENUM(code, name) code,
    COPSE_DATA_FORMAT_MAP(COPSE_DATA_FORMAT_ENUM)
#undef COPSE_DATA_FORMAT_ENUM
} copse_data_format;

/* "idx"; NULL for a value that is none. */
COPSE_API const char *copse_data_format_name(copse_data_format format);
/* false where no format has this name. */
COPSE_API bool copse_data_format_find(copse_data_format *out, const char *name);

typedef enum copse_data_encoding {
    COPSE_ENCODING_AUTO, /* by the first record: lists of numbers are values, bytes that start
                            * like a PNG or JPEG are an image, other bytes are raw */
    COPSE_ENCODING_VALUES, /* a float_list or int64_list */
    COPSE_ENCODING_RAW,    /* bytes: the elements as they are in memory, little-endian */
    COPSE_ENCODING_IMAGE   /* bytes: a PNG or JPEG file */
} copse_data_encoding;

/* How a feature of an Example is stored. */
typedef struct copse_data_field {
    copse_data_encoding encoding;
    /* Raw: the type in the file. Values: what they become, exactly or refused. (A label always
     * becomes COPSE_I32 or COPSE_F32.) */
    copse_dtype dtype;
    size_t rank; /* values and raw; 0: a single number */
    size_t shape[COPSE_MAX_RANK];
} copse_data_field;

typedef enum copse_resize {
    COPSE_RESIZE_STRETCH, /* to exactly height x width, as Keras does */
    COPSE_RESIZE_CROP /* until it covers height x width, the middle of which is kept */
} copse_resize;

/* How image files become samples. */
typedef struct copse_image_options {
    size_t height, width; /* 0: as in the files, which all have the size of the first */
    size_t channels;      /* 1: grey, 3: RGB, 4: RGB and alpha; 0: 3 */
    copse_resize resize;  /* bilinear, antialiased */
    bool
        sixteen_bits; /* COPSE_U16 samples; else COPSE_U8, and 16-bit files are scaled down */
} copse_image_options;

/* Where samples come from. Start from {0}; every pointer is borrowed for the call only.
 * Paths may be globs ("part-*.idx.gz"); what one matches is sorted by bytes, and the
 * files are read as one set in that order. Files may be gzip-compressed whatever their
 * name. */
typedef struct copse_data_source {
    copse_data_format format;
    /* Relative paths start here; NULL or "": the working folder. */
    const char *folder;

    /* idx, npy: files of features. cifar10, cifar100: the .bin files. npy: also .npz archives.
     * tfrecord: files of tf.train.Example, plain (a set that can be indexed) or, one of them at
     * least, compressed with gzip or zlib (then a stream). folder: one folder, in which each class
     * is a folder of .png, .jpg and .jpeg files at any depth, or which holds images without labels.
     * Samples are numbered so that every class is spread evenly over the set: a validation split
     * gets all of them. csv: tables. text: files that are joined. synthetic: none. */
    const char *const *paths;
    size_t path_count;
    /* idx, npy: files of labels, as many as paths; none: samples without labels. */
    const char *const *label_paths;
    size_t label_path_count;

    /* npy with .npz files: the names of the arrays of features (NULL: "x") and of labels (NULL:
     * samples without labels, or label_paths). tfrecord: the features of an Example; NULL for
     * feature_name: the only one, or "image", "image/encoded", "image_raw" or "x". csv: label_name
     * is the column of labels (NULL: none): integers are classes, other numbers targets, and texts
     * classes by their names (class_names, else sorted by bytes). */
    const char *feature_name;
    const char *label_name;
    /* tfrecord: how those are stored. csv: feature.rank and shape arrange the columns (rank 0: one
     * dimension). synthetic: dtype (u8 or f32), rank and shape of the features. */
    copse_data_field feature, label;

    /* csv: columns of features by name, or by number from 0 where there is no header; none: all but
     * the label. Every number is COPSE_F32; an empty field, a text or a NaN is an error. */
    const char *const *columns;
    size_t column_count;
    bool without_header;
    char delimiter; /* 0: ',' */

    /* text: a sample is sequence_length tokens (COPSE_I32), its label the token after each of them;
     * the next sample starts `stride` tokens later (0: sequence_length). Tokens are the characters
     * (UTF-8) or, where by_bytes, the bytes; their numbers are their order in class_names (each one
     * character), else the sorted characters of the text. */
    size_t sequence_length, stride;
    bool by_bytes;

    /* synthetic: this many samples, with class_count classes (0: no labels) that can be learnt. */
    size_t count;
    uint64_t seed;

    /* folder, and tfrecord with images. */
    copse_image_options image;

    /* The classes, in the order of their numbers. folder: none: the names of the folders, sorted by
     * bytes. Give a test set the classes of its training set. */
    const char *const *class_names;
    size_t class_count;

    /* Leaves out what cannot be read or decoded, with a warning in the log, instead of failing. */
    bool skip_errors;

    /* cifar100: the 20 coarse classes instead of the 100 fine ones. */
    bool coarse_labels;

    /* Formats that are held in memory refuse to take more bytes than this; 0: three
     * quarters of the machine's memory. */
    size_t memory_limit_bytes;
} copse_data_source;

typedef struct copse_dataset copse_dataset;

/* Opens files and checks what can be checked without decoding every sample. Errors name
 * file, offset and what to do: COPSE_IO for what is missing or cannot be read,
 * COPSE_FORMAT for what is damaged, COPSE_INVALID for a source that contradicts itself.
 * Blocks while it reads. */
COPSE_API copse_status copse_dataset_open(copse_dataset **out,
                                          const copse_data_source *source,
                                          copse_error *err) COPSE_CHECKED;

/* A source of the caller's own, with a known number of samples that can be read in any
 * order. */
typedef struct copse_data_callbacks {
    /* Writes one sample: copse_data_spec_bytes() of each spec; labels is NULL where there
     * are none. Called from several threads at once, never twice at once for the same
     * output. An error it returns is passed on; it fills err itself. */
    copse_status (*read)(void *user, size_t index, void *features, void *labels,
                         copse_error *err);
    /* Called once, when the dataset is closed (also where opening fails). May be NULL. */
    void (*close)(void *user);
    void *user;
    const char *name; /* for messages; copied */
    size_t count;
    copse_data_spec features;
    copse_data_spec labels; /* COPSE_I32 or COPSE_F32 */
    bool has_labels;
    size_t classes; /* 0: not known */
} copse_data_callbacks;

COPSE_API copse_status copse_dataset_from_callbacks(copse_dataset **out,
                                                    const copse_data_callbacks *callbacks,
                                                    copse_error *err) COPSE_CHECKED;

/* A source of the caller's own that can only be read in order, from its start in each epoch. */
typedef struct copse_data_stream_callbacks {
    /* A new pass over the data. Passes of several pipelines may be open at once. */
    copse_status (*start)(void *user, void **pass, copse_error *err);
    /* The next sample, or *end = true. One thread at a time for one pass. */
    copse_status (*next)(void *user, void *pass, void *features, void *labels, bool *end,
                         copse_error *err);
    /* Ends a pass, whether or not it was read to its end. May be NULL. */
    void (*stop)(void *user, void *pass);
    /* As in copse_data_callbacks. */
    void (*close)(void *user);
    void *user;
    const char *name;
    copse_data_spec features;
    copse_data_spec labels;
    bool has_labels;
    size_t classes;
} copse_data_stream_callbacks;

COPSE_API copse_status copse_dataset_from_stream(
    copse_dataset **out, const copse_data_stream_callbacks *callbacks,
    copse_error *err) COPSE_CHECKED;

/* A part of a dataset: count samples from first on. Keeps the whole open for itself. A
 * stream has no parts; all of one (first 0, count COPSE_COUNT_UNKNOWN) is another handle. */
COPSE_API copse_status copse_dataset_slice(copse_dataset **out, copse_dataset *whole,
                                           size_t first, size_t count,
                                           copse_error *err) COPSE_CHECKED;

/* As Keras' validation_split: the first floor(count * (1 - fraction)) samples, before any
 * shuffling, are for training and the others for validation. Not for streams. 0 < fraction < 1, and
 * neither part may be empty (COPSE_CONFIG). Both are closed by the caller; whole may be
 * closed before them. */
COPSE_API copse_status copse_dataset_split(copse_dataset **out_train,
                                           copse_dataset **out_validation,
                                           copse_dataset *whole, double fraction,
                                           copse_error *err) COPSE_CHECKED;

/* The same samples, all decoded and held in memory: reads each once, now, with several threads. A
 * stream becomes a set that can be indexed; samples that are left out are left out for good. A set
 * that is in memory already is returned as another handle. memory_limit_bytes as in
 * copse_data_source. */
COPSE_API copse_status copse_dataset_cache_memory(copse_dataset **out,
                                                  copse_dataset *whole,
                                                  size_t memory_limit_bytes,
                                                  copse_error *err) COPSE_CHECKED;

/* The same in a file that is mapped into memory: for sets larger than that, and for the next run.
 * A file that was made from just this source (its options, and every file's path, size and
 * time) is used as it is; any other, and a damaged one, is built again and replaced at once when it
 * is whole. *built (may be NULL) says which. Not for callbacks, whose data has no name
 * (COPSE_INVALID). The file must stay as it is while the dataset is open. */
COPSE_API copse_status copse_dataset_cache_file(copse_dataset **out, copse_dataset *whole,
                                                const char *path, bool *built,
                                                copse_error *err) COPSE_CHECKED;

/* NULL is allowed. */
COPSE_API void copse_dataset_close(copse_dataset *dataset);

/* COPSE_COUNT_UNKNOWN: a stream, which can only be read in its own order. */
#define COPSE_COUNT_UNKNOWN SIZE_MAX
COPSE_API size_t copse_dataset_count(const copse_dataset *dataset);
COPSE_API const copse_data_spec *copse_dataset_get_features(const copse_dataset *dataset);
/* NULL where samples have no labels. Class indices are COPSE_I32 of rank 0, regression
 * targets COPSE_F32, token targets COPSE_I32 of rank 1. */
COPSE_API const copse_data_spec *copse_dataset_get_labels(const copse_dataset *dataset);
/* 0 where the format does not know it. */
COPSE_API size_t copse_dataset_classes(const copse_dataset *dataset);
/* NULL where there is none; lives as long as the dataset. */
COPSE_API const char *copse_dataset_get_class_name(const copse_dataset *dataset,
                                                   size_t index);

/* Samples that opening it has left out (skip_errors); what reading leaves out later is in the statistics
 * of pipelines. */
COPSE_API size_t copse_dataset_left_out(const copse_dataset *dataset);

/* Reads one sample into memory of copse_data_spec_bytes() each; labels may be NULL.
 * Thread-safe. Slower than a pipeline. */
COPSE_API copse_status copse_dataset_read(copse_dataset *dataset, size_t index,
                                          void *features, void *labels,
                                          copse_error *err) COPSE_CHECKED;

/* Where copse_dataset_save writes. Start from {0}. */
typedef struct copse_data_target {
    /* idx, cifar10, npy (an archive of both where path ends in ".npz"), tfrecord, folder (PNG files,
     * a folder a class; path must not exist), csv. */
    copse_data_format format;
    const char *path;       /* compressed where it ends in ".gz" (not npz, folder) */
    const char *label_path; /* idx and npy: the file of labels, where there are any */
    /* npz: "x" and "y" where NULL; tfrecord: "image" (8-bit images, as PNG) or "x", and "label"; csv:
     * "x", before a number, and "label". */
    const char *feature_name, *label_name;
    /* Called after each sample; false stops (COPSE_INTERRUPTED, and nothing is left). May be NULL. */
    bool (*progress)(void *user, size_t done, size_t count);
    void *progress_user;
} copse_data_target;

/* Writes all samples in order, as far as their format can hold them exactly (COPSE_UNSUPPORTED
 * otherwise). Files appear when they are whole. A stream is read twice, to count it. */
COPSE_API copse_status copse_dataset_save(copse_dataset *dataset,
                                          const copse_data_target *target,
                                          copse_error *err) COPSE_CHECKED;

/* ---- Shards ---------------------------------------------------------------------------
 */

/* Splits total rows over n replicas in proportion to weights (NULL: equal) by the largest
 * remainder; ties go to the lower rank. out[0..n) sums to total exactly; with equal
 * weights sizes differ by at most 1; no part is further than 1 from its exact share.
 * Weights are finite, not negative, not all 0 (COPSE_INVALID). */
COPSE_API copse_status copse_shard_split(size_t total, size_t n, const double *weights,
                                         size_t *out, copse_error *err) COPSE_CHECKED;

/* The same, for the last, smaller batch of a run whose full batches are split into
 * full[0..n): no part grows beyond its full size, so that plans and buffers made for a
 * full batch fit. total is at most the sum of full. */
COPSE_API copse_status copse_shard_split_partial(size_t total, size_t n,
                                                 const size_t *full, size_t *out,
                                                 copse_error *err) COPSE_CHECKED;

/* ---- Pipelines ------------------------------------------------------------------------
 */

typedef enum copse_shuffle {
    COPSE_SHUFFLE_NONE, /* the dataset's own order: evaluation, prediction */
    COPSE_SHUFFLE_FULL, /* every epoch another permutation of the whole set; not for streams */
    COPSE_SHUFFLE_BUFFER /* a window of shuffle_buffer samples moves over the set, and each sample
                          * is drawn from the window: sorted data stays poorly mixed */
} copse_shuffle;

/* kind, name in messages (a configuration writes both flips as random_flip). What follows stands in
 * copse_augment. */
#define COPSE_AUGMENT_MAP(X)                                                             \
    X(COPSE_AUGMENT_FLIP_HORIZONTAL, "random_flip_horizontal")                           \
    X(COPSE_AUGMENT_FLIP_VERTICAL, "random_flip_vertical")                               \
    X(COPSE_AUGMENT_CROP, "random_crop")                                                 \
    X(COPSE_AUGMENT_ROTATE, "random_rotation")                                           \
    X(COPSE_AUGMENT_BRIGHTNESS, "random_brightness")                                     \
    X(COPSE_AUGMENT_CONTRAST, "random_contrast")                                         \
    X(COPSE_AUGMENT_CUTOUT, "cutout")                                                    \
    X(COPSE_AUGMENT_MIXUP, "mixup")                                                      \
    X(COPSE_AUGMENT_CENTER_CROP, "center_crop")

typedef enum copse_augment_kind {
#define COPSE_AUGMENT_ENUM(code, name) code,
    COPSE_AUGMENT_MAP(COPSE_AUGMENT_ENUM)
#undef COPSE_AUGMENT_ENUM
} copse_augment_kind;

/* "random_crop"; NULL for a value that is none. */
COPSE_API const char *copse_augment_name(copse_augment_kind kind);

/* One random change of images (u8, u16 or f32; height, width, channels), applied in order. The
 * random numbers of a sample depend on (seed, epoch, the sample's index, the change's place in
 * the list) only: the pixels are the same whatever the threads and replicas. */
typedef struct copse_augment {
    copse_augment_kind kind;
    /* flips: the probability; 0: one half.
     * rotate: the largest angle, in full turns (Keras' factor): uniform in both directions; what
     *   lies outside is the image reflected at its border; bilinear.
     * brightness: the largest change, uniform in both directions, as a part of the type's range
     *   (f32: of 1); clipped to the range (f32: not).
     * contrast: each channel's distance to its mean is scaled by 1 - amount to 1 + amount; clipped.
     * mixup: alpha. Each sample becomes l * itself + (1 - l) * another of its batch, l from
     *   Beta(alpha, alpha); class labels become COPSE_F32 vectors of label_classes
     *   probabilities (needs options.label_classes or the dataset's classes), targets are mixed. Last
     *   in the list. (Zhang, Cisse, Dauphin, Lopez-Paz 2018)
     * center_crop: none; nothing about it is random. */
    double amount;
    /* crop: zeros added on every side before a random part of height x width (0: the image's own)
     * is cut out (center_crop: the middle). cutout: the edge of the square that is blackened around a random pixel
     * (DeVries and Taylor 2017), in `size`. */
    size_t padding, height, width, size;
} copse_augment;

/* Memory for replica's part of a slot (features, or labels): at least `bytes` bytes,
 * aligned for the device. Called by copse_pipeline_open only, in the caller's thread. */
typedef copse_status copse_slot_alloc_fn(void *user, size_t replica, size_t bytes,
                                         void **out, copse_error *err);
/* Called by copse_pipeline_open (where it fails) and copse_pipeline_close only. */
typedef void copse_slot_free_fn(void *user, size_t replica, void *memory);

/* Start from {0} and set batch. */
typedef struct copse_pipeline_options {
    size_t batch; /* rows of a global batch, over all replicas; >= 1 */
    copse_shuffle shuffle;
    size_t
        shuffle_buffer; /* samples; >= 1 with COPSE_SHUFFLE_BUFFER. Of a stream that many are
                            * held in memory as they are stored (not decoded) */
    uint64_t seed;
    bool drop_remainder; /* leaves a smaller last batch out */
    uint64_t epochs;     /* the run ends after this many; 0: never */

    /* Where to begin: the batch that a checkpoint would have read next. start_batch may
     * equal the number of batches in an epoch (then only that epoch's end is reported).
     */
    uint64_t start_epoch;
    uint64_t start_batch;

    size_t threads;  /* 0: chosen from the work and the machine */
    size_t prefetch; /* batches made ready ahead; 0: 2 */
    size_t held;     /* batches the caller holds at once; 0: 1 */

    /* Labels outside 0..label_classes-1 are refused (COPSE_FORMAT); 0: not checked. */
    size_t label_classes;
    /* How many probabilities mixup makes of a label, at least label_classes; 0: that many. */
    size_t label_outputs;

    /* Leaves out samples that cannot be read or decoded or whose label is refused, with a warning
     * in the log and in the statistics, instead of failing: their batch gets smaller. Also where
     * the source says so. */
    bool skip_errors;

    const copse_augment *augment;
    size_t augment_count; /* at most 64 */

    /* Delivers COPSE_F64 features as COPSE_F32 and 64-bit and unsigned 32-bit integers as
     * COPSE_I32 (a value that does not fit is an error of its sample), for devices that have
     * nothing wider. */
    bool narrow;

    size_t replica_count; /* 0: 1 */
    const size_t *shards; /* rows of each replica in a full batch, summing to batch; or */
    const double *weights; /* copse_shard_split(batch, …); both NULL: equal */
    size_t
        unit; /* parts begin at multiples of so many rows, so that such a group of rows is
                  * never cut: the shards of full batches too (only the last that is not empty
                  * may end within a group). 0: 1 */

    copse_slot_alloc_fn *alloc; /* both NULL: host memory aligned to 4096 bytes */
    copse_slot_free_fn *free;
    void *alloc_user;
} copse_pipeline_options;

/* One replica's rows, contiguous: features is rows x the features' shape, labels rows x
 * the labels' shape (NULL where there are none). Empty parts have rows 0 and valid
 * pointers. */
typedef struct copse_batch_part {
    size_t rows;
    size_t first_row; /* of the global batch */
    const void *features;
    const void *labels;
} copse_batch_part;

typedef struct copse_batch {
    uint64_t epoch;
    uint64_t index;          /* in its epoch, from 0 */
    uint64_t first_position; /* of row 0 in the epoch's order: index * batch */
    size_t
        rows; /* of the global batch; smaller than batch at an epoch's end or by skipped */
    size_t
        skipped; /* samples left out of it, or of batches before it of which nothing was left */
    bool last;               /* of its epoch */
    const uint64_t *samples; /* the dataset's index of each row */
    size_t part_count;       /* replicas */
    const copse_batch_part *parts;
} copse_batch;

typedef struct copse_pipeline copse_pipeline;

/* Starts the worker threads. dataset stays open for the pipeline by itself: the caller
 * may close its handle. options is read during the call only. To go on with other
 * replicas or shards, open another pipeline at the position of the next batch: the same
 * rows come. */
COPSE_API copse_status copse_pipeline_open(copse_pipeline **out, copse_dataset *dataset,
                                           const copse_pipeline_options *options,
                                           copse_error *err) COPSE_CHECKED;

/* Blocks until the next global batch is ready. *out is borrowed until
 * copse_pipeline_release. At the end of each epoch *out is NULL once, with COPSE_OK;
 * after the last epoch it stays NULL. A sample that cannot be read fails the call that
 * would have returned its batch, after all batches before it; later calls repeat that
 * error. COPSE_INVALID where the caller holds all `held` batches. One thread at a time.
 */
COPSE_API copse_status copse_pipeline_next(copse_pipeline *pipeline,
                                           const copse_batch **out,
                                           copse_error *err) COPSE_CHECKED;

/* Gives a batch's memory back to the workers. In any order. NULL is allowed. */
COPSE_API void copse_pipeline_release(copse_pipeline *pipeline, const copse_batch *batch);

/* What the batches hold, one row of it. Differs from the dataset's where options.narrow or
 * augmentations change it. Labels: NULL where there are none. */
COPSE_API const copse_data_spec *
copse_pipeline_get_features(const copse_pipeline *pipeline);
COPSE_API const copse_data_spec *
copse_pipeline_get_labels(const copse_pipeline *pipeline);

/* Batches in an epoch; 0: not known (a stream). */
COPSE_API uint64_t copse_pipeline_batches(const copse_pipeline *pipeline);

/* Rows of each replica in a full batch: replica_count entries. */
COPSE_API const size_t *copse_pipeline_get_shards(const copse_pipeline *pipeline);

typedef struct copse_pipeline_stats {
    uint64_t samples; /* in batches that were handed out */
    uint64_t skipped; /* samples left out; at an epoch's end, of all its batches */
    uint64_t wait_ns; /* copse_pipeline_next's callers waited for data */
    uint64_t work_ns; /* workers read and decoded, summed over threads */
} copse_pipeline_stats;

COPSE_API void copse_pipeline_get_stats(copse_pipeline *pipeline,
                                        copse_pipeline_stats *out);

/* Stops and joins the workers; batches still held become invalid. NULL is allowed. */
COPSE_API void copse_pipeline_close(copse_pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
