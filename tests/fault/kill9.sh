#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kills whole runs at random instants with SIGKILL: each is resumed (and every third resumption is killed as well) and
# ends with the very files of a run that never stopped.
#   sh tests/fault/kill9.sh BUILD_FOLDER [KILLS [DEVICES [SEED]]]     (from the source folder; 200 kills on the host)
set -u
# shellcheck source=tests/fault/state.sh
. "$PWD/tests/fault/state.sh"
copse=$1/copse
kills=${2:-200} devices=${3:-host} seed=${4:-1}
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
COPSE_CACHE=$work/cache
export COPSE_CACHE
failed=0 inside=0 early=0 late=0 twice=0

# It stops early, lowers its rate and keeps its best: all of that must survive, too.
as=
train() {
    $as "$copse" train "$digits" --devices "$devices" --isolate none --no-selftest --quiet --set train.epochs=12 \
        --set train.batch=64 --set devices.shards=equal --set 'checkpoint={every: {steps: 7}, keep: 2}' \
        --set 'model=[flatten, {dropout: {rate: 0.2}}, {dense: {units: 32, activation: relu}}, batch_norm, {dense: {units: 10}}]' \
        --set 'train.early_stopping={monitor: val_loss, patience: 3, restore_best_weights: true}' \
        --set 'train.reduce_lr_on_plateau={monitor: val_loss, patience: 1, factor: 0.5}' "$@"
}

# What a log tells, without its times and the story of its interruptions
story() {
    grep -v '"kind":"end"\|"what":"resumed"' "$1/log.jsonl" |
        sed 's/"samples_per_s":[^,}]*//; s/"seconds":[^,}]*//; s/"data_wait_seconds":[^,}]*//'
}

complain() {
    echo "FAILED: kill $kill after $delay s: $*: $(head -2 err)" >&2
    failed=1
}

# killed SECONDS COMMAND...: whether it was still running then
killed() {
    after=$1
    shift
    (as='exec' && "$@") >out 2>err &
    pid=$!
    sleep "$after"
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $? -eq 137 ]
}

train --out reference >out 2>err || { cat err >&2; exit 1; } # builds the kernels
rm -rf reference
begun=$(date +%s%N)
train --out reference >out 2>err || { cat err >&2; exit 1; }
whole=$(($(date +%s%N) - begun))
story reference >reference.story
latest=$(cat reference/latest)

kill=0
while [ $kill -lt "$kills" ]; do
    kill=$((kill + 1))
    delay=$(awk "BEGIN { srand($seed * 100003 + $kill); printf \"%.4f\", rand() * 1.05 * $whole / 1e9 }")
    rm -rf run
    if killed "$delay" train --out run; then inside=$((inside + 1)); else late=$((late + 1)); fi
    if [ $((kill % 3)) -eq 0 ]; then
        killed "$delay" train --out run --resume && twice=$((twice + 1))
    fi
    if ! train --out run --resume >out 2>err; then
        # Killed before there was a run, it is simply begun.
        grep -q 'there is no run in it to resume' err || complain "it cannot be resumed"
        early=$((early + 1))
        train --out run >out 2>err || complain "it cannot be begun anew"
    fi
    [ "$(cat run/latest)" = "$latest" ] || complain "it ends at $(cat run/latest), not $latest"
    same_state "run/$latest" "reference/$latest" || complain "the last checkpoint differs"
    cmp -s run/best.safetensors reference/best.safetensors || complain "the best weights differ"
    story run >run.story
    cmp -s run.story reference.story || complain "the log differs: $(diff run.story reference.story | head -3)"
    [ -z "$(find run -name '*.tmp-*')" ] || complain "half-written files are left: $(find run -name '*.tmp-*')"
done
echo "$kills runs on $devices of $((whole / 1000000)) ms: $inside killed within ($early before there was a run), $late" \
    "behind their end, $twice killed again when resumed; $([ $failed -eq 0 ] && echo "all ended with the same bits")"
[ "$inside" -gt 0 ] || { echo "FAILED: no run was killed" >&2; failed=1; }
exit $failed
