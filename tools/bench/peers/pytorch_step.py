# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training steps; --compile: through torch.compile; --channels-last: images and filters laid as NHWC."""
import common
import torch
from torch import nn

args = common.arguments(compile="torch.compile the network", channels_last="images as NHWC")
shape, groups, hidden, padded = common.NETS[args.net]
if args.threads:
    torch.set_num_threads(args.threads)
torch.manual_seed(1)
layers, channels = [], shape[2]
for group in groups:
    for filters in group:
        layers += [nn.Conv2d(channels, filters, 3, padding=1 if padded else 0)]
        layers += [nn.BatchNorm2d(filters)] if padded else []
        layers += [nn.ReLU()]
        channels = filters
    layers += [nn.MaxPool2d(2)]
layers += [nn.Flatten(), nn.Linear(common.features(args.net), hidden), nn.ReLU(),
           nn.Linear(hidden, common.CLASSES)]
model = nn.Sequential(*layers)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
run = torch.compile(model) if args.compile else model
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-7)
criterion = nn.CrossEntropyLoss()
layout = torch.channels_last if args.channels_last else torch.contiguous_format
batches = [(torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=layout),
            torch.from_numpy(y).long())
           for x, y in common.data(args.net, args.batch)]


def step(i):
    x, y = batches[i % common.BATCHES]
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(run(x), y)
    loss.backward()
    optimizer.step()
    return loss


rates = common.measure(step, lambda loss: loss.item(), args.batch, args.seconds)
name = "pytorch" + " compiled" * args.compile + " channels last" * args.channels_last
common.report(name, torch.__version__, args, rates)
