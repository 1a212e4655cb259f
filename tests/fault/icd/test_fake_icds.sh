#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs cltopo over each fake driver and compares what it says with the kept outputs, in every
# format. COPSE_UPDATE_GOLDEN=1 writes them anew: read the difference before you commit it.
set -u
cltopo=$1
build=$2
data=$3
golden=$data/cltopo
failures=0
export LC_ALL=C.UTF-8 LD_LIBRARY_PATH=$build container=test
# Another machine's shape, so that the outputs do not depend on this one.
export HWLOC_THISSYSTEM=0
unset OPENCL_VENDOR_PATH OCL_ICD_PLATFORM_SORT RUSTICL_ENABLE
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$build" || exit 1

# compare NAME EXPECTED_EXIT ICD_FOLDER ARGUMENT...
compare() {
    local name=$1 expected=$2
    export OCL_ICD_VENDORS=$3
    shift 3
    HWLOC_XMLFILE=$data/topologies/three_gpus.xml
    [ "$OCL_ICD_VENDORS" = eight ] && HWLOC_XMLFILE=$data/topologies/eight_gpus.xml
    export HWLOC_XMLFILE
    timeout 60 "$cltopo" "$@" >"$scratch/out" 2>"$scratch/err"
    local code=$?
    if [ $code != "$expected" ]; then
        echo "FAILED $name: exit $code instead of $expected"
        cat "$scratch/err"
        failures=$((failures + 1))
    fi
    case $name in
    *.txt) cat "$scratch/out" "$scratch/err" >"$scratch/both" ;;
    *) cp "$scratch/out" "$scratch/both" ;;
    esac
    if [ -n "${COPSE_UPDATE_GOLDEN:-}" ]; then
        cp "$scratch/both" "$golden/$name"
    elif ! diff -u "$golden/$name" "$scratch/both"; then
        echo "FAILED $name: the output differs from what is kept"
        failures=$((failures + 1))
    fi
}

for case in zero_pci duplicate names high_bus eight no_compiler empty fine; do
    code=0
    [ $case = empty ] && code=4
    compare $case.tree.txt 0 $case
    compare $case.list.txt $code $case list --all-handles
    compare $case.list.csv $code $case list --all-handles --format csv
    compare $case.json 0 $case --format json --redact
    compare $case.jsonl 0 $case --format jsonl --redact
    compare $case.matrix.txt 0 $case matrix
    compare $case.dot 0 $case --format dot
    compare $case.svg 0 $case --format svg
done
compare twins.tree.txt 0 twins
compare twins.list.txt 0 twins list --all-handles
compare twins.list.csv 0 twins list --all-handles --format csv
compare twins.json 0 twins --format json
compare twins.redacted.json 0 twins --format json --redact
compare twins.jsonl 0 twins --format jsonl
compare twins.matrix.txt 0 twins matrix
compare twins.dot 0 twins --format dot
compare twins.svg 0 twins --format svg
compare eight.plan.txt 0 eight plan --batch 100
compare eight.plan.json 0 eight plan --batch 100 --format json
compare eight.plan.csv 0 eight plan --batch 100 --format csv
compare eight.plan.svg 0 eight plan --batch 100 --format svg
compare eight.plan.dot 0 eight plan --batch 100 --format dot
compare eight.matrix.csv 0 eight matrix --format csv
compare eight.labels.txt 0 eight --labels
compare eight.check.txt 3 eight --require 'gpus>=8' --require 'vendor(amd)>=9' \
    --require 'path(0,1)<=PIX' --require 'path(0,4)<=NODE' --require 'mem>=16GiB' \
    --require 'ext(cl_khr_fp16)' --require 'h2d(all)>=10GB/s' --require 'driver(fake)>=1.2'
compare eight.select.txt 0 eight list --select 'pci:0000:23:00.0,pci:0000:a3:00.0'
compare eight.unknown.txt 2 eight list --select 'pci:0000:99:00.0'
compare no_compiler.check.txt 4 no_compiler check
compare none.list.txt 4 none list
compare none.doctor.txt 0 none doctor
compare none.labels.txt 0 none --labels

# One driver that works among seven that do not: each is named, the good one still reports.
compare broken.doctor.txt 0 broken doctor --probe-timeout 1s
compare broken.doctor.json 0 broken doctor --probe-timeout 1s --format json
compare broken.list.txt 0 broken list --probe-timeout 1s
compare broken.strict.txt 1 broken list --probe-timeout 1s --strict
for case in crash_load crash_query hang exit abort; do
    compare $case.doctor.txt 0 $case doctor --probe-timeout 1s
    compare $case.list.txt 4 $case list --probe-timeout 1s
done
# Without isolation the crash is the tool's own: that is what the isolation is for.
OCL_ICD_VENDORS=crash_query timeout 60 "$cltopo" list --isolate none >/dev/null 2>&1
if [ $? -lt 128 ]; then
    echo "FAILED: --isolate none survived a driver that crashes: the fake is no test"
    failures=$((failures + 1))
fi
# Nothing of the isolation is left behind.
if ls "${TMPDIR:-/tmp}"/copse-icd-* >/dev/null 2>&1; then
    echo "FAILED: a private folder of drivers was left in ${TMPDIR:-/tmp}"
    failures=$((failures + 1))
fi
# A report replays to the same bytes.
for case in eight twins names; do
    OCL_ICD_VENDORS=$case "$cltopo" --format json >"$scratch/a.json" 2>/dev/null &&
        "$cltopo" --input "$scratch/a.json" --format json >"$scratch/b.json"
    if ! cmp "$scratch/a.json" "$scratch/b.json"; then
        echo "FAILED $case: a saved report does not replay to the same bytes"
        failures=$((failures + 1))
    fi
done
OCL_ICD_VENDORS=eight "$cltopo" --format json >"$scratch/eight.json"
OCL_ICD_VENDORS=twins "$cltopo" --format json >"$scratch/twins.json"
compare same.diff.txt 0 none diff "$scratch/eight.json" "$scratch/eight.json"
compare other.diff.txt 1 none diff "$scratch/twins.json" "$scratch/eight.json"
compare other.diff.csv 1 none diff "$scratch/twins.json" "$scratch/eight.json" --format csv
[ $failures = 0 ] && echo "all outputs as kept"
exit $((failures != 0))
