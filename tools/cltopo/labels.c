/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cltopo.h"
#include "table.h"

enum { MAX_LABELS = 64 };

typedef struct labels {
    char text[MAX_LABELS][32];
    size_t count;
} labels;

static void add_label(labels *all, const char *format, const char *word) {
    char made[32];
    copse__put(made, sizeof made, "%s%s", format, word);
    for (size_t i = 0; i < all->count; i++)
        if (!strcmp(all->text[i], made))
            return;
    if (all->count < MAX_LABELS)
        copse__put(all->text[all->count++], sizeof all->text[0], "%s", made);
}

/* The largest of 4, 8, 16, … GiB that the memory reaches, with a little less allowed: cards
 * sold as 8 GB show a part of it only. */
static void add_memory(labels *all, uint64_t bytes) {
    char word[16];
    uint64_t step = 0;
    for (uint64_t gib = 4; gib <= 1024; gib *= 2)
        if (bytes >= (gib << 30) / 100 * 93)
            step = gib;
    copse__put(word, sizeof word, "%llug", (unsigned long long)step);
    if (step)
        add_label(all, "gpu-mem-", word);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

int run_labels(session *s) {
    static const char *const columns[][2] = {{"label", "label"}, {NULL, NULL}};
    const copse__topo *topo = s->topo;
    labels all = {.count = 0};
    size_t gpus = 0;
    if (s->options->format == FORMAT_DOT || s->options->format == FORMAT_SVG)
        return refuse_format(s);
    for (size_t p = 0; p < topo->physical_count; p++) {
        const copse__physical *physical = &topo->physicals[p];
        if (physical->preferred < 0 ||
            !copse__handle_usable(&topo->handles[physical->preferred]))
            continue;
        const copse__handle *h = &topo->handles[physical->preferred];
        bool host = physical->why & COPSE__WHY_HOST_CPU;
        add_label(&all, "opencl", "");
        if (host) {
            add_label(&all, "opencl-cpu", "");
            continue;
        }
        if (h->type & COPSE__TYPE_GPU) {
            gpus++;
            add_label(&all, "gpu", "");
            add_label(&all, "gpu-", h->tag);
            add_memory(&all, h->memory_bytes);
        } else if (h->type & COPSE__TYPE_ACCELERATOR) {
            add_label(&all, "accelerator", "");
        }
        if (h->fp16 == 1)
            add_label(&all, "fp16", "");
        if (h->fp64 == 1)
            add_label(&all, "fp64", "");
        if (h->subgroups == 1)
            add_label(&all, "sub-groups", "");
    }
    if (gpus > 1)
        add_label(&all, "multi-gpu", "");
    if (all.count == 0)
        add_label(&all, "no-opencl", "");
    qsort(all.text, all.count, sizeof all.text[0], by_text);
    if (s->options->format == FORMAT_TEXT) {
        for (size_t i = 0; i < all.count; i++)
            copse__text_add(&s->out, "%s\n", all.text[i]);
        return EXIT_OK;
    }
    table t;
    table_begin(&t, columns);
    for (size_t i = 0; i < all.count; i++) {
        table_row(&t);
        table_text(&t, all.text[i]);
    }
    return table_write(&t, s, "labels");
}
