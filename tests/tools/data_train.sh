#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# copse train on data that is more than arrays in memory: streams, damaged and vanishing files, crops, mixtures.
#   sh tests/tools/data_train.sh BUILD_FOLDER    (from the source folder; needs no device)
set -u
copse=$1/copse
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/the digits é" && cd "$work/the digits é" || exit 1
failed=0

complain() {
    echo "FAILED: $*" >&2
    failed=1
}

# expect CODE PATTERN COMMAND...: the exit code, and a line of stderr or stdout that matches.
expect() {
    code=$1 pattern=$2
    shift 2
    "$@" >out 2>err </dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then
        complain "$* : exit $got instead of $code: $(head -3 err)"
    elif [ -n "$pattern" ] && ! grep -q -- "$pattern" out err; then
        complain "$* : no line with '$pattern': $(head -3 err out)"
    elif [ "$code" -ne 0 ] && [ "$(grep -vc '^copse: warning:' err)" -ne 1 ]; then
        complain "$* : not one line: $(cat err)"
    fi
}

# shellcheck disable=SC2317 # expect calls it
train() {
    "$copse" train --devices host --quiet "$@"
}

hash_of() {
    tail -1 "$1/log.jsonl" | sed 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/'
}

# same_bits A B: both runs ended with the same weights.
same_bits() {
    if [ -z "$(hash_of "$1")" ] || [ "$(hash_of "$1")" != "$(hash_of "$2")" ]; then
        complain "$1 and $2 differ"
    fi
}

# sum_of KIND KEY RUN: over the lines of one kind in its log.
sum_of() {
    sed -n "s/^{\"kind\":\"$1\".*\"$2\":\([0-9]*\).*/\1/p" "$3/log.jsonl" | awk '{ s += $1 } END { print s + 0 }'
}

# configure NAME FORMAT-SPECIFIC-LINES...: NAME.yaml, with a network for the digits.
configure() {
    name=$1
    shift
    {
        echo "data:"
        for line in "$@"; do echo "  $line"; done
        echo "  scale: 0.0625"
        echo "model: [flatten, {dense: {units: 16, activation: relu}}, {dense: {units: 10}}]"
        echo "train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 32, seed: 1}"
    } >"$name.yaml"
}

labels="--in-labels $digits/train-labels-idx1-ubyte.gz"
# shellcheck disable=SC2086 # $labels is several words
{
"$copse" convert "$digits/train-images-idx3-ubyte.gz" all.tfrecord --from idx $labels
"$copse" convert "$digits/train-images-idx3-ubyte.gz" 'a stream.tfrecord.gz' --from idx $labels
"$copse" convert "$digits/train-images-idx3-ubyte.gz" all.csv --from idx $labels
"$copse" convert "$digits/train-images-idx3-ubyte.gz" tree/ --from idx $labels
} || complain "the data could not be made"

# ---- Streams: trained through a window, stopped in the middle of an epoch, resumed with the same bits
configure stream "format: tfrecord" "train: 'a stream.tfrecord.gz'" "tfrecord: {label: label}" "image: {channels: 1}" \
    "shuffle: {buffer: 300}"
expect 0 "" train stream.yaml --set train.epochs=4 --out straight
expect 0 "" train stream.yaml --set train.epochs=4 --set train.steps=70 --out 'stopped ü'
[ "$(grep -c '"kind":"step"' 'stopped ü/log.jsonl')" -eq 70 ] || complain "not 70 steps"
expect 0 "" train stream.yaml --set train.epochs=4 --out 'stopped ü' --resume
same_bits straight 'stopped ü'
[ "$(sum_of step samples straight)" -eq $((4 * 1437)) ] || complain "an epoch of a stream is not all of it once"
expect 0 "" train stream.yaml --set train.epochs=4 --set data.prefetch=7 --out ahead
same_bits straight ahead
# The same window over the same samples in another form gives the same batches.
configure indexed "format: tfrecord" "train: all.tfrecord" "tfrecord: {label: label}" "image: {channels: 1}" \
    "shuffle: {buffer: 300}"
expect 0 "" train indexed.yaml --set train.epochs=4 --out indexed
same_bits straight indexed
expect 2 "come in one order only" train stream.yaml --set data.shuffle=true --out whole
expect 0 "" train stream.yaml --set data.shuffle=true --set data.cache=memory --out cached
expect 2 "a stream cannot be split" train stream.yaml --set data.validation_split=0.2 --out whole
[ ! -e whole ] || complain "a refused configuration left a folder"

