# SPDX-License-Identifier: Apache-2.0
#
# cmake -DKERNEL=conv.cl -DINCLUDES=folder -DOUTPUT=conv.c -P embed.cmake
#
# Turns one kernel file into a C byte array: its `.clh` and `.cl` includes are put in place (each once), with #line marks so
# that a compiler's message names the file it is about, and a hash of the whole is written beside it. The
# result is data for the library; nothing is read from the source folder at run time.
cmake_minimum_required(VERSION 3.22)

get_filename_component(name "${KERNEL}" NAME_WE)
file(READ "${KERNEL}" text)
set(text "#line 1 \"${name}.cl\"\n${text}")
set(seen "")

while(text MATCHES "#include \"([a-z0-9_]+\\.clh?)\"\n")
  set(directive "${CMAKE_MATCH_0}")
  set(include "${CMAKE_MATCH_1}")
  string(FIND "${text}" "${directive}" at)
  string(LENGTH "${directive}" length)
  math(EXPR after "${at} + ${length}")
  string(SUBSTRING "${text}" 0 ${at} before)
  string(SUBSTRING "${text}" ${after} -1 rest)

  # The line the rest continues at: counted from the last mark.
  string(FIND "${before}" "#line " mark REVERSE)
  string(SUBSTRING "${before}" ${mark} -1 since)
  string(REGEX MATCH "^#line ([0-9]+) \"([a-z0-9_.]+)\"\n" ignored "${since}")
  set(line "${CMAKE_MATCH_1}")
  set(file "${CMAKE_MATCH_2}")
  string(REGEX REPLACE "[^\n]" "" newlines "${since}")
  string(LENGTH "${newlines}" count)
  math(EXPR next "${line} + ${count}")

  set(body "")
  if(NOT ";${seen};" MATCHES ";${include};")
    list(APPEND seen "${include}")
    file(READ "${INCLUDES}/${include}" body)
    set(body "#line 1 \"${include}\"\n${body}")
  endif()
  set(text "${before}${body}#line ${next} \"${file}\"\n${rest}")
endwhile()

string(SHA256 digest "${text}")
string(SUBSTRING "${digest}" 0 32 digest)
file(WRITE "${OUTPUT}.flat" "${text}")
file(READ "${OUTPUT}.flat" hex HEX)
file(REMOVE "${OUTPUT}.flat")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "/* Made by cl/embed.cmake from ${name}.cl. */
#include \"backend/opencl/source.h\"

static const unsigned char text[] = {
${bytes}0x00};

const copse__cl_source copse__cl_source_${name} = {
    \"${name}\", (const char *)text, sizeof text - 1, \"${digest}\"};
")
