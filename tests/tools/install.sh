#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is installed is enough: a program builds against it with pkg-config and with find_package, and runs; the
# commands run from there.
#   sh tests/tools/install.sh BUILD_FOLDER    (from the source folder)
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/usr" >"$work/log"
PKG_CONFIG_PATH=$(dirname "$(find "$work/usr" -name copse.pc)")
export PKG_CONFIG_PATH
library=$(pkg-config --variable=libdir copse)
LD_LIBRARY_PATH=$library
export LD_LIBRARY_PATH

# The flags are words.
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror examples/allreduce.c $(pkg-config --cflags --libs copse) -o "$work/with_pkg_config"
first=$("$work/usr/bin/copse" devices | sed -n 's/^\([0-9]*:[0-9]*\).*/\1/p' | head -1)
if [ -n "$first" ]; then
    "$work/with_pkg_config" "$first,$first,host" | grep '^1000003 numbers summed over 3 devices, 0 wrong$'
else
    echo "skipped: no OpenCL device answers" >&2
fi

# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror examples/own_data.c $(pkg-config --cflags --libs copse) -o "$work/own_data"
"$work/own_data" >"$work/out"
grep '^0 rows, 0 left out: lines, point 499: it was lost; draw the points again$' "$work/out"
grep '^1980 rows, 20 left out: done$' "$work/out"

mkdir "$work/project"
cp examples/allreduce.c "$work/project/"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(copse 0.1 REQUIRED)
add_executable(user allreduce.c)
target_link_libraries(user PRIVATE copse::copse)
END
cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/usr" >"$work/log"
cmake --build "$work/build" >"$work/log"
"$work/build/user" host | grep '^1000003 numbers summed over 1 devices, 0 wrong$'

# Every public header is usable alone, also from C++.
for header in "$work"/usr/include/copse/*.h; do
    printf '#include <copse/%s>\n' "$(basename "$header")" >"$work/one.c"
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I "$work/usr/include" -c "$work/one.c" -o "$work/one.o"
    if command -v c++ >/dev/null; then
        c++ -x c++ -Wall -Wextra -Werror -I "$work/usr/include" -c "$work/one.c" -o "$work/one.o"
    fi
done

"$work/usr/bin/copse" --version
"$work/usr/bin/cltopo" --version
"$work/usr/bin/copse" train examples/digits.yaml --devices host --set train.epochs=1 --quiet --out "$work/run"
