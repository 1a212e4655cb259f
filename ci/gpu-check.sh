#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds copse on a machine with a GPU and measures it there, offline, in under 8 minutes; leaves one JSON file.
#
#   sh ci/gpu-check.sh [-p FOLDER] [-o FILE] [-d SEL] [-t SECONDS]
#
# -p  a folder of Debian packages to use for the build (copse's `build` and `test` groups of ci/packages.txt and what
#     they need: `apt-get download` gets them). They are unpacked beside the build; the machine stays as it is.
# -o  the result (default gpu-check.json)    -d  the devices (default: every GPU; where there is none, the OpenCL CPU
# device stands in for it, and the result says so)    -t  time for all of it (default 450)
#
# The result: {"copse", "machine", "devices", "stand_in", "seconds", "ok", "steps": [{"name", "status", "seconds",
# "tail"}], "topology": cltopo's report, "bench": [the lines of copse bench]}. status: ok, failed (with the end of
# its output), skipped (why), late (stopped, as its time was up). Leaves with 1 where a step failed.
set -u
cd "$(dirname -- "$0")/.." || exit 2
packages='' result=gpu-check.json wanted='' limit=450
while getopts p:o:d:t: option; do
    case $option in
    p) packages=$(CDPATH='' cd -- "$OPTARG" && pwd) || exit 2 ;;
    o) result=$OPTARG ;;
    d) wanted=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) exit 2 ;;
    esac
done
begun=$(date +%s)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$work/build copse=$work/build/copse
: >"$work/steps"
: >"$work/bench"
failed=0
jobs=$(getconf _NPROCESSORS_ONLN)

# Standard input as a JSON string.
text() {
    printf '"'
    tr '\n\t' '\001 ' | tr -d '\000\002-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\x01/\\n/g'
    printf '"'
}

left() {
    echo $((begun + limit - $(date +%s)))
}

# note NAME STATUS SECONDS: a line of the result; the step's output is in $work/out.
note() {
    echo "gpu-check: $1: $2 ($3 s)" >&2
    [ ! -s "$work/steps" ] || printf ',\n' >>"$work/steps"
    printf '{"name":"%s","status":"%s","seconds":%s,"tail":%s}' "$1" "$2" "$3" \
        "$(tail -n 8 "$work/out" | tail -c 2000 | text)" >>"$work/steps"
}

skip() {
    echo "$2" >"$work/out"
    note "$1" skipped 0
}

# step NAME MOST COMMAND...: at most MOST seconds, and no more than are left.
step() {
    name=$1 most=$2
    shift 2
    [ "$most" -le "$(left)" ] || most=$(left)
    if [ "$most" -lt 5 ]; then
        skip "$name" "no time was left"
        return 1
    fi
    start=$(date +%s)
    timeout "$most" "$@" >"$work/out" 2>&1 </dev/null
    code=$?
    took=$(($(date +%s) - start))
    case $code in
    0) note "$name" ok "$took" ;;
    77) note "$name" skipped "$took" ;;
    124 | 137) note "$name" late "$took" ;;
    *)
        note "$name" failed "$took"
        failed=1
        ;;
    esac
    return $code
}

# bench NAME MOST ARGUMENTS...: its JSON lines are kept.
bench() {
    name=$1 most=$2
    shift 2
    step "bench $name" "$most" "$copse" bench "$name" --json --devices "$devices" "$@"
    grep '^{' "$work/out" >>"$work/bench"
}

