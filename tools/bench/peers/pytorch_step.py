# SPDX-License-Identifier: Apache-2.0
"""PyTorch's steps; --compile: through torch.compile, without training with its freezing of weights; --frozen:
evaluation and prediction through TorchScript's optimize_for_inference, which folds batch normalisations and
lays weights out for oneDNN; --channels-last: images and filters laid as NHWC."""
import common
import torch
from torch import nn

args = common.arguments(compile="torch.compile the network", frozen="optimize_for_inference",
                        channels_last="images as NHWC")
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
training = args.mode == "train"
model.train(training)
if args.compile and not training:
    import torch._inductor.config
    torch._inductor.config.freezing = True
run = torch.compile(model) if args.compile else model
if args.frozen:
    run = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(model)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-7)
criterion = nn.CrossEntropyLoss()
layout = torch.channels_last if args.channels_last else torch.contiguous_format
batches = [(torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=layout),
            torch.from_numpy(y).long())
           for x, y in common.data(args.net, args.batch)]


def train(i):
    x, y = batches[i % common.BATCHES]
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(run(x), y)
    loss.backward()
    optimizer.step()
    return loss


sums = torch.zeros(2)


def evaluate(i):
    x, y = batches[i % common.BATCHES]
    outputs = run(x)
    sums[0] += nn.functional.cross_entropy(outputs, y, reduction="sum")
    sums[1] += (outputs.argmax(1) == y).sum()
    return sums


step = {"train": train, "evaluate": evaluate,
        "predict": lambda i: run(batches[i % common.BATCHES][0])}[args.mode]
with torch.inference_mode(not training):
    rates = common.measure_mode(args, step, lambda value: value.sum().item(),
                                lambda outputs: outputs.numpy())
name = ("pytorch" + " compiled" * args.compile + " frozen" * args.frozen +
        " channels last" * args.channels_last)
common.report(name, torch.__version__, args, rates)
