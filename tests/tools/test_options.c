/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include "common/options.h"
#include "common/parse_time.h"

enum { OPT_DEVICES = 1, OPT_DRY, OPT_QUIET };

static const tool_option options[] = {
    {OPT_DEVICES, "devices", 'd', "SEL", "Which devices"},
    {OPT_DRY, "dry-run", 0, NULL, "Do nothing"},
    {OPT_QUIET, "quiet", 'q', NULL, "Say nothing"},
};

static const tool_command command = {.program = "tool run",
                                     .usage = "FILE",
                                     .summary = "Runs.",
                                     .options = options,
                                     .option_count = 3,
                                     .least_operands = 1,
                                     .most_operands = 2};

/* Parses argv and asserts each id (and argument) in turn. */
#define PARSE(...)                                                                       \
    char *argv[] = {"run", __VA_ARGS__};                                                 \
    tool_parser parser;                                                                  \
    const char *value;                                                                   \
    tool_begin(&parser, &command, (int)(sizeof argv / sizeof *argv), argv)

START_TEST(test_next_options_and_operands_may_be_mixed) {
    PARSE("a.yaml", "--devices=gpu", "-q", "--devices", "cpu", "b.yaml", "-dhost");
    ck_assert_int_eq(tool_next(&parser, &value), OPT_DEVICES);
    ck_assert_str_eq(value, "gpu");
    ck_assert_int_eq(tool_next(&parser, &value), OPT_QUIET);
    ck_assert_ptr_null(value);
    ck_assert_int_eq(tool_next(&parser, &value), OPT_DEVICES);
    ck_assert_str_eq(value, "cpu");
    ck_assert_int_eq(tool_next(&parser, &value), OPT_DEVICES);
    ck_assert_str_eq(value, "host");
    ck_assert_int_eq(tool_next(&parser, &value), TOOL_END);
    ck_assert_uint_eq(parser.operand_count, 2);
    ck_assert_str_eq(parser.operands[1], "b.yaml");
    tool_end(&parser);
}
END_TEST

START_TEST(test_next_after_double_dash_all_are_operands) {
    PARSE("--", "-q", "--dry-run");
    ck_assert_int_eq(tool_next(&parser, &value), TOOL_END);
    ck_assert_uint_eq(parser.operand_count, 2);
    tool_end(&parser);
}
END_TEST

START_TEST(test_next_short_prefix_is_taken_ambiguous_refused) {
    PARSE("x", "--dr", "--d");
    ck_assert_int_eq(tool_next(&parser, &value), OPT_DRY);
    ck_assert_int_eq(tool_next(&parser, &value), TOOL_USAGE);
    tool_end(&parser);
}
END_TEST

START_TEST(test_next_bad_usage_is_refused) {
    static const char *const bad[] = {"--nothing", "-z", "--dry-run=1", "--devices"};
    for (size_t i = 0; i < 4; i++) {
        PARSE("x", (char *)(size_t)bad[i]);
        ck_assert_int_eq(tool_next(&parser, &value), TOOL_USAGE);
        tool_end(&parser);
    }
    PARSE("a", "b", "c");
    ck_assert_int_eq(tool_next(&parser, &value), TOOL_USAGE);
    tool_end(&parser);
}
END_TEST

START_TEST(test_parse_time_takes_units_from_great_to_small) {
    static const struct {
        const char *text;
        double seconds; /* 0: refused */
    } cases[] = {
        {"10s", 10},       {"500ms", 0.5}, {"2m", 120},    {"3h50m", 13800},
        {"1d12h", 129600}, {"90", 90},     {"1.5h", 5400}, {"1h2m3s4ms", 3723.004},
        {"", 0},           {"0", 0},       {"-1s", 0},     {"5x", 0},
        {"3m2h", 0},       {"2m2m", 0},    {"1h30", 0},    {"h", 0},
        {"nan", 0},        {"1e3s", 1000}, {"0x10", 16},   {"1s ", 0},
        {"..s", 0},        {"1sm", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        bool taken = tool_parse_time(cases[i].text, &seconds);
        ck_assert_msg(taken == (cases[i].seconds > 0), "'%s'", cases[i].text);
        if (taken)
            ck_assert_double_eq_tol(seconds, cases[i].seconds, 1e-9 * seconds);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("options");
    ADD_TEST(suite, test_next_options_and_operands_may_be_mixed);
    ADD_TEST(suite, test_next_after_double_dash_all_are_operands);
    ADD_TEST(suite, test_next_short_prefix_is_taken_ambiguous_refused);
    ADD_TEST(suite, test_next_bad_usage_is_refused);
    ADD_TEST(suite, test_parse_time_takes_units_from_great_to_small);
    return run_suite(suite);
}
