/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_CONFIG_H
#define COPSE_TRAIN_CONFIG_H

#include <copse/data.h>
#include <copse/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/text.h"
#include "graph/model.h"

/* What a configuration file says, checked and with every default filled in. A plain struct:
 * read it anywhere, also from several threads. Everything in it belongs to it. */

/* Files of samples. Paths are absolute or patterns ("/data/train-*.gz"). A relative path
 * in a configuration file starts at that file's folder, one given by --set at the working
 * folder. */
typedef struct copse__config_source {
    char **paths; /* idx: of images; npy: of features; else the data files */
    size_t path_count;
    char **label_paths;
    size_t label_path_count;
    char *feature_name, *label_name; /* npy: arrays of an .npz; NULL: not given */
    uint64_t count, seed;            /* synthetic */
    bool given;                      /* false: the configuration has no such source */
} copse__config_source;

/* How elements are stored: tfrecord and synthetic. */
typedef struct copse__config_field {
    copse_data_encoding encoding;
    copse_dtype dtype;
    double *shape;
    size_t rank;
} copse__config_field;

typedef enum copse__config_tokens {
    COPSE__TOKENS_CHARACTERS,
    COPSE__TOKENS_BYTES
} copse__config_tokens;

typedef enum copse__on_error {
    COPSE__ON_ERROR_STOP,
    COPSE__ON_ERROR_SKIP
} copse__on_error;

typedef struct copse__config_data {
    copse_data_format format;
    copse__config_source train, validation, test;
    double validation_split; /* the last part of train that is kept apart; 0: none */
    double scale, offset;    /* x * scale + offset, on the device */
    copse_shuffle shuffle;
    uint64_t shuffle_seed; /* train.seed where none is given */
    bool shuffle_seed_given;
    uint64_t shuffle_buffer;
    char *cache;                        /* "none", "memory" or a file (absolute) */
    uint64_t prefetch;                  /* batches ahead */
    bool drop_remainder;                /* leaves an epoch's smaller last batch out */
    copse__config_field feature, label; /* tfrecord; synthetic: feature */
    char *feature_name, *label_name;    /* tfrecord; csv: the column of labels */
    char **columns;                     /* csv; none: all but the label's */
    size_t column_count;
    double *row_shape; /* csv: how a sample's columns are arranged */
    size_t row_rank;
    bool header;
    char *delimiter;                    /* csv: one character */
    uint64_t sequence_length, stride;   /* text; stride 0: sequence_length */
    copse__config_tokens tokens;        /* text */
    uint64_t image_height, image_width; /* folder, tfrecord; 0: as in the files */
    uint64_t image_channels;
    copse_resize image_resize;
    bool image_sixteen_bits;
    uint64_t synthetic_classes;
    char **class_names;
    size_t class_name_count;
    copse__on_error on_error; /* of a sample that cannot be read */
    uint64_t classes;         /* labels must be below; 0: as the format knows it */
    bool coarse_labels;       /* cifar100 */
    copse__layer_spec
        *augment; /* {kind, args}; `random_flip: horizontal` has one arg, key "" */
    size_t augment_count;
} copse__config_data;

/* How the learning rate follows the optimizer's steps, which count from 0. */
typedef enum copse__config_schedule_kind {
    COPSE__SCHEDULE_CONSTANT,
    COPSE__SCHEDULE_COSINE_DECAY,
    COPSE__SCHEDULE_EXPONENTIAL_DECAY,
    COPSE__SCHEDULE_PIECEWISE_CONSTANT
} copse__config_schedule_kind;

typedef struct copse__config_schedule {
    copse__config_schedule_kind kind;
    double initial;        /* after the warmup, of all but piecewise_constant */
    uint64_t warmup_steps; /* rises linearly from 0 to `initial` over so many steps */
    uint64_t decay_steps;
    double alpha;       /* cosine: the last value is alpha * initial */
    double decay_rate;  /* exponential */
    bool staircase;     /* exponential: changes once every decay_steps */
    double *boundaries; /* piecewise: values[i] up to and with step boundaries[i] */
    size_t boundary_count;
    double *values; /* boundary_count + 1 */
    size_t value_count;
} copse__config_schedule;

