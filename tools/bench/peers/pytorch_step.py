# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training steps; --compile: through torch.compile."""
import common
import torch
from torch import nn

args = common.arguments(compile="torch.compile the network")
shape, filters, hidden = common.NETS[args.net]
if args.threads:
    torch.set_num_threads(args.threads)
torch.manual_seed(1)
height, width, channels = shape
layers, features = [], height * width * channels
if filters:
    layers += [nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.MaxPool2d(2)]
    features = filters * ((height - 2) // 2) * ((width - 2) // 2)
layers += [nn.Flatten(), nn.Linear(features, hidden), nn.ReLU(),
           nn.Linear(hidden, common.CLASSES)]
model = nn.Sequential(*layers)
run = torch.compile(model) if args.compile else model
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-7)
criterion = nn.CrossEntropyLoss()
batches = [(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()), torch.from_numpy(y).long())
           for x, y in common.data(args.net, args.batch)]


def step(i):
    x, y = batches[i % common.BATCHES]
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(run(x), y)
    loss.backward()
    optimizer.step()
    return loss


rates = common.measure(step, lambda loss: loss.item(), args.batch, args.seconds)
common.report("pytorch compiled" if args.compile else "pytorch", torch.__version__, args, rates)
