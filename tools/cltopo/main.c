/* SPDX-License-Identifier: Apache-2.0 */
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cltopo.h"

void complain_text(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("cltopo: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int exit_code_of(copse_status status) {
    switch (status) {
    case COPSE_OK:
        return EXIT_OK;
    case COPSE_INVALID:
    case COPSE_CONFIG:
        return EXIT_USAGE;
    case COPSE_UNMET:
        return EXIT_UNMET;
    case COPSE_NODEVICE:
        return EXIT_NO_DEVICE;
    case COPSE_IO:
    case COPSE_FORMAT:
        return EXIT_DAMAGED;
    default:
        return EXIT_RUN_FAILED;
    }
}

int complain(const copse_error *error) {
    complain_text("%s%s%s", error->place, error->place[0] ? ": " : "", error->text);
    return exit_code_of(error->status);
}

int refuse_format(const session *s) {
    complain_text("%s has no such format: take text, json, jsonl or csv",
                  s->options->labels ? "--labels" : s->options->command);
    return EXIT_USAGE;
}

static bool is_command(const options *o, const char *name) {
    return o->command && !strcmp(o->command, name);
}

static int run_command(session *s) {
    static const struct {
        const char *name;
        int (*run)(session *);
    } runs[] = {{"tree", run_tree}, {"list", run_list},    {"matrix", run_matrix},
                {"plan", run_plan}, {"bench", run_bench},  {"check", run_check},
                {"diff", run_diff}, {"doctor", run_doctor}};
    if (s->options->labels)
        return run_labels(s);
    /* Requirements alone are a check. */
    if (!s->options->command && s->options->require_count)
        return run_check(s);
    for (size_t i = 0; i < COPSE__COUNT(runs); i++)
        if (is_command(s->options, runs[i].name))
            return runs[i].run(s);
    return run_tree(s);
}

static int open_machine(session *s) {
    const options *o = s->options;
    copse__topo_options how = {.isolate = o->no_isolation ? COPSE__ISOLATE_NONE
                                                          : COPSE__ISOLATE_ICD,
                               .timeout_ns = (uint64_t)(o->probe_timeout_s * 1e9),
                               .input_json = o->input,
                               .hwloc_xml = o->hwloc_xml,
                               .each_icd = is_command(o, "doctor")};
    copse_error error;
    if (copse__topo_open(&s->topo, &how, &error) != COPSE_OK)
        return complain(&error);
    if (!o->input && !is_command(o, "doctor"))
        for (size_t i = 0; i < s->topo->warning_count; i++)
            complain_text("warning: %s", s->topo->warnings[i].text);
    return EXIT_OK;
}

/* Whether a driver had to be left out. */
static bool is_partial(const copse__topo *topo) {
    for (size_t i = 0; topo && i < topo->icd_count; i++)
        if (topo->icds[i].status == COPSE__ICD_CRASH ||
            topo->icds[i].status == COPSE__ICD_TIMEOUT)
            return true;
    return false;
}

static int put_out(session *s) {
    copse_error error;
    if (copse__text_check(&s->out, &error) != COPSE_OK)
        return complain(&error);
    const char *data = s->out.data ? s->out.data : "";
    if (s->options->output) {
        if (copse__file_write_atomic(s->options->output, data, s->out.length, &error) !=
            COPSE_OK)
            return complain(&error);
        return EXIT_OK;
    }
    if (fwrite(data, 1, s->out.length, stdout) != s->out.length || fflush(stdout) != 0) {
        complain_text("the standard output cannot be written");
        return EXIT_RUN_FAILED;
    }
    return EXIT_OK;
}

static int run(session *s) {
    const options *o = s->options;
    if (o->help || o->version || o->generate) {
        if (o->help)
            add_help(&s->out);
        else if (o->version)
            copse__text_add(&s->out, "cltopo %s\n", copse_version());
        else if (!strcmp(o->generate, "man"))
            add_man_options(&s->out);
        else
            add_bash_completion(&s->out);
        return put_out(s);
    }
    int code = is_command(o, "diff") ? EXIT_OK : open_machine(s);
    if (code != EXIT_OK)
        return code;
    code = run_command(s);
    int put = code == EXIT_USAGE ? EXIT_OK : put_out(s);
    if (code == EXIT_OK && o->require_count && o->command && !is_command(o, "check")) {
        copse__text_free(&s->out);
        s->out = (copse__text){0};
        code = run_check(s);
        if (s->out.data)
            fputs(s->out.data, stderr);
    }
    if (code == EXIT_OK)
        code = put;
    if (code == EXIT_OK && o->strict && is_partial(s->topo)) {
        complain_text("a driver had to be left out (--strict)");
        code = EXIT_RUN_FAILED;
    }
    return code;
}

int main(int argc, char *argv[]) {
    options o;
    session s = {.options = &o};
    setlocale(LC_CTYPE, "");
    int code = parse_options(&o, argc, argv);
    if (code != EXIT_OK)
        return code;
    const char *none = getenv("NO_COLOR");
    s.unicode = !strcmp(nl_langinfo(CODESET), "UTF-8");
    s.colour = isatty(STDOUT_FILENO) && !o.output && !(none && none[0]);
    code = run(&s);
    copse__text_free(&s.out);
    copse__topo_close(s.topo);
    return code;
}
