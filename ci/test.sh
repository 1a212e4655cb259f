#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds with them, and runs all of them: sh ci/test.sh [ctest options]
# What cannot run on this machine is skipped and says why.
set -eu
cd "$(dirname -- "$0")/.."
jobs=$(getconf _NPROCESSORS_ONLN)

step() {
    echo "== $*"
}

step "packages"
sh ci/install.sh build data pocl test optional

step "lint"
sh ci/lint.sh

step "build with tests"
cmake --preset test -DCOPSE_WERROR=ON >/dev/null
cmake --build --preset test --parallel "$jobs"

step "all tests"
ctest --preset test --parallel "$jobs" --no-tests=error --output-junit junit.xml "$@"

step "unit tests under AddressSanitizer and UndefinedBehaviorSanitizer"
cmake --preset asan >/dev/null
cmake --build --preset asan --parallel "$jobs"
ctest --preset asan --parallel "$jobs"

# PoCL is not instrumented: ci/tsan.supp hides what is reported inside it, and nothing else.
step "unit and collective tests under ThreadSanitizer"
cmake --preset tsan >/dev/null
cmake --build --preset tsan --parallel "$jobs"
ctest --preset tsan --parallel "$jobs"

echo "== all passed"
