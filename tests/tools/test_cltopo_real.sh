#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cltopo on the drivers that this machine has: PoCL as it is and as three devices, rusticl off
# and on, Oclgrind, none at all. What is not installed is skipped, and said.
set -u
cltopo=$1
check_schema=$2
schema=$3
failures=0
ran=0
export LC_ALL=C.UTF-8
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# want NAME PATTERN: the last output has a line like it.
want() {
    grep -Eq -- "$2" "$scratch/out" || {
        fail "$1: no line like '$2' in:"
        cat "$scratch/out" "$scratch/err"
    }
}

# run EXPECTED_EXIT ARGUMENT...
run() {
    local expected=$1
    shift
    timeout 120 "$cltopo" "$@" >"$scratch/out" 2>"$scratch/err"
    local code=$?
    [ $code = "$expected" ] || {
        fail "cltopo $*: exit $code instead of $expected"
        cat "$scratch/err"
    }
}

valid() {
    run 0 --format json
    cp "$scratch/out" "$scratch/$1.json"
    "$check_schema" "$schema" "$scratch/$1.json" || fail "$1: not as the schema says"
}

vendors=${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}
unset RUSTICL_ENABLE POCL_DEVICES
if ls "$vendors"/pocl*.icd >/dev/null 2>&1; then
    ran=1
    run 0 list
    want pocl '^[0-9]+:0 +host +cpu .*Portable Computing Language'
    valid pocl
    "$cltopo" diff "$scratch/pocl.json" "$scratch/pocl.json" || fail "a report differs from itself"
    export POCL_DEVICES="pthread pthread basic"
    run 0 list --all-handles
    [ "$(grep -c 'Portable Computing Language' "$scratch/out")" = 3 ] || fail "not three devices"
    [ "$(grep -c '\* ' "$scratch/out")" = 1 ] || fail "not one preferred handle"
    valid three
    run 0 plan --format csv
    [ "$(wc -l <"$scratch/out")" = 4 ] || fail "not three ranks"
    unset POCL_DEVICES
    "$cltopo" diff "$scratch/pocl.json" "$scratch/three.json" >"$scratch/out"
    [ $? = 1 ] || fail "diff of one and three devices says equal"
    run 0 --require 'driver(pocl)>=1' --require 'cpus==1' --require 'devices>=1'
    run 3 --require 'driver(pocl)>=1000'
    run 2 --require 'nonsense(1)'
    run 2 --require 'mem>=x'
    run 2 --require 'mem>=nan'
    run 2 --require 'mem>=infGiB'
    run 2 --require 'devices>=nan'
    run 0 list --isolate none
    run 0 bench --budget 1s --select cpu --format csv
    want bench '^[0-9]+:0,.*,d2h,read_pinned,.*,true,'
    if grep -q ',false,' "$scratch/out"; then fail "a figure with wrong data"; fi
else
    echo "skipped: PoCL is not installed"
fi
if ls "$vendors"/rusticl*.icd >/dev/null 2>&1; then
    ran=1
    run 0 doctor
    want 'rusticl off' 'RUSTICL_ENABLE'
    export RUSTICL_ENABLE=llvmpipe
    run 0 list --all-handles
    want 'rusticl on' 'llvmpipe'
    valid rusticl
    unset RUSTICL_ENABLE
else
    echo "skipped: rusticl is not installed"
fi
if command -v oclgrind >/dev/null; then
    ran=1
    timeout 60 oclgrind "$cltopo" list >"$scratch/out" 2>"$scratch/err" || fail "oclgrind: exit $?"
    want oclgrind 'cpu\+gpu\+accelerator .*Oclgrind'
else
    echo "skipped: Oclgrind is not installed"
fi
# Only the CPUs that this process may use count.
taskset -c 0 "$cltopo" --format json >"$scratch/out" 2>/dev/null
want 'one CPU' '"cpus_allowed": "0"'
want 'one CPU' '"cpu_count": 1,'
# The completion is a script that bash accepts, and completes.
"$cltopo" --generate bash >"$scratch/completion"
bash -c ". '$scratch/completion'; COMP_WORDS=(cltopo --form); COMP_CWORD=1; _cltopo
    [ \"\${COMPREPLY[*]}\" = --format ]" || fail "the completion does not complete --form"
mkdir "$scratch/none"
export OCL_ICD_VENDORS=$scratch/none
run 4 list
run 0 tree
run 0 --labels
want none '^no-opencl$'
# A machine of which only CPUs are known: places of devices are not, and it says so.
HWLOC_SYNTHETIC="pack:2 [numa] core:2 pu:2" run 0 tree
want synthetic 'NUMA node 1 .*CPUs 4-7'
grep -q 'shows no PCI devices' "$scratch/err" || fail "no warning that there is no PCI"
[ $ran = 1 ] || exit 77
[ $failures = 0 ] && echo "all as it should be"
exit $((failures != 0))
