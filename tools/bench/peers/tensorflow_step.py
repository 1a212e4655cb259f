# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's training steps, as a tf.function; --xla: compiled by XLA."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
import common
import tensorflow as tf

args = common.arguments(xla="jit_compile the step")
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


rates = common.measure(lambda i: train(*batches[i % common.BATCHES]),
                       lambda loss: float(loss.numpy()), args.batch, args.seconds)
common.report("tensorflow xla" if args.xla else "tensorflow", tf.__version__, args, rates)
