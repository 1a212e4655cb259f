# SPDX-License-Identifier: Apache-2.0
# cltopo: its reports against the schema, the drivers of this machine, and its usage.
add_executable(test_cltopo_schema test_cltopo_schema.c)
target_link_libraries(test_cltopo_schema PRIVATE copse_flags PkgConfig::JANSSON)
file(GLOB cltopo_reports CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/data/cltopo/*.json)
list(FILTER cltopo_reports EXCLUDE REGEX "(doctor|plan)\\.json$")
add_test(NAME test_cltopo_schema COMMAND test_cltopo_schema
  ${PROJECT_SOURCE_DIR}/docs/cltopo.schema.json ${cltopo_reports})
add_test(NAME test_cltopo_real COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test_cltopo_real.sh
  $<TARGET_FILE:cltopo> $<TARGET_FILE:test_cltopo_schema>
  ${PROJECT_SOURCE_DIR}/docs/cltopo.schema.json)
set_tests_properties(test_cltopo_schema PROPERTIES LABELS unit)
set_tests_properties(test_cltopo_real PROPERTIES LABELS tools SKIP_RETURN_CODE 77 TIMEOUT 300)