# Unpacked packages are found as if they were installed.
use_packages() {
    root=$work/root
    mkdir "$root"
    for package in "$packages"/*.deb; do
        dpkg-deb -x "$package" "$root" || return 1
    done
    libraries=$(find "$root" -name '*.so*' | sed 's|/[^/]*$||' | sort -u | tr '\n' ':')
    # What links name by an absolute path lies below the folder, too.
    find "$root" -type l | while read -r link; do
        target=$(readlink "$link")
        case $target in /*) [ ! -e "$root$target" ] || ln -sf "$root$target" "$link" ;; esac
    done
    PATH=$root/usr/bin:$PATH
    CMAKE_PREFIX_PATH=$root/usr
    CPATH=$root/usr/include:$(find "$root/usr/include" -maxdepth 1 -name '*-linux-gnu' | tr '\n' ':')
    LIBRARY_PATH=$libraries
    LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH-}
    PKG_CONFIG_PATH=$(find "$root" -name pkgconfig | tr '\n' ':')
    PKG_CONFIG_SYSROOT_DIR=$root
    export PATH CMAKE_PREFIX_PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
    ls "$packages"
}

[ -z "$packages" ] || {
    if use_packages >"$work/out" 2>&1; then
        note packages ok 0
    else
        note packages failed 0
        failed=1
    fi
}
tests=on
step configure 60 cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCOPSE_TESTS=ON || {
    tests=off
    rm -rf "$build"
    step "configure without tests" 60 cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release
}
step compile $((limit / 2)) cmake --build "$build" --parallel "$jobs" --target copse_tool cltopo
programs=$(for file in tests/device/test_device_*.c; do basename "$file" .c; done)
# shellcheck disable=SC2086
[ $tests = off ] || step "compile tests" $((limit / 4)) cmake --build "$build" --parallel "$jobs" --target $programs

# Which devices, and whether they are what is meant.
stand_in=false devices=${wanted:-gpu} first=''
handles() {
    "$copse" devices 2>/dev/null | sed -n "s/^\([0-9]*:[0-9]*\)\*\{0,1\} *$1 .*/\1/p"
}
if [ -x "$copse" ]; then
    first=$(handles gpu | head -1)
    if [ -z "$wanted" ] && [ -z "$first" ]; then
        stand_in=true devices=$(handles cpu | head -1)
        echo "gpu-check: no GPU answers here: the OpenCL CPU device $devices stands in for it" >&2
    fi
    [ -z "$wanted" ] || first=$wanted
    first=${first:-$devices}
fi

if [ -n "$first" ]; then
    step "devices" 30 "$copse" devices
    step "selftest" 120 "$copse" selftest --devices "$devices"
    step "train digits" 60 "$copse" train examples/digits.yaml --quiet --devices "$devices" --out "$work/digits"
    if [ -e /usr/share/datasets/fashion-mnist ]; then
        step "train fashion-mnist" 60 "$copse" train examples/fashion-mnist.yaml --quiet --devices "$devices" \
            --set train.epochs=1 --set train.steps=100 --trace --out "$work/fashion"
    fi
    step "tune" 60 "$copse" tune --devices "$devices" --budget 12s --json --output "$work/tuned.json"
    grep '^{' "$work/out" >>"$work/bench"
    bench gemm 60 --seconds 0.2
    bench conv 60 --seconds 0.2
    bench step 40 --seconds 4 examples/digits.yaml
    bench allreduce 40 --seconds 0.2
    for program in $programs; do
        test=$build/tests/device/$program
        [ -x "$test" ] || continue
        step "operations: ${program#test_device_}" 90 \
            env "COPSE_TEST_DEVICE=$first" "COPSE_TEST_CACHE=$work/cache" "$test"
    done
    "$build/cltopo" tree --format json --output "$work/topology" 2>/dev/null
else
    skip devices "nothing was built, or no OpenCL device answers"
    failed=1
fi

version=$("$copse" --version 2>/dev/null | sed 's/.* //')
ok=true
[ $failed -eq 0 ] || ok=false
{
    printf '{"copse":%s,"machine":%s,' "$(printf %s "${version:-}" | text)" "$(uname -srm | tr -d '\n' | text)"
    printf '"devices":%s,"stand_in":%s,' "$(printf %s "$devices" | text)" "$stand_in"
    printf '"seconds":%s,"ok":%s,\n"steps":[\n' "$(($(date +%s) - begun))" "$ok"
    cat "$work/steps"
    printf '],\n"topology":'
    if [ -s "$work/topology" ]; then cat "$work/topology"; else printf null; fi
    printf ',\n"bench":[\n'
    sed '$!s/$/,/' "$work/bench"
    printf ']}\n'
} >"$result.part" && mv "$result.part" "$result"
echo "gpu-check: $result after $(($(date +%s) - begun)) s" >&2
exit $failed
