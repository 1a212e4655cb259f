# SPDX-License-Identifier: Apache-2.0
"""Makes import-*.{safetensors,npz,npy}: a small network's weights under PyTorch's names and in
its layout, and under Keras' names, with inputs (channels last) and the logits that the PyTorch
network computes for them, here spelt out in NumPy (channels first, double precision).
Run in this folder; needs numpy and safetensors."""
import numpy as np
from safetensors.numpy import save_file

rng = np.random.default_rng(7)
f = lambda *shape: rng.normal(0, 0.4, shape).astype(np.float32)
w = {"conv1.weight": f(3, 2, 3, 3), "conv1.bias": f(3),
     "fc1.weight": f(5, 3 * 2 * 3), "fc1.bias": f(5), "fc2.weight": f(4, 5), "fc2.bias": f(4)}
x = rng.normal(0, 1, (6, 2, 6, 8)).astype(np.float32)  # NCHW

def logits(x, w):
    x, w = x.astype(np.float64), {k: v.astype(np.float64) for k, v in w.items()}
    n, _, h, wd = x.shape
    conv = np.zeros((n, 3, h - 2, wd - 2))
    for i in range(h - 2):
        for j in range(wd - 2):
            patch = x[:, :, i:i + 3, j:j + 3]
            conv[:, :, i, j] = np.einsum("ncij,ocij->no", patch, w["conv1.weight"])
    conv = np.maximum(conv + w["conv1.bias"][None, :, None, None], 0)
    pooled = conv.reshape(n, 3, (h - 2) // 2, 2, (wd - 2) // 2, 2).max((3, 5))
    flat = pooled.reshape(n, -1)  # channels first
    hidden = np.maximum(flat @ w["fc1.weight"].T + w["fc1.bias"], 0)
    return hidden @ w["fc2.weight"].T + w["fc2.bias"]

save_file(w, "import-pytorch.safetensors")
hwc = w["fc1.weight"].reshape(5, 3, 2, 3).transpose(2, 3, 1, 0).reshape(18, 5)
np.savez_compressed("import-keras.npz", **{
    "model/conv2d/kernel:0": np.asfortranarray(w["conv1.weight"].transpose(2, 3, 1, 0)),
    "model/conv2d/bias:0": w["conv1.bias"].astype(np.float64),
    "model/dense/kernel:0": hwc, "model/dense/bias:0": w["fc1.bias"],
    "model/dense_1/kernel:0": w["fc2.weight"].T, "model/dense_1/bias:0": w["fc2.bias"]})
np.save("import-x.npy", np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
np.save("import-y.npy", np.zeros(6, np.int32))
np.save("import-logits.npy", logits(x, w).astype(np.float32))
