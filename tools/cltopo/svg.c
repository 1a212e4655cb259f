/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "colours.h"
#include "plan.h"
#include "topo/json.h"

/* The picture, from the top: a title; the host CPU; the NUMA nodes as boxes beside each
 * other, in each its host bridges as trees that grow to the right, devices aligned at their
 * end; devices without a known place; with a plan, the ranks as numbers on the devices and the tree
 * of their sum; a legend. All sizes in pixels. */
enum {
    MARGIN = 24,
    GAP = 14,
    LINE = 17,
    LEAF_WIDTH = 350,
    COLUMN = 108, /* from one bridge to the next; a link's label fits in */
    BOX_TITLE = 34,
    NETWORK_HEIGHT = 40,
    RANK_STEP = 92
};

typedef struct picture {
    session *s;
    const copse__topo *topo;
    const bool *show;
    const tool_plan *made;   /* or NULL */
    copse__text body, marks; /* marks lie above the wires */
    double width, bottom;
    size_t numa_count;
    int depth; /* the deepest device under its NUMA node or the machine */
} picture;

static void escaped(copse__text *out, const char *text) {
    for (; *text; text++) {
        const char *as = *text == '&'   ? "&amp;"
                         : *text == '<' ? "&lt;"
                         : *text == '>' ? "&gt;"
                         : *text == '"' ? "&quot;"
                                        : NULL;
        if (as)
            copse__text_add(out, "%s", as);
        else
            copse__text_add_bytes(out, text, 1);
    }
}

/* Text of a class, cut with an ellipsis to about the given width (characters of these fonts
 * take about 0.58 of their size, bold ones 0.68). */
