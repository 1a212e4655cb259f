/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

const char *copse__type_text(char *buffer, size_t capacity, uint64_t type) {
    static const struct {
        uint64_t bit;
        const char *word;
    } words[] = {{COPSE__TYPE_CPU, "cpu"},
                 {COPSE__TYPE_GPU, "gpu"},
                 {COPSE__TYPE_ACCELERATOR, "accelerator"},
                 {COPSE__TYPE_CUSTOM, "custom"}};
    size_t used = 0;
    copse__put(buffer, capacity, "unknown");
    for (size_t i = 0; i < COPSE__COUNT(words); i++)
        if ((type & words[i].bit) && used < capacity)
            used += copse__put(buffer + used, capacity - used, "%s%s", used ? "+" : "",
                               words[i].word);
    return buffer;
}

enum { COLUMNS = 7 };

typedef struct row {
    char cell[COLUMNS][128];
} row;

static void fill_row(const copse__topo *topo, const copse__handle *handle, row *out) {
    char memory[32], label[32];
    *out = (row){0};
    copse__put(label, sizeof label, "%u:%u", handle->platform, handle->device);
    copse__put(out->cell[0], sizeof out->cell[0], "%s%s", label,
               handle->preferred ? "*" : "");
    copse__type_text(out->cell[1], sizeof out->cell[1], handle->type);
    copse__put(out->cell[2], sizeof out->cell[2], "%s", handle->name);
    copse__put(out->cell[3], sizeof out->cell[3], "%s",
               topo->platforms[handle->platform].name);
    copse__put(out->cell[4], sizeof out->cell[4], "%s", handle->driver);
    copse__put(out->cell[5], sizeof out->cell[5], "%u", handle->compute_units);
    copse__put(out->cell[6], sizeof out->cell[6], "%s%s",
               copse__format_bytes(memory, sizeof memory, handle->memory_bytes),
               handle->available == 0  ? "  (not available)"
               : handle->compiler == 0 ? "  (no compiler)"
                                       : "");
}

/* Columns of a terminal that a UTF-8 text takes, at one a character. */
static size_t width_of(const char *text) {
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static void add_row(copse__text *out, const row *r, const size_t width[COLUMNS]) {
    for (int c = 0; c < COLUMNS; c++) {
        copse__text_add(out, "%s", r->cell[c]);
        if (c + 1 < COLUMNS)
            copse__text_add(out, "%*s", (int)(width[c] - width_of(r->cell[c]) + 2), "");
    }
    copse__text_add(out, "\n");
}

static void widen(size_t width[COLUMNS], const row *r) {
    for (int c = 0; c < COLUMNS; c++)
        width[c] = copse__max_size(width[c], width_of(r->cell[c]));
}

void copse__describe_devices(const copse__topo *topo, copse__text *out) {
    static const row heading = {
        {"device", "type", "name", "platform", "driver", "units", "memory"}};
    size_t width[COLUMNS] = {0};
    row host = {{"host", "cpu", "host CPU", "host", "", "", ""}}, r;
    copse__put(host.cell[4], sizeof host.cell[4], "%s", copse_version());
    copse__put(host.cell[5], sizeof host.cell[5], "%u", topo->cpu_count);
    widen(width, &heading);
    widen(width, &host);
    for (size_t i = 0; i < topo->handle_count; i++) {
        fill_row(topo, &topo->handles[i], &r);
        widen(width, &r);
    }
    add_row(out, &heading, width);
    for (size_t i = 0; i < topo->handle_count; i++) {
        fill_row(topo, &topo->handles[i], &r);
        add_row(out, &r, width);
    }
    add_row(out, &host, width);
}
