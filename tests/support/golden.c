/* SPDX-License-Identifier: Apache-2.0 */
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "support/check.h"

typedef struct golden_tensor {
    char name[64];
    size_t count, step, listed;
    double norm, sum;
    double *values;
} golden_tensor;

struct golden {
    golden_tensor *tensors;
    size_t count;
};

static char *next_line(char **rest) {
    char *line = *rest, *end = line ? strchr(line, '\n') : NULL;
    *rest = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return line && *line ? line : NULL;
}

/* The values of a tensor, over as many lines as they take. */
static void read_values(golden_tensor *t, char **rest) {
    t->listed = (t->count + t->step - 1) / t->step;
    t->values = calloc(t->listed, sizeof *t->values);
    ck_assert_ptr_nonnull(t->values);
    for (size_t i = 0; i < t->listed;) {
        char *line = next_line(rest);
        ck_assert_msg(line != NULL, "%s ends early", t->name);
        for (char *end; i < t->listed; i++, line = end) {
            t->values[i] = strtod(line, &end);
            if (end == line)
                break;
        }
    }
}

golden *golden_open(const char *name) {
    char path[128], *text, *line;
    copse_error error = {0};
    golden *file = calloc(1, sizeof *file);
    ck_assert_ptr_nonnull(file);
    snprintf(path, sizeof path, "tests/data/golden/%s.golden", name);
    ASSERT_OK(copse__file_read(&text, &(size_t){0}, path, 1u << 22, &error));
    char *rest = text;
    while ((line = next_line(&rest)) != NULL) {
        golden_tensor t = {0};
        if (line[0] == '#')
            continue;
        ck_assert_msg(sscanf(line, "tensor %63s %zu %zu %lf %lf", t.name, &t.count,
                             &t.step, &t.norm, &t.sum) == 5 &&
                          t.count > 0 && t.step > 0,
                      "%s: not a tensor: %.40s", path, line);
        read_values(&t, &rest);
        file->tensors = realloc(file->tensors, (file->count + 1) * sizeof *file->tensors);
        ck_assert_ptr_nonnull(file->tensors);
        file->tensors[file->count++] = t;
    }
    free(text);
    return file;
}

void golden_free(golden *file) {
    for (size_t i = 0; i < file->count; i++)
        free(file->tensors[i].values);
    free(file->tensors);
    free(file);
}

static const golden_tensor *find(const golden *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    ck_abort_msg("there is no golden %s", name);
    return NULL;
}

/* Written so that a NaN fails. */
static void check_near(const char *name, const char *what, size_t at, double got,
                       double want, double allowed) {
    ck_assert_msg(fabs(got - want) <= allowed, "%s, %s %zu: %.9g instead of %.9g (±%.3g)",
                  name, what, at, got, want, allowed);
}

void golden_check(const golden *file, const char *tensor, const float *got, size_t count,
                  double tolerance) {
    const golden_tensor *t = find(file, tensor);
    double largest = 0, squares = 0, sum = 0;
    ck_assert_uint_eq(count, t->count);
    for (size_t i = 0; i < t->listed; i++)
        largest = fmax(largest, fabs(t->values[i]));
    for (size_t i = 0; i < t->listed; i++)
        check_near(tensor, "element", i * t->step, (double)got[i * t->step], t->values[i],
                   tolerance * largest);
    for (size_t i = 0; i < count; i++) {
        squares += (double)got[i] * (double)got[i];
        sum += (double)got[i];
    }
    check_near(tensor, "norm", 0, sqrt(squares), t->norm, tolerance * t->norm);
    check_near(tensor, "sum", 0, sum, t->sum, tolerance * t->norm * sqrt((double)count));
}