static void text_at(picture *p, double x, double y, const char *class, double size,
                    double room, const char *text) {
    char cut[512];
    bool bold = !strcmp(class, "name") || !strcmp(class, "title");
    size_t most = (size_t)fmax(4, room / (size * (bold ? 0.68 : 0.58)));
    size_t count = 0, bytes = 0;
    while (text[bytes] && count <= most) {
        bytes++;
        while (((unsigned char)text[bytes] & 0xC0) == 0x80)
            bytes++;
        count++;
    }
    if (text[bytes]) {
        while (count > most - 1 && bytes > 0) {
            bytes--;
            while (bytes > 0 && ((unsigned char)text[bytes] & 0xC0) == 0x80)
                bytes--;
            count--;
        }
        copse__put(cut, sizeof cut, "%.*s…", (int)copse__min_size(bytes, 480), text);
    } else {
        copse__put(cut, sizeof cut, "%s", text);
    }
    copse__text_add(&p->body, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    escaped(&p->body, cut);
    copse__text_add(&p->body, "</text>\n");
}

static void box(picture *p, double x, double y, double w, double h, double radius,
                const char *fill, const char *line) {
    copse__text_add(&p->body,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                    "rx=\"%.0f\" fill=\"%s\" stroke=\"%s\"/>\n",
                    x, y, w, h, radius, fill, line);
}

static size_t handle_count(const picture *p, size_t physical) {
    size_t count = 0;
    for (size_t i = 0; i < p->topo->handle_count; i++)
        count += p->topo->handles[i].physical == (int)physical;
    return count;
}

static double device_height(const picture *p, size_t physical) {
    size_t handles = handle_count(p, physical);
    return 16 + LINE * (double)(2 + (handles ? 2 * handles : 1));
}

static void draw_handle(picture *p, const copse__handle *h, double x, double y,
                        double w) {
    char text[400], part[64];
    copse__put(text, sizeof text, "%s %u:%u  %s", h->preferred ? "★" : "☆", h->platform,
               h->device, p->topo->platforms[h->platform].name);
    if (h->version[0])
        copse__put(text + strlen(text), sizeof text - strlen(text), ", %s", h->version);
    text_at(p, x, y, h->preferred ? "handle" : "dim", 12, w, text);
    text[0] = '\0';
    if (h->compute_units)
        copse__put(text, sizeof text, "%u units", h->compute_units);
    if (h->clock_mhz)
        copse__put(text + strlen(text), sizeof text - strlen(text), " at %u MHz",
                   h->clock_mhz);
    if (h->memory_bytes)
        copse__put(text + strlen(text), sizeof text - strlen(text), ", %s",
                   copse__format_bytes(part, sizeof part, h->memory_bytes));
    features_text(h, part, sizeof part);
    if (part[0])
        copse__put(text + strlen(text), sizeof text - strlen(text), ", %s", part);
    text_at(p, x + 16, y + LINE, "dim", 12, w - 16, text);
}

/* The ranks that a device carries, as numbered discs at its right edge. */
static void draw_badges(picture *p, int physical, double right, double y) {
    if (!p->made)
        return;
    const copse__rank_plan *plan = p->made->plan;
    double x = right - 16;
    for (uint32_t i = plan->count; i-- > 0;) {
        if (plan->ranks[i].physical != physical)
            continue;
        copse__text_add(&p->body,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"11\" class=\"rank\"/>\n"
                        "<text x=\"%.1f\" y=\"%.1f\" class=\"number\">%u</text>\n",
                        x, y, x, y + 4.5, i);
        x -= 26;
    }
}

static size_t badge_count(const picture *p, int physical) {
    size_t count = 0;
    for (uint32_t i = 0; p->made && i < p->made->plan->count; i++)
        count += p->made->plan->ranks[i].physical == physical;
    return count;
}

static void draw_device(picture *p, size_t physical, double x, double y, double w) {
    const copse__physical *d = &p->topo->physicals[physical];
    const vendor_colour *colour = colour_of_device(d);
    char kind[48], id[64], text[160];
    double h = device_height(p, physical), at = y + 20;
    double badges = 26 * (double)badge_count(p, (int)physical);
    box(p, x, y, w, h, 6, colour->fill, colour->line);
    copse__text_add(&p->body,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"%.1f\" rx=\"3\" "
                    "fill=\"%s\"/>\n",
                    x, y, h, colour->line);
    text_at(p, x + 16, at, "name", 14, w - 28 - badges, d->name[0] ? d->name : "device");
    copse__put(text, sizeof text, "%s  %s", copse__type_text(kind, sizeof kind, d->type),
               copse__shown_id(p->topo, physical, p->s->options->redact, id));
    text_at(p, x + 16, at += LINE, "dim", 12, w - 28, text);
    if (d->preferred < 0)
        text_at(p, x + 16, at += LINE, "bad", 12, w - 28, "no OpenCL driver shows it");
    for (size_t i = 0; i < p->topo->handle_count; i++) {
        if (p->topo->handles[i].physical != (int)physical)
            continue;
        draw_handle(p, &p->topo->handles[i], x + 16, at += LINE, w - 28);
        at += LINE;
    }
    draw_badges(p, (int)physical, x + w, y + 16);
}

static void draw_network(picture *p, const copse__node *node, double x, double y,
                         double w) {
    const vendor_colour *colour = colour_of_tag("network");
    char text[200], address[24];
    box(p, x, y, w, NETWORK_HEIGHT, 6, colour->fill, colour->line);
    copse__put(text, sizeof text, "network  %s", node->interface);
    text_at(p, x + 16, y + 16, "handle", 12, w - 28, text);
    copse__put(text, sizeof text, "%s  %s", copse__pci_text(address, node->pci),
               node->name);
    text_at(p, x + 16, y + 32, "dim", 12, w - 28, text);
}

static double leaf_height(const picture *p, size_t node) {
    int physical = physical_at(p->topo, node);
    return physical >= 0 ? device_height(p, (size_t)physical) : NETWORK_HEIGHT;
}

static double subtree_height(const picture *p, size_t node) {
    double height = 0;
    if (p->topo->nodes[node].kind == COPSE__NODE_PCI)
        return leaf_height(p, node);
    for (size_t i = node + 1; i < p->topo->node_count; i++)
        if (p->topo->nodes[i].parent == (int)node && p->show[i])
            height += (height > 0 ? GAP : 0) + subtree_height(p, i);
    return height;
}

static int subtree_depth(const picture *p, size_t node) {
    int depth = 0;
    for (size_t i = node + 1; i < p->topo->node_count; i++)
        if (p->topo->nodes[i].parent == (int)node && p->show[i]) {
            int below = 1 + subtree_depth(p, i);
            depth = below > depth ? below : depth;
        }
    return depth;
}

static void draw_bridge(picture *p, size_t node, double x, double y) {
    const copse__node *at = &p->topo->nodes[node];
    bool host = at->kind == COPSE__NODE_HOST_BRIDGE;
    const char *word = host ? "host bridge" : bridge_word(p->topo, node);
    bool is_switch = !strcmp(word, "switch");
    double half = host ? 9 : is_switch ? 8 : 5;
    copse__text_add(&p->marks,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                    "class=\"%s\"><title>",
                    x - half, y - half, 2 * half, 2 * half,
                    host        ? "hostbridge"
                    : is_switch ? "switch"
                                : "port");
    char address[24];
    if (host)
        copse__text_add(&p->marks, "host bridge, buses %04x:%02x-%02x", at->domain,
                        at->bus_first, at->bus_last);
    else
        copse__text_add(&p->marks, "%s %s", word, copse__pci_text(address, at->pci));
    copse__text_add(&p->marks, "</title></rect>\n");
    /* Below the mark, and to the left, out of the way of its wires. */
    if (host || is_switch)
        copse__text_add(&p->marks,
                        "<text x=\"%.1f\" y=\"%.1f\" class=\"tiny\" "
                        "text-anchor=\"end\">%s</text>\n",
                        x + (host ? 14 : 12), y + half + 12,
                        host ? "host bridge" : "switch");
}

/* One node and all below it; its own mark is at (x, the middle of its height), which is
 * returned. leaf_x is where devices stand. */
static double draw_subtree(picture *p, size_t node, double x, double y, double leaf_x) {
    const copse__node *at = &p->topo->nodes[node];
    if (at->kind == COPSE__NODE_PCI) {
        int physical = physical_at(p->topo, node);
        if (physical >= 0)
            draw_device(p, (size_t)physical, leaf_x, y, LEAF_WIDTH);
        else
            draw_network(p, at, leaf_x, y, LEAF_WIDTH);
        return y + leaf_height(p, node) / 2;
    }
    double first = 0, last = 0, top = y;
    size_t count = 0;
    copse__text lines = {0};
    for (size_t i = node + 1; i < p->topo->node_count; i++) {
        if (p->topo->nodes[i].parent != (int)node || !p->show[i])
            continue;
        const copse__node *child = &p->topo->nodes[i];
        bool leaf = child->kind == COPSE__NODE_PCI;
        double middle = draw_subtree(p, i, x + COLUMN, top, leaf_x);
        double end = leaf ? leaf_x : x + COLUMN;
        char link[64];
        copse__text_add(&lines, "<path d=\"M%.1f %.1f H%.1f\" class=\"wire\"/>\n", x + 22,
                        middle, end);
        link_text(&child->link, link, sizeof link);
        char *cut = strstr(link, " (of");
        if (cut)
            *cut = '\0';
        char *rate = strstr(link, "GB/s");
        if (link[0]) {
            char width_part[64] = "";
            /* The rate above the line, generation and width below it. */
            char *number = rate;
            while (number && number > link && number[-1] != ' ')
                number--;
            if (number && number > link) {
                while (number > link && number[-1] == ' ')
                    number--;
                while (number > link && number[-1] != ' ')
                    number--;
            }
            if (number && number > link) {
                copse__put(width_part, sizeof width_part, "%.*s",
                           (int)(number - link - 1), link);
                memmove(link, number, strlen(number) + 1);
            }
            copse__text_add(&lines,
                            "<text x=\"%.1f\" y=\"%.1f\" class=\"tiny\">%s</text>\n",
                            x + 27, middle - 5, link);
            if (width_part[0])
                copse__text_add(&lines,
                                "<text x=\"%.1f\" y=\"%.1f\" class=\"tiny\">%s</text>\n",
                                x + 27, middle + 13, width_part);
        }
        if (count++ == 0)
            first = middle;
        last = middle;
        top += subtree_height(p, i) + GAP;
    }
    double middle = (first + last) / 2;
    copse__text_add(&p->body,
                    "<path d=\"M%.1f %.1f H%.1f M%.1f %.1f V%.1f\" class=\"wire\"/>\n", x,
                    middle, x + 22, x + 22, first, last);
    if (lines.data)
        copse__text_add(&p->body, "%s", lines.data);
    copse__text_free(&lines);
    draw_bridge(p, node, x, middle);
    return middle;
}

static double place_width(const picture *p) {
    double w = 2 * 18 + 50 + COLUMN * (double)p->depth + LEAF_WIDTH - 18;
    return p->numa_count > 1 ? w : fmax(w, 640);
}

/* What hangs directly at a NUMA node or at the machine. */
static double group_height(const picture *p, size_t node) {
    double height = 0;
    for (size_t i = node + 1; i < p->topo->node_count; i++)
        if (p->topo->nodes[i].parent == (int)node && p->show[i] &&
            p->topo->nodes[i].kind > COPSE__NODE_NUMA)
            height += subtree_height(p, i) + GAP;
    return height;
}

static void draw_group(picture *p, size_t node, double x, double y, double w) {
    double leaf_x = x + w - 18 - LEAF_WIDTH;
    for (size_t i = node + 1; i < p->topo->node_count; i++)
        if (p->topo->nodes[i].parent == (int)node && p->show[i] &&
            p->topo->nodes[i].kind > COPSE__NODE_NUMA) {
            draw_subtree(p, i, x + 50, y, leaf_x);
            y += subtree_height(p, i) + GAP;
        }
}

static double numa_height(const picture *p, size_t node) {
    double group = group_height(p, node);
    return BOX_TITLE + (group > 0 ? group + 6 : 8) +
           (p->topo->nodes[node].name[0] ? LINE : 0);
}

static void draw_numa(picture *p, size_t node, double x, double y, double w, double h) {
    const copse__node *at = &p->topo->nodes[node];
    char text[400], memory[32];
    box(p, x, y, w, h, 8, "#f7f8fa", "#8a93a3");
    copse__put(text, sizeof text, "NUMA node %d", at->numa);
    if (at->memory_bytes)
        copse__put(text + strlen(text), sizeof text - strlen(text), " · %s",
                   copse__format_bytes(memory, sizeof memory, at->memory_bytes));
    if (at->cpus[0])
        copse__put(text + strlen(text), sizeof text - strlen(text), " · CPUs %s",
                   at->cpus);
    text_at(p, x + 16, y + 22, "name", 14, w - 32, text);
    double top = y + BOX_TITLE;
    if (at->name[0]) {
        text_at(p, x + 16, y + 22 + LINE, "dim", 12, w - 32, at->name);
        top += LINE;
    }
    draw_group(p, node, x, top, w);
}

/* NUMA nodes, two beside each other; a row is as high as its higher box. */
static void draw_numa_boxes(picture *p) {
    double w = place_width(p), row = 0, x = MARGIN;
    size_t per_row = p->numa_count > 1 ? 2 : 1, in_row = 0;
    for (size_t i = 0; i < p->topo->node_count; i++) {
        if (p->topo->nodes[i].kind != COPSE__NODE_NUMA)
            continue;
        if (in_row == 0) {
            size_t seen = 0;
            row = 0;
            for (size_t j = i; j < p->topo->node_count && seen < per_row; j++)
                if (p->topo->nodes[j].kind == COPSE__NODE_NUMA) {
                    row = fmax(row, numa_height(p, j));
                    seen++;
                }
            x = MARGIN;
        }
        draw_numa(p, i, x, p->bottom, w, row);
        x += w + GAP;
        if (++in_row == per_row) {
            in_row = 0;
            p->bottom += row + GAP;
        }
    }
    if (in_row)
        p->bottom += row + GAP;
}

static void draw_title(picture *p) {
    const copse__topo *topo = p->topo;
    char text[600];
    bool hide = p->s->options->redact || !topo->host[0];
    text_at(p, MARGIN, MARGIN + 20, "title", 22, p->width - 2 * MARGIN,
            hide ? "machine" : topo->host);
    text[0] = '\0';
    if (topo->node_count && topo->nodes[0].name[0])
        copse__put(text, sizeof text, "%s · ", topo->nodes[0].name);
    copse__put(text + strlen(text), sizeof text - strlen(text), "%u CPU%s (%s)",
               topo->cpu_count, topo->cpu_count == 1 ? "" : "s",
               topo->cpus_allowed[0] ? topo->cpus_allowed : "not known which");
    size_t devices = 0;
    for (size_t i = 0; i < topo->physical_count; i++)
        devices += topo->physicals[i].preferred >= 0;
    copse__put(text + strlen(text), sizeof text - strlen(text),
               " · %zu OpenCL device%s, %zu handle%s", devices, devices == 1 ? "" : "s",
               topo->handle_count, topo->handle_count == 1 ? "" : "s");
    text_at(p, MARGIN, MARGIN + 42, "dim", 13, p->width - 2 * MARGIN, text);
    p->bottom = MARGIN + 58;
}

/* The host CPU across the whole width; then what has no known place. */
static void draw_placeless(picture *p, bool host) {
    double x = MARGIN, row = 0;
    bool titled = false;
    for (size_t i = 0; i < p->topo->physical_count; i++) {
        const copse__physical *d = &p->topo->physicals[i];
        bool is_host = d->why & COPSE__WHY_HOST_CPU;
        if (d->node >= 0 || is_host != host)
            continue;
        double w = host ? p->width - 2 * MARGIN : LEAF_WIDTH;
        if (!host && !titled) {
            text_at(p, MARGIN, p->bottom + 14, "name", 14, 400, "place not known");
            p->bottom += 24;
            titled = true;
        }
        if (x > MARGIN && x + w > p->width - MARGIN + 1) {
            x = MARGIN;
            p->bottom += row + GAP;
            row = 0;
        }
        draw_device(p, i, x, p->bottom, w);
        row = fmax(row, device_height(p, i));
        x += w + GAP;
    }
    if (row > 0)
        p->bottom += row + GAP;
}

static void draw_unplaced_bridges(picture *p) {
    double height = p->topo->node_count ? group_height(p, 0) : 0;
    if (height <= 0)
        return;
    double w = place_width(p);
    box(p, MARGIN, p->bottom, w, height + BOX_TITLE, 8, "#ffffff", "#b6bcc8");
    text_at(p, MARGIN + 16, p->bottom + 22, "name", 14, w,
            p->numa_count > 1 ? "PCI, NUMA node not known" : "PCI");
    draw_group(p, 0, MARGIN, p->bottom + BOX_TITLE, w);
    p->bottom += height + BOX_TITLE + GAP;
}

static void draw_sum(picture *p) {
    const copse__rank_plan *plan = p->made->plan;
    uint32_t n = plan->count, levels = 0;
    char text[200], bytes[32];
    double *x = calloc(n ? n : 1, sizeof *x), *y = calloc(n ? n : 1, sizeof *y);
    for (uint32_t i = 0; i + 1 < n; i++)
        levels = plan->merges[i].level + 1 > levels ? plan->merges[i].level + 1 : levels;
    if (!x || !y || n == 0) {
        free(x);
        free(y);
        return;
    }
    double step = fmin(RANK_STEP, (p->width - 2 * MARGIN - 60) / (double)n);
    double base = p->bottom + 60 + 34 * (double)levels, w = p->width - 2 * MARGIN;
    double left = MARGIN + w / 2 - step * (double)(n - 1) / 2;
    copse__put(text, sizeof text, "Sum of gradients over %u rank%s", n,
               n == 1 ? "" : "s");
    box(p, MARGIN, p->bottom, w, 60 + 34 * (double)levels + 62, 8, "#ffffff", "#b6bcc8");
    text_at(p, MARGIN + 16, p->bottom + 24, "name", 14, w - 32, text);
    text[0] = '\0';
    if (plan->bound[0])
        copse__put(text, sizeof text,
                   "limit for %s: link %.2f ms, memory %.2f ms, CPU %.2f ms; bound by %s",
                   copse__format_bytes(bytes, sizeof bytes, p->s->options->plan_bytes),
                   plan->link_s * 1e3, plan->memory_s * 1e3, plan->cpu_s * 1e3,
                   plan->bound);
    else if (n > 1)
        copse__put(text, sizeof text, "limit not known: measure with cltopo bench");
    text_at(p, MARGIN + 16, p->bottom + 42, "dim", 12, w - 32, text);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = left + step * (double)i;
        y[i] = base;
    }
    for (uint32_t i = 0; i + 1 < n; i++) {
        const copse__merge *m = &plan->merges[i];
        double up = base - 34 * (double)(m->level + 1);
        double middle = (x[m->into] + x[m->from]) / 2;
        copse__text_add(&p->body,
                        "<path d=\"M%.1f %.1f V%.1f H%.1f V%.1f\" class=\"sum\"/>\n",
                        x[m->into], y[m->into], up, x[m->from], y[m->from]);
        copse__text_add(&p->marks,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" class=\"plus\"/>\n"
                        "<text x=\"%.1f\" y=\"%.1f\" class=\"plustext\">+</text>\n",
                        middle, up, middle, up + 4.5);
        x[m->into] = middle;
        y[m->into] = up;
    }
    for (uint32_t i = 0; i < n; i++) {
        double at = left + step * (double)i;
        copse__text_add(&p->body,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"11\" class=\"rank\"/>\n"
                        "<text x=\"%.1f\" y=\"%.1f\" class=\"number\">%u</text>\n",
                        at, base, at, base + 4.5, i);
        text_at(p, at, base + 28, "centre", 12, step - 4, plan->ranks[i].choice.label);
        copse__put(text, sizeof text, "%zu of %lu", p->made->shards[i],
                   p->s->options->batch);
        text_at(p, at, base + 44, "centredim", 11, step, text);
    }
    p->bottom = base + 62 + GAP;
    free(x);
    free(y);
}

