# SPDX-License-Identifier: Apache-2.0
"""Gloo's all-reduce through PyTorch, one process a rank, as a JSON line.

Arguments: ranks, bytes, seconds."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, ranks, size, seconds):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    count = size // 4
    start = torch.arange(count, dtype=torch.float32) % 1000
    expected = start * ranks + ranks * (ranks - 1) / 2
    times, right, go = [], True, torch.ones(1)
    while go.item():
        x = start + rank
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        spent = torch.tensor([time.perf_counter() - begin])
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        right = right and bool(torch.equal(x, expected))
        times.append(spent.item() * 1e6)
        go[0] = len(times) < 6 or (sum(times) < seconds * 1e6 and len(times) < 2000)
        dist.broadcast(go, 0)
    times = sorted(times[1:])
    if rank == 0:
        median = times[len(times) // 2]
        print(json.dumps({
            "bench": "gloo_allreduce", "ranks": ranks, "bytes": size,
            "repetitions": len(times),
            "time_us": {"median": median, "min": times[0], "max": times[-1]},
            "busbw_GBps": size / median * 1e-3 * 2 * (ranks - 1) / ranks,
            "verified": right}))
    dist.destroy_process_group()


if __name__ == "__main__":
    n = int(sys.argv[1])
    mp.spawn(run, args=(n, int(sys.argv[2]), float(sys.argv[3])), nprocs=n)
