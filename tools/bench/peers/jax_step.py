# SPDX-License-Identifier: Apache-2.0
"""JAX's training steps, jitted; Adam written out as its authors do."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import common
import jax
import jax.numpy as jnp
import numpy as np

args = common.arguments()
shape, filters, hidden = common.NETS[args.net]
rng = np.random.default_rng(1)


def glorot(*sizes):
    taps = int(np.prod(sizes[:-2]))
    limit = np.sqrt(6 / (taps * (sizes[-2] + sizes[-1])))
    return jnp.asarray(rng.uniform(-limit, limit, sizes), jnp.float32)


features = int(np.prod(shape))
params = {}
if filters:
    features = filters * ((shape[0] - 2) // 2) * ((shape[1] - 2) // 2)
    params["conv"] = (glorot(3, 3, shape[2], filters), jnp.zeros(filters))
params["dense"] = (glorot(features, hidden), jnp.zeros(hidden))
params["out"] = (glorot(hidden, common.CLASSES), jnp.zeros(common.CLASSES))


def loss_of(p, x, y):
    if filters:
        x = jax.lax.conv_general_dilated(x, p["conv"][0], (1, 1), "VALID",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + p["conv"][1])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["dense"][0] + p["dense"][1])
    logits = x @ p["out"][0] + p["out"][1]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


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


def step(i):
    global state
    state, loss = train(state, *batches[i % common.BATCHES])
    return loss


rates = common.measure(step, float, args.batch, args.seconds)
common.report("jax", jax.__version__, args, rates)