static void draw_legend(picture *p) {
    double x = MARGIN, y = p->bottom + 8;
    for (size_t i = 0; i < COPSE__COUNT(vendor_colours); i++) {
        bool used = false;
        for (size_t d = 0; d < p->topo->physical_count && !used; d++)
            used = colour_of_device(&p->topo->physicals[d]) == &vendor_colours[i];
        for (size_t n = 0; n < p->topo->node_count && !used; n++)
            used = is_network(&p->topo->nodes[n]) &&
                   !strcmp(vendor_colours[i].tag, "network");
        if (!used)
            continue;
        box(p, x, y, 14, 14, 3, vendor_colours[i].fill, vendor_colours[i].line);
        text_at(p, x + 20, y + 12, "dim", 12, 120, vendor_colours[i].name);
        x += 36 + 7.2 * (double)strlen(vendor_colours[i].name) + 12;
    }
    text_at(p, x, y + 12, "dim", 12, 500,
            p->made ? "★ preferred handle   ● rank" : "★ preferred handle");
    p->bottom = y + 14 + MARGIN;
}

static const char style[] =
    "text{font-family:'DejaVu Sans','Helvetica Neue',Arial,sans-serif;font-size:12px;"
    "fill:#1d2430}"
    ".title{font-size:22px;font-weight:bold}.name{font-size:14px;font-weight:bold}"
    ".dim{fill:#5a6373}.bad{fill:#b3261e}.tiny{font-size:10px;fill:#5a6373}"
    ".wire{fill:none;stroke:#5a6373;stroke-width:1.5}"
    ".hostbridge{fill:#3a4457;stroke:#3a4457}.switch{fill:#ffffff;stroke:#3a4457;"
    "stroke-width:2}.port{fill:#ffffff;stroke:#5a6373;stroke-width:1.5}"
    ".rank{fill:#24405f;stroke:#ffffff;stroke-width:1.5}"
    ".number{fill:#ffffff;font-size:12px;font-weight:bold;text-anchor:middle}"
    ".sum{fill:none;stroke:#24405f;stroke-width:1.5}.plus{fill:#ffffff;stroke:#24405f;"
    "stroke-width:1.5}.plustext{font-size:13px;fill:#24405f;text-anchor:middle}"
    ".centre{text-anchor:middle}.centredim{text-anchor:middle;font-size:11px;"
    "fill:#5a6373}";

