/* SPDX-License-Identifier: Apache-2.0 */
#include "train/import.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"

/* A group of variables: a layer's, or a module's. `name` has no variable. */
typedef struct group {
    char *name;
    bool taken;
} group;

typedef struct import {
    const copse__weights_file *file;
    const char *path;
    const copse__import_target *targets;
    size_t target_count;
    copse__import_match *matches;
    copse__pool pool;
    group *layers;
    size_t layer_count;
    size_t *layer_of; /* index of each target's layer */
    group *modules;   /* in natural order of their names */
    size_t module_count;
} import;

/* ---- Names ---- */

static const struct {
    const char *ours, *pytorch;
} variables[] = {{"kernel", "weight"},
                 {"gamma", "weight"},
                 {"bias", "bias"},
                 {"beta", "bias"},
                 {"moving_mean", "running_mean"},
                 {"moving_variance", "running_var"}};

static const char *variable_of(const char *name, char separator) {
    const char *at = strrchr(name, separator);
    return at ? at + 1 : name;
}

/* "conv10" after "conv9": digits count as numbers. */
static int compare_natural(const char *a, const char *b) {
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            while (*a == '0' && isdigit((unsigned char)a[1]))
                a++;
            while (*b == '0' && isdigit((unsigned char)b[1]))
                b++;
            size_t a_digits = strspn(a, "0123456789"), b_digits = strspn(b, "0123456789");
            if (a_digits != b_digits)
                return a_digits < b_digits ? -1 : 1;
            int order = memcmp(a, b, a_digits);
            if (order != 0)
                return order;
            a += a_digits;
            b += b_digits;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return *a ? 1 : *b ? -1 : 0;
}

static int compare_groups(const void *a, const void *b) {
    return compare_natural(((const group *)a)->name, ((const group *)b)->name);
}

static bool is_pytorch(const copse__weights_file *file) {
    for (size_t i = 0; i < copse__weights_count(file); i++) {
        const char *variable = variable_of(copse__weights_get(file, i).name, '.');
        if (strcmp(variable, "weight") == 0 || strcmp(variable, "running_mean") == 0)
            return true;
    }
    return false;
}

/* ---- Keras: by name ---- */

/* "conv2d/kernel" or "conv2d/kernel:0", perhaps behind "model/". */
static bool names_target(const char *name, const char *target, bool whole) {
    size_t length = strlen(name), wanted = strlen(target);
    if (length > 2 && strcmp(name + length - 2, ":0") == 0)
        length -= 2;
    if (length < wanted || strncmp(name + length - wanted, target, wanted) != 0)
        return false;
    return whole ? length == wanted : length > wanted && name[length - wanted - 1] == '/';
}

static size_t find_by_name(const import *im, const char *target, copse_error *err,
                           copse_status *status) {
    for (int whole = 1; whole >= 0; whole--) {
        size_t found = COPSE__NOT_IMPORTED;
        for (size_t i = 0; i < copse__weights_count(im->file); i++) {
            const char *name = copse__weights_get(im->file, i).name;
            if (!names_target(name, target, whole))
                continue;
            if (found != COPSE__NOT_IMPORTED) {
                *status = copse__fail(
                    err, COPSE_CONFIG, 0, im->path,
                    "both '%.80s' and '%.80s' could be '%.80s'; remove one of the two",
                    copse__weights_get(im->file, found).name, name, target);
                return COPSE__NOT_IMPORTED;
            }
            found = i;
        }
        if (found != COPSE__NOT_IMPORTED)
            return found;
    }
    return COPSE__NOT_IMPORTED;
}

static bool same_shape(const copse__import_target *target,
                       const copse__weights_item *item) {
    return target->rank == item->rank &&
           memcmp(target->shape, item->shape, item->rank * sizeof *item->shape) == 0;
}

/* "(3, 3, 1, 32)" */
static const char *shape_text(char *buffer, size_t capacity, const size_t *shape,
                              size_t rank) {
    size_t used = (size_t)snprintf(buffer, capacity, "(");
    for (size_t d = 0; d < rank && used < capacity; d++)
        used += (size_t)snprintf(buffer + used, capacity - used, "%s%zu",
                                 d > 0 ? ", " : "", shape[d]);
    if (used < capacity)
        snprintf(buffer + used, capacity - used, ")");
    return buffer;
}

