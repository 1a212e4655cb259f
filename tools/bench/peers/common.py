# SPDX-License-Identifier: Apache-2.0
"""What the peers' scripts share: arguments, the networks' shapes, timing, one JSON line.

The data are random and lie in memory before the clock starts. --mode train: a step is forward, loss,
backward and Adam's update, with its loss read back once a block. evaluate: forward, the sums of losses and
of hits, added up where they are and read once a block. predict: the network's outputs, all of them NumPy
arrays at the block's end. Numbers are of whole blocks of steps.
"""
import argparse
import json
import resource
import statistics
import time

import numpy as np
from nets import NETS, features

CLASSES = 10
BATCHES = 8  # distinct ones, visited in turn


def arguments(**more):
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=sorted(NETS), default="cifar32")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--mode", choices=["train", "evaluate", "predict"], default="train")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=0, help="0: the framework's own choice")
    for name, help_text in more.items():
        parser.add_argument("--" + name.replace("_", "-"), action="store_true", help=help_text)
    return parser.parse_args()


def data(net, batch):
    shape = NETS[net][0]
    rng = np.random.default_rng(1)
    return [(rng.standard_normal((batch, *shape), dtype=np.float32),
             rng.integers(0, CLASSES, batch, dtype=np.int32)) for _ in range(BATCHES)]


def measure(step, read, batch, seconds):
    """step(i) starts step number i and returns its loss; read(loss) waits for it, and for all before."""
    for i in range(12):
        loss = step(i)
    read(loss)
    start = time.perf_counter()
    read(step(0))
    block = max(1, int(0.1 / max(1e-6, time.perf_counter() - start)))
    rates, begin, i = [], time.perf_counter(), 0
    while len(rates) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(block):
            loss = step(i % BATCHES)
            i += 1
        value = read(loss)
        rates.append(block * batch / (time.perf_counter() - start))
    if not np.isfinite(value):
        raise SystemExit("the loss is %r" % value)
    return rates


def measure_mode(args, step, read, array):
    """The blocks of any mode. step(i): train: the loss; evaluate: the sums of losses and hits so far, of
    which read makes a number; predict: the outputs, of which array makes a NumPy array."""
    if args.mode != "predict":
        return measure(step, read, args.batch, args.seconds)
    outputs = []

    def keep(i):
        outputs.append(step(i))
        return outputs

    def fetch(pending):
        made = [array(output) for output in pending]
        pending.clear()
        if any(output.shape != (args.batch, CLASSES) for output in made):
            raise SystemExit("outputs of another shape")
        return float(made[-1].sum())

    return measure(keep, fetch, args.batch, args.seconds)


def report(peer, version, args, rates):
    print(json.dumps({
        "bench": "step", "mode": args.mode, "peer": peer, "version": version, "net": args.net,
        "batch": args.batch,
        "samples_per_s": {"median": statistics.median(rates), "min": min(rates),
                          "max": max(rates)},
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }), flush=True)
