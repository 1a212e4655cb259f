# SPDX-License-Identifier: Apache-2.0
"""copse's training steps on the same networks: `copse train` on random images of the same sizes, its
rates read from the run's log.jsonl. Needs nothing but Python itself."""
import argparse
import json
import os
import random
import resource
import statistics
import struct
import subprocess
import tempfile

from nets import NETS

parser = argparse.ArgumentParser()
parser.add_argument("--copse", default="build/copse")
parser.add_argument("--net", choices=sorted(NETS), default="cifar32")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--seconds", type=float, default=10)
parser.add_argument("--devices", default="")
args = parser.parse_args()
_, groups, hidden, padded = NETS[args.net]
rng = random.Random(1)
BATCHES = 64
count = BATCHES * args.batch


def config(data):
    layers = []
    for group in groups:
        for filters in group:
            layers += ["conv2d: {filters: %d, kernel: 3, padding: same}" % filters, "batch_norm",
                       "relu"] if padded else [
                           "conv2d: {filters: %d, kernel: 3, activation: relu}" % filters]
        layers += ["max_pool2d: {pool: 2}"]
    layers += ["flatten", "dense: {units: %d, activation: relu}" % hidden, "dense: {units: 10}"]
    return "\n".join([
        "data:", *("  " + line for line in data), "  scale: 0.00392156862745098",
        "  shuffle: {seed: 1}", "model:", *("  - " + layer for layer in layers), "train:",
        "  loss: sparse_categorical_crossentropy", "  optimizer: {adam: {learning_rate: 0.001}}",
        "  batch: %d" % args.batch, "  epochs: EPOCHS", "  metrics: [accuracy]", "  seed: 1", ""])


def write_data(folder):
    if groups:
        with open(os.path.join(folder, "train.bin"), "wb") as out:
            for _ in range(count):
                out.write(bytes([rng.randrange(10)]) + rng.randbytes(3072))
        return ["format: cifar10", "train: train.bin"]
    with open(os.path.join(folder, "images.idx"), "wb") as out:
        out.write(struct.pack(">IIII", 0x803, count, 28, 28) + rng.randbytes(count * 784))
    with open(os.path.join(folder, "labels.idx"), "wb") as out:
        out.write(struct.pack(">II", 0x801, count) + bytes(rng.randrange(10) for _ in range(count)))
    return ["format: idx", "train: {images: images.idx, labels: labels.idx}"]


def train(folder, text, epochs, out):
    path = os.path.join(folder, "net.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace("EPOCHS", str(epochs)))
    command = [os.path.abspath(args.copse), "train", path, "--quiet", "--out", os.path.join(folder, out)]
    if args.devices:
        command += ["--devices", args.devices]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, out, "log.jsonl"), encoding="utf-8") as log:
        return [json.loads(line) for line in log]


with tempfile.TemporaryDirectory() as folder:
    text = config(write_data(folder))
    first = train(folder, text, 1, "warm")
    epoch = next(line for line in first if line["kind"] == "epoch")["seconds"]
    lines = train(folder, text, max(2, int(args.seconds / max(epoch, 1e-3))), "run")
    # Whole epochs, as the peers' blocks: a step alone is shorter than its neighbours' queue.
    rates = [line["samples_per_s"] for line in lines if line["kind"] == "epoch"]
    version = subprocess.run([args.copse, "--version"], capture_output=True, text=True, check=True)
print(json.dumps({
    "bench": "step", "peer": "copse", "version": version.stdout.split()[-1], "net": args.net,
    "batch": args.batch,
    "samples_per_s": {"median": statistics.median(rates), "min": min(rates), "max": max(rates)},
    "peak_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
}), flush=True)
