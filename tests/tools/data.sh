#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# copse convert, copse data and copse bench data, as a user types them.
#   sh tests/tools/data.sh BUILD_FOLDER    (from the source folder; needs no device)
set -u
copse=$1/copse
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
digits=$PWD/examples/digits
pillow=$PWD/tests/data/pillow
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

# expect CODE PATTERN COMMAND...: the exit code, and a line of stderr or stdout that matches.
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
    elif [ "$code" -ne 0 ] && [ "$(wc -l <err)" -ne 1 ]; then
        echo "FAILED: $* : not one line: $(cat err)" >&2
        failed=1
    fi
}

same() {
    if ! cmp -s "$1" "$2"; then
        echo "FAILED: $1 and $2 differ" >&2
        failed=1
    fi
}

# ---- Round trips: IDX to every other format and back gives the bytes of the start
gzip -dc "$digits/train-images-idx3-ubyte.gz" >images
gzip -dc "$digits/train-labels-idx1-ubyte.gz" >labels
back="--to idx --out-labels labels.back"
# shellcheck disable=SC2086 # $back is several words
{
expect 0 "" "$copse" convert images digits.npz --from idx --in-labels labels
expect 0 "" "$copse" convert digits.npz images.back --label y $back
same images images.back && same labels labels.back
expect 0 "" "$copse" convert digits.npz x.npy --label y --out-labels y.npy
expect 0 "" "$copse" convert x.npy images.back --in-labels y.npy $back
same images images.back && same labels labels.back
expect 0 "" "$copse" convert images 'the digits é.tfrecord.gz' --from idx --in-labels labels
expect 0 "" "$copse" convert 'the digits é.tfrecord.gz' images.back --label label --channels 1 $back
same images images.back && same labels labels.back
}
expect 0 "" "$copse" convert digits.npz digits.csv --label y
expect 0 "" "$copse" convert digits.csv csv.npz --label label --shape 8x8
expect 0 "" "$copse" convert digits.npz tree/ --label y
[ "$(find tree -name '*.png' | wc -l)" -eq 1437 ] || { echo "FAILED: PNG files are missing" >&2; failed=1; }
expect 5 "it exists" "$copse" convert digits.npz tree/ --label y

# ---- Mistakes
expect 2 "cannot tell" "$copse" convert digits.npz unknown
expect 2 "--to" "$copse" convert digits.npz a.npz --to gif
expect 2 "--size" "$copse" convert "$pillow" a.npz --size 3
expect 2 "second file for the labels" "$copse" convert digits.npz a.npy --label y
expect 2 "no array 'z'" "$copse" convert digits.npz a.npy --label z
expect 5 "missing.npz" "$copse" convert missing.npz a.csv
head -c 1000 digits.npz >cut.npz
expect 5 "cut.npz" "$copse" convert cut.npz a.csv
[ ! -e a.csv ] || { echo "FAILED: a failed conversion left a file" >&2; failed=1; }
mkdir bad && cp "$pillow/rgb.png" "$pillow/rgba.png" bad/ && : >bad/empty.png
expect 5 "bad/empty.png" "$copse" convert bad bad.npz
expect 0 "warning: sample left out" "$copse" convert bad bad.npz --skip-errors

# ---- copse data, copse bench data
cat >digits.yaml <<YAML
data:
  format: idx
  train: {images: $digits/train-images-idx3-ubyte.gz, labels: $digits/train-labels-idx1-ubyte.gz}
  augment: [random_crop: {padding: 1}, random_rotation: 0.05]
model:
  - flatten
  - dense: {units: 10}
train: {loss: sparse_categorical_crossentropy, optimizer: {sgd: {learning_rate: 0.1}}, batch: 32, epochs: 1}
YAML
expect 0 "train: 1,437 samples" "$copse" data digits.yaml --sheet sheet.png --samples 20
mkdir sheets && mv sheet.png sheets/
expect 0 "" "$copse" convert sheets sheet.npz --from folder
expect 5 "cannot write it" "$copse" data digits.yaml --sheet missing/sheet.png
expect 0 '"stage":"augmented"' "$copse" bench data digits.yaml --seconds 0.2 --threads 2
expect 2 "random_flop" "$copse" bench data digits.yaml --seconds 0.2 --set 'data.augment=[random_flop]'

# ---- A configuration is checked as a whole before data, devices or folders are touched
# shellcheck disable=SC2317 # expect calls it
train() { "$copse" train digits.yaml --devices host --quiet --set data.train.images=gone.gz --out made "$@"; }
expect 2 "'random_flop' is no augmentation" train --set 'data.augment=[random_flop]'
expect 2 "random_crop has no 'edge'" train --set 'data.augment=[random_crop: {edge: 3}]'
expect 2 "mixup must be the last" train --set 'data.augment=[mixup: 0.2, random_flip: horizontal]'
expect 2 "no key 'unts'.*'units'" train --set model.1.dense.unts=3
expect 2 "there is no layer 'dens'" train --set 'model.1=dens'
expect 2 "no layer is named so" train --set 'model.1.dense.inputs=nobody'
expect 2 "mixed_float16 is not supported" train --set train.precision=mixed_float16
expect 5 "gone.gz" train
[ ! -e made ] || { echo "FAILED: a refused configuration left a folder" >&2; failed=1; }

exit $failed
