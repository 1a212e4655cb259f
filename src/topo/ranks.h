/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_RANKS_H
#define COPSE_TOPO_RANKS_H

#include "topo/select.h"

/* One addition of the fixed balanced tree over ranks: the partial sum that starts at rank
 * `into` takes in the one that starts at rank `from`. */
typedef struct copse__merge {
    uint32_t into, from, level;
} copse__merge;

/* The tree of every sum over n ranks, in an order that may be executed as it stands: pass by
 * pass, neighbours are joined pairwise and an odd one out passes on, so that n = 5 is
 * (((0+1)+(2+3))+4). It depends on n alone. out has room for n - 1; returns how many (n - 1,
 * or 0 for n = 0). */
size_t copse__balanced_tree(uint32_t n, copse__merge *out);

/* One replica's place in a run. */
typedef struct copse__rank {
    copse__device_choice choice;
    int handle;   /* index of its handle; -1: the host backend */
    int physical; /* index in the topology; -1: the host backend */
    double
        weight; /* for the split of a batch: of the selector, or measured GFLOP/s; 0: none
                       known */
    bool
        mapped; /* gradients are mapped, not copied: its memory is the host's, and mapping it
                      was measured to be faster, or nothing was measured */
    bool measured; /* mapped and path are a measurement's, no assumption */
    char path[24]; /* "map", or the best measured of the others; "" not known */
    double down, up,
        duplex; /* GB/s of that path, d2h, h2d and both at once; 0: unknown */
} copse__rank;

typedef struct copse__rank_plan {
    copse__rank *ranks; /* in rank order */
    uint32_t count;
    copse__merge *merges; /* count - 1 */
    bool weights_known; /* of all ranks; else shards are equal until they are measured */
    double
        memory_rate; /* M: bytes/s that the host reads and writes together; 0: unknown */
    double sum_rate; /* R: bytes/s of input that the host adds up; 0: unknown */
    double link_s, memory_s, cpu_s; /* modelled times of one all-reduce; < 0: unknown */
    const char *bound; /* "link", "mem", "cpu": the greatest; "" where one is unknown */
    char hash[33];     /* of the ordered devices: equal where the rank order is */
} copse__rank_plan;

/* What a run over these choices (as copse__select_devices sorted them) does with sums of
 * gradient_bytes, after the measurements in topo. The model (docs/architecture.md, The all-reduce and its limit):
 * T_link = max(S/down, S/up, 2S/duplex) of the slowest copied rank, T_mem = (3n+g)S/M with
 * g = n contexts over the copied ranks plus 2nS/M over the mapped ones, T_cpu = nS/R; one
 * rank sums nothing. choices are copied. */
COPSE_CHECKED copse_status copse__rank_plan_make(copse__rank_plan **out,
                                                 const copse__topo *topo,
                                                 const copse__device_choice *choices,
                                                 size_t count, uint64_t gradient_bytes,
                                                 copse_error *err);
void copse__rank_plan_free(copse__rank_plan *plan);

#endif
