/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_RATES_H
#define COPSE_COMM_RATES_H

#include "comm/allreduce.h"
#include "comm/sum.h"

/* Rates of this machine in bytes per second, measured now, each the best of several tries:
 * what the limits of an all-reduce are made of. */

/* Read and written bytes together, of plain and streaming loops of so many threads over
 * `footprint` bytes: the best of both. */
copse_status copse__rate_memory(double *out, size_t footprint, size_t threads,
                                copse_error *err);

/* Input bytes that one thread adds up, in chunks that a cache holds: `ranks` of them, into
 * the same memory. */
copse_status copse__rate_sum(double *out, size_t ranks, size_t chunk_bytes,
                             copse_error *err);

/* Device to host (or back) in chunks of one slot, the device alone. */
copse_status copse__rate_copy(double *out, copse__device *device, size_t bytes,
                              size_t chunk_bytes, bool down, copse_error *err);

/* Device to host while as much goes back, both through slots: bytes of one direction. */
copse_status copse__rate_duplex(double *out, copse__device *device, size_t bytes,
                                size_t chunk_bytes, copse_error *err);

/* How the bytes of a device reach the host and come back the fastest, measured with so many
 * bytes: MAPPED only where its memory is the host's. Takes milliseconds. */
copse_status copse__measure_path(copse__stage_path *out, copse__device *device,
                                 size_t bytes, copse_error *err);

#endif
