/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_TOPO_H
#define COPSE_TOPO_TOPO_H

#include <copse/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

/* What a machine holds: its NUMA nodes, bridges, physical devices and their OpenCL
 * handles. Immutable once opened; any number of threads may read it. Its fields are in
 * topo/model.h, for the writers and the reporter. */
typedef struct copse__topo copse__topo;

typedef enum copse__isolate {
    /* The drivers are first asked in a child process, so that one that crashes or hangs
     * is left out of what this process loads. */
    COPSE__ISOLATE_ICD,
    COPSE__ISOLATE_NONE
} copse__isolate;

typedef struct copse__topo_options {
    copse__isolate isolate;
    uint64_t timeout_ns; /* for one driver's answer; 0: 10 s */
    const char
        *input_json;       /* a saved report to replay instead of this machine, or NULL */
    const char *hwloc_xml; /* a saved hwloc topology instead of this machine's, or NULL */
    const char
        *bench_json; /* a saved `cltopo bench`, whose figures are taken over for what
                               is here too, or NULL */
    bool each_icd;   /* ask every driver alone, as `cltopo doctor` does */
} copse__topo_options;

/* Looks at the machine, or replays a saved one. options NULL: the defaults.
 *
 * With COPSE__ISOLATE_ICD, the caller makes no OpenCL call before: the children are plain
 * forks that make the OpenCL calls, and a fork of a process whose drivers already run
 * hangs in them. (Where a driver is found loaded already, isolation is skipped and a
 * warning says so. Other threads may exist; a child that meets a lock one of them held
 * counts as hung.) If all drivers answer, nothing in this process changes. If one crashed
 * or hung, OCL_ICD_VENDORS points at a private folder of the good ones from here until
 * copse__topo_close: the first OpenCL call of the process must fall in between, then the
 * loader never sees the bad one and platform indices are those of the topology.
 *
 * Blocks for as long as the slowest driver takes, at most about three times the timeout.
 * Finding no device is no failure; a broken driver is a warning. Not thread-safe (it may
 * set an environment variable). */
COPSE_CHECKED copse_status copse__topo_open(copse__topo **out,
                                            const copse__topo_options *options,
                                            copse_error *err);

/* NULL is allowed. Restores the environment and removes the private folder. */
void copse__topo_close(copse__topo *topo);

/* One aligned line a handle, with a heading: label, type, name, platform, driver, compute
 * units, memory; `*` marks the preferred handle of a physical device, and a handle that
 * cannot be used says why. Check text->failed at the end. */
void copse__describe_devices(const copse__topo *topo, copse__text *out);

#endif