static copse_status match_keras(import *im, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t t = 0; t < im->target_count && status == COPSE_OK; t++) {
        const copse__import_target *target = &im->targets[t];
        size_t found = find_by_name(im, target->name, err, &status);
        if (found == COPSE__NOT_IMPORTED)
            continue;
        copse__weights_item item = copse__weights_get(im->file, found);
        char has[128], wants[128];
        if (!same_shape(target, &item))
            return copse__fail(
                err, COPSE_CONFIG, 0, im->path,
                "'%.100s' is of shape %s there, but the model wants %s", item.name,
                shape_text(has, sizeof has, item.shape, item.rank),
                shape_text(wants, sizeof wants, target->shape, target->rank));
        im->matches[t].item = found;
    }
    return status;
}

/* ---- PyTorch: by modules ---- */

/* The module's item for a target; COPSE__NOT_IMPORTED where it has none that fits. */
static size_t find_in_module(const import *im, const group *module,
                             const copse__import_target *target) {
    const char *ours = variable_of(target->name, '/'), *theirs = ours;
    char name[512];
    for (size_t i = 0; i < COPSE__COUNT(variables); i++)
        if (strcmp(variables[i].ours, ours) == 0)
            theirs = variables[i].pytorch;
    snprintf(name, sizeof name, "%s%s%s", module->name, module->name[0] ? "." : "",
             theirs);
    for (size_t i = 0; i < copse__weights_count(im->file); i++) {
        copse__weights_item item = copse__weights_get(im->file, i);
        if (strcmp(item.name, name) != 0 || item.rank != target->rank)
            continue;
        static const size_t orders[5][4] = {{0}, {0}, {1, 0}, {0, 1, 2}, {2, 3, 1, 0}};
        bool fits = item.rank <= 4;
        for (size_t d = 0; d < item.rank && fits; d++)
            fits = target->shape[d] == item.shape[orders[item.rank][d]];
        return fits ? i : COPSE__NOT_IMPORTED;
    }
    return COPSE__NOT_IMPORTED;
}

static bool is_compatible(const import *im, const group *layer, const group *module) {
    size_t l = (size_t)(layer - im->layers);
    for (size_t t = 0; t < im->target_count; t++)
        if (im->layer_of[t] == l &&
            find_in_module(im, module, &im->targets[t]) == COPSE__NOT_IMPORTED)
            return false;
    return true;
}

static void take_module(import *im, group *layer, group *module) {
    size_t l = (size_t)(layer - im->layers);
    for (size_t t = 0; t < im->target_count; t++) {
        if (im->layer_of[t] != l)
            continue;
        im->matches[t].item = find_in_module(im, module, &im->targets[t]);
        im->matches[t].pytorch = true;
    }
    layer->taken = module->taken = true;
}

static void match_named_modules(import *im) {
    for (size_t l = 0; l < im->layer_count; l++)
        for (size_t m = 0; m < im->module_count && !im->layers[l].taken; m++) {
            group *module = &im->modules[m];
            bool named = strcmp(module->name, im->layers[l].name) == 0 ||
                         strcmp(variable_of(module->name, '.'), im->layers[l].name) == 0;
            if (named && !module->taken && is_compatible(im, &im->layers[l], module))
                take_module(im, &im->layers[l], module);
        }
}

static size_t next_free(const group *groups, size_t count, size_t from) {
    while (from < count && groups[from].taken)
        from++;
    return from;
}

/* Whether the layers that are left are, one by one, the modules that are left; takes them where
 * `take`. */
static bool match_in_order(import *im, bool take) {
    size_t l = 0, m = 0;
    for (;;) {
        l = next_free(im->layers, im->layer_count, l);
        m = next_free(im->modules, im->module_count, m);
        if (l == im->layer_count || m == im->module_count)
            return l == im->layer_count && m == im->module_count;
        if (take)
            take_module(im, &im->layers[l], &im->modules[m]);
        else if (!is_compatible(im, &im->layers[l], &im->modules[m]))
            return false;
        l++;
        m++;
    }
}

