/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/topo.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "topo/bind.h"
#include "topo/model.h"

size_t copse__put(char *out, size_t capacity, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(out, capacity, format, args);
    va_end(args);
    if (wanted < 0)
        out[0] = '\0';
    size_t length = strlen(out);
    if (wanted < 0 || (size_t)wanted == length)
        return length;
    size_t lead = length;
    while (lead > 0 && ((unsigned char)out[lead - 1] & 0xC0) == 0x80)
        lead--;
    if (lead == 0)
        return length;
    unsigned char c = (unsigned char)out[lead - 1];
    size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    if (length - (lead - 1) < need)
        out[length = lead - 1] = '\0';
    return length;
}

void copse__topo_warn(copse__topo *topo, const char *code, const char *format, ...) {
    if (copse__grow(&topo->warnings, &topo->warning_capacity, topo->warning_count + 1,
                    sizeof topo->warnings[0], NULL) != COPSE_OK)
        return;
    copse__warning *made = &topo->warnings[topo->warning_count++];
    copse__put(made->code, sizeof made->code, "%s", code);
    va_list args;
    va_start(args, format);
    vsnprintf(made->text, sizeof made->text, format, args);
    va_end(args);
}

uint64_t copse__handle_order(const copse__topo *topo, const copse__handle *handle) {
    uint64_t numa = 0xFF, address = 0xFFFFFFFFu;
    if (handle->physical >= 0) {
        const copse__physical *physical = &topo->physicals[handle->physical];
        if (physical->numa >= 0 && physical->numa < 0xFF)
            numa = (uint64_t)physical->numa;
        if (physical->has_pci) {
            uint64_t domain =
                physical->pci.domain < 0xFFFF ? physical->pci.domain : 0xFFFF;
            address = domain << 16 | (uint64_t)(physical->pci.bus & 0xFF) << 8 |
                      (uint64_t)(physical->pci.device & 0x1F) << 3 |
                      (physical->pci.function & 7);
        }
    }
    return numa << 56 | address << 24 | (uint64_t)(handle->platform & 0xFF) << 16 |
           (uint64_t)(handle->device & 0xFF) << 8;
}

static void describe_host(copse__topo *topo) {
    topo->cpu_count = copse__allowed_cpus();
    if (gethostname(topo->host, sizeof topo->host - 1) != 0)
        topo->host[0] = '\0';
    const char *kind = getenv("container");
    topo->container = (kind && kind[0]) || copse__file_exists("/.dockerenv") ||
                      copse__file_exists("/run/.containerenv");
}

/* One line for all the cards that no driver shows: a machine may have many. */
static void warn_silent(copse__topo *topo) {
    char list[200] = "";
    size_t count = 0, used = 0;
    for (size_t p = 0; p < topo->physical_count; p++) {
        const copse__physical *physical = &topo->physicals[p];
        if (physical->preferred >= 0)
            continue;
        if (count < 3)
            used += copse__put(list + used, sizeof list - used, "%s%s (%s)",
                               count ? ", " : "", physical->id, physical->name);
        count++;
    }
    if (count > 0)
        copse__topo_warn(topo, "NO_HANDLE", "no OpenCL driver shows %s%s: install one",
                         list, count > 3 ? " and more" : "");
}

static void warn_unknown(copse__topo *topo) {
    size_t pci = 0;
    for (size_t i = 0; i < topo->node_count; i++)
        pci += topo->nodes[i].kind == COPSE__NODE_PCI;
    if (pci == 0)
        copse__topo_warn(topo, "NO_PCI",
                         "this system shows no PCI devices (/sys may be hidden): where "
                         "the devices sit is not known");
    for (size_t p = 0; pci > 0 && p < topo->physical_count; p++) {
        const copse__physical *physical = &topo->physicals[p];
        if (physical->has_pci && physical->node < 0)
            copse__topo_warn(topo, "NO_SUCH_ADDRESS",
                             "%s: the system shows no PCI device at the address that its "
                             "driver says",
                             physical->id);
    }
    warn_silent(topo);
}

