# SPDX-License-Identifier: Apache-2.0
"""copse's steps on the same networks and random images of the same sizes. --mode train: `copse train`, its
rates read from the run's log.jsonl; evaluate, predict: `copse bench eval`. Needs nothing but Python itself."""
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
parser.add_argument("--mode", choices=["train", "evaluate", "predict"], default="train")
parser.add_argument("--seconds", type=float, default=10)
parser.add_argument("--devices", default="")
args = parser.parse_args()
_, groups, hidden, padded = NETS[args.net]
rng = random.Random(1)
BATCHES = 64 if groups or args.mode == "train" else 512
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
        return ["format: cifar10", "train: train.bin", "test: train.bin"]
    with open(os.path.join(folder, "images.idx"), "wb") as out:
        out.write(struct.pack(">IIII", 0x803, count, 28, 28) + rng.randbytes(count * 784))
    with open(os.path.join(folder, "labels.idx"), "wb") as out:
        out.write(struct.pack(">II", 0x801, count) + bytes(rng.randrange(10) for _ in range(count)))
    files = "{images: images.idx, labels: labels.idx}"
    return ["format: idx", "train: " + files, "test: " + files]


def write_config(folder, text, epochs):
    path = os.path.join(folder, "net.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace("EPOCHS", str(epochs)))
    return path


def evaluate(folder, text):
    """Rates and peak memory of `copse bench eval`."""
    command = [os.path.abspath(args.copse), "bench", "eval", write_config(folder, text, 1),
               "--seconds", str(args.seconds), "--json"]
    command += ["--predict"] if args.mode == "predict" else []
    command += ["--devices", args.devices] if args.devices else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = json.loads(done.stdout)
    return line["samples_per_s"], line["peak_rss_bytes"]


def train(folder, text, epochs, out):
    path = write_config(folder, text, epochs)
    command = [os.path.abspath(args.copse), "train", path, "--quiet", "--out", os.path.join(folder, out)]
    if args.devices:
        command += ["--devices", args.devices]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, out, "log.jsonl"), encoding="utf-8") as log:
        return [json.loads(line) for line in log]


def train_rates(folder, text):
    first = train(folder, text, 1, "warm")
    epoch = next(line for line in first if line["kind"] == "epoch")["seconds"]
    lines = train(folder, text, max(2, int(args.seconds / max(epoch, 1e-3))), "run")
    # Whole epochs, as the peers' blocks: a step alone is shorter than its neighbours' queue.
    rates = [line["samples_per_s"] for line in lines if line["kind"] == "epoch"]
    return ({"median": statistics.median(rates), "min": min(rates), "max": max(rates)},
            resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)


with tempfile.TemporaryDirectory() as folder:
    text = config(write_data(folder))
    spread, peak = (train_rates if args.mode == "train" else evaluate)(folder, text)
    version = subprocess.run([args.copse, "--version"], capture_output=True, text=True, check=True)
print(json.dumps({
    "bench": "step", "mode": args.mode, "peer": "copse", "version": version.stdout.split()[-1],
    "net": args.net, "batch": args.batch, "samples_per_s": spread, "peak_rss_bytes": peak,
}), flush=True)