/* Layers for which just one module fits, which fits no other layer. */
static copse_status match_by_shape(import *im, bool partial, copse_error *err) {
    for (size_t l = 0; l < im->layer_count; l++) {
        group *layer = &im->layers[l], *found = NULL, *second = NULL;
        if (layer->taken)
            continue;
        for (size_t m = 0; m < im->module_count; m++) {
            if (im->modules[m].taken || !is_compatible(im, layer, &im->modules[m]))
                continue;
            second = found ? &im->modules[m] : NULL;
            found = found ? found : &im->modules[m];
            if (second)
                break;
        }
        for (size_t k = 0; found && !second && k < im->layer_count; k++)
            if (k != l && !im->layers[k].taken &&
                is_compatible(im, &im->layers[k], found))
                return copse__fail(err, COPSE_CONFIG, 0, im->path,
                                   "both layers '%.80s' and '%.80s' could be its module "
                                   "'%.80s': give the layers the modules' names",
                                   layer->name, im->layers[k].name, found->name);
        if (second && !partial)
            return copse__fail(err, COPSE_CONFIG, 0, im->path,
                               "its modules '%.80s' and '%.80s' both fit the layer "
                               "'%.80s': give the layer the right module's name",
                               found->name, second->name, layer->name);
        if (found && !second)
            take_module(im, layer, found);
    }
    return COPSE_OK;
}

/* The group of a name, by what stands before its last separator; made where it is new. */
static copse_status find_group(import *im, group *groups, size_t *count, const char *name,
                               char separator, size_t *out, copse_error *err) {
    const char *at = strrchr(name, separator);
    size_t length = at ? (size_t)(at - name) : 0;
    for (size_t g = 0; g < *count; g++) {
        *out = g;
        if (strncmp(groups[g].name, name, length) == 0 && !groups[g].name[length])
            return COPSE_OK;
    }
    *out = *count;
    copse_status status =
        copse__pool_text(&im->pool, &groups[*count].name, name, length, err);
    *count += status == COPSE_OK;
    return status;
}

static copse_status match_pytorch(import *im, bool partial, copse_error *err) {
    size_t items = copse__weights_count(im->file), unused;
    copse_status status;
    COPSE__TRY(copse__pool_alloc(&im->pool, &im->layers, im->target_count,
                                 sizeof *im->layers, err),
               out);
    COPSE__TRY(copse__pool_alloc(&im->pool, &im->layer_of, im->target_count,
                                 sizeof *im->layer_of, err),
               out);
    COPSE__TRY(
        copse__pool_alloc(&im->pool, &im->modules, items, sizeof *im->modules, err), out);
    for (size_t t = 0; t < im->target_count; t++)
        COPSE__TRY(find_group(im, im->layers, &im->layer_count, im->targets[t].name, '/',
                              &im->layer_of[t], err),
                   out);
    for (size_t i = 0; i < items; i++) {
        const char *name = copse__weights_get(im->file, i).name;
        if (strcmp(variable_of(name, '.'), "num_batches_tracked") != 0)
            COPSE__TRY(
                find_group(im, im->modules, &im->module_count, name, '.', &unused, err),
                out);
    }
    if (im->module_count > 0)
        qsort(im->modules, im->module_count, sizeof *im->modules, compare_groups);
    match_named_modules(im);
    if (match_in_order(im, false))
        match_in_order(im, true);
    else
        status = match_by_shape(im, partial, err);
out:
    return status;
}

/* ---- All together ---- */

static copse_status check_complete(const import *im, bool partial, copse_error *err) {
    size_t found = 0;
    char wants[128];
    for (size_t t = 0; t < im->target_count; t++) {
        const copse__import_target *target = &im->targets[t];
        if (im->matches[t].item != COPSE__NOT_IMPORTED) {
            found++;
            copse__log(COPSE_LOG_DEBUG, "%s is %s of %s", target->name,
                       copse__weights_get(im->file, im->matches[t].item).name, im->path);
        } else if (!partial) {
            return copse__fail(
                err, COPSE_CONFIG, 0, im->path,
                "it has nothing for '%.100s' %s; allow that with init: {partial: true}",
                target->name,
                shape_text(wants, sizeof wants, target->shape, target->rank));
        } else {
            copse__log(COPSE_LOG_WARN,
                       "%s has nothing for %s, which keeps its random values", im->path,
                       target->name);
        }
    }
    if (found == 0 && im->target_count > 0)
        return copse__fail(err, COPSE_CONFIG, 0, im->path,
                           "none of its %zu arrays fits the model",
                           copse__weights_count(im->file));
    copse__log(COPSE_LOG_INFO, "%zu of %zu weights come from %s", found, im->target_count,
               im->path);
    return COPSE_OK;
}

