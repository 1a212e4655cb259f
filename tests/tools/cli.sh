#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a user types, and what comes back: exit codes and the one line of each mistake.
#   sh tests/tools/cli.sh BUILD_FOLDER    (from the source folder; runs on the host backend, so everywhere alike)
set -u
copse=$1/copse
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
COPSE_CACHE=$work/cache
export COPSE_CACHE
unset NO_COLOR RUSTICL_ENABLE
failed=0

# expect CODE PATTERN COMMAND...: the exit code, and a line of stderr or stdout that matches. An error is one line.
expect() {
    code=$1 pattern=$2
    shift 2
    "$@" >out 2>err </dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then
        echo "FAILED: $* : exit $got instead of $code: $(head -3 err)" >&2
        failed=1
    elif [ -n "$pattern" ] && ! grep -q -- "$pattern" out err; then
        echo "FAILED: $* : no line with '$pattern': $(head -3 err out)" >&2
        failed=1
    elif [ "$code" -ne 0 ] && [ "$code" -ne 130 ] && [ "$(wc -l <err)" -gt 3 ]; then
        echo "FAILED: $* : more than a line: $(cat err)" >&2
        failed=1
    fi
}

# config NAME < yaml
config() {
    cat >"$1.yaml"
}

# shellcheck disable=SC2317
train() {
    "$copse" train --devices host --quiet "$@"
}

"$copse" 2>/dev/null
[ $? -eq 2 ] || { echo "FAILED: no command is a usage error" >&2; failed=1; }
expect 0 'Usage: copse' "$copse" --help
expect 0 '^copse [0-9]' "$copse" --version
expect 2 "'nothing' is no command" "$copse" nothing
expect 0 'Usage: copse train' "$copse" train --help
expect 2 'an argument is missing' "$copse" train
expect 2 "unknown option '--nothing'" "$copse" train x.yaml --nothing
expect 2 'too many arguments' "$copse" train x.yaml y.yaml
expect 2 'x.yaml: cannot open it' "$copse" train x.yaml
expect 2 '--resume needs --out' "$copse" train "$digits" --resume

# The configuration: file, line, column, and what to do.
config unknown_key <<END
data:
  format: idx
  tran: {images: a, labels: b}
model: [flatten]
train: {loss: mean_squared_error, optimizer: sgd, batch: 1}
END
expect 2 "unknown_key.yaml:3:3: .*did you mean 'train'" train unknown_key.yaml
sed -e 's/units: 64/units: many/' -e "s|digits/|$(dirname "$digits")/digits/|g" "$digits" >wrong_type.yaml
expect 2 'wrong_type.yaml:1[0-9]:[0-9]*: .*units' train wrong_type.yaml
sed 's/flatten/conv2d: {filters: 4, kernel: 30}/' "$digits" | sed "s|digits/|$(dirname "$digits")/digits/|g" >shape.yaml
expect 2 'shape.yaml:1[0-9]:.*conv2d' train shape.yaml
expect 2 "did you mean 'train'" train "$digits" --set trian.epochs=3
expect 2 'units' train "$digits" --set model.1.dense.units=0
expect 2 'mixed_float16 is not supported' train "$digits" --set train.precision=mixed_float16
printf 'data: {{{{' >broken.yaml
expect 2 'broken.yaml:1' train broken.yaml

