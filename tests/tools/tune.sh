#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sh tests/tools/tune.sh BUILD: `copse tune` and what a run follows of it.
set -eu
copse=$1/copse
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
COPSE_CACHE=$work/cache
export COPSE_CACHE

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect CODE COMMAND...: its output is in $work/out and $work/err.
expect() {
    want=$1
    shift
    code=0
    "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ $code = "$want" ] || {
        cat "$work/out" "$work/err"
        fail "$* left with $code, not $want"
    }
}

says() {
    grep -q -- "$1" "$work/err" || {
        cat "$work/err"
        fail "no '$1' on standard error"
    }
}

expect 0 "$copse" tune --help
grep -q -- --budget "$work/out" || fail "no --budget in the help"
expect 2 "$copse" tune --budget soon
expect 2 "$copse" tune --set train.epochs=1
expect 2 "$copse" tune "$work/none.yaml"
echo "Dear diary," >"$work/diary"
expect 5 "$copse" tune --devices host --output "$work/diary"
says "diary: line 1"
[ "$(cat "$work/diary")" = "Dear diary," ] || fail "a file that is none of ours was written over"
expect 5 "$copse" tune --devices host --output "$work/none/tuned.json"
says "cannot write there"
expect 0 "$copse" tune --devices host
says "has nothing to choose"

device=$("$copse" devices | sed -n 's/^\([0-9]*:[0-9]*\)\*\{0,1\} .*/\1/p' | head -1)
[ -n "$device" ] || {
    echo "SKIPPED: no OpenCL device"
    exit 77
}
digits=examples/digits.yaml

# Results are kept where they were asked for, and named by a run that follows them.
expect 0 "$copse" tune $digits --devices "$device" --budget 15s --json --output "$work/tuned.json"
grep -q '^{"tune":"' "$work/out" || fail "no result of a network's node"
python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["schema"] == "copse-tune/1" and d["devices"][0]["results"]' "$work/tuned.json" 2>/dev/null ||
    ! command -v python3 >/dev/null || fail "tuned.json is no JSON"
expect 0 "$copse" tune $digits --devices "$device" --budget 8s --quiet
ls "$COPSE_CACHE"/tune-*.json >/dev/null || fail "nothing was kept in the cache"
train() {
    "$copse" train $digits --devices "$device" --set train.epochs=2 --set devices.shards=equal "$@"
}
expect 0 train --out "$work/a" --verbose --set "devices.tune=$work/tuned.json"
grep -q '"tuned": \[' "$work/a/plan.json" || fail "plan.json does not say what was tuned"

hash_of() {
    sed -n 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl" | tail -1
}

# One choice for all products: its bits are those of the file, not of the moment, and a resumed run keeps
# them although the file has changed meanwhile.
choose() {
    sed -e 's/"results": \[.*/"results": [/' -e '/"results": \[/q' "$work/tuned.json" >"$work/choice.json"
    for op in dense dense_grad_input dense_grad_weight; do
        printf '{"key": "%s", "provider": "rows", "parameters": ""}' $op
        [ $op = dense_grad_weight ] || printf ','
    done >>"$work/choice.json"
    printf ']}]}\n' >>"$work/choice.json"
}
choose
expect 0 train --out "$work/b" --verbose --set "devices.tune=$work/choice.json"
says "dense: rows ($work/choice.json)"
expect 0 train --out "$work/c" --set "devices.tune=$work/choice.json" --set train.epochs=1
cp "$work/tuned.json" "$work/choice.json"
expect 0 train --out "$work/c" --resume --verbose --set "devices.tune=$work/choice.json"
says "dense: rows (plan.json)"
[ "$(hash_of "$work/b")" = "$(hash_of "$work/c")" ] || fail "a resumed run has other bits"

# An entry of a node's own that cannot be followed keeps the one for the operation away, in a resumed run as well.
key=$(sed -n 's/.*"key": "\(dense [^"]*\)".*/\1/p' "$work/tuned.json" | head -1)
[ -n "$key" ] || fail "no product among the results"
choose
sed "s|^{\"key\": \"dense\"|{\"key\": \"$key\", \"provider\": \"nonesuch\", \"parameters\": \"\"},\n&|" \
    "$work/choice.json" >"$work/refused.json"
expect 0 train --out "$work/h" --set "devices.tune=$work/refused.json"
says "nonesuch"
expect 0 train --out "$work/i" --set "devices.tune=$work/refused.json" --set train.epochs=1
expect 0 train --out "$work/i" --resume --set "devices.tune=$work/refused.json"
grep -q nonesuch "$work/i/plan.json" || fail "plan.json does not say what could not be followed"
[ "$(hash_of "$work/h")" = "$(hash_of "$work/i")" ] || fail "a resumed run has other bits"
! grep -q "other kernels" "$work/err" || fail "a resumed run says that it has other kernels"

# Kernels that are not the recorded ones are told of.
expect 0 train --out "$work/j" --set devices.tune=off --set train.epochs=1
sed 's/"op": "dense", "provider": "[a-z_]*"/"op": "dense", "provider": "bygone"/' "$work/j/plan.json" >"$work/plan"
cp "$work/plan" "$work/j/plan.json"
expect 0 train --out "$work/j" --resume --set devices.tune=off
says "it ran with other kernels"

# The user's own damaged file costs a line, a named one the run.
for file in "$COPSE_CACHE"/tune-*.json; do
    printf '{"schema": "copse' >"$file"
done
expect 0 train --out "$work/d"
says "tune-.*json is not used: line 1"
[ "$(grep -c 'tune-.*json' "$work/err")" -eq 1 ] || fail "more than a line about it"
printf '{' >"$work/choice.json"
expect 5 train --out "$work/e" --set "devices.tune=$work/choice.json"
says "choice.json: line 1"
expect 5 train --out "$work/f" --set "devices.tune=$work/none.json"
expect 0 train --out "$work/g" --set devices.tune=off
grep -q '"tuned": \[\]' "$work/g/plan.json" || fail "something was followed although it was off"
echo "tune: all right"
