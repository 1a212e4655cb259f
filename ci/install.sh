#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages of the named groups of ci/packages.txt that are missing: sh ci/install.sh build data
# On systems without apt-get it says what to install and goes on.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

if ! command -v apt-get >/dev/null 2>&1; then
    cat >&2 <<'END'
This system has no apt-get. If the build below fails, install the same libraries with its own tool:
  dnf install gcc cmake make pkgconf ocl-icd-devel opencl-headers clblast-devel hwloc-devel libfyaml-devel jansson-devel \
      protobuf-c-devel protobuf-c-compiler zlib-devel libpng-devel libjpeg-turbo-devel xxhash-devel check-devel pocl
  pacman -S gcc cmake make pkgconf ocl-icd opencl-headers clblast hwloc libfyaml jansson protobuf-c zlib libpng \
      libjpeg-turbo xxhash check pocl
  brew install cmake pkg-config opencl-headers opencl-icd-loader clblast hwloc libfyaml jansson protobuf-c zlib libpng \
      jpeg-turbo xxhash check pocl
END
    exit 0
fi

root=
updated=no

install() {
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || {
            echo "install these as root, then start again: $*" >&2
            exit 1
        }
        root=sudo
    fi
    [ $updated = yes ] || $root apt-get update -qq
    updated=yes
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

for group in "$@"; do
    missing=
    # shellcheck disable=SC2013
    for package in $(sed -n "s/^$group  *\([^ ]*\).*/\1/p" "$here/packages.txt"); do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || continue
    if [ "$group" = optional ]; then
        for package in $missing; do
            install "$package" 2>/dev/null || echo "skipped: this system has no package $package" >&2
        done
    else
        echo "installing:$missing" >&2
        # shellcheck disable=SC2086
        install $missing
    fi
done
