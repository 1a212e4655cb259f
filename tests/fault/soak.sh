#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Many small steps, with a checkpoint behind every EVERY-th: memory, handles and threads do not grow.
#   sh tests/fault/soak.sh BUILD_FOLDER [STEPS [EVERY [DEVICES]]]     (from the source folder; 50,000 steps on the host)
set -u
copse=$1/copse
steps=${2:-50000} every=${3:-1000} devices=${4:-host}
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
COPSE_CACHE=$work/cache
export COPSE_CACHE

"$copse" train "$digits" --devices "$devices" --isolate none --no-selftest --quiet --set train.epochs=1000000 \
    --set train.steps="$steps" --set train.batch=16 --set "checkpoint={every: {steps: $every}, keep: 2}" \
    --set devices.shards=equal --set 'train.validation={every: 10}' --set 'log={tensorboard: true}' --out run >out 2>err &
pid=$!
while kill -0 $pid 2>/dev/null; do
    rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null)
    threads=$(sed -n 's/^Threads:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null)
    # shellcheck disable=SC2012
    handles=$(ls /proc/$pid/fd 2>/dev/null | wc -l)
    done_steps=$(wc -l 2>/dev/null <run/log.jsonl)
    [ -n "$rss" ] && echo "${done_steps:-0} $rss $threads $handles" >>samples
    sleep 0.2
done
wait $pid || { echo "FAILED: it left with $?: $(cat err)" >&2; exit 1; }

# The least of the second fifth of the steps against the least of the fourth, as saving and validating take some for a while:
# a leak of 32 bytes a step shows, from some 50,000 steps on.
awk -v steps="$steps" -v devices="$devices" -v every="$every" '
    function less(a, b) { return a == "" || b < a ? b : a }
    $1 > steps / 5 && $1 <= 2 * steps / 5 { n++; rss = less(rss, $2); threads = less(threads, $3); handles = less(handles, $4) }
    $1 > 3 * steps / 5 && $1 <= 4 * steps / 5 { m++; rss2 = less(rss2, $2); threads2 = less(threads2, $3); handles2 = less(handles2, $4) }
    END {
        printf "%d steps on %s, a checkpoint every %d: %d kB, %d threads, %d handles in the second fifth, %d kB, %d, %d in the fourth (%d and %d samples)\n",
            steps, devices, every, rss, threads, handles, rss2, threads2, handles2, n, m
        if (n < 3 || m < 3) { print "FAILED: too few samples; take more steps"; exit 1 }
        if (rss2 > rss + 512 + 0.4 * steps * 32 / 1024) { print "FAILED: memory grows"; exit 1 }
        if (threads2 > threads || handles2 > handles) { print "FAILED: threads or handles grow"; exit 1 }
    }' samples
