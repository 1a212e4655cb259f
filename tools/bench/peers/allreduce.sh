#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# copse's all-reduce beside what else sums over shared memory here: Open MPI, and Gloo where
# PyTorch is. JSON lines, size by size in turn, so that a busy machine disturbs all alike.
# Usage: allreduce.sh COPSE RANKS [SELECTOR [SECONDS]]      (SELECTOR: default cpu/RANKS)
set -eu
copse=$1 ranks=$2 selector=${3:-cpu/$2} seconds=${4:-1}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpi=
if command -v mpicc mpirun >/dev/null; then
    mpicc -O3 -o "$work/mpi_allreduce" "$here/mpi_allreduce.c"
    mpi="mpirun --oversubscribe --allow-run-as-root -n $ranks"
else
    echo "SKIPPED: Open MPI is not installed" >&2
fi
gloo=
if python3 -c 'import torch.distributed' 2>/dev/null; then
    gloo=1
else
    echo "SKIPPED: PyTorch (Gloo) is not installed" >&2
fi
for bytes in 4096 65536 1048576 4194304 16777216 67108864; do
    for path in mapped copied; do
        "$copse" bench allreduce --devices "$selector" --bytes $bytes --path $path \
            --seconds "$seconds" --json || true
    done
    [ -z "$mpi" ] || $mpi "$work/mpi_allreduce" $bytes $bytes "$seconds"
    [ -z "$gloo" ] || python3 "$here/gloo_allreduce.py" "$ranks" $bytes "$seconds"
done