# Data: missing, truncated, of another format, not belonging together, labels outside the network's classes.
cp "$(dirname "$digits")"/digits/*.gz .
expect 5 'gone.gz' train "$digits" --set data.train.images=gone.gz
gzip -dc train-images-idx3-ubyte.gz | head -c 5000 >short.idx
expect 5 'short.idx' train "$digits" --set data.train.images=short.idx
head -c 3000 train-images-idx3-ubyte.gz >short.gz
expect 5 'short.gz' train "$digits" --set data.train.images=short.gz
printf 'no idx at all' >text.idx
expect 5 'short.gz' train "$digits" --set data.train.images=short.gz --out damaged_data
[ ! -e damaged_data ] || { echo "FAILED: damaged data leave a run folder" >&2; failed=1; }
expect 5 'short.gz' train "$digits" --set data.train.images=short.gz --dry-run
expect 5 'text.idx' train "$digits" --set data.train.images=text.idx
expect 5 '360 labels' train "$digits" --set data.train.labels=test-labels-idx1-ubyte.gz
expect 5 'label' train "$digits" --set model.2.dense.units=9 --out nine

# Devices and memory.
expect 4 'gpu' "$copse" train "$digits" --devices gpu --quiet
expect 2 'there is' "$copse" train "$digits" --devices 77:7 --quiet
expect 2 'there is' "$copse" train "$digits" --devices nonsense --quiet
expect 1 'a shard of at most [0-9]* would fit' train "$digits" --set train.batch=4000000000
OCL_ICD_VENDORS=/nonexistent expect 0 'host' "$copse" devices
OCL_ICD_VENDORS=/nonexistent expect 0 'test: loss' "$copse" train "$digits" --quiet --set train.epochs=1 --out no_icd

# Output.
expect 5 'cannot make the folder' train "$digits" --out /proc/nothing/here
expect 0 'Trainable params' "$copse" summary "$digits" --devices host
expect 0 'with dense/relu' "$copse" summary "$digits" --plan --devices host
expect 0 'shard 32 of 32' "$copse" train "$digits" --devices host --dry-run --out dry
[ ! -e dry ] || { echo "FAILED: a dry run wrote a folder" >&2; failed=1; }

printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 4, 4), }" >other.npy
printf '0123456789abcdef' >>other.npy

# Benchmarks of single operations.
expect 2 'is no benchmark' "$copse" bench nothing
expect 2 "'0,1,2' is not what" "$copse" bench gemm --size 0,1,2
expect 2 "'1,5,5,1,1,9,1,valid' is not what" "$copse" bench conv --size 1,5,5,1,1,9,1,valid
expect 2 'whose only one' "$copse" bench gemm -d host -p nobody --size 8,8,8
expect 0 '"form":"tn","m":7,"n":8,"k":9,"device":"host"' "$copse" bench gemm -d host --seconds 0.01 --size 7,8,9
[ "$(grep -c '"gflops":{"median":' out)" -eq 3 ] || { echo "FAILED: bench gemm has not 3 lines" >&2; failed=1; }
expect 2 'no configuration is named' "$copse" bench step
expect 2 "batch takes a number" "$copse" bench step --batch 1234567890123456789012345678901234567890 "$digits"
expect 2 "train.batch" "$copse" bench step --batch none "$digits"
expect 0 '"bench":"step","config":".*digits.yaml","devices":\["host"\],"shards":\[20\],"batch":20,' \
    "$copse" bench step --config "$digits" -d host --batch 20 --seconds 0.01
number() {
    sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" out
}
# Alone nobody is waited for, and something is computed.
if [ "$(number others)" != 0.000 ] || [ "$(number compute)" = 0.000 ] || [ "$(number peak_rss_bytes)" -lt 1000000 ]; then
    echo "FAILED: bench step: $(cat out)" >&2
    failed=1
fi
expect 2 'no configuration is named' "$copse" bench eval
expect 2 "seconds takes a time" "$copse" bench eval --seconds none "$digits"
sed '/^  test:/d' "$digits" >no-test.yaml
expect 2 'data.test names no files' "$copse" bench eval no-test.yaml -d host
# Its training set is opened for the names of its classes, and is not what is asked for.
printf 'a,b,label\n1,2,x\n2,1,y\n3,4,x\n' >classes.csv
cat >classes.yaml <<'END'
data: {format: csv, train: classes.csv, csv: {label: label}}
model: [dense: {units: 2}]
train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 2}
END
expect 2 'data.test names no files' "$copse" bench eval classes.yaml -d host
for mode in evaluate predict; do
    # shellcheck disable=SC2046
    expect 0 "\"bench\":\"eval\",\"mode\":\"$mode\",\"config\":.*\"devices\":\[\"host\"\],\"batch\":50,\"samples\":360," \
        "$copse" bench eval $([ $mode = evaluate ] || echo --predict) --config "$digits" -d host --batch 50 --seconds 0.01
    if [ "$(number peak_rss_bytes)" -lt 1000000 ] || ! grep -q '"samples_per_s":{"median":[1-9]' out; then
        echo "FAILED: bench eval: $(cat out)" >&2
        failed=1
    fi
done
expect 0 '"pass":"filter"' "$copse" bench conv -d host --seconds 0.01 --pass filter --size 1,9,9,3,4,3,2,same

# A whole run: trained, evaluated, predicted, interrupted, resumed.
expect 0 'test: loss' train "$digits" --set train.epochs=12 --out whole
expect 2 'holds a run' train "$digits" --out whole
expect 0 '^test: loss' "$copse" eval whole --devices host --quiet
cp out whole.eval
expect 0 '^test: loss' "$copse" eval whole --checkpoint latest --devices host --quiet
cmp -s out whole.eval || { echo "FAILED: the latest checkpoint is not the run's" >&2; failed=1; }
expect 5 'no best checkpoint' "$copse" eval whole --checkpoint best --devices host
stopping='train.early_stopping={monitor: accuracy, min_delta: 0.02, patience: 1, restore_best_weights: true}'
expect 0 'test: loss' "$copse" train "$digits" --devices host --set train.epochs=50 --set "$stopping" --out early_stop
grep -q '^stopped early: accuracy' err || { echo "FAILED: it does not say that it stopped early" >&2; failed=1; }
grep -q '"what":"stopped_early"' early_stop/log.jsonl || { echo "FAILED: no line of stopping early" >&2; failed=1; }
cp out early_stop.test
expect 0 '^test: loss' "$copse" eval early_stop --devices host --quiet
cmp -s out early_stop.test || { echo "FAILED: not evaluated with the best weights" >&2; failed=1; }
expect 0 '^test: loss' "$copse" eval "$digits" --checkpoint early_stop/best.safetensors --devices host --quiet
cmp -s out early_stop.test || { echo "FAILED: best.safetensors are other weights" >&2; failed=1; }
sed '/test:/d' "$digits" | sed "s|digits/|$(dirname "$digits")/digits/|g" >untested.yaml
expect 2 'there is no validation set' train untested.yaml --set 'train.early_stopping=true' --out untested
expect 2 'name a run folder' "$copse" eval "$digits" --devices host
expect 2 'input FILE is missing' "$copse" predict whole --output p.csv
expect 2 'must name a .npy or .csv' "$copse" predict whole --input test-images-idx3-ubyte.gz --output p.txt
expect 0 '' "$copse" predict whole --devices host --input test-images-idx3-ubyte.gz --output p.csv
[ "$(wc -l <p.csv)" -eq 360 ] || { echo "FAILED: predict wrote $(wc -l <p.csv) rows of 360" >&2; failed=1; }
expect 0 '' "$copse" predict whole --devices host --input test-images-idx3-ubyte.gz --output p.npy
[ "$(wc -c <p.npy)" -eq $((128 + 360 * 10 * 4)) ] || { echo "FAILED: p.npy has another size" >&2; failed=1; }

hash_of() {
    tail -1 "$1/log.jsonl" | sed 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/'
}

$copse train "$digits" --devices host --quiet --set train.epochs=2000 --out stopped >out 2>err &
pid=$!
tries=0
until [ "$(wc -l 2>/dev/null <stopped/log.jsonl || echo 0)" -gt 50 ] || [ $tries -gt 300 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -TERM $pid # a shell's background commands ignore SIGINT
wait $pid
code=$?
[ $code -eq 130 ] || { echo "FAILED: SIGTERM left with $code: $(cat err)" >&2; failed=1; }
tail -1 stopped/log.jsonl | grep -q '"status":"interrupted"' || { echo "FAILED: no last line" >&2; failed=1; }
expect 0 'test: loss' train "$digits" --set train.epochs=12 --out again
[ "$(hash_of whole)" = "$(hash_of again)" ] || { echo "FAILED: two equal runs differ" >&2; failed=1; }
expect 2 'are not those of the run' train "$digits" --set train.seed=5 --out stopped --resume
steps=$(sed -n '$s/.*"steps":\([0-9]*\).*/\1/p' stopped/log.jsonl)
expect 0 'test: loss' train "$digits" --set train.epochs=2000 --set "train.steps=$((steps + 60))" --out stopped --resume
expect 0 'test: loss' train "$digits" --set train.epochs=2000 --set "train.steps=$((steps + 60))" --out straight
[ "$(hash_of stopped)" = "$(hash_of straight)" ] ||
    { echo "FAILED: the resumed run's bits are not those of the uninterrupted one" >&2; failed=1; }

