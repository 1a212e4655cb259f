# SPDX-License-Identifier: Apache-2.0
"""tinygrad's training steps through TinyJit, on its OpenCL device unless DEV says otherwise."""
import os

os.environ.setdefault("DEV", "CL")
os.environ.setdefault("TRAINING", "1")  # what newer versions read; older ones have Tensor.training
import importlib.metadata

import common
from tinygrad import Tensor, TinyJit, nn

args = common.arguments()
shape, groups, hidden, padded = common.NETS[args.net]
Tensor.manual_seed(1)
if hasattr(Tensor, "training"):
    Tensor.training = True


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


rates = common.measure(lambda i: train(*batches[i % common.BATCHES]),
                       lambda loss: float(loss.item()), args.batch, args.seconds)
common.report("tinygrad", importlib.metadata.version("tinygrad"), args, rates)
