/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cltopo.h"
#include "table.h"
#include "topo/select.h"

typedef enum operation { OP_NONE, OP_GE, OP_LE, OP_GT, OP_LT, OP_EQ, OP_NE } operation;

typedef struct requirement {
    char name[32];
    char argument[2][96];
    int argument_count;
    operation op;
    char value[64];
} requirement;

static const struct {
    const char *text;
    operation op;
} operations[] = {{">=", OP_GE}, {"<=", OP_LE}, {"==", OP_EQ}, {"!=", OP_NE},
                  {">", OP_GT},  {"<", OP_LT},  {"=", OP_EQ}};

static const char *skip_blanks(const char *at) {
    while (*at == ' ')
        at++;
    return at;
}

/* NAME[(ARGUMENT[, ARGUMENT])] [OP VALUE] */
static bool parse(const char *text, requirement *out) {
    const char *at = skip_blanks(text);
    size_t length = 0;
    *out = (requirement){.op = OP_NONE};
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    if (length == 0 || length >= sizeof out->name)
        return false;
    memcpy(out->name, at, length);
    at = skip_blanks(at + length);
    if (*at == '(') {
        do {
            at = skip_blanks(at + 1);
            length = strcspn(at, ",)");
            if (out->argument_count == 2 || length == 0 || !at[length] ||
                length >= sizeof out->argument[0])
                return false;
            memcpy(out->argument[out->argument_count++], at, length);
            at += length;
        } while (*at == ',');
        at = skip_blanks(at + 1);
    }
    if (!*at)
        return true;
    for (size_t i = 0; i < COPSE__COUNT(operations); i++) {
        size_t n = strlen(operations[i].text);
        if (strncmp(at, operations[i].text, n) != 0)
            continue;
        out->op = operations[i].op;
        at = skip_blanks(at + n);
        length = strlen(at);
        while (length > 0 && at[length - 1] == ' ')
            length--;
        if (length == 0 || length >= sizeof out->value)
            return false;
        memcpy(out->value, at, length);
        return true;
    }
    return false;
}

static bool compare(operation op, double actual, double expected) {
    switch (op) {
    case OP_GE:
        return actual >= expected;
    case OP_LE:
        return actual <= expected;
    case OP_GT:
        return actual > expected;
    case OP_LT:
        return actual < expected;
    case OP_EQ:
        return actual == expected;
    case OP_NE:
        return actual != expected;
    case OP_NONE:
        break;
    }
    return false;
}

/* What the requirements speak about: the chosen handles, each with its device. */
typedef struct subject {
    const session *s;
    int handles[COPSE__MAX_HANDLES];
    size_t count;
} subject;

static bool is_new_device(const subject *about, size_t upto) {
    const copse__topo *topo = about->s->topo;
    for (size_t j = 0; j < upto; j++)
        if (topo->handles[about->handles[j]].physical ==
            topo->handles[about->handles[upto]].physical)
            return false;
    return true;
}

static double count_type(const subject *about, uint64_t type) {
    double count = 0;
    for (size_t i = 0; i < about->count; i++)
        count += is_new_device(about, i) &&
                 (type == 0 || (about->s->topo->handles[about->handles[i]].type & type));
    return count;
}

/* The outcome: OP_NONE texts are for people. */
typedef struct outcome {
    bool good, valid;
    char actual[256];
    const char *problem; /* where it is not valid */
} outcome;

static outcome invalid(const char *problem) {
    return (outcome){.problem = problem};
}

/* strtod, but of numbers only: *end is text where it is not one, as "nan". */
static double read_number(const char *text, const char **end) {
    char *stop = NULL;
    double value = strtod(text, &stop);
    *end = isfinite(value) ? stop : text;
    return value;
}

static outcome judge_number(const requirement *r, double actual, double scale,
                            const char *unit) {
    outcome made = {.valid = true};
    const char *end;
    double expected = read_number(r->value, &end);
    if (r->op == OP_NONE) {
        made.good = actual >= 1;
    } else {
        if (end == r->value ||
            (*end && strcasecmp(skip_blanks(end), unit) != 0 && scale == 1))
            return invalid("a number belongs after the comparison");
        made.good = !isnan(actual) && compare(r->op, actual, expected * scale);
    }
    copse__put(made.actual, sizeof made.actual, "%.6g%s%s", actual, unit[0] ? " " : "",
               unit);
    return made;
}