static void draw(picture *p) {
    for (size_t i = 0; i < p->topo->node_count; i++)
        p->numa_count += p->topo->nodes[i].kind == COPSE__NODE_NUMA;
    for (size_t i = 0; i < p->topo->node_count; i++) {
        if (p->topo->nodes[i].kind != COPSE__NODE_HOST_BRIDGE || !p->show[i])
            continue;
        int depth = subtree_depth(p, i);
        p->depth = depth > p->depth ? depth : p->depth;
    }
    double w = place_width(p);
    p->width = 2 * MARGIN + (p->numa_count > 1 ? 2 * w + GAP : w);
    draw_title(p);
    draw_placeless(p, true);
    draw_numa_boxes(p);
    draw_unplaced_bridges(p);
    draw_placeless(p, false);
    if (p->made)
        draw_sum(p);
    draw_legend(p);
}

int write_svg(session *s, bool with_plan) {
    tool_plan made = {0};
    bool *show = nodes_to_show(s->topo);
    if (!show) {
        complain_text("the host has no memory for the picture");
        return EXIT_RUN_FAILED;
    }
    int code = with_plan ? make_plan(s, &made) : EXIT_OK;
    if (code == EXIT_OK) {
        picture p = {.s = s, .topo = s->topo, .show = show};
        p.made = with_plan ? &made : NULL;
        draw(&p);
        copse__text_add(&s->out,
                        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                        "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n<style>%s</style>\n"
                        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                        p.width, p.bottom, p.width, p.bottom, style);
        if (p.body.data)
            copse__text_add_bytes(&s->out, p.body.data, p.body.length);
        if (p.marks.data)
            copse__text_add_bytes(&s->out, p.marks.data, p.marks.length);
        copse__text_add(&s->out, "</svg>\n");
        s->out.failed = s->out.failed || p.body.failed || p.marks.failed;
        copse__text_free(&p.body);
        copse__text_free(&p.marks);
    }
    free_plan(&made);
    free(show);
    return code;
}
