# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's steps, as a tf.function; --xla: compiled by XLA; --keras: evaluation and prediction by
model.evaluate and model.predict, a block a call, over all batches as one array."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
import time

import common
import numpy as np
import tensorflow as tf

args = common.arguments(xla="jit_compile the step", keras="model.evaluate, model.predict")
shape, groups, hidden, padded = common.NETS[args.net]
if args.threads:
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
tf.keras.utils.set_random_seed(1)
layers = [tf.keras.layers.Input(shape)]
for group in groups:
    for filters in group:
        layers += [tf.keras.layers.Conv2D(filters, 3, padding="same" if padded else "valid")]
        layers += [tf.keras.layers.BatchNormalization()] if padded else []
        layers += [tf.keras.layers.ReLU()]
    layers += [tf.keras.layers.MaxPooling2D(2)]
layers += [tf.keras.layers.Flatten(), tf.keras.layers.Dense(hidden, activation="relu"),
           tf.keras.layers.Dense(common.CLASSES)]
model = tf.keras.Sequential(layers)
optimizer = tf.keras.optimizers.Adam(1e-3)
optimizer.build(model.trainable_variables)
batches = [(tf.constant(x), tf.constant(y)) for x, y in common.data(args.net, args.batch)]


@tf.function(jit_compile=args.xla)
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


sums = tf.Variable(tf.zeros(2))


@tf.function(jit_compile=args.xla)
def evaluate(x, y):
    logits = model(x, training=False)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
    hits = tf.cast(tf.argmax(logits, 1, tf.int32) == y, tf.float32)
    sums.assign_add(tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits)]))


@tf.function(jit_compile=args.xla)
def predict(x):
    return model(x, training=False)


def evaluate_batch(i):
    evaluate(*batches[i % common.BATCHES])
    return sums


def by_keras():
    """Rates of whole calls, each over all batches as often as fills about a quarter of a second."""
    x, y = (tf.concat([batch[part] for batch in batches], 0).numpy() for part in (0, 1))
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"], jit_compile=args.xla)

    def call(x, y):
        start = time.perf_counter()
        if args.mode == "predict":
            model.predict(x, batch_size=args.batch, verbose=0)
        else:
            model.evaluate(x, y, batch_size=args.batch, verbose=0)
        return len(x) / (time.perf_counter() - start)

    call(x, y)
    times = max(1, int(0.25 * call(x, y) / len(x)))
    x, y = np.concatenate([x] * times), np.concatenate([y] * times)
    rates, begin = [], time.perf_counter()
    while len(rates) < 5 or time.perf_counter() - begin < args.seconds:
        rates.append(call(x, y))
    return rates


step = {"train": lambda i: train(*batches[i % common.BATCHES]), "evaluate": evaluate_batch,
        "predict": lambda i: predict(batches[i % common.BATCHES][0])}[args.mode]
rates = by_keras() if args.keras else common.measure_mode(
    args, step, lambda value: float(tf.reduce_sum(value).numpy()), lambda outputs: outputs.numpy())
common.report("tensorflow" + " keras" * args.keras + " xla" * args.xla, tf.__version__, args, rates)
