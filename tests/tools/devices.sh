#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One device against several, of one vendor and of several at once: the losses of the first 50 steps agree to 1e-4,
# all replicas hold equal parameters after every step, and the same command twice gives the same bits.
#   sh tests/tools/devices.sh BUILD_FOLDER    (from the source folder; leaves with 77 where there is no OpenCL device)
set -u
copse=$1/copse
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
data=$PWD/examples/digits
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
RUSTICL_ENABLE=llvmpipe
export RUSTICL_ENABLE
failed=0

cat >plain.yaml <<END
data:
  format: idx
  train: {images: $data/train-images-idx3-ubyte.gz, labels: $data/train-labels-idx1-ubyte.gz}
  test: {images: $data/test-images-idx3-ubyte.gz, labels: $data/test-labels-idx1-ubyte.gz}
  scale: 0.0625
model:
  - conv2d: {filters: 8, kernel: 3, activation: relu}
  - max_pool2d: {pool: 2}
  - flatten
  - dropout: {rate: 0.2}
  - dense: {units: 32, activation: gelu}
  - dense: {units: 10}
train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 40, epochs: 2, steps: 50, hash_every: 1, seed: 7}
END

# run NAME DEVICES OPTION...: trains 50 steps; 36 of the 72 are epoch 1, with a last batch of 37.
run() {
    name=$1 devices=$2
    shift 2
    "$copse" train plain.yaml --quiet --out "$name" --devices "$devices" "$@" >out 2>err || {
        echo "FAILED: $devices: $(cat err)" >&2
        failed=1
        return 1
    }
}

losses() {
    sed -n 's/.*"kind":"step".*"loss":\([^,]*\),.*/\1/p' "$1/log.jsonl"
}

hash_of() {
    tail -1 "$1/log.jsonl" | sed 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/'
}

run host host || exit 1
losses host >host.losses
[ "$(wc -l <host.losses)" -eq 50 ] || { echo "FAILED: $(wc -l <host.losses) steps instead of 50" >&2; exit 1; }

listed=$("$copse" devices)
first=$(echo "$listed" | sed -n 's/^\([0-9]*:[0-9]*\).*/\1/p' | head -1)
second=$(echo "$listed" | sed -n 's/^\([0-9]*:[0-9]*\).*/\1/p' | grep -v "^${first%%:*}:" | head -1)
[ -n "$first" ] || { echo "skipped: no OpenCL device answers" >&2; exit 77; }
[ -n "$second" ] || echo "skipped: no second OpenCL platform to mix with" >&2
third=$(echo "$listed" | sed -n 's/^\([0-9]*:[0-9]*\).*/\1/p' | grep -v -e "^${first%%:*}:" -e "^${second%%:*}:" | head -1)
[ -n "$third" ] || echo "skipped: no third OpenCL platform to mix with (Intel's CPU runtime would be one)" >&2

compare() {
    name=$1 devices=$2
    run "$name" "$devices" || return
    losses "$name" | paste host.losses - | awk -v devices="$devices" '
        { d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-4 * $1)) { bad = 1; print "FAILED: " devices ": step " NR ": loss " $2 " instead of " $1 } }
        END { if (NR != 50) { print "FAILED: " devices ": " NR " steps"; bad = 1 } exit bad }' >&2 || failed=1
}

compare one "$first"
compare two "$first,$first"
compare uneven "$first*3,$first*1,$first*1"
compare with_host "$first*2,host*3"
[ -z "$second" ] || compare mixed "$first*3,$second*1,host*1"
[ -z "$third" ] || compare mixed_three "$first*3,$second*1,$third*2,host*1"

run twice "$first*3,$first*1,$first*1"
[ "$(hash_of uneven)" = "$(hash_of twice)" ] || { echo "FAILED: the same command twice gives other bits" >&2; failed=1; }

# A saved bench decides how gradients leave a device: without its figures of mapping they are copied. The bits are
# the same.
staging() {
    sed -n 's/.*"staging": "\([a-z]*\)".*/\1/p' "$1/plan.json" | sort -u
}
"${copse%copse}cltopo" bench --select "$first" --budget 1s --format json --output bench.json 2>err || {
    echo "FAILED: cltopo bench: $(cat err)" >&2
    exit 1
}
sed 's/"path": "map"/"path": "another"/' bench.json >copied.json
run benched "$first*3,$first*1,$first*1" --set devices.bench=bench.json
run copied "$first*3,$first*1,$first*1" --set devices.bench=copied.json
[ "$(staging copied)" = copied ] || { echo "FAILED: the bench's staging path is not used: $(staging copied)" >&2; failed=1; }
for name in benched copied; do
    [ "$(hash_of uneven)" = "$(hash_of $name)" ] || { echo "FAILED: $name: other bits" >&2; failed=1; }
done

[ $failed -eq 0 ] && echo "all agree"
exit $failed
