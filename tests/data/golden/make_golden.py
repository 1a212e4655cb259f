# SPDX-License-Identifier: Apache-2.0
"""Writes the *.golden files of this folder: what Keras computes, in float64, for inputs that the
tests draw themselves.

An input is uniform(seed, shape, low, high): element i is word i % 4 of Philox4x32-10 with counter
(i / 4, 0, 0, 0) and key (seed, 0), its top 24 bits as a fraction of 1, scaled in float32.
tests/support/op_run.c has the same function in C.

A file has comment lines with its origin, then tensors:
  tensor NAME COUNT STEP NORM SUM
  values, eight a line
COUNT is the tensor's number of elements; every STEP-th is listed, from the first; NORM and SUM are
the square root of the sum of squares and the sum over all elements.
Run in this folder: python3 make_golden.py
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf

keras.backend.set_floatx("float64")


def philox(counter, key):
    """counter: uint32 [n, 4]."""
    c = [counter[:, i].astype(np.uint64) for i in range(4)]
    k = [np.uint64(key[0]), np.uint64(key[1])]
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> half) ^ c[1] ^ k[0], b & mask, (a >> half) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
    return np.stack(c, 1).astype(np.uint32)


def uniform(seed, shape, low=-1.0, high=1.0):
    count = int(np.prod(shape))
    counter = np.zeros(((count + 3) // 4, 4), np.uint32)
    counter[:, 0] = np.arange(len(counter))
    words = philox(counter, (seed, 0)).reshape(-1)[:count]
    unit = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    low, high = np.float32(low), np.float32(high)
    return (low + (high - low) * unit).astype(np.float64).reshape(shape)


class File:
    def __init__(self, name, what):
        self.lines = [
            f"# {what}",
            f"# TensorFlow {tf.__version__}, Keras {keras.__version__}, CPU, float64;"
            " inputs: uniform(seed) as in make_golden.py",
        ]
        self.name = name

    def add(self, name, value, most=None):
        value = np.asarray(value, np.float64).reshape(-1)
        step = 1 if most is None else max(1, len(value) // most)
        norm, total = np.sqrt((value**2).sum()), value.sum()
        self.lines.append(f"tensor {name} {len(value)} {step} {norm:.9g} {total:.9g}")
        listed = value[::step]
        for i in range(0, len(listed), 8):
            self.lines.append(" ".join(f"{v:.9g}" for v in listed[i : i + 8]))

    def write(self):
        with open(self.name, "w") as out:
            out.write("\n".join(self.lines) + "\n")


def value_and_gradients(function, inputs, cotangent):
    """function's value, and the gradients of sum(value * cotangent)."""
    tensors = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        for t in tensors:
            tape.watch(t)
        y = function(*tensors)
        projected = tf.reduce_sum(y * cotangent)
    return y.numpy(), [g.numpy() for g in tape.gradient(projected, tensors)]


def convolutions(out):
    for name, shape, filters, kernel, stride, dilation, padding in [
        ("conv_strided", (2, 8, 7, 3), 4, (3, 3), 2, 1, "same"),
        ("conv_dilated", (2, 9, 10, 2), 3, (3, 2), 1, 2, "same"),
        ("conv_valid", (2, 6, 7, 3), 5, (3, 3), 1, 1, "valid"),
    ]:
        x = uniform(1, shape)
        w = uniform(2, (*kernel, shape[3], filters))
        b = uniform(3, (filters,))

        def forward(x, w, b):
            return keras.ops.conv(x, w, stride, padding, "channels_last", dilation) + b

        y = forward(tf.constant(x), tf.constant(w), tf.constant(b))
        y, (dx, dw, db) = value_and_gradients(forward, [x, w, b], uniform(4, y.shape))
        for part, value in ("y", y), ("dx", dx), ("dw", dw), ("db", db):
            out.add(f"{name}/{part}", value)


def poolings(out):
    for name, operation, shape, pool, stride, padding in [
        ("max_pool_same", keras.ops.max_pool, (2, 7, 5, 3), 3, 2, "same"),
        ("avg_pool_same", keras.ops.average_pool, (2, 7, 5, 3), 3, 2, "same"),
        ("avg_pool_valid", keras.ops.average_pool, (2, 7, 6, 2), 2, 2, "valid"),
    ]:
        x = uniform(1, shape)

        def forward(x):
            return operation(x, pool, stride, padding, "channels_last")

        y = forward(tf.constant(x))
        y, (dx,) = value_and_gradients(forward, [x], uniform(4, y.shape))
        out.add(f"{name}/y", y)
        out.add(f"{name}/dx", dx)


def activations(out):
    x = uniform(1, (5, 37), -4, 4)
    for name, function in [
        ("relu", keras.activations.relu),
        ("sigmoid", keras.activations.sigmoid),
        ("tanh", keras.activations.tanh),
        ("gelu", lambda v: keras.activations.gelu(v, approximate=False)),
        ("softmax", keras.activations.softmax),
    ]:
        y, (dx,) = value_and_gradients(function, [x], uniform(4, x.shape))
        out.add(f"{name}/y", y)
        out.add(f"{name}/dx", dx)


