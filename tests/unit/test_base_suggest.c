/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"

static const char *const words[] = {"max_pool2d", "avg_pool2d", "conv2d",
                                    "dense",      "relu",       "activation"};

static const char *nearest(const char *word) {
    return copse__suggest(word, words, COPSE__COUNT(words));
}

START_TEST(test_suggest_finds_mistyped_words) {
    ck_assert_str_eq(nearest("dens"), "dense");
    ck_assert_str_eq(nearest("desne"), "dense"); /* neighbours swapped */
    ck_assert_str_eq(nearest("Conv2D"), "conv2d");
    ck_assert_str_eq(nearest("MaxPool2D"), "max_pool2d");
    ck_assert_str_eq(nearest("max-pool-2d"), "max_pool2d");
    ck_assert_str_eq(nearest("activaton"), "activation");
    ck_assert_str_eq(nearest("rely"), "relu");
}
END_TEST

START_TEST(test_suggest_is_silent_where_nothing_is_near) {
    char long_word[200];
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    ck_assert_ptr_null(nearest("transformer"));
    ck_assert_ptr_null(nearest(""));
    ck_assert_ptr_null(nearest("___"));
    ck_assert_ptr_null(nearest("x"));
    ck_assert_ptr_null(nearest(long_word));
    ck_assert_ptr_null(copse__suggest("dense", words, 0));
}
END_TEST

START_TEST(test_suggest_text_is_the_tail_of_a_message) {
    char buffer[64];
    ck_assert_str_eq(
        copse__suggest_text(buffer, sizeof buffer, "dens", words, COPSE__COUNT(words)),
        " (did you mean 'dense'?)");
    ck_assert_str_eq(copse__suggest_text(buffer, sizeof buffer, "transformer", words,
                                         COPSE__COUNT(words)),
                     "");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base suggest");
    ADD_TEST(suite, test_suggest_finds_mistyped_words);
    ADD_TEST(suite, test_suggest_is_silent_where_nothing_is_near);
    ADD_TEST(suite, test_suggest_text_is_the_tail_of_a_message);
    return run_suite(suite);
}