static outcome unknown(const char *why) {
    outcome made = {.valid = true};
    copse__put(made.actual, sizeof made.actual, "not known: %s", why);
    return made;
}

static outcome judge_count(const subject *about, const requirement *r) {
    static const struct {
        const char *name;
        uint64_t type;
    } kinds[] = {{"devices", 0},
                 {"gpus", COPSE__TYPE_GPU},
                 {"cpus", COPSE__TYPE_CPU},
                 {"accelerators", COPSE__TYPE_ACCELERATOR}};
    for (size_t i = 0; i < COPSE__COUNT(kinds); i++)
        if (!strcmp(r->name, kinds[i].name))
            return judge_number(r, count_type(about, kinds[i].type), 1, "");
    return invalid("an unknown requirement");
}

static outcome judge_vendor(const subject *about, const requirement *r) {
    double count = 0;
    if (r->argument_count != 1)
        return invalid("vendor wants one tag, as vendor(amd)>=1");
    for (size_t i = 0; i < about->count; i++)
        count +=
            is_new_device(about, i) &&
            !strcasecmp(about->s->topo->handles[about->handles[i]].tag, r->argument[0]);
    return judge_number(r, count, 1, "");
}

static outcome judge_memory(const subject *about, const requirement *r) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024},
                 {"MiB", 1048576},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    const char *end;
    double expected = read_number(r->value, &end), least = INFINITY;
    double scale = 0;
    for (size_t i = 0; i < COPSE__COUNT(units); i++)
        if (!strcmp(skip_blanks(end), units[i].unit))
            scale = units[i].bytes;
    if (r->op == OP_NONE || end == r->value || scale == 0)
        return invalid("mem wants a size, as mem>=8GiB");
    for (size_t i = 0; i < about->count; i++) {
        uint64_t bytes = about->s->topo->handles[about->handles[i]].memory_bytes;
        if (bytes == 0)
            return unknown("a device does not say its memory");
        least = fmin(least, (double)bytes);
    }
    if (about->count == 0)
        return unknown("there is no device");
    outcome made = {.valid = true, .good = compare(r->op, least, expected * scale)};
    char text[32];
    copse__put(made.actual, sizeof made.actual, "%s, of the device that has least",
               copse__format_bytes(text, sizeof text, (unsigned long long)least));
    return made;
}

