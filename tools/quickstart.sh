#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to a trained network: installs what is missing, builds a Release in build/, and trains
# examples/fashion-mnist.yaml on every OpenCL device. Arguments go to `copse train`.
set -eu
cd "$(dirname -- "$0")/.."

sh ci/install.sh build data
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build --parallel "$(getconf _NPROCESSORS_ONLN)"

# Where no OpenCL device answers, PoCL makes one of the CPU.
if ! build/cltopo check --require 'devices>=1' >/dev/null 2>&1; then
    echo "no OpenCL device answers: adding PoCL, which makes one of the CPU" >&2
    sh ci/install.sh pocl
fi

exec build/copse train examples/fashion-mnist.yaml "$@"
