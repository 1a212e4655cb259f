#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What unlike devices gain together: samples a second of a pair over the sum of those of each alone (`copse bench step
# --scaling`, in turns), (a) with one of two one-core parts of a PoCL device made K times slower by the tests' OpenCL layer,
# (b) with a one-core PoCL device beside llvmpipe held to one thread, both as rusticl offers it, on a small network of its own:
# llvmpipe computes some 10 MFLOP/s, and has to make whole steps alone. Its self-test takes minutes and is left out.
#   tools/bench/unlike.sh BUILD_FOLDER CONFIG [SECONDS]    (COPSE_TESTS=ON; prints a line a pair; JSON in unlike.jsonl)
# On a machine with other load nothing of this says much: the pair waits for whoever is disturbed.
set -eu
[ $# -ge 2 ] || { echo "usage: tools/bench/unlike.sh BUILD_FOLDER CONFIG [SECONDS]" >&2; exit 2; }
copse=$1/copse layer=$1/tests/fault/libcopse_fault_layer.so config=$2 seconds=${3:-10} more=
case $layer in /*) ;; *) layer=$PWD/$layer ;; esac
: >unlike.jsonl

# handle PLATFORM: the first device of it, as --devices names it.
handle() {
    "$copse" devices | sed -n "s/^\\([0-9]*:[0-9]*\\).*$1.*/\\1/p" | head -1
}

# pair NAME DEVICES ENVIRONMENT...
pair() {
    name=$1 devices=$2
    shift 2
    # shellcheck disable=SC2086
    env "$@" "$copse" bench step "$config" --devices "$devices" --scaling --json --seconds "$seconds" $more >pair.out 2>pair.err || {
        echo "$name: $(tail -1 pair.err)"
        return
    }
    cat pair.out >>unlike.jsonl
    # field LINE NAME: a number, or a spread's median.
    field() { sed -n "$1s/.*\"$2\":\([0-9.]\|{\"median\":[0-9.]\)\([0-9.]*\).*/\1\2/p" pair.out | sed 's/.*://'; }
    printf '%s: shards %s, together %s samples/s, alone %s and %s: efficiency %s, of the best blocks %s\n' "$name" \
        "$(sed -n '1s/.*"shards":\(\[[0-9,]*\]\).*/\1/p' pair.out)" "$(field 1 samples_per_s)" \
        "$(field 2 samples_per_s)" "$(field 3 samples_per_s)" "$(field 4 efficiency)" "$(field 4 efficiency_of_bests)"
    grep 'gets no samples' pair.err || true
}

pocl=$(handle Portable)
[ -n "$pocl" ] || { echo "no PoCL device answers" >&2; exit 4; }
pair "equal halves" "$pocl/2" OPENCL_LAYERS=
for factor in 2 5 20; do
    pair "one half $factor times slower" "$pocl/2" OPENCL_LAYERS="$layer" COPSE_FAULT="slow $factor #1"
done
export RUSTICL_ENABLE=llvmpipe
rusticl=$(handle rusticl)
if [ -n "$rusticl" ]; then
    digits=$(cd "$(dirname "$0")/../../examples/digits" && pwd) config=unlike.yaml more=--no-selftest
    cat >unlike.yaml <<END
data:
  format: idx
  train: {images: $digits/train-images-idx3-ubyte.gz, labels: $digits/train-labels-idx1-ubyte.gz}
  scale: 0.0625
model:
  - flatten
  - dense: {units: 64, activation: relu}
  - dense: {units: 10}
train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 512, seed: 7}
END
    # One thread each; PoCL's stays on the first core, which leaves the other to llvmpipe's.
    pair "PoCL beside llvmpipe" "$pocl,$rusticl" LP_NUM_THREADS=1 POCL_MAX_PTHREAD_COUNT=1 POCL_AFFINITY=1
    rm -f unlike.yaml
else
    echo "skipped: no rusticl device answers"
fi
rm -f pair.out pair.err