# ---- Reports of users: each with its smallest input

# A changed bit of a checkpoint is refused by everyone who reads it, not by --resume alone.
cp -r whole flipped
checkpoint=flipped/$(cat flipped/latest)
at=$(($(wc -c <"$checkpoint") - 9))
printf '\125' | dd of="$checkpoint" bs=1 seek=$at conv=notrunc 2>/dev/null
printf '\252' | dd of="$checkpoint" bs=1 seek=$((at + 1)) conv=notrunc 2>/dev/null
expect 5 'does not match its hash' "$copse" eval flipped --devices host
expect 5 'does not match its hash' train "$digits" --set init="$PWD/$checkpoint" --out from_flipped
# Several nodes may have one layer's name.
same='model=[{flatten: {name: f}}, {add: {inputs: [f, f, f]}}, {dense: {units: 10}}]'
expect 0 'test: loss' train "$digits" --set "$same" --set train.epochs=1 --out thrice
expect 0 'test: loss' train "$digits" --set "$same" --set train.epochs=2 --out thrice --resume
# Stopped before the first checkpoint: it begins anew.
expect 0 'test: loss' train "$digits" --set train.epochs=1 --out early
rm early/latest early/step-*
expect 0 'begins anew' "$copse" train "$digits" --devices host --set train.epochs=1 --out early --resume
# What is written never replaces a device, a pipe or somebody's file; a link is followed.
mkfifo pipe.csv
expect 5 'no regular file' "$copse" predict whole --devices host --input test-images-idx3-ubyte.gz --output pipe.csv
[ -p pipe.csv ] || { echo "FAILED: a pipe was replaced" >&2; failed=1; }
echo old >target.csv
chmod 640 target.csv
ln -s target.csv link.csv
expect 0 '' "$copse" predict whole --devices host --input test-images-idx3-ubyte.gz --output link.csv
if [ ! -L link.csv ] || [ "$(wc -l <target.csv)" -ne 360 ] || [ "$(stat -c %a target.csv)" != 640 ]; then
    echo "FAILED: a link or a mode was lost" >&2
    failed=1