/* What is the same for this machine and a saved one: whose is what, and where. */
static copse_status join_parts(copse__topo *topo, copse_error *err) {
    for (size_t i = 0; i < topo->handle_count; i++)
        copse__handle_set_tag(&topo->handles[i]);
    copse_status status = copse__identify(topo, err);
    return status == COPSE_OK ? copse__locate(topo, err) : status;
}

/* hwloc reads the machine while the drivers answer: both take their time. */
static copse_status read_this_machine(copse__topo *topo,
                                      const copse__topo_options *options,
                                      copse_error *err) {
    copse__asking *asking = NULL;
    describe_host(topo);
    copse_status status = copse__ask_begin(&asking, topo, options, err);
    if (status != COPSE_OK)
        return status;
    status = copse__read_machine(topo, NULL, 0, NULL, err);
    copse_error second;
    copse_status asked = copse__ask_finish(asking, status == COPSE_OK, &second);
    if (status == COPSE_OK && asked != COPSE_OK) {
        if (err)
            *err = second;
        status = asked;
    }
    if (status == COPSE_OK)
        status = join_parts(topo, err);
    if (status == COPSE_OK)
        warn_unknown(topo);
    return status;
}

static copse_status new_topo(copse__topo **out, copse_error *err) {
    copse_status status = copse__calloc(out, 1, sizeof **out, err);
    if (status == COPSE_OK)
        (*out)->container = -1;
    return status;
}

copse_status copse__topo_from_xml(copse__topo **out, const char *xml, size_t bytes,
                                  const char *place, copse_error *err) {
    copse_status status = new_topo(out, err);
    if (status != COPSE_OK)
        return status;
    (*out)->replayed = true;
    status = copse__read_xml(*out, xml, bytes, place, err);
    if (status == COPSE_OK)
        status = join_parts(*out, err);
    if (status != COPSE_OK) {
        copse__topo_close(*out);
        *out = NULL;
    }
    return status;
}

static copse_status open_xml(copse__topo **out, const char *path, copse_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    copse_status status = copse__file_read(&text, &bytes, path, (size_t)64 << 20, err);
    if (status == COPSE_OK)
        status = copse__topo_from_xml(out, text, bytes, path, err);
    free(text);
    return status;
}

static copse_status take_bench(copse__topo *topo, const char *path, copse_error *err) {
    copse__topo *saved = NULL;
    const copse__topo_options from = {.input_json = path};
    copse_status status = copse__topo_open(&saved, &from, err);
    if (status == COPSE_OK)
        status = copse__topo_take_measures(topo, saved, path, err);
    copse__topo_close(saved);
    return status;
}

copse_status copse__topo_open(copse__topo **out, const copse__topo_options *options,
                              copse_error *err) {
    static const copse__topo_options defaults = {0};
    *out = NULL;
    if (!options)
        options = &defaults;
    if (options->input_json && options->hwloc_xml)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "a saved report and a saved hwloc topology are two machines: "
                           "give one of them");
    if (options->hwloc_xml)
        return open_xml(out, options->hwloc_xml, err);
    copse_status status = new_topo(out, err);
    if (status != COPSE_OK)
        return status;
    (*out)->replayed = options->input_json != NULL;
    status = options->input_json ? copse__json_read(*out, options->input_json, err)
                                 : read_this_machine(*out, options, err);
    if (status == COPSE_OK && options->bench_json)
        status = take_bench(*out, options->bench_json, err);
    if (status != COPSE_OK) {
        copse__topo_close(*out);
        *out = NULL;
    }
    return status;
}

void copse__topo_close(copse__topo *topo) {
    if (!topo)
        return;
    if (topo->vendors_folder) {
        if (topo->vendors_were_set && topo->vendors_before)
            setenv("OCL_ICD_VENDORS", topo->vendors_before, 1);
        else
            unsetenv("OCL_ICD_VENDORS");
        copse__icds_folder_remove(topo->vendors_folder);
    }
    for (size_t i = 0; i < topo->handle_count; i++)
        free(topo->handles[i].extensions);
    free(topo->vendors_folder);
    free(topo->vendors_before);
    free(topo->icds);
    free(topo->platforms);
    free(topo->handles);
    free(topo->physicals);
    free(topo->warnings);
    free(topo->nodes);
    free(topo->measures);
    free(topo);
}
