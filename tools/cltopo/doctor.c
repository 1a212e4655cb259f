/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cltopo.h"
#include "table.h"

/* A device file of the kernel's graphics drivers that this user may not open; "" where
 * there is none. */
static void find_closed_device(char *out, size_t capacity) {
    out[0] = '\0';
    DIR *folder = opendir("/dev/dri");
    struct dirent *entry;
    char path[300];
    while (folder && (entry = readdir(folder))) {
        copse__put(path, sizeof path, "/dev/dri/%s", entry->d_name);
        if (!strncmp(entry->d_name, "renderD", 7) && access(path, R_OK | W_OK) != 0)
            copse__put(out, capacity, "%s", path);
    }
    if (folder)
        closedir(folder);
    if (!out[0] && access("/dev/kfd", F_OK) == 0 && access("/dev/kfd", R_OK | W_OK) != 0)
        copse__put(out, capacity, "/dev/kfd");
}

static void remedy_empty(const copse__icd *icd, char *out, size_t capacity) {
    char closed[300];
    find_closed_device(closed, sizeof closed);
    if (strcasestr(icd->shared_object, "rusticl") && !getenv("RUSTICL_ENABLE"))
        copse__put(
            out, capacity,
            "rusticl shows a device only where RUSTICL_ENABLE names its driver: set "
            "RUSTICL_ENABLE=radeonsi, iris, nouveau or llvmpipe");
    else if (strcasestr(icd->shared_object, "MesaOpenCL"))
        copse__put(out, capacity,
                   "Mesa's Clover drives few old AMD cards only; for others use rusticl, "
                   "or remove %s",
                   icd->file);
    else if (closed[0])
        copse__put(out, capacity,
                   "you may not open %s: join the group that owns it (render or video)",
                   closed);
    else
        copse__put(out, capacity,
                   "it finds no device: is the hardware there and its kernel driver "
                   "loaded (lspci -k)? Else remove %s",
                   icd->file);
}

static void remedy(const copse__icd *icd, char *out, size_t capacity) {
    out[0] = '\0';
    switch (icd->status) {
    case COPSE__ICD_OK:
        break;
    case COPSE__ICD_EMPTY:
        remedy_empty(icd, out, capacity);
        break;
    case COPSE__ICD_MISSING:
        if (icd->shared_object[0])
            copse__put(
                out, capacity,
                "install the package that has %s (and what it needs), or remove %s",
                icd->shared_object, icd->file);
        else
            copse__put(out, capacity, "%s names no library: remove it", icd->file);
        break;
    case COPSE__ICD_CRASH:
        copse__put(out, capacity,
                   "update or reinstall the driver, or remove %s; until then it is left "
                   "out",
                   icd->file);
        break;
    case COPSE__ICD_TIMEOUT:
        copse__put(out, capacity,
                   "wait longer with --probe-timeout 60s; if it still hangs, update the "
                   "driver or remove %s",
                   icd->file);
        break;
    case COPSE__ICD_UNKNOWN:
        copse__put(out, capacity, "the OpenCL loader of this process does not use it");
        break;
    }
}

static void problem(const copse__icd *icd, char *out, size_t capacity) {
    size_t used = 0;
    out[0] = '\0';
    if (icd->status == COPSE__ICD_CRASH && icd->signal)
        used = copse__put(out, capacity, "%s, ", strsignal(icd->signal));
    else if (icd->status == COPSE__ICD_CRASH)
        used = copse__put(out, capacity, "ended the process, ");
    if (icd->status == COPSE__ICD_CRASH || icd->status == COPSE__ICD_TIMEOUT)
        used += copse__put(out + used, capacity - used, "in %s",
                           icd->stage[0] ? icd->stage : "its start");
    if (icd->message[0] && icd->status != COPSE__ICD_OK)
        copse__put(out + used, capacity - used, "%s%s", used ? ": " : "", icd->message);
}

int run_doctor(session *s) {
    static const char *const columns[][2] = {
        {"file", "driver"},     {"library", "library"}, {"status", "status"},
        {"platforms", NULL},    {"devices", "devices"}, {"signal", NULL},
        {"problem", "problem"}, {"remedy", NULL},       {NULL, NULL}};
    const copse__topo *topo = s->topo;
    table t;
    char text[600], what[400];
    size_t usable = 0, working = 0;
    if (s->options->format == FORMAT_DOT || s->options->format == FORMAT_SVG)
        return refuse_format(s);
    table_begin(&t, columns);
    for (size_t i = 0; i < topo->icd_count; i++) {
        const copse__icd *icd = &topo->icds[i];
        table_row(&t);
        table_text(&t, icd->file);
        table_text(&t, icd->shared_object);
        table_text(&t, copse__icd_status_name(icd->status));
        table_int(&t, icd->platforms);
        table_int(&t, icd->devices);
        table_int(&t, icd->signal ? icd->signal : -1);
        problem(icd, what, sizeof what);
        table_text(&t, what);
        remedy(icd, text, sizeof text);
        table_text(&t, text);
    }
    int code = table_write(&t, s, "icds");
    for (size_t i = 0; i < topo->handle_count; i++)
        usable += copse__handle_usable(&topo->handles[i]);
    for (size_t i = 0; i < topo->icd_count; i++)
        working += topo->icds[i].status == COPSE__ICD_OK;
    if (s->options->format != FORMAT_TEXT || code != EXIT_OK)
        return code;
    copse__text_add(&s->out, "\n");
    for (size_t i = 0; i < topo->icd_count; i++) {
        remedy(&topo->icds[i], text, sizeof text);
        if (text[0])
            copse__text_add(&s->out, "%s: %s\n", topo->icds[i].file, text);
    }
    for (size_t i = 0; i < topo->warning_count; i++)
        if (strncmp(topo->warnings[i].code, "ICD_", 4) != 0)
            copse__text_add(&s->out, "%s\n", topo->warnings[i].text);
    for (size_t i = 0; i < topo->handle_count; i++) {
        const copse__handle *h = &topo->handles[i];
        if (!copse__handle_usable(h))
            copse__text_add(&s->out, "%u:%u %s cannot be used: %s\n", h->platform,
                            h->device, h->name,
                            h->available == 0 ? "its driver says not available"
                                              : "its driver has no compiler");
    }
    copse__text_add(
        &s->out, "%zu driver%s installed, %zu of them work; %zu usable device handle%s\n",
        topo->icd_count, topo->icd_count == 1 ? "" : "s", working, usable,
        usable == 1 ? "" : "s");
    return EXIT_OK;
}