fi
cp "$digits" mine.yaml
expect 5 'no cache' train "$digits" --set data.cache="$PWD/mine.yaml" --out cached
cmp -s "$digits" mine.yaml || { echo "FAILED: a file was overwritten by a cache" >&2; failed=1; }
# A result that cannot be printed is no success.
if [ -c /dev/full ]; then
    "$copse" devices >/dev/full 2>err
    [ $? -eq 1 ] || { echo "FAILED: a full standard output is no error" >&2; failed=1; }
fi
expect 5 'label' train "$digits" --set data.classes=5 --out five
expect 2 'names no folder' train "$digits" --out ''
expect 2 'FIRST:COUNT' train "$digits" --trace-steps 5
expect 2 'FIRST:COUNT' train "$digits" --trace-steps 0:3
expect 2 'FIRST:COUNT' train "$digits" --trace-steps 1:2x
expect 0 'test: loss' train "$digits" --set train.epochs=1 --trace --out traced
[ "$(grep -c '"name":"forward and backward"' traced/trace.json)" -eq 10 ] || { echo "FAILED: 10 steps are traced" >&2; failed=1; }
for stage in 'opening the data' 'looking for devices' 'the first step'; do
    grep -q "\"name\":\"$stage\"" traced/trace.json || { echo "FAILED: the start is traced: $stage" >&2; failed=1; }
