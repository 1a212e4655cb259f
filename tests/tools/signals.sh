#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What signals and --stop-after do to a run: it stops behind its step, saves, and goes on with the same bits.
#   sh tests/tools/signals.sh BUILD_FOLDER    (from the source folder; on the host backend)
set -u
copse=$1/copse
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
COPSE_CACHE=$work/cache
export COPSE_CACHE
failed=0

complain() {
    echo "FAILED: $*: $(head -3 err)" >&2
    failed=1
}

# start OUT SETTINGS...: a run in the background, as $pid
start() {
    folder=$1
    shift
    # What a script starts in the background ignores SIGINT by itself.
    env --default-signal=INT "$copse" train "$digits" --devices host --quiet --out "$folder" --set train.epochs=100000 \
        --set 'checkpoint.every={epochs: 100000}' "$@" >out 2>err &
    pid=$!
}

# until_file FILE LINES: waits until it has so many
until_file() {
    tries=0
    until { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; } || [ $tries -gt 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

# ends CODE WHAT
ends() {
    wait $pid
    code=$?
    [ $code -eq "$1" ] || complain "$2 left with $code instead of $1"
}

steps_of() {
    sed -n '$s/.*"steps":\([0-9]*\).*/\1/p' "$1/log.jsonl"
}

hash_of() {
    tail -1 "$1/log.jsonl" | sed 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/'
}

# same_as_straight OUT: resumed for 40 steps, it has the bits of a run that never stopped
same_as_straight() {
    until_steps=$(($(steps_of "$1") + 40))
    "$copse" train "$digits" --devices host --quiet --set train.epochs=100000 --set train.steps=$until_steps \
        --out "$1" --resume >out 2>err || complain "$1 cannot be resumed"
    "$copse" train "$digits" --devices host --quiet --set train.epochs=100000 --set train.steps=$until_steps \
        --out "$1.straight" >out 2>err || complain "$1.straight cannot be trained"
    [ "$(hash_of "$1")" = "$(hash_of "$1.straight")" ] || complain "$1 has other bits"
}

# A signal ends the step, saves, leaves with 130.
for signal in TERM HUP INT; do
    start $signal
    until_file $signal/log.jsonl 30
    kill -$signal $pid
    ends 130 "SIG$signal"
    tail -1 $signal/log.jsonl | grep -q '"status":"interrupted"' || complain "SIG$signal: no last line"
    grep -q 'go on with: copse train' err || complain "SIG$signal: does not say how to go on"
    same_as_straight $signal
done

# nohup's choice stays.
(trap '' HUP; start nohup; until_file nohup/log.jsonl 5; kill -HUP $pid; sleep 0.3; kill -TERM $pid; ends 130 "SIGTERM behind SIGHUP"
 exit $failed) || failed=1
[ "$(grep -c 'stopping after this step' err)" -eq 1 ] || complain "an ignored SIGHUP stops"

# SIGUSR1 saves and goes on.
start saves
until_file saves/log.jsonl 30
[ -e saves/latest ] && complain "a checkpoint before its time"
kill -USR1 $pid
until_file saves/latest 1
lines=$(wc -l <saves/log.jsonl)
until_file saves/log.jsonl $((lines + 20))
kill -0 $pid 2>/dev/null || complain "SIGUSR1 ended the run"
kill -KILL $pid
wait $pid 2>/dev/null
[ -s saves/latest ] || complain "SIGUSR1 saved nothing"
"$copse" train "$digits" --devices host --quiet --set train.epochs=100000 --set train.steps=5000000 --stop-after 0.3s \
    --out saves --resume >out 2>err || complain "what SIGUSR1 saved cannot be resumed"
same_as_straight saves

# While it only prepares (here it waits for data that never come), nothing is begun.
mkfifo never.idx
for signal in TERM HUP INT; do
    start early --set data.train.images="$work/never.idx"
    sleep 0.5
    kill -$signal $pid
    ends 130 "an early SIG$signal"
    [ -e early ] && complain "an early SIG$signal leaves a folder"
done

# A second one does not wait for the step.
start twice --set train.batch=1400 --set model.1.dense.units=20000
until_file twice/plan.json 1
sleep 0.3
kill -TERM $pid
sleep 0.1
kill -TERM $pid
ends 143 "a second SIGTERM"

# --stop-after: in time, with success, and to be resumed.
start slurm --stop-after 1s
ends 0 "--stop-after"
grep -q 'time is up: stopped .*, as asked; resume me: copse train .* --out slurm --resume' err ||
    complain "--stop-after does not say 'resume me'"
tail -1 slurm/log.jsonl | grep -q '"status":"interrupted"' || complain "--stop-after: no last line"
same_as_straight slurm
start wrong --stop-after 3x
ends 2 "--stop-after 3x"
grep -q "takes a time like 3h50m or 90s, not '3x'" err || complain "--stop-after 3x is not explained"

[ $failed -eq 0 ] && echo "all as expected"
exit $failed
