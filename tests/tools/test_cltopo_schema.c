/* SPDX-License-Identifier: Apache-2.0 */
/* test_cltopo_schema SCHEMA REPORT...: whether each report is as the schema says, after the
 * rules of JSON Schema that the schema uses. A rule that is not known here is a failure, so
 * that nothing is passed over in silence. */
#include <jansson.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static bool quiet;

static void fail(const char *place, const char *what, const char *detail) {
    if (!quiet)
        printf("FAILED %s: %s %s\n", place, what, detail);
    failures++;
}

static bool is_type(const json_t *value, const char *type) {
    static const struct {
        const char *name;
        json_type type;
    } types[] = {{"object", JSON_OBJECT},
                 {"array", JSON_ARRAY},
                 {"string", JSON_STRING},
                 {"integer", JSON_INTEGER},
                 {"null", JSON_NULL}};
    if (!strcmp(type, "boolean"))
        return json_is_boolean(value);
    if (!strcmp(type, "number"))
        return json_is_number(value);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(type, types[i].name))
            return json_typeof(value) == types[i].type;
    return false;
}

static void check_type(const json_t *rule, const json_t *value, const char *place) {
    bool good = false;
    if (json_is_string(rule))
        good = is_type(value, json_string_value(rule));
    for (size_t i = 0; i < json_array_size(rule); i++)
        good = good || is_type(value, json_string_value(json_array_get(rule, i)));
    if (!good)
        fail(place, "has the wrong type", "");
}

static void check_pattern(const json_t *rule, const json_t *value, const char *place) {
    regex_t pattern;
    if (!json_is_string(value))
        return;
    if (regcomp(&pattern, json_string_value(rule), REG_EXTENDED | REG_NOSUB) != 0) {
        fail(place, "no pattern:", json_string_value(rule));
        return;
    }
    if (regexec(&pattern, json_string_value(value), 0, NULL, 0) != 0)
        fail(place, "does not match:", json_string_value(value));
    regfree(&pattern);
}

static void check_enum(const json_t *rule, const json_t *value, const char *place) {
    for (size_t i = 0; i < json_array_size(rule); i++)
        if (json_equal(json_array_get(rule, i), value))
            return;
    fail(place, "is none of the values", "");
}

static void check(json_t *schema, json_t *value, const char *place);

static void check_object(json_t *schema, json_t *value, const char *place) {
    json_t *known = json_object_get(schema, "properties"), *member, *name;
    const char *key;
    size_t i;
    char inner[512];
    json_object_foreach(value, key, member) {
        json_t *rule = json_object_get(known, key);
        snprintf(inner, sizeof inner, "%s.%s", place, key);
        if (rule)
            check(rule, member, inner);
        else if (json_is_false(json_object_get(schema, "additionalProperties")))
            fail(inner, "is not in the schema", "");
    }
    json_array_foreach(json_object_get(schema, "required"), i, name) {
        if (!json_object_get(value, json_string_value(name)))
            fail(place, "lacks", json_string_value(name));
    }
}

static void check(json_t *schema, json_t *value, const char *place) {
    const char *key;
    json_t *rule, *item;
    size_t i;
    char inner[512];
    json_object_foreach(schema, key, rule) {
        if (!strcmp(key, "type"))
            check_type(rule, value, place);
        else if (!strcmp(key, "enum"))
            check_enum(rule, value, place);
        else if (!strcmp(key, "pattern"))
            check_pattern(rule, value, place);
        else if (!strcmp(key, "items"))
            json_array_foreach(value, i, item) {
                snprintf(inner, sizeof inner, "%s[%zu]", place, i);
                check(rule, item, inner);
            }
        else if (!strcmp(key, "properties"))
            check_object(schema, value, place);
        else if (strcmp(key, "required") != 0 &&
                 strcmp(key, "additionalProperties") != 0 &&
                 strcmp(key, "description") != 0 && strcmp(key, "title") != 0 &&
                 strcmp(key, "$schema") != 0)
            fail(place, "a rule that this test does not know:", key);
    }
}

int main(int argc, char *argv[]) {
    json_error_t where;
    json_t *schema =
        argc > 2 ? json_load_file(argv[1], JSON_REJECT_DUPLICATES, &where) : NULL;
    if (!schema) {
        printf("no schema, or no report to check\n");
        return EXIT_FAILURE;
    }
    for (int i = 2; i < argc; i++) {
        json_t *report = json_load_file(argv[i], JSON_REJECT_DUPLICATES, &where);
        if (report)
            check(schema, report, argv[i]);
        else
            fail(argv[i], "is not JSON:", where.text);
        json_decref(report);
    }
    /* A report without anything must not pass. */
    int before = failures;
    json_t *empty = json_object();
    quiet = true;
    check(schema, empty, "an empty report");
    quiet = false;
    if (failures == before)
        fail("the schema", "accepts an empty report", "");
    else
        failures = before;
    json_decref(empty);
    json_decref(schema);
    printf("%d report(s), %d failure(s)\n", argc - 2, failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