done
expect 0 'to the first step: .*opening the data .*building kernels .*the first step' train "$digits" --set train.steps=1 --verbose --out stages
expect 0 'Usage: copse train' "$copse" train -h
# A dry run looks at its folder, too.
expect 2 'holds a run already' "$copse" train "$digits" --devices host --dry-run --out whole
expect 2 'no run in it to resume' "$copse" train "$digits" --devices host --dry-run --out nowhere --resume
expect 2 'are not those of the run' "$copse" train "$digits" --devices host --dry-run --set train.seed=5 --out whole --resume
expect 0 'shard 32 of 32' "$copse" train "$digits" --devices host --dry-run --out whole --resume
[ ! -e nowhere ] || { echo "FAILED: a dry run wrote a folder" >&2; failed=1; }
# A pipe that nobody writes to does not hold it up for ever; one that is written to is read.
mkfifo silent.yaml written.yaml
expect 2 'silent.yaml: it is a pipe into which nobody has written' train silent.yaml
sed "s|digits/|$(dirname "$digits")/digits/|g" "$digits" >written.yaml &
expect 0 'Trainable params' "$copse" summary written.yaml --devices host
# A plan whose shards are none is refused as what it is.
expect 0 'test: loss' train "$digits" --set train.epochs=1 --out planned
grep -q '"parameters": 4810,' planned/plan.json || { echo "FAILED: parameters are not counted: $(head -4 planned/plan.json)" >&2; failed=1; }
cp -r planned absurd
sed -i 's/"shard": 32/"shard": 4000000000/' absurd/plan.json
expect 5 'absurd/plan.json: its shards do not add up to its batch of 32' train "$digits" --set train.epochs=2 --out absurd --resume
# Without it, the checkpoint's copy holds.
rm absurd/plan.json
expect 0 'absurd/plan.json is gone; the checkpoint.s copy is taken' "$copse" train "$digits" --devices host --set train.epochs=2 --out absurd --resume
# Samples of another shape are the samples' fault.
expect 2 'other.npy: its samples are 4 x 4, and the network was trained on others' "$copse" predict whole --devices host --input other.npy --output o.csv
# -q: errors only; else other devices are told in one line.
sed -i 's/"device": "host"/"device": "7:7"/' planned/plan.json
cp -r planned planned.quiet
expect 0 'it ran on 7:7; it goes on with host: shards are chosen anew' "$copse" train "$digits" --devices host --set train.epochs=2 --out planned --resume
[ "$(grep -c 7:7 err)" -eq 1 ] || { echo "FAILED: other devices are not told in one line" >&2; failed=1; }
expect 0 '' train "$digits" --set train.epochs=2 --out planned.quiet --resume
[ ! -s err ] || { echo "FAILED: -q says $(cat err)" >&2; failed=1; }

# Before a step is made with such a batch: not only when the test set is looked at.
for run in nine five; do
    grep -q '"kind":"step"' "$run/log.jsonl" 2>/dev/null &&
        { echo "FAILED: $run took a step with labels outside the classes" >&2; failed=1; }
done

[ $failed -eq 0 ] && echo "all as expected"
exit $failed
