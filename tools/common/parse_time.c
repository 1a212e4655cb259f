/* SPDX-License-Identifier: Apache-2.0 */
#include "common/parse_time.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Each unit once, the greater before the smaller. */
bool tool_parse_time(const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}, {"ms", 1e-3}};
    double sum = 0;
    size_t next = 0, count = sizeof units / sizeof *units;
    while (isdigit((unsigned char)*text) || *text == '.') {
        char *end;
        double value = strtod(text, &end);
        size_t length = strspn(end, "dhms"), unit = next;
        while (unit < count && (strlen(units[unit].unit) != length ||
                                strncmp(units[unit].unit, end, length) != 0))
            unit++;
        bool bare = length == 0 && sum == 0 && !*end; /* seconds */
        if (end == text || (unit == count && !bare))
            return false;
        sum += value * (bare ? 1 : units[unit].seconds);
        next = unit + 1;
        text = end + length;
    }
    *seconds = sum;
    return !*text && sum > 0 && isfinite(sum);
}
