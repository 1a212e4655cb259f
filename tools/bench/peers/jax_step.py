# SPDX-License-Identifier: Apache-2.0
"""JAX's steps, jitted; Adam written out as its authors do."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import common
import jax
import jax.numpy as jnp
import numpy as np

args = common.arguments()
shape, groups, hidden, padded = common.NETS[args.net]
rng = np.random.default_rng(1)


def glorot(*sizes):
    taps = int(np.prod(sizes[:-2]))
    limit = np.sqrt(6 / (taps * (sizes[-2] + sizes[-1])))
    return jnp.asarray(rng.uniform(-limit, limit, sizes), jnp.float32)


params, moving, channels = {"conv": []}, [], shape[2]
for group in groups:
    for filters in group:
        norm = (jnp.ones(filters), jnp.zeros(filters)) if padded else ()
        moving += [(jnp.zeros(filters), jnp.ones(filters))]
        params["conv"].append((glorot(3, 3, channels, filters), jnp.zeros(filters), norm))
        channels = filters
params["dense"] = (glorot(common.features(args.net), hidden), jnp.zeros(hidden))
params["out"] = (glorot(hidden, common.CLASSES), jnp.zeros(common.CLASSES))


def outputs_of(p, x, moving=None):
    """moving: the moments to normalise by; None: the batch's own."""
    convolutions, moments = iter(p["conv"]), iter(moving or [])
    for group in groups:
        for _ in group:
            w, bias, norm = next(convolutions)
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME" if padded else "VALID",
                                             dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias
            if norm:
                mean, variance = next(moments, None) or (
                    jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2)))
                x = (x - mean) * jax.lax.rsqrt(variance + 1e-3) * norm[0] + norm[1]
            x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["dense"][0] + p["dense"][1])
    return x @ p["out"][0] + p["out"][1]


def losses_of(logits, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)


def loss_of(p, x, y):
    return jnp.mean(losses_of(outputs_of(p, x), y))


@jax.jit
def train(state, x, y):
    p, m, v, t = state
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    t = t + 1
    rate = 1e-3 * jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    m = jax.tree.map(lambda a, b: a + (b - a) * 0.1, m, g)
    v = jax.tree.map(lambda a, b: a + (b * b - a) * 0.001, v, g)
    p = jax.tree.map(lambda w, a, b: w - rate * a / (jnp.sqrt(b) + 1e-7), p, m, v)
    return (p, m, v, t), loss


zeros = jax.tree.map(jnp.zeros_like, params)
state = (params, zeros, zeros, jnp.float32(0))
batches = [(jnp.asarray(x), jnp.asarray(y)) for x, y in common.data(args.net, args.batch)]


def train_batch(i):
    global state
    state, loss = train(state, *batches[i % common.BATCHES])
    return loss


@jax.jit
def evaluate(p, moving, sums, x, y):
    logits = outputs_of(p, x, moving)
    return sums + jnp.stack([jnp.sum(losses_of(logits, y)),
                             jnp.sum(jnp.argmax(logits, 1) == y).astype(jnp.float32)])


predict = jax.jit(outputs_of)
sums = jnp.zeros(2)


def evaluate_batch(i):
    global sums
    sums = evaluate(params, moving, sums, *batches[i % common.BATCHES])
    return sums


step = {"train": train_batch, "evaluate": evaluate_batch,
        "predict": lambda i: predict(params, batches[i % common.BATCHES][0], moving)}[args.mode]
rates = common.measure_mode(args, step, lambda value: float(jnp.sum(value)), np.asarray)
common.report("jax", jax.__version__, args, rates)
