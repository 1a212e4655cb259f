# SPDX-License-Identifier: Apache-2.0
"""Makes monitor.golden: what Keras' EarlyStopping and ReduceLROnPlateau decide after each epoch of made series.
    python make_monitor.py       (Keras 3 on any backend; here 3.15.1 on TensorFlow 2.21.0)

A case is a line of its kind and settings, the number of epochs, and then a line an epoch:
    early METRIC MODE MIN_DELTA PATIENCE BASELINE START_FROM_EPOCH EPOCHS      plateau METRIC MODE MIN_DELTA PATIENCE FACTOR COOLDOWN MIN_LR RATE EPOCHS
    value wait best stop better                                                value wait best cooldown rate
Baseline, and best before there is one, are nan. A series ends where training is stopped."""
import math
import os
import random

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

random.seed(7)


def model(rate):
    m = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    m.compile(optimizer=keras.optimizers.SGD(rate), loss="mse")
    return m


def series(kind, n):
    if kind == "falling":
        return [1.0 / (1 + 0.5 * i) for i in range(n)]
    if kind == "flat":
        return [0.5] * n
    if kind == "noisy":
        return [1.0 / (1 + 0.3 * i) + random.uniform(-0.1, 0.1) for i in range(n)]
    return [random.choice([0.25, 0.5, 0.75, 0.875]) for _ in range(n)]


def best_of(c):
    return math.nan if c.best is None else float(c.best)


def early(out, metric, mode, delta, patience, baseline, start, values):
    keras_mode = mode if mode != "auto" or metric.endswith("loss") else "max"  # what auto finds, without a compiled metric
    c = keras.callbacks.EarlyStopping(monitor=metric, mode=keras_mode, min_delta=delta, patience=patience,
                                      baseline=baseline, start_from_epoch=start)
    c.set_model(model(0.1))
    c.on_train_begin()
    rows = []
    for epoch, value in enumerate(values):
        before = c.best
        c.on_epoch_end(epoch, {metric: value})
        better = c.best is not before and c.best is not None and (before is None or c.best != before)
        rows.append((value, c.wait, best_of(c), int(c.model.stop_training), int(better)))
        if c.model.stop_training:
            break
    base = math.nan if baseline is None else baseline
    print(f"early {metric} {mode} {delta!r} {patience} {base!r} {start} {len(rows)}", file=out)
    for r in rows:
        print(*map(repr, r), file=out)


def plateau(out, metric, mode, delta, patience, factor, cooldown, min_lr, rate, values):
    keras_mode = mode if mode != "auto" or metric.endswith("loss") else "max"
    c = keras.callbacks.ReduceLROnPlateau(monitor=metric, mode=keras_mode, min_delta=delta, patience=patience,
                                          factor=factor, cooldown=cooldown, min_lr=min_lr)
    c.set_model(model(rate))
    c.on_train_begin()
    print(f"plateau {metric} {mode} {delta!r} {patience} {factor!r} {cooldown} {min_lr!r} {rate!r} {len(values)}", file=out)
    for epoch, value in enumerate(values):
        c.on_epoch_end(epoch, {metric: value})
        now = float(np.float32(keras.ops.convert_to_numpy(c.model.optimizer.learning_rate)))
        print(*map(repr, (value, c.wait, best_of(c), c.cooldown_counter, now)), file=out)


with open("monitor.golden", "w") as out:
    print(f"# Keras {keras.__version__}: decisions after each epoch, made by make_monitor.py", file=out)
    for kind in ("falling", "flat", "noisy", "steps"):
        for metric, mode in (("val_loss", "auto"), ("val_accuracy", "auto"), ("loss", "max"), ("accuracy", "min")):
            early(out, metric, mode, 0.0, 0, None, 0, series(kind, 12))
            early(out, metric, mode, 0.01, 3, None, 0, series(kind, 25))
            early(out, metric, mode, 0.05, 2, None, 4, series(kind, 25))
            early(out, metric, mode, 0.0, 4, 0.6, 0, series(kind, 25))
            plateau(out, metric, mode, 0.0001, 2, 0.5, 0, 0.0, 0.01, series(kind, 25))
            plateau(out, metric, mode, 0.02, 3, 0.1, 2, 0.0005, 0.01, series(kind, 30))
            plateau(out, metric, mode, 0.0, 1, 0.3, 4, 0.0, 0.001, series(kind, 30))
