# SPDX-License-Identifier: Apache-2.0
"""The 3 x 3 convolutions of ResNet-18 at batch 8, each pass: copse beside PyTorch (oneDNN on CPUs), in turns.

    peers/bin/python tools/bench/peers/pytorch_conv.py --copse build/copse

A round is `copse bench conv` and then PyTorch, whose images lie as NCHW and as NHWC in turns, the better of both
counts; medians over the rounds, and the ratios round by round. With --check also the largest difference of
PyTorch's result from the same sums in double, as share of the largest element."""
import argparse
import json
import statistics
import subprocess
import time

import torch
from torch.nn import functional

LAYERS = [(8, 56, 56, 64, 64, 1), (8, 56, 56, 64, 128, 2), (8, 28, 28, 128, 128, 1), (8, 28, 28, 128, 256, 2),
          (8, 14, 14, 256, 256, 1), (8, 14, 14, 256, 512, 2), (8, 7, 7, 512, 512, 1)]
PASSES = ("forward", "input", "filter")

parser = argparse.ArgumentParser()
parser.add_argument("--copse", default="build/copse")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=float, default=0.1)
parser.add_argument("--provider", default="", help="of copse; default: what it chooses")
parser.add_argument("--check", action="store_true")
args = parser.parse_args()


def runner(layer, one, layout, dtype=torch.float32):
    """A function that runs the pass once. Padding as "same" gives it, which for stride 2 is uneven: PyTorch pads
    evenly there, which costs it the same."""
    n, h, w, c, f, stride = layer
    torch.manual_seed(1)
    x = torch.randn(n, c, h, w).to(dtype).contiguous(memory_format=layout)
    k = (torch.randn(f, c, 3, 3) * 0.1).to(dtype).contiguous(memory_format=layout)
    if one == "forward":
        return lambda: functional.conv2d(x, k, None, stride, 1)
    dy = torch.randn(n, f, -(-h // stride), -(-w // stride)).to(dtype).contiguous(memory_format=layout)
    mask = [one == "input", one == "filter", False]
    at = 0 if one == "input" else 1
    return lambda: torch.ops.aten.convolution_backward(
        dy, x, k, None, [stride, stride], [1, 1], [1, 1], False, [0, 0], 1, mask)[at]


def microseconds(run):
    for _ in range(3):
        run()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < args.seconds:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def copse():
    command = [args.copse, "bench", "conv", "--json", "--seconds", str(args.seconds)]
    if args.provider:
        command += ["--provider", args.provider]
    for n, h, w, c, f, stride in LAYERS:
        command += ["--size", "%d,%d,%d,%d,%d,3,%d,same" % (n, h, w, c, f, stride)]
    got = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in got if line.startswith("{")]


def check(layer, one):
    exact = runner(layer, one, torch.contiguous_format, torch.float64)()
    worst = (runner(layer, one, torch.contiguous_format)().double() - exact).abs().max()
    return float(worst / exact.abs().max())


cases = [(layer, one) for layer in LAYERS for one in PASSES]
with torch.inference_mode():
    ours, theirs, names = [], [], [None] * len(cases)
    for _ in range(args.rounds):
        lines = copse()
        ours.append([line["time_us"]["median"] for line in lines])
        names = [line["provider"] for line in lines]
        theirs.append([min(microseconds(runner(layer, one, layout))
                           for layout in (torch.contiguous_format, torch.channels_last))
                       for layer, one in cases])
    print("| layer | pass | by | GFLOP/s | PyTorch | copse is faster by |" + " error |" * args.check)
    print("| --- | --- | --- | ---: | ---: | ---: |" + " ---: |" * args.check)
    for i, (layer, one) in enumerate(cases):
        n, h, w, c, f, stride = layer
        flops = 2 * n * -(-h // stride) * -(-w // stride) * 9 * c * f
        ratios = [b[i] / a[i] for a, b in zip(ours, theirs)]
        print("| %d x %d x %d to %d%s | %s | %s | %.0f | %.0f | %.2f (%.2f to %.2f) |%s" % (
            h, w, c, f, ", stride 2" * (stride == 2), one, names[i],
            flops / statistics.median(a[i] for a in ours) * 1e-3,
            flops / statistics.median(b[i] for b in theirs) * 1e-3,
            statistics.median(ratios), min(ratios), max(ratios),
            " %.1e |" % check(layer, one) if args.check else ""))
