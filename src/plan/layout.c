/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"

#include <stdlib.h>

#include "base/mem.h"

#define MIB ((size_t)1 << 20)

/* A parameter and the node that writes its gradient. */
typedef struct finish {
    size_t node;
    size_t parameter;
} finish;

static int compare_finish(const void *a, const void *b) {
    const finish *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->parameter < y->parameter ? -1 : x->parameter > y->parameter;
}

/* A parameter without a gradient is "finished" before the backward pass begins. */
static void find_finishes(const copse__graph *graph, finish *finishes) {
    for (size_t p = 0; p < graph->parameter_count; p++)
        finishes[p] = (finish){.node = graph->forward_count, .parameter = p};
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t o = 0; o < graph->nodes[n].output_count; o++) {
            copse__tensor_id id = graph->nodes[n].outputs[o];
            if (id == COPSE__NO_TENSOR)
                continue;
            const copse__tensor *tensor = &graph->tensors[graph->tensors[id].storage];
            if (tensor->role == COPSE__ROLE_GRADIENT)
                finishes[tensor->index].node = n;
        }
    qsort(finishes, graph->parameter_count, sizeof *finishes, compare_finish);
}

/* Opens a new bucket where the current one (NULL: none yet) is full. */
static bool needs_new_bucket(const copse__layout *layout, size_t bytes,
                             const copse__layout_options *options) {
    if (layout->bucket_count == 0)
        return true;
    size_t have = layout->buckets[layout->bucket_count - 1].elements * sizeof(float);
    size_t limit =
        layout->bucket_count == 1 ? options->first_bucket_bytes : options->bucket_bytes;
    return have >= limit || have + bytes > options->max_bucket_bytes;
}

copse_status copse__layout_new(copse__layout **out, const copse__graph *graph,
                               const copse__layout_options *options, copse_error *err) {
    *out = NULL;
    copse__layout_options o = *options;
    o.alignment = copse__max_size(o.alignment, COPSE__LAYOUT_ALIGNMENT);
    o.first_bucket_bytes = o.first_bucket_bytes ? o.first_bucket_bytes : MIB;
    o.bucket_bytes = o.bucket_bytes ? o.bucket_bytes : 25 * MIB;
    o.max_bucket_bytes = o.max_bucket_bytes ? o.max_bucket_bytes : SIZE_MAX / 2;

    copse_status status;
    finish *finishes = NULL;
    copse__layout *layout;
    status = copse__calloc(&layout, 1, sizeof *layout, err);
    if (status != COPSE_OK)
        return status;
    size_t count = graph->parameter_count;
    layout->parameter_count = count;
    COPSE__TRY(copse__calloc(&layout->places, count, sizeof *layout->places, err), fail);
    COPSE__TRY(copse__calloc(&layout->buckets, count, sizeof *layout->buckets, err),
               fail);
    COPSE__TRY(copse__calloc(&finishes, count, sizeof *finishes, err), fail);
    find_finishes(graph, finishes);

    size_t base = 0;
    for (size_t i = 0; i < count; i++) {
        const copse__tensor *tensor =
            &graph->tensors[graph->parameters[finishes[i].parameter].tensor];
        size_t elements = copse__tensor_elements(tensor, NULL);
        size_t bytes =
            copse__round_up(copse__max_size(elements, 1) * sizeof(float), o.alignment);
        if (bytes > o.max_bucket_bytes) {
            status =
                copse__fail(err, COPSE_DEVICE_MEMORY, 0, tensor->name,
                            "the parameter takes %zu bytes, but a device allocates at "
                            "most %zu at once; make the layer smaller",
                            bytes, o.max_bucket_bytes);
            goto fail;
        }
        if (needs_new_bucket(layout, bytes, &o))
            layout->buckets[layout->bucket_count++].base = base;
        copse__bucket *bucket = &layout->buckets[layout->bucket_count - 1];
        layout->places[finishes[i].parameter] = (copse__parameter_place){
            .bucket = (uint32_t)(layout->bucket_count - 1),
            .offset = bucket->elements,
            .elements = elements,
        };
        bucket->elements += bytes / sizeof(float);
        base += bytes / sizeof(float);
    }
    free(finishes);
    *out = layout;
    return COPSE_OK;
fail:
    free(finishes);
    copse__layout_free(layout);
    return status;
}

void copse__layout_free(copse__layout *layout) {
    if (!layout)
        return;
    free(layout->places);
    free(layout->buckets);
    free(layout);
}
