# SPDX-License-Identifier: Apache-2.0
#
# cmake -DRESULTS=pocl-x86-64.json -DOUTPUT=pocl-x86-64.c -P embed.cmake: a file as a C byte array.
cmake_minimum_required(VERSION 3.22)
get_filename_component(name "${RESULTS}" NAME_WE)
string(MAKE_C_IDENTIFIER "${name}" symbol)
file(READ "${RESULTS}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "/* Made by cl/tune/embed.cmake from ${name}.json. */
#include \"tune/shipped.h\"

static const unsigned char text[] = {
${bytes}0x00};

const copse__tune_shipped copse__tune_shipped_${symbol} = {
    \"cl/tune/${name}.json\", (const char *)text, sizeof text - 1};
")
