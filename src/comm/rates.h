/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_RATES_H
#define COPSE_COMM_RATES_H

#include "comm/opening.h"

/* Bytes per second, read and written together, of plain and streaming loops of so many threads
 * over `footprint` bytes that each of them wrote a part of just before: the best of a few. Of
 * small footprints also of one thread alone, whose cache may hold all. */
copse_status copse__rate_memory(double *out, size_t footprint, size_t threads,
                                copse_error *err);

/* How the bytes of a device reach the host and come back the fastest, measured with so many
 * bytes: MAPPED only where its memory is the host's. Takes milliseconds. calls, rank: who watches its
 * calls. */
copse_status copse__measure_path(copse__stage_path *out, copse__device *device,
                                 size_t bytes, copse__calls *calls, size_t rank,
                                 copse_error *err);

#endif