typedef enum copse__config_optimizer_kind {
    COPSE__OPTIMIZER_SGD,
    COPSE__OPTIMIZER_ADAM,
    COPSE__OPTIMIZER_ADAMW,
    COPSE__OPTIMIZER_RMSPROP
} copse__config_optimizer_kind;

typedef struct copse__config_optimizer {
    copse__config_optimizer_kind kind;
    copse__config_schedule learning_rate;
    double momentum;       /* sgd, rmsprop */
    bool nesterov;         /* sgd */
    double beta_1, beta_2; /* adam, adamw */
    double epsilon;        /* adam, adamw, rmsprop */
    double weight_decay;   /* adamw */
    double rho;            /* rmsprop */
    bool centered;         /* rmsprop */
} copse__config_optimizer;

typedef enum copse__config_precision {
    COPSE__PRECISION_FLOAT32,
    COPSE__PRECISION_MIXED_FLOAT16
} copse__config_precision;

typedef enum copse__config_strategy {
    COPSE__STRATEGY_MIRRORED,
    COPSE__STRATEGY_CENTRAL,
    COPSE__STRATEGY_PARAMETER_SERVER,
    COPSE__STRATEGY_PIPELINE
} copse__config_strategy;

typedef enum copse__config_reproducible {
    COPSE__REPRODUCIBLE_RUN,    /* the same shards and providers give the same bits */
    COPSE__REPRODUCIBLE_DEVICES /* any devices do */
} copse__config_reproducible;

typedef enum copse__config_on_fault {
    COPSE__ON_FAULT_STOP,
    COPSE__ON_FAULT_CONTINUE
} copse__config_on_fault;

typedef enum copse__config_mode {
    COPSE__MODE_AUTO, /* less is better of a loss, more of an accuracy */
    COPSE__MODE_MIN,
    COPSE__MODE_MAX
} copse__config_mode;

/* A metric that is looked at when an epoch has ended. */
typedef struct copse__config_monitor {
    char *metric; /* "loss", "accuracy", "val_loss", "val_accuracy" */
    copse__config_mode mode;
    double min_delta;  /* what is less better than that is no better */
    uint64_t patience; /* epochs without anything better */
} copse__config_monitor;

/* Keras' EarlyStopping. */
typedef struct copse__config_early_stopping {
    bool enabled;
    copse__config_monitor monitor;
    double baseline; /* NAN: none */
    bool restore_best_weights;
    uint64_t start_from_epoch;
} copse__config_early_stopping;

/* Keras' ReduceLROnPlateau. */
typedef struct copse__config_plateau {
    bool enabled;
    copse__config_monitor monitor;
    double factor, min_lr;
    uint64_t cooldown; /* epochs */
} copse__config_plateau;

typedef struct copse__config_train {
    copse__loss loss;
    bool from_logits;
    copse__config_optimizer optimizer;
    uint64_t batch; /* global: samples in one optimizer step */
    uint64_t epochs;
    uint64_t steps; /* the run ends after this many optimizer steps; 0: no such limit */
    char **metrics; /* "accuracy" */
    size_t metric_count;
    copse__config_precision precision;
    uint64_t accumulate; /* micro-batches a step, on each device */
    uint64_t
        micro_shard; /* samples whose gradient is computed alone (reproducible: devices) */
    copse__config_strategy strategy;
    uint64_t seed;
    uint64_t
        hash_every; /* steps between comparisons of the replicas' parameters; 0: never */
    copse__config_reproducible reproducible;
    copse__config_on_fault on_device_loss;
    copse__config_on_fault
        on_nonfinite; /* CONTINUE ("skip"): leave the step out, count it */
    /* On data.validation, else what data.validation_split keeps apart, else data.test. */
    bool validate;
    uint64_t validate_every; /* epochs */
    uint64_t validate_batch; /* never 0: train.batch where none is given */
    copse__config_early_stopping early_stopping;
    copse__config_plateau plateau;
} copse__config_train;