static bool has_extension(const copse__handle *h, const char *word) {
    size_t length = strlen(word);
    const char *list = h->extensions ? h->extensions : "";
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static outcome judge_extension(const subject *about, const requirement *r) {
    outcome made = {.valid = true, .good = about->count > 0};
    if (r->argument_count != 1 || r->op != OP_NONE)
        return invalid("ext wants one extension, as ext(cl_khr_fp16)");
    if (about->count == 0)
        return unknown("there is no device");
    copse__put(made.actual, sizeof made.actual, "all %zu handles have it", about->count);
    for (size_t i = 0; i < about->count; i++) {
        const copse__handle *h = &about->s->topo->handles[about->handles[i]];
        if (made.good && !has_extension(h, r->argument[0])) {
            made.good = false;
            copse__put(made.actual, sizeof made.actual, "%u:%u (%s) lacks it",
                       h->platform, h->device, h->name);
        }
    }
    return made;
}

/* Compares dotted numbers; what follows them ("+debian") does not count. */
static int compare_versions(const char *a, const char *b) {
    while (*a && !isdigit((unsigned char)*a))
        a++;
    while (*b && !isdigit((unsigned char)*b))
        b++;
    for (;;) {
        char *a_end = NULL, *b_end = NULL;
        unsigned long x = isdigit((unsigned char)*a) ? strtoul(a, &a_end, 10) : 0;
        unsigned long y = isdigit((unsigned char)*b) ? strtoul(b, &b_end, 10) : 0;
        if (x != y)
            return x < y ? -1 : 1;
        bool a_more = a_end && *a_end == '.', b_more = b_end && *b_end == '.';
        if (!a_more && !b_more)
            return 0;
        a = a_more ? a_end + 1 : "";
        b = b_more ? b_end + 1 : "";
    }
}

static bool of_driver(const copse__topo *topo, const copse__handle *h, const char *word) {
    const copse__platform *p = &topo->platforms[h->platform];
    return strcasestr(p->name, word) || strcasestr(p->version, word) ||
           strcasestr(h->version, word) ||
           (p->icd >= 0 && strcasestr(topo->icds[p->icd].shared_object, word));
}

static outcome judge_driver(const subject *about, const requirement *r) {
    outcome made = {.valid = true};
    const copse__topo *topo = about->s->topo;
    if (r->argument_count != 1 ||
        (r->op != OP_NONE && !isdigit((unsigned char)r->value[0])))
        return invalid("driver wants a name and a version, as driver(pocl)>=3");
    for (size_t i = 0; i < topo->handle_count; i++) {
        const copse__handle *h = &topo->handles[i];
        if (!of_driver(topo, h, r->argument[0]))
            continue;
        double order = compare_versions(h->driver, r->value);
        made.good = r->op == OP_NONE || compare(r->op, order, 0);
        copse__put(made.actual, sizeof made.actual, "%s", h->driver);
        if (!made.good)
            return made;
    }
    if (!made.actual[0])
        return unknown("no such driver shows a device");
    return made;
}

/* A device as list numbers it (0, 1, …), or as a handle P:D. */
static int find_device(const copse__topo *topo, const char *text) {
    unsigned platform = 0, device = 0;
    int used = 0;
    if (sscanf(text, "%u:%u%n", &platform, &device, &used) == 2 && !text[used]) {
        for (size_t i = 0; i < topo->handle_count; i++)
            if (topo->handles[i].platform == platform &&
                topo->handles[i].device == device)
                return topo->handles[i].physical;
        return -1;
    }
    if (sscanf(text, "%u%n", &device, &used) == 1 && !text[used])
        return device < topo->physical_count ? (int)device : -1;
    for (size_t p = 0; p < topo->physical_count; p++)
        if (!strcmp(topo->physicals[p].id, text))
            return (int)p;
    return -1;
}

static outcome judge_path(const subject *about, const requirement *r) {
    const copse__topo *topo = about->s->topo;
    int expected = -1;
    for (int k = 0; k < (int)COPSE__PATH_UNKNOWN; k++)
        if (!strcasecmp(r->value, copse__path_name((copse__path_kind)k)))
            expected = k;
    if (r->argument_count != 2 || expected < 0)
        return invalid("path wants two devices and X, PIX, PXB, PHB, NODE or SYS, as "
                       "path(0,1)<=NODE");
    int a = find_device(topo, r->argument[0]), b = find_device(topo, r->argument[1]);
    if (a < 0 || b < 0)
        return unknown("there is no such device");
    copse__path_kind kind = copse__device_path(topo, (size_t)a, (size_t)b);
    outcome made = {.valid = true};
    made.good = kind != COPSE__PATH_UNKNOWN && compare(r->op, (double)kind, expected);
    copse__put(made.actual, sizeof made.actual, "%s", copse__path_name(kind));
    return made;
}

/* The best median rate of a device over its paths that move data; 0: not measured. */
static double best_rate(const copse__topo *topo, int physical, const char *what) {
    double best = 0;
    for (size_t i = 0; i < topo->measure_count; i++) {
        const copse__measure *m = &topo->measures[i];
        if (m->physical == physical && m->moves && m->devices == 1 && m->verified &&
            !strcmp(m->what, what))
            best = fmax(best, m->median);
    }
    return best;
}

static outcome judge_rate(const subject *about, const requirement *r) {
    const copse__topo *topo = about->s->topo;
    bool all = r->argument_count == 0 || !strcmp(r->argument[0], "all");
    double least = INFINITY;
    if (r->argument_count > 1 || r->op == OP_NONE)
        return invalid(
            "h2d and d2h want a device or all, and a rate, as h2d(all)>=10GB/s");
    int one = all ? -1 : find_device(topo, r->argument[0]);
    if (!all && one < 0)
        return unknown("there is no such device");
    for (size_t i = 0; i < (all ? about->count : 1); i++) {
        int physical = all ? topo->handles[about->handles[i]].physical : one;
        double rate = best_rate(topo, physical, r->name);
        if (rate <= 0)
            return unknown(
                "not measured (save cltopo bench --format json, and give it as "
                "--input)");
        least = fmin(least, rate);
    }
    if (!isfinite(least))
        return unknown("there is no device");
    return judge_number(r, least, 1, "GB/s");
}

static outcome judge(const subject *about, const char *text) {
    requirement r;
    if (!parse(text, &r))
        return invalid("not of the form NAME[(ARGUMENT)] [>= VALUE]");
    if (!strcmp(r.name, "vendor"))
        return judge_vendor(about, &r);
    if (!strcmp(r.name, "mem"))
        return judge_memory(about, &r);
    if (!strcmp(r.name, "ext"))
        return judge_extension(about, &r);
    if (!strcmp(r.name, "driver"))
        return judge_driver(about, &r);
    if (!strcmp(r.name, "path"))
        return judge_path(about, &r);
    if (!strcmp(r.name, "h2d") || !strcmp(r.name, "d2h"))
        return judge_rate(about, &r);
    if (r.argument_count)
        return invalid("an unknown requirement");
    return judge_count(about, &r);
}

/* The devices that --select names, or every usable one. A machine without any is no failure
 * here: a requirement says so. */
static int choose(session *s, subject *about) {
    copse__device_choice *choices = NULL;
    size_t count = 0;
    copse_error error;
    *about = (subject){.s = s};
    if (!s->options->select) {
        for (size_t i = 0; i < s->topo->handle_count; i++)
            if (s->topo->handles[i].preferred &&
                copse__handle_usable(&s->topo->handles[i]))
                about->handles[about->count++] = (int)i;
        return EXIT_OK;
    }
    copse_status status =
        copse__select_devices(s->topo, s->options->select, &choices, &count, &error);
    if (status == COPSE_NODEVICE)
        return EXIT_OK;
    if (status != COPSE_OK)
        return complain(&error);
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < s->topo->handle_count; i++) {
            const copse__handle *h = &s->topo->handles[i];
            bool same = choices[c].api == COPSE__API_OPENCL &&
                        choices[c].platform_index == h->platform &&
                        choices[c].device_index == h->device;
            bool again = false;
            for (size_t k = 0; k < about->count; k++)
                again |= about->handles[k] == (int)i;
            if (same && !again && about->count < COPSE__MAX_HANDLES)
                about->handles[about->count++] = (int)i;
        }
    free(choices);
    return EXIT_OK;
}

