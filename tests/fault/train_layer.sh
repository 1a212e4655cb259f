#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training over a real driver while the fault layer makes calls of one device fail, come late or never return: the
# run goes on with the losses of an undisturbed one, or ends with one line and a checkpoint that loads. It never hangs.
#   sh tests/fault/train_layer.sh BUILD_FOLDER [long]    (from the source folder; leaves with 77 without PoCL)
# `long`: every call at several points of the steps, with 1 to 4 replicas, and counts at the end.
set -u
copse=$1/copse layer=$1/tests/fault/libcopse_fault_layer.so long=${2:-}
case $copse in /*) ;; *) copse=$PWD/$copse layer=$PWD/$layer ;; esac
data=$PWD/examples/digits
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset RUSTICL_ENABLE COPSE_FAULT
deadline=60 # seconds a run may take on a busy machine; stalls end after 1.5
steps=12
failed=0 runs=0 went_on=0 stopped=0 starts=0 untouched=0

device=$("$copse" devices | sed -n 's/^\([0-9]*:[0-9]*\).*Portable.*/\1/p' | head -1)
[ -n "$device" ] || { echo "SKIPPED: no PoCL device answers"; exit 77; }

cat >net.yaml <<END
data:
  format: idx
  train: {images: $data/train-images-idx3-ubyte.gz, labels: $data/train-labels-idx1-ubyte.gz}
  test: {images: $data/test-images-idx3-ubyte.gz, labels: $data/test-labels-idx1-ubyte.gz}
  scale: 0.0625
model:
  - conv2d: {filters: 4, kernel: 3, activation: relu}
  - flatten
  - dense: {units: 16, activation: relu}
  - dense: {units: 10}
train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 48, epochs: 2, steps: $steps, hash_every: 1, seed: 7}
checkpoint: {every: {steps: 2}}
devices: {stall_seconds: 1.5}
END

# train FOLDER DEVICES ORDERS [STEPS [options]]
train() {
    rm -rf "$1"
    folder=$1 devices=$2 orders=$3 count=${4:-$steps}
    case $orders in coarse*) ;; *map*) orders="coarse;$orders" ;; esac # else the host needs neither map nor unmap
    shift $(($# < 4 ? $# : 4))
    OPENCL_LAYERS=$layer COPSE_FAULT=$orders timeout -k 5 $deadline "$copse" train net.yaml --no-selftest \
        --out "$folder" --devices "$devices" --set "train.steps=$count" "$@" >out 2>err
}

losses() {
    sed -n 's/.*"kind":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"
}

complain() {
    echo "FAILED: $now: $*" >&2
    sed 's/^/    /' err >&2
    failed=$((failed + 1))
}

# The losses of the folder's steps are those of a run without faults; one that stood may lack a lost device's samples.
compare() {
    lost=$(sed -n 's/.*"what":"device_lost","step":\([0-9]*\),.*/\1/p' "$1/log.jsonl" | tr '\n' ' ')
    losses "$1" | awk -v lost=" $lost" '
        NR == FNR { want[$1] = $2; next }
        { d = $2 - want[$1]; if (d < 0) d = -d; if (!(d <= 1e-4 * want[$1]) && !index(lost, " " ($1 - 1) " ")) exit 1 }
    ' reference - || complain "other losses"
}

# A run that stopped: a line that says why; what was saved loads.
check_stopped() {
    stopped=$((stopped + 1))
    [ "$(grep '^copse: ' err | grep -cv '^copse: warning')" -eq 1 ] || complain "not one line"
    cp err stopped
    [ -e run/latest ] || return
    compare run
    timeout $deadline "$copse" eval run --quiet --devices host >out 2>err || complain "its checkpoint does not load"
}

# strike DEVICES ORDERS WANTED: the exit code is one of WANTED (a pattern).
strike() {
    now="$1, $2" runs=$((runs + 1))
    train run "$1" "$2"
    code=$?
    # shellcheck disable=SC2254
    case $code in
    $3) ;;
    1) # the count was reached before: waits ask a driver as often as it takes
        grep -qs '"kind":"step"' run/log.jsonl && complain "exit code 1" && return
        starts=$((starts + 1)) ;;
    124 | 137) complain "it hangs" && return ;;
    *) complain "exit code $code" && return ;;
    esac
    if [ $code -ne 0 ]; then
        check_stopped
        return
    fi
    compare run
    [ "$(losses run | wc -l)" -eq $steps ] || complain "not all steps"
    tail -1 run/log.jsonl | grep -q '"params_hash"' || complain "no hash"
    [ "$long" != long ] || echo "$now: $(sed -n 's/.*"what":"device_lost","step":\([0-9]*\),.*"why":\(".*"\)}/lost after step \1: \2/p' run/log.jsonl)"
    if grep -q device_lost run/log.jsonl; then
        went_on=$((went_on + 1))
        case $2 in late*) complain "a late answer was taken for a loss" ;; esac
    else
        untouched=$((untouched + 1))
    fi
}

