# SPDX-License-Identifier: Apache-2.0
"""tinygrad's steps through TinyJit, on its OpenCL device unless DEV says otherwise."""
import os

os.environ.setdefault("DEV", "CL")
import importlib.metadata

import common
args = common.arguments()
training = args.mode == "train"
# What newer versions read, when they are imported; older ones have Tensor.training.
os.environ.setdefault("TRAINING", "1" if training else "0")
from tinygrad import Tensor, TinyJit, nn

shape, groups, hidden, padded = common.NETS[args.net]
Tensor.manual_seed(1)
if hasattr(Tensor, "training"):
    Tensor.training = training


class Net:
    def __init__(self):
        self.layers, channels = [], shape[2]
        for group in groups:
            for filters in group:
                self.layers += [nn.Conv2d(channels, filters, 3, padding=1 if padded else 0)]
                self.layers += [nn.BatchNorm(filters)] if padded else []
                self.layers += [Tensor.relu]
                channels = filters
            self.layers += [Tensor.max_pool2d]
        self.dense = nn.Linear(common.features(args.net), hidden)
        self.out = nn.Linear(hidden, common.CLASSES)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(self.dense(x.flatten(1)).relu())


net = Net()
optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=1e-3, eps=1e-7)
batches = [(Tensor(x.transpose(0, 3, 1, 2).copy()).realize(), Tensor(y).realize())
           for x, y in common.data(args.net, args.batch)]


@TinyJit
def train(x, y):
    optimizer.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y).backward()
    return loss.realize(*optimizer.schedule_step())


@TinyJit
def evaluate(x, y):
    logits = net(x)
    losses = logits.sparse_categorical_crossentropy(y, reduction="sum")
    return losses.stack((logits.argmax(1) == y).sum().float()).realize()


@TinyJit
def predict(x):
    return net(x).realize()


step = {"train": lambda i: train(*batches[i % common.BATCHES]),
        "evaluate": lambda i: evaluate(*batches[i % common.BATCHES]),
        "predict": lambda i: predict(batches[i % common.BATCHES][0]).numpy()}[args.mode]
rates = common.measure_mode(args, step, lambda value: float(value.sum().item()), lambda outputs: outputs)
common.report("tinygrad", importlib.metadata.version("tinygrad"), args, rates)
