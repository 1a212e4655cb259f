#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks what no compiler does: who includes whom, which library headers stand where, sizes, licence lines, format.
set -eu
cd "$(dirname -- "$0")/.."
failed=0

complain() {
    echo "lint: $*" >&2
    failed=1
}

files() {
    git ls-files --cached --others --exclude-standard -- "$@"
}

# The rooms that a room may include, besides itself, base and the public headers
# (docs/architecture.md, Rooms); single headers by their path.
may_include() {
    case $1 in
    topo) echo "comm/tree.h" ;;
    backend) echo "topo graph" ;;
    plan | comm) echo "topo graph backend" ;;
    data) echo "io" ;;
    tune) echo "topo graph backend io" ;;
    train) echo "topo graph backend plan comm io data tune" ;;
    esac
}

# "room/header room" for each include of another room's header.
includes() {
    sed -n 's/^#include "\([a-z_]*\)\/\([^"]*\)".*/\1\/\2 \1/p' "$1"
}

for room in base topo graph backend plan comm io data tune train; do
    allowed=" $room base $(may_include $room) "
    for file in $(files "src/$room" | grep '\.[ch]$'); do
        set -f
        # shellcheck disable=SC2046
        set -- $(includes "$file")
        while [ $# -ge 2 ]; do
            case $allowed in
            *" $1 "* | *" $2 "*) ;;
            *) complain "$file includes $1, but $room may not include $2" ;;
            esac
            shift 2
        done
        set +f
    done
done

# only_in HEADER PATTERN...: the only places that may include a library's header.
only_in() {
    header=$1
    shift
    for file in $(files src include tools | grep '\.[ch]$'); do
        grep -q "^#include <$header>" "$file" || continue
        allowed=no
        for pattern in "$@"; do
            # shellcheck disable=SC2254
            case $file in $pattern) allowed=yes ;; esac
        done
        [ $allowed = yes ] || complain "$file includes <$header>, which belongs in: $*"
    done
}
only_in CL/cl.h 'src/topo/probe_opencl.c' 'src/topo/bench_*' 'src/backend/opencl/*'
only_in CL/cl_ext.h 'src/topo/probe_opencl.c' 'src/topo/bench_*' 'src/backend/opencl/*'
only_in clblast_c.h 'src/backend/opencl/clblast.c'
only_in hwloc.h 'src/topo/*'
only_in mpi.h 'src/comm/mpi.c' 'tools/bench/peers/*'

for file in $(files src include cl tools tests ci examples | grep -E '\.(c|h|cl|clh|sh|cmake)$|CMakeLists.txt$'); do
    head -3 "$file" | grep -q SPDX-License-Identifier || complain "$file has no SPDX line"
    case $file in
    *.c | *.h)
        lines=$(wc -l <"$file")
        [ "$lines" -le 800 ] || complain "$file has $lines lines, more than 800"
        ;;
    esac
done

if command -v clang-format-14 >/dev/null 2>&1; then
    # shellcheck disable=SC2046
    clang-format-14 --dry-run -Werror $(files src include tools tests examples | grep '\.[ch]$') || failed=1
else
    echo "lint: skipped the format check (no clang-format-14)" >&2
fi
if command -v shellcheck >/dev/null 2>&1; then
    # shellcheck disable=SC2046
    shellcheck $(files '*.sh') || failed=1
else
    echo "lint: skipped the shell scripts (no shellcheck)" >&2
fi
exit $failed