two="$device/2*1" three="$device/2*1,host*1" four="$device/2*1,$device*1,host*1"
train reference host "" || { cat err >&2; exit 1; }
losses reference >reference.txt && mv -f reference.txt reference.losses
rm -rf reference && mv reference.losses reference
[ "$(wc -l <reference)" -eq $steps ] || { echo "FAILED: no reference" >&2; exit 1; }

# calls CALL STEPS: how many of them device 1 has got after so many steps.
count_calls() {
    train counted "$two" "count $work/calls.$1" "$1" || { cat err >&2; exit 1; }
    train counted "$two" "coarse;count $work/maps.$1" "$1" || { cat err >&2; exit 1; }
}
calls() {
    case $1 in *map) sed -n "s/^$1 1 //p" "maps.$2" ;; *) sed -n "s/^$1 1 //p" "calls.$2" ;; esac
}
count_calls 2
count_calls 8
# at CALL K N: the K-th of N points between steps 2 and 8.
at() {
    from=$(calls "$1" 2) to=$(calls "$1" 8)
    echo $((from + 1 + (to - from - 1) * $2 / $3))
}

if [ "$long" = long ]; then
    points=6
    for set in "$two" "$three" "$four"; do
        for call in kernel write read map unmap flush poll wait; do
            point=0
            while [ $point -lt $points ]; do
                nth=$(at $call $point $points)
                strike "$set" "fail $call $nth 1" 0
                strike "$set" "hang $call $nth 1" 0
                [ $((point % 3)) -ne 0 ] || strike "$set" "late $call $nth 300 1" 0
                point=$((point + 1))
            done
            strike "$set" "hang $call 9 1" "[01]"
            strike "$set" "fail $call 9 1" "[01]"
        done
        strike "$set" "fail alloc 7 1" "[01]"
        strike "$set" "hang alloc 7 1" "[01]"
        # Every device of the driver at once.
        strike "$set" "hang kernel $(at kernel 1 2)+" "[01]"
        strike "$set" "fail poll $(at poll 1 2)+" "[01]"
    done
    for call in kernel write read flush poll wait; do
        strike "$device" "fail $call $(at $call 1 2)" 1
        strike "$device" "hang $call $(at $call 1 2)" 1
        strike "$device" "late $call $(at $call 1 2) 300" 0
        strike "$device" "hang $call 9" 1
    done
else
    # A slow device gets fewer samples, and one too slow to pay its way none, which is said.
    for factor in 20 300; do
        now="slow $factor"
        train run "$device/2" "slow $factor #1" 3 --set devices.stall_seconds=60 || complain "exit code $?"
        # shellcheck disable=SC2046
        set -- $(sed -n 's/.*"shard": \([0-9]*\).*/\1/p' run/plan.json)
        [ "${2-0}" -lt "${1-0}" ] || complain "shards $*"
    done
    [ "${2-1}" -eq 0 ] || complain "shards $*"
    grep -q "#1 gets no samples: .* would cost more time than it saves" err || complain "no word about the empty shard"
    # One by itself, whose queue is held back while a step is enqueued.
    now="slow 3 alone"
    train run "$device" "slow 3 0" 3 || complain "exit code $?"
    strike "$two" "fail kernel $(at kernel 1 3) 1" 0
    strike "$two" "fail map $(at map 1 2) 1" 0
    strike "$three" "hang poll $(at poll 1 2) 1" 0
    strike "$four" "hang unmap $(at unmap 1 2) 1" 0
    strike "$two" "late write $(at write 1 2) 300 1" 0
    strike "$two" "hang kernel $(at kernel 1 2)+" 1
    strike "$device" "hang kernel $(at kernel 1 2)" 1
    grep -q "after step [0-9]*: it has not answered for .*, while" stopped || complain "the line names no step and stage"
fi

echo "$runs runs: $went_on went on without a device, $stopped stopped ($starts of them before the first step), $untouched were not disturbed; $failed failed"
# Faults that struck nobody would prove nothing.
[ $failed -eq 0 ] && [ $went_on -ge 1 ] && [ $stopped -ge 2 ]
