# SPDX-License-Identifier: Apache-2.0
"""Exports of the CIFAR-10 network from PyTorch and Keras, with images and what each predicts for them.
    python make_exports.py [FOLDER [FILTERS UNITS]]
Here are 4 filters and 16 units (PyTorch 2.15.0, safetensors 0.8.0, Keras 3.15.1 on TensorFlow 2.21.0, NumPy 2.4.6); the
example has 32 and 128. sh tests/tools/exports.sh BUILD FOLDER checks such a folder; with PYTHON=python it also lets Python
read back what copse saves."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import keras
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
filters, units = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else (4, 16)
os.makedirs(folder, exist_ok=True)
at = lambda name: os.path.join(folder, name)
torch.manual_seed(3)
keras.utils.set_random_seed(4)
x = np.random.default_rng(5).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
np.save(at("x.npy"), x)
scaled = x.astype(np.float32) / np.float32(255)


def spread(w):
    """Weights as after some training, so that classes differ."""
    return w * 3


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, filters, 3)
        self.fc1 = torch.nn.Linear(filters * 15 * 15, units)
        self.fc2 = torch.nn.Linear(units, 10)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        return self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))


network = Network()
with torch.no_grad():
    for p in network.parameters():
        p.copy_(spread(p))
    images = torch.from_numpy(scaled.transpose(0, 3, 1, 2).copy())
    network.fc2.bias -= network(images).mean(0)  # so that each class wins somewhere
    logits = network(images).numpy()
safetensors.torch.save_file(network.state_dict(), at("pytorch.safetensors"))
np.savetxt(at("pytorch.csv"), logits, "%.9g", ",")

model = keras.Sequential([
    keras.Input((32, 32, 3)), keras.layers.Conv2D(filters, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Flatten(), keras.layers.Dense(units, activation="relu"), keras.layers.Dense(10)], name="cifar")
model.set_weights([spread(w if w.ndim > 1 else np.linspace(-.1, .1, w.size, dtype=np.float32)) for w in model.get_weights()])
kernel, bias = model.layers[-1].get_weights()
model.layers[-1].set_weights([kernel, bias - model.predict(scaled, verbose=0).mean(0)])
weights = {v.path: v.numpy() for v in model.weights}
np.savez_compressed(at("keras.npz"), **weights)
safetensors.numpy.save_file(weights, at("keras.safetensors"))
np.savetxt(at("keras.csv"), model.predict(scaled, verbose=0), "%.9g", ",")

with open(at("network.yaml"), "w") as out:
    out.write(f"""# SPDX-License-Identifier: Apache-2.0
# Made by make_exports.py: the network of examples/cifar10.yaml, {filters} filters and {units} units.
data:
  format: synthetic
  train: {{count: 8}}
  test: {{count: 8}}
  synthetic: {{shape: [32, 32, 3], dtype: u8, classes: 10}}
  scale: 0.00392156862745098
model:
  - conv2d: {{filters: {filters}, kernel: 3, activation: relu}}
  - max_pool2d: {{pool: 2}}
  - flatten
  - dense: {{units: {units}, activation: relu}}
  - dense: {{units: 10}}
train: {{loss: sparse_categorical_crossentropy, optimizer: {{sgd: {{learning_rate: 0}}}}, batch: 8, epochs: 1}}
""")