def normalization(out):
    layer = keras.layers.BatchNormalization()
    x, gamma, beta = uniform(1, (4, 3, 2, 5), -1, 3), uniform(2, (5,), 0.5, 2), uniform(3, (5,))
    layer.build(x.shape)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    cotangent = uniform(4, x.shape)
    with tf.GradientTape() as tape:
        t = tf.constant(x)
        tape.watch(t)
        y = layer(t, training=True)
        projected = tf.reduce_sum(y * cotangent)
    dx, dgamma, dbeta = tape.gradient(projected, [t, layer.gamma.value, layer.beta.value])
    out.add("batch_norm/y", y)
    out.add("batch_norm/dx", dx)
    out.add("batch_norm/dgamma", dgamma)
    out.add("batch_norm/dbeta", dbeta)
    out.add("batch_norm/moving_mean", layer.moving_mean)
    out.add("batch_norm/moving_variance", layer.moving_variance)
    out.add("batch_norm/infer", layer(x, training=False))


def losses(out):
    labels = np.array([0, 10, 3, 3, 7, 5])
    for name, low, high, logits in ("logits", -3, 3, True), ("probabilities", 0.01, 1, False):
        x = uniform(1, (6, 11), low, high)

        def forward(x):
            # Not all of Keras' backends divide by the sum.
            z = x if logits else x / tf.reduce_sum(x, 1, keepdims=True)
            return keras.losses.sparse_categorical_crossentropy(labels, z, from_logits=logits)

        y, (dx,) = value_and_gradients(forward, [x], np.full(6, 0.125))
        out.add(f"cross_entropy_{name}/y", y)
        out.add(f"cross_entropy_{name}/dx", dx)
    x, target = uniform(1, (6, 11)), uniform(2, (6, 11))
    y, (dx,) = value_and_gradients(
        lambda v: keras.losses.mean_squared_error(target, v), [x], np.full(6, 0.125)
    )
    out.add("mean_squared_error/y", y)
    out.add("mean_squared_error/dx", dx)


def optimizers(out):
    for name, optimizer in [
        ("sgd", keras.optimizers.SGD(0.01)),
        ("sgd_momentum", keras.optimizers.SGD(0.01, momentum=0.9)),
        ("sgd_nesterov", keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True)),
        ("adam", keras.optimizers.Adam(0.001)),
        ("adamw", keras.optimizers.AdamW(0.001)),
        ("rmsprop", keras.optimizers.RMSprop(0.001)),
        ("rmsprop_centered", keras.optimizers.RMSprop(0.001, momentum=0.5, centered=True)),
    ]:
        w = keras.Variable(uniform(1, (101,)))
        for step in range(5):
            optimizer.apply([tf.constant(uniform(10 + step, (101,)))], [w])
        out.add(f"{name}/w", w)


def network(out, size, filters, units, limits, most):
    """Conv2D relu, MaxPooling2D, Flatten, Dense relu, Dense on a fixed batch of 8; weight i is
    uniform(100 + i) within limits[its rank]."""
    model = keras.Sequential([
        keras.layers.Conv2D(filters, 3, activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Flatten(),
        keras.layers.Dense(units, activation="relu"),
        keras.layers.Dense(10),
    ])
    x = uniform(1, (8, size, size, 3), 0, 1)
    labels = np.arange(8) * 3 % 10
    model.build(x.shape)
    for i, v in enumerate(model.trainable_variables):
        limit = limits[len(v.shape)]
        v.assign(uniform(100 + i, v.shape, -limit, limit))
    optimizer = keras.optimizers.Adam(0.001)
    for step in range(10):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            mean = tf.reduce_mean(loss)
        gradients = tape.gradient(mean, [v.value for v in model.trainable_variables])
        if step == 0:
            out.add("logits", logits)
            out.add("loss", loss)
            for i, g in enumerate(gradients):
                out.add(f"gradient/{i}", g, most)
        optimizer.apply(gradients, model.trainable_variables)
    for i, v in enumerate(model.trainable_variables):
        out.add(f"adam10/{i}", v, most)
    out.add("loss10", keras.losses.sparse_categorical_crossentropy(labels, model(x), from_logits=True))


def main():
    out = File("operations.golden", "single operations, losses and optimizers")
    convolutions(out)
    poolings(out)
    activations(out)
    normalization(out)
    losses(out)
    optimizers(out)
    out.write()
    out = File("cifar.golden", "CIFAR-10 network, Conv 32, Dense 128: logits, gradients, ten Adam steps")
    network(out, 32, 32, 128, {4: 0.2, 2: 0.0625, 1: 0.125}, 200)
    out.write()
    out = File("narrow.golden", "the same, 12x12 images, Conv 4, Dense 8, in full")
    network(out, 12, 4, 8, {4: 0.5, 2: 0.25, 1: 0.125}, None)
    out.write()


if __name__ == "__main__":
    main()