int run_check(session *s) {
    static const char *const columns[][2] = {
        {"ok", "ok"}, {"require", "required"}, {"actual", "found"}, {NULL, NULL}};
    subject about;
    table t;
    bool all = true;
    if (s->options->format == FORMAT_DOT || s->options->format == FORMAT_SVG)
        return refuse_format(s);
    int code = choose(s, &about);
    if (code != EXIT_OK)
        return code;
    table_begin(&t, columns);
    size_t count = s->options->require_count ? (size_t)s->options->require_count : 1;
    for (size_t i = 0; i < count; i++) {
        const char *text =
            s->options->require_count ? s->options->require[i] : "devices>=1";
        outcome made = judge(&about, text);
        if (!made.valid) {
            complain_text("--require '%s': %s", text, made.problem);
            table_free(&t);
            return EXIT_USAGE;
        }
        table_row(&t);
        table_add(&t, json_boolean(made.good));
        table_text(&t, text);
        table_text(&t, made.actual);
        all = all && made.good;
        if (!made.good)
            complain_text("required %s, found %s", text, made.actual);
    }
    code = table_write(&t, s, "requirements");
    if (code == EXIT_OK && !all)
        code = s->options->require_count ? EXIT_UNMET : EXIT_NO_DEVICE;
    return code;
}
