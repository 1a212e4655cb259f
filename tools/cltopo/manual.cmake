# SPDX-License-Identifier: Apache-2.0
# cmake -DPROSE=cltopo.1.scd -DOPTIONS=file -DSCDOC=scdoc -DOUTPUT=cltopo.1 -P manual.cmake
cmake_minimum_required(VERSION 3.22)
file(READ "${PROSE}" text)
file(READ "${OPTIONS}" options)
string(FIND "${text}" "@OPTIONS@" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${PROSE} has no line @OPTIONS@")
endif()
string(REPLACE "@OPTIONS@\n" "${options}" text "${text}")
file(WRITE "${OUTPUT}.scd" "${text}")
execute_process(COMMAND ${SCDOC} INPUT_FILE "${OUTPUT}.scd" OUTPUT_FILE "${OUTPUT}"
                RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "scdoc does not accept ${OUTPUT}.scd")
endif()
