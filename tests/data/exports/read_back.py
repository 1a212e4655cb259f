# SPDX-License-Identifier: Apache-2.0
"""What copse saved (RUN, trained from FILE with a learning rate of 0) as Python's safetensors and NumPy read it: every
value of FILE, bit for bit. python read_back.py RUN FILE   (FILE: Keras' .npz or .safetensors, PyTorch's .safetensors)"""
import sys

import numpy as np
from safetensors.numpy import load_file

run, source = sys.argv[1:]
saved = load_file(f"{run}/{open(f'{run}/latest').read().strip()}")
given = dict(np.load(source)) if source.endswith(".npz") else load_file(source)
layers = {"conv1": "conv2d", "fc1": "dense", "fc2": "dense_1"}
found = 0
for name, values in given.items():
    name = name.removeprefix("cifar/")
    module, _, part = name.rpartition(".")
    if module:  # PyTorch's: channels first, also behind the flattening
        name = f"{layers[module]}/{'kernel' if part == 'weight' else 'bias'}"
        if values.ndim == 4:
            values = values.transpose(2, 3, 1, 0)
        elif module == "fc1" and values.ndim == 2:
            side = int((values.shape[1] / given["conv1.bias"].size) ** 0.5)
            values = values.reshape(values.shape[0], -1, side, side).transpose(2, 3, 1, 0).reshape(values.shape[1], -1)
        elif values.ndim == 2:
            values = values.T
    if saved[name].dtype != values.dtype or saved[name].shape != values.shape or \
            saved[name].tobytes() != np.ascontiguousarray(values).tobytes():
        sys.exit(f"{name} differs")
    found += values.size
print(f"{found} values of {source} read back exactly")
