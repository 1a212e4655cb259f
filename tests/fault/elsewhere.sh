#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run saved on two replicas and resumed on others (one, three, the host, PoCL and rusticl together) has the losses, to 1e-4, of
# the run that went on on the two.
#   sh tests/fault/elsewhere.sh BUILD_FOLDER     (from the source folder)
set -u
copse=$1/copse
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
RUSTICL_ENABLE=llvmpipe
export RUSTICL_ENABLE
failed=0
"$copse" devices >list 2>err || { echo "skipped: no OpenCL device: $(cat err)"; exit 77; }
handle() {
    sed -n "s/^\([0-9]*:[0-9]*\)\*\{0,1\} .*$1.*/\1/p" list | head -1
}
pocl=$(handle 'Portable Computing Language') rusticl=$(handle rusticl)
[ -n "$pocl" ] || { echo "skipped: PoCL is not there"; exit 77; }

# train STEPS DEVICES OUT...
train() {
    steps=$1 devices=$2 folder=$3
    shift 3
    timeout -k 5 200 "$copse" train "$digits" --devices "$devices" --no-selftest --set train.epochs=100 \
        --set train.steps="$steps" --set train.batch=60 --set 'checkpoint={every: {steps: 20}}' --set train.validation=false --set devices.shards=equal \
        --set 'train.optimizer={sgd: {learning_rate: 0.05, momentum: 0.9}}' --out "$folder" "$@" >out 2>err ||
        { echo "FAILED: on $devices: $(cat err)" >&2; failed=1; }
}

losses() {
    sed -n 's/.*"kind":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"
}

two="$pocl/2"
train 20 "$two" saved
cp -r saved went_on
train 60 "$two" went_on --resume
grep -q 'it ran on' err && { echo "FAILED: the same devices are said to be others" >&2; failed=1; }
losses went_on >wanted
[ "$(wc -l <wanted)" -eq 60 ] || { echo "FAILED: $(wc -l <wanted) steps of 60" >&2; failed=1; }
for devices in "$pocl" "$pocl/2*3,host*1" host ${rusticl:+"$pocl,$rusticl" "$rusticl"}; do
    rm -rf on
    cp -r saved on
    train 60 "$devices" on --resume
    [ "$(grep -c 'it ran on .*; it goes on with' err)" -eq 1 ] ||
        { echo "FAILED: $devices: other devices are not told in one line: $(cat err)" >&2; failed=1; }
    losses on >got
    paste -d' ' wanted got | awk -v on="$devices" '
        $1 != $3 { print "FAILED: step " $1 " against " $3; bad = 1 }
        { d = ($2 - $4) / $2; if (d < 0) d = -d; if (d > most) most = d }
        END { printf "saved on 2, resumed on %s: losses differ by %.2g at most\n", on, most; exit bad || NR != 60 || most > 1e-4 }' ||
        failed=1
done
[ -n "$rusticl" ] || echo "skipped: rusticl is not there"
exit $failed
