#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch's and Keras' exports of a network (tests/data/exports/make_exports.py) predict what they predict there.
#   sh tests/tools/exports.sh BUILD_FOLDER [FOLDER]     (from the source folder). PYTHON=python: with safetensors and NumPy,
# which then read back what is saved.
set -u
copse=$1/copse exports=${2:-tests/data/exports} read_back=$PWD/tests/data/exports/read_back.py
case $copse in /*) ;; *) copse=$PWD/$copse ;; esac
case $exports in /*) ;; *) exports=$PWD/$exports ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
COPSE_CACHE=$work/cache
export COPSE_CACHE
failed=0

# compare GOT WANTED: the same class in every row, the numbers to 1e-4 of the largest
compare() {
    paste -d, "$1" "$2" | awk -F, '
        function size(v) { return v < 0 ? -v : v }
        {
            n = NF / 2
            got = want = 1
            for (i = 1; i <= n; i++) {
                if ($i > $got) got = i
                if ($(n + i) > $(n + want)) want = i
                if (size($(n + i)) > most) most = size($(n + i))
                if (size($i - $(n + i)) > off) off = size($i - $(n + i))
            }
            wrong += got != want
            classes[want] = 1
        }
        END {
            kinds = 0
            for (c in classes) kinds++
            printf "%d rows, %d classes, %d wrong, largest difference %.2g of %.3g\n", NR, kinds, wrong, off, most
            exit !(NR == 24 && n == 10 && kinds > 2 && wrong == 0 && off <= 1e-4 * most)
        }'
}

for file in pytorch.safetensors keras.npz keras.safetensors; do
    [ -e "$exports/$file" ] || continue # the small fixture has Keras' in one format
    "$copse" predict "$exports/network.yaml" --checkpoint "$exports/$file" --input "$exports/x.npy" --output p.csv \
        --devices host --quiet 2>err || { echo "FAILED: $file: $(cat err)" >&2; failed=1; continue; }
    result=$(compare p.csv "$exports/${file%%.*}.csv") || failed=1
    echo "$file: $result"
    [ -n "${PYTHON:-}" ] || continue
    "$copse" train "$exports/network.yaml" --set "init=$exports/$file" --devices host --quiet --out "$file.run" >out 2>err ||
        { echo "FAILED: $file: $(cat err)" >&2; failed=1; }
    "$PYTHON" "$read_back" "$file.run" "$exports/$file" || failed=1
done
[ $failed -eq 0 ] || echo "FAILED: a network predicts something else than where it comes from" >&2
exit $failed