copse_status copse__import_match_all(const copse__weights_file *file, const char *path,
                                     const copse__import_target *targets, size_t count,
                                     copse__config_layout layout, bool partial,
                                     copse__import_match *matches, copse_error *err) {
import im = {.file = file, .path = path, .targets = targets, .target_count = count, .matches = matches };
    for (size_t t = 0; t < count; t++)
        matches[t] = (copse__import_match){.item = COPSE__NOT_IMPORTED};
    bool pytorch = layout == COPSE__LAYOUT_PYTORCH ||
                   (layout == COPSE__LAYOUT_AUTO && is_pytorch(file));
    copse_status status =
        pytorch ? match_pytorch(&im, partial, err) : match_keras(&im, err);
    if (status == COPSE_OK)
        status = check_complete(&im, partial, err);
    copse__pool_free(&im.pool);
    return status;
}

/* ---- Elements ---- */

/* out[h][w][i][o] = in[o][i][h][w] */
static void from_oihw(const size_t shape[4], const float *in, float *out) {
    size_t at = 0;
    for (size_t h = 0; h < shape[0]; h++)
        for (size_t w = 0; w < shape[1]; w++)
            for (size_t i = 0; i < shape[2]; i++)
                for (size_t o = 0; o < shape[3]; o++)
                    out[at++] = in[((o * shape[2] + i) * shape[0] + h) * shape[1] + w];
}

/* out[in_row][o] = in[o][row], where rows of a flattened image are channels first in the file. */
static void from_out_in(const copse__import_target *target, const float *in, float *out) {
    size_t rows = target->shape[0], columns = target->shape[1];
    const size_t *image = target->image;
    bool flattened = image[0] * image[1] * image[2] == rows;
    for (size_t row = 0; row < rows; row++) {
        size_t from = row;
        if (flattened) {
            size_t place = row / image[2], channel = row % image[2];
            from = channel * image[0] * image[1] + place;
        }
        for (size_t column = 0; column < columns; column++)
            out[row * columns + column] = in[column * rows + from];
    }
}

copse_status copse__import_read(const copse__weights_file *file,
                                const copse__import_target *target,
                                const copse__import_match *match, float *out,
                                copse_error *err) {
    if (!match->pytorch || target->rank < 2)
        return copse__weights_read(file, match->item, out, err);
    float *values;
    copse_status status = copse__calloc(
        &values, copse__weights_get(file, match->item).elements, sizeof *values, err);
    if (status == COPSE_OK)
        status = copse__weights_read(file, match->item, values, err);
    if (status == COPSE_OK && target->rank == 4)
        from_oihw(target->shape, values, out);
    else if (status == COPSE_OK)
        from_out_in(target, values, out);
    free(values);
    return status;
}

/* ---- Flattened images ---- */

static const copse__node *node_that_writes(const copse__graph *graph,
                                           copse__tensor_id tensor) {
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t o = 0; o < graph->nodes[n].output_count; o++)
            if (!graph->nodes[n].backward && graph->nodes[n].outputs[o] == tensor)
                return &graph->nodes[n];
    return NULL;
}

void copse__import_find_image(const copse__graph *graph, const char *kernel,
                              size_t image[3]) {
    image[0] = image[1] = image[2] = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        const copse__node *node = &graph->nodes[n];
        if (node->op != COPSE__OP_DENSE || node->input_count < 2 ||
            strcmp(graph->tensors[node->inputs[1]].name, kernel) != 0)
            continue;
        copse__tensor_id at = node->inputs[0];
        for (;;) {
            const copse__tensor *tensor = &graph->tensors[at];
            const copse__tensor *shown = &graph->tensors[tensor->storage];
            if (tensor->rank == 2 &&
                shown->rank == 4) { /* (batch, height, width, channels) */
                for (int d = 0; d < 3; d++)
                    image[d] = shown->dim[d + 1].size;
                return;
            }
            const copse__node *writer = node_that_writes(graph, at);
            if (!writer ||
                (writer->op != COPSE__OP_ACTIVATION && writer->op != COPSE__OP_DROPOUT &&
                 writer->op != COPSE__OP_ELEMENTWISE))
                return;
            at = writer->inputs[0];
        }
    }
}