# ---- Damaged records: refused with file and offset, or left out and counted
cp all.tfrecord damaged.tfrecord
for at in 30 20000; do printf '\252\125\252' | dd of=damaged.tfrecord bs=1 seek=$at conv=notrunc 2>/dev/null; done
expect 5 'damaged.tfrecord: the record at byte 0 is damaged (wrong checksum)' train indexed.yaml --set data.train=damaged.tfrecord --out refused
[ ! -e refused/latest ] || [ "$(wc -l <refused/log.jsonl)" -ge 1 ] || complain "no log of a refused run"
expect 0 "" train indexed.yaml --set data.train=damaged.tfrecord --set data.on_error=skip --set train.epochs=3 --out skipped
[ "$(sum_of epoch skipped skipped)" -eq 6 ] || complain "not 2 samples left out in each of 3 epochs"
[ "$(sum_of step skipped skipped)" -eq 6 ] || complain "steps do not count what is left out"
[ "$(sum_of step samples skipped)" -eq $((3 * 1435)) ] || complain "other samples are lost"
gzip -c damaged.tfrecord >damaged.tfrecord.gz
expect 5 'damaged.tfrecord.gz: the record at byte 0 is damaged (wrong checksum)' train stream.yaml --set data.train=damaged.tfrecord.gz --out refused_stream
expect 0 "" train stream.yaml --set data.train=damaged.tfrecord.gz --set data.on_error=skip --set train.epochs=3 --out skipped_stream
[ "$(sum_of epoch skipped skipped_stream)" -eq 6 ] || complain "a stream does not count what is left out"
expect 0 "left out  2" "$copse" data stream.yaml --set data.train=damaged.tfrecord.gz --set data.on_error=skip
sed '9s/,[^,]*/,nan/' all.csv >bad.csv
configure table "format: csv" "train: bad.csv" "csv: {label: label}"
expect 5 'bad.csv:9: field 2 (' train table.yaml --out refused_table
expect 0 "1 samples of data.train are left out" "$copse" train --devices host table.yaml --set data.on_error=skip --out skipped_table
grep -q '"what":"samples_left_out","set":"train","count":1}' skipped_table/log.jsonl || complain "no event of rows left out"

# ---- A file that can no longer be read in the middle of a run: one line, code 5, and a checkpoint to go on from
mkdir some
for class in tree/*; do
    mkdir "some/${class#tree/}"
    find "$class" -name '*.png' | sort | head -12 | while read -r file; do cp "$file" "some/${class#tree/}/"; done
done
configure files "format: folder" "train: {folder: some}" "image: {channels: 1}"
victim=$(find some -name '*.png' | sort | tail -1)
cp "$victim" kept.png
# start RUN ARGUMENTS...: and wait for its second epoch, in which the file is emptied.
start() {
    run=$1
    shift
    train files.yaml --set train.epochs=200 --set train.batch=8 --set data.prefetch=1 --out "$run" "$@" >out 2>err &
    pid=$!
    tries=0
    until grep -qs '"kind":"epoch"' "$run/log.jsonl" || [ $tries -gt 600 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    : >"$victim"
    wait $pid
    code=$?
}
start broken
if [ $code -ne 5 ] || ! grep -q "$(basename "$victim")" err || [ "$(wc -l <err)" -ne 1 ]; then
    complain "a file that went away: exit $code, $(cat err)"
fi
tail -1 broken/log.jsonl | grep -q '"status":"failed"' || complain "no last line of a failed run"
expect 5 "$(basename "$victim")" train files.yaml --set train.epochs=200 --set train.batch=8 --out broken --resume
cp kept.png "$victim"
expect 0 "" train files.yaml --set train.epochs=200 --set train.batch=8 --out broken --resume
expect 0 "" train files.yaml --set train.epochs=200 --set train.batch=8 --out never_broken
same_bits broken never_broken
start without --set data.on_error=skip
[ $code -eq 0 ] || complain "on_error: skip: exit $code, $(head -3 err)"
[ "$(sum_of epoch skipped without)" -ge 150 ] || complain "only $(sum_of epoch skipped without) times left out"
cp kept.png "$victim"

# ---- Crops and mixtures
configure crops "format: idx" "train: {images: $digits/train-images-idx3-ubyte.gz, labels: $digits/train-labels-idx1-ubyte.gz}" \
    "test: {images: $digits/test-images-idx3-ubyte.gz, labels: $digits/test-labels-idx1-ubyte.gz}" \
    "augment: [random_crop: {height: 7, width: 7}, mixup: 0.3]"
expect 0 "accuracy 0.[89]" train crops.yaml --set train.epochs=30 --set model.1.dense.units=64 --out crops
cp out crops.test
expect 0 "" "$copse" eval crops --devices host --quiet
cmp -s out crops.test || complain "eval of a run with crops is not its test: $(cat out crops.test)"
expect 0 "" "$copse" predict crops --devices host --input "$digits/test-images-idx3-ubyte.gz" --output crops.csv
[ "$(wc -l <crops.csv)" -eq 360 ] || complain "predict wrote $(wc -l <crops.csv) rows of 360"
expect 2 "crops.yaml:5:[0-9]*: random_crop: the crop is larger" train crops.yaml --set data.augment.0.random_crop.height=9 --out none
expect 2 "random_crop: the crop is larger" "$copse" summary crops.yaml --devices host --set 'data.augment=[random_crop: {height: 9}]'
[ ! -e none ] || complain "a refused configuration left a folder"

exit $failed