typedef enum copse__config_shards {
    COPSE__SHARDS_EQUAL,
    COPSE__SHARDS_MEASURED /* in proportion to speed */
} copse__config_shards;

typedef struct copse__config_devices {
    char *select;                /* comma-separated terms of --devices; "": the default */
    copse__config_shards shards; /* of devices without a weight (*W) in select */
    double stall_seconds;        /* a device that does not answer for so long is lost */
    char *
        bench; /* absolute: a saved `cltopo bench`, for staging paths; NULL: measured now */
    char *tune; /* "auto", "off", or absolute: a file of `copse tune` */
} copse__config_devices;

typedef struct copse__config_checkpoint {
    bool enabled;
    uint64_t every_steps, every_epochs; /* 0: not by this; one of the three is set */
    double every_minutes;
    uint64_t keep; /* newest that stay; 0: all */
    char *best;    /* metric whose best checkpoint stays too ("val_loss"); NULL: none */
} copse__config_checkpoint;

typedef struct copse__config_log {
    bool jsonl;
    bool tensorboard;
    uint64_t
        update_freq; /* TensorBoard: also a point every so many steps; 0: epochs only */
    uint64_t histogram_freq; /* TensorBoard: weights every so many epochs; 0: never */
} copse__config_log;

typedef enum copse__config_layout {
    COPSE__LAYOUT_AUTO, /* by the names in the file */
    COPSE__LAYOUT_KERAS,
    COPSE__LAYOUT_PYTORCH
} copse__config_layout;

/* Weights to begin with instead of random ones. */
typedef struct copse__config_init {
    char *file;   /* absolute; NULL: none */
    bool partial; /* parameters that the file lacks keep their random values */
    copse__config_layout layout;
} copse__config_init;

typedef struct copse__config {
    char *path;   /* as given */
    char *folder; /* the file's, absolute */
    copse__config_data data;
    copse__layer_spec *layers;
    size_t layer_count;
    copse__config_train train;
    copse__config_devices devices;
    copse__config_checkpoint checkpoint;
    copse__config_log log;
    copse__config_init init;
    copse__pool pool;
} copse__config;

/* Reads and checks a configuration: all that can be known without data and devices. overrides are "train.epochs=3": dots lead through keys and
 * list indices (model.0.conv2d.filters=16), the value is YAML, later ones win. COPSE_CONFIG with
 * "file:line:column", or the override, as place. */
copse_status copse__config_load(copse__config **out, const char *path,
                                const char *const *overrides, size_t override_count,
                                copse_error *err);

/* The same from memory; path names the text in messages and its folder starts relative paths. */
copse_status copse__config_parse(copse__config **out, const char *text, size_t bytes,
                                 const char *path, const char *const *overrides,
                                 size_t override_count, copse_error *err);

/* NULL is allowed. */
void copse__config_free(copse__config *config);

/* The resolved configuration as YAML: defaults filled in, paths absolute. Loading it gives the
 * same configuration. */
copse_status copse__config_write(const copse__config *config, copse__text *out,
                                 copse_error *err);

/* A hash of what fixes the numbers that a step computes: model, loss, optimizer, batch, seeds, how
 * data are read; not where they lie, nor how long to train, what to log, or on which devices. Two
 * configurations of equal hash can continue each other's checkpoints. 32 hexadecimal digits. */
copse_status copse__config_hash(const copse__config *config, char out[33],
                                copse_error *err);

/* What copse_dataset_open takes, for one of config->data's sources; borrows from config. */
copse_data_source copse__config_data_source(const copse__config *config,
                                            const copse__config_source *source);

/* The learning rate of optimizer step `step` (the first is 0), as Keras' schedules compute it, in
 * double. */
double copse__config_learning_rate(const copse__config_schedule *schedule, uint64_t step);

#endif
