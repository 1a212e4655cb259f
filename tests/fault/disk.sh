#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whole runs on a disk that fails, is full, takes writes in pieces, or loses its power at a file call: every call of a run in
# turn (or every STRIDE-th). It ends with a clear error or goes on; resumed, it has the bits of an undisturbed run.
#   sh tests/fault/disk.sh BUILD_FOLDER [STRIDE [FIRST]]     (from the source folder, on the host backend)
set -u
# shellcheck source=tests/fault/state.sh
. "$PWD/tests/fault/state.sh"
copse=$1/copse layer=$1/tests/fault/copse_files_layer.so
stride=${2:-1} first=${3:-1}
case $copse in /*) ;; *) copse=$PWD/$copse layer=$PWD/$layer ;; esac
digits=$PWD/examples/digits.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
COPSE_CACHE=$work/cache
export COPSE_CACHE
failed=0 ended=0 stopped=0 cut=0

train() {
    timeout -k 5 60 "$copse" train "$digits" --devices host --isolate none --no-selftest --set train.epochs=3 \
        --set train.batch=512 --set 'checkpoint={every: {steps: 2}, keep: 2, best: val_loss}' \
        --set 'log={jsonl: true, tensorboard: {update_freq: 2}}' --out "$work/run" "$@" >out 2>err
}

# disturbed SETTINGS... : a run with the layer so told
disturbed() {
    rm -rf run
    env LD_PRELOAD="$layer" FILES_FOLDER="$work/run" "$@" timeout -k 5 60 "$copse" train "$digits" --devices host \
        --isolate none --no-selftest --set train.epochs=3 --set train.batch=512 \
        --set 'checkpoint={every: {steps: 2}, keep: 2, best: val_loss}' \
        --set 'log={jsonl: true, tensorboard: {update_freq: 2}}' --out "$work/run" >out 2>err
}

complain() {
    echo "FAILED: $what: $*: $(head -3 err)" >&2
    failed=1
}

# Goes on without the layer, to the same bits.
goes_on() {
    if ! train --resume; then
        grep -q 'there is no run in it to resume' err || complain "it cannot be resumed"
        train || complain "it cannot be begun anew"
    fi
    same_state "run/$latest" "reference/$latest" || complain "the last checkpoint differs"
    [ "$(grep -c '"kind":"step"' run/log.jsonl)" -le 9 ] || complain "the log has steps twice"
    [ -z "$(find run -name '*.tmp-*')" ] || complain "half-written files are left: $(find run -name '*.tmp-*')"
}

what="undisturbed"
disturbed FILES_COUNT="$work/count" || { cat err >&2; exit 1; }
calls=$(cat count)
[ "$calls" -gt 100 ] || { echo "FAILED: the layer sees $calls calls only" >&2; exit 1; }
mv run reference
latest=$(cat reference/latest)

what="writes of 7 bytes"
disturbed FILES_PIECE=7 || complain "left with $?"
same_state "run/$latest" "reference/$latest" || complain "the last checkpoint differs"
[ "$(grep -c '"kind":"step"' run/log.jsonl)" -eq 9 ] || complain "the log is not whole"

what="a slow disk"
disturbed FILES_SLOW=300 || complain "left with $?"
same_state "run/$latest" "reference/$latest" || complain "the last checkpoint differs"
[ "$(grep -c 'training waited .* for the checkpoint of step' err)" -eq 1 ] || complain "waiting is not told once"

call=$first
while [ "$call" -le "$calls" ]; do
    for fault in "FILES_CODE=28" "FILES_CODE=5" "FILES_CODE=28 FILES_STICKY=1" "FILES_CODE=30 FILES_STICKY=1"; do
        what="call $call of $calls, $fault"
        # shellcheck disable=SC2086
        disturbed FILES_CALL="$call" $fault
        code=$?
        case $code in
        0) ended=$((ended + 1)) ;;
        5)
            stopped=$((stopped + 1))
            grep -q "^copse: .*$work/run.*: " err || complain "the error names no file"
            ;;
        *) complain "left with $code" ;;
        esac
        # It says so where the last state is not on the disk.
        [ $code -ne 0 ] || same_state "run/$latest" "reference/$latest" || complain "it did not save and says nothing"
        goes_on
    done
    for rest in strict eager 3 5; do
        what="power lost at call $call of $calls, $rest"
        disturbed FILES_CALL="$call" FILES_CUT=$rest
        code=$?
        [ $code -eq 137 ] && cut=$((cut + 1))
        [ $code -eq 137 ] || [ $code -eq 0 ] || complain "left with $code"
        goes_on
    done
    call=$((call + stride))
done
echo "$calls file calls, every $stride. one: $ended runs went on to their end, $stopped stopped with an error, $cut lost" \
    "their power; $([ $failed -eq 0 ] && echo "all went on to the same bits")"
exit $failed
