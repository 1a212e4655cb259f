/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_MODEL_H
#define COPSE_TOPO_MODEL_H

/* The fields of a topology, for src/topo and tools/cltopo. Unknown is said as: -1 in
 * signed fields, 0 in counts and sizes, "" in texts. */

#include <stddef.h>
#include <sys/types.h>

#include "topo/topo.h"

enum {
    COPSE__MAX_ICDS = 64,
    COPSE__MAX_PLATFORMS = 64,
    COPSE__MAX_HANDLES = 256,
    COPSE__MAX_NODES = 4096
};

/* Bits of a device's type, as OpenCL numbers them (one device may have several). */
enum {
    COPSE__TYPE_CPU = 2,
    COPSE__TYPE_GPU = 4,
    COPSE__TYPE_ACCELERATOR = 8,
    COPSE__TYPE_CUSTOM = 16
};

typedef enum copse__icd_status {
    COPSE__ICD_OK,
    COPSE__ICD_EMPTY,   /* answers, but shows no device */
    COPSE__ICD_MISSING, /* its library cannot be loaded */
    COPSE__ICD_CRASH,
    COPSE__ICD_TIMEOUT,
    COPSE__ICD_UNKNOWN /* not asked, or a loader that hides it */
} copse__icd_status;

typedef struct copse__icd {
    char file[256];          /* path of the .icd file, or of the library itself */
    char shared_object[256]; /* first line of the file: name or path to load */
    copse__icd_status status;
    int signal;        /* what killed the probe; 0 where none did */
    char stage[96];    /* the call it was in when it crashed or hung */
    char message[256]; /* the dynamic linker's words, or the driver's last line */
    uint32_t devices;
    uint32_t platforms;
} copse__icd;

typedef struct copse__platform {
    char name[128], vendor[128], version[128];
    int icd; /* index, -1: unknown */
    uint32_t device_count;
} copse__platform;

typedef enum copse__evidence {
    COPSE__BY_NOTHING,
    COPSE__BY_KHR_PCI,
    COPSE__BY_AMD_TOPOLOGY, /* without a domain */
    COPSE__BY_NV_PCI,
    COPSE__BY_HWLOC /* hwloc's own OpenCL objects, in a saved topology */
} copse__evidence;

typedef struct copse__pci {
    uint32_t domain, bus, device, function;
} copse__pci;

/* One (platform, device) of OpenCL. */
typedef struct copse__handle {
    uint32_t platform, device; /* as `P:D` */
    int physical;              /* index of the physical device */
    bool preferred;
    char name[128];        /* trimmed */
    uint8_t name_raw[128]; /* as the driver gave it, with its padding and NULs */
    uint32_t name_raw_bytes;
    char vendor[128], driver[128], version[128], c_version[128];
    char tag[16]; /* "amd", "nvidia", "intel", … or "other" */
    uint64_t type;
    uint32_t vendor_id;
    uint32_t compute_units, clock_mhz;
    uint64_t memory_bytes, max_alloc_bytes, local_bytes, cache_bytes;
    uint64_t max_work_group;
    uint32_t native_float_width;
    uint32_t align_bits;
    uint32_t max_parts; /* 0: cannot be split into equal parts */
    int8_t available, compiler, unified, fp16, fp64, subgroups, images, native_kernels;
    char *extensions; /* sorted, one blank between; owned by the topology */
    copse__evidence pci_evidence;
    copse__pci pci;
    bool has_uuid;
    uint8_t uuid[16];
} copse__handle;

typedef enum copse__confidence {
    COPSE__CONFIDENCE_UNKNOWN,
    COPSE__CONFIDENCE_INFERRED,
    COPSE__CONFIDENCE_EXACT
} copse__confidence;

/* Bits that say why a physical device is what it is. */
enum {
    COPSE__WHY_KHR_PCI = 1,
    COPSE__WHY_AMD_TOPOLOGY = 2,
    COPSE__WHY_NV_PCI = 4,
    COPSE__WHY_UUID = 8,
    COPSE__WHY_HOST_CPU = 16,
    COPSE__WHY_AMBIGUOUS = 32, /* an address repeated within one platform, ignored */
    COPSE__WHY_HWLOC = 128,
    COPSE__WHY_PCI_CLASS = 64 /* a GPU or accelerator that no OpenCL driver shows */
};

typedef enum copse__node_kind {
    COPSE__NODE_MACHINE,
    COPSE__NODE_NUMA,
    COPSE__NODE_HOST_BRIDGE,
    COPSE__NODE_BRIDGE, /* a PCI bridge: a root port or a port of a switch */
    COPSE__NODE_PCI     /* a PCI device */
} copse__node_kind;

typedef struct copse__link {
    int width, generation;         /* as now negotiated; -1: unknown */
    int max_width, max_generation; /* what the device could; -1: unknown */
    double gbytes_per_s;           /* as hwloc knows it, one direction; 0: unknown */
} copse__link;

/* One object of the machine's tree. nodes[0] is the machine; a parent comes before its
 * children; children of one parent are in the order of their addresses. */
typedef struct copse__node {
    copse__node_kind kind;
    int parent; /* index; -1 for the machine */
    int numa;   /* OS index, of a NUMA node and of what lies under it; -1: unknown */
    bool has_pci;
    copse__pci pci;
    uint32_t class_id, vendor_id, device_id; /* PCI */
    uint32_t domain, bus_first, bus_last;    /* bridges: the buses behind */
    copse__link link;
    uint64_t memory_bytes; /* NUMA */
    char name[128];        /* "Intel Xeon …", a PCI name; "" */
    char interface[64];    /* network interfaces, "eth0"; "" */
    char cpus[256];        /* allowed CPUs, "0-7,16-23"; "" */
} copse__node;

/* One piece of silicon, with the handles that drive it. */
typedef struct copse__physical {
    char id[64]; /* "pci:0000:03:00.0", "uuid:…", "host", "opencl:0:1" */
    copse__confidence confidence;
    uint32_t why;
    uint64_t type;
    char tag[16];
    int preferred;  /* handle index; -1: no driver shows it */
    char name[128]; /* of the preferred handle, or what PCI says */
    bool has_pci;
    copse__pci pci;
    int numa; /* OS index of its NUMA node; -1: unknown */
    int node; /* its PCI object among the nodes; -1: none known */
    copse__link link;
    char cpus[256]; /* the near CPUs, "0-7,16-23"; "": unknown */
} copse__physical;

/* One figure of a bench. */
typedef struct copse__measure {
    int physical;  /* index; -1: the host */
    int handle;    /* index of the handle it was measured through; -1: the host */
    int numa;      /* of a host figure; -1: all */
    char what[24]; /* "h2d", "d2h", "duplex", "launch", "gemm_f32", "host_copy", … */
    char path[24]; /* staging path: "read_pinned", "copy_pinned", "map", "use_host_ptr" */
    char unit[12]; /* "GB/s", "us", "GFLOP/s" */
    uint64_t bytes;   /* of one transfer; 0 where it has none */
    uint32_t devices; /* how many did this at once */
    uint32_t runs;
    double median, min, max;
    bool verified; /* the data were compared */
    bool moves;    /* false: a map that copies nothing; its rate is not one of a link */
} copse__measure;

typedef struct copse__warning {
    char code[32];
    char text[256];
} copse__warning;

struct copse__topo {
    char host[128];
    char cpus_allowed[256];
    uint32_t cpu_count; /* allowed, and no more than the cgroup's quota */
    int8_t container;

    size_t icd_count, platform_count, handle_count, physical_count, warning_count;
    copse__icd *icds;
    copse__platform *platforms;
    copse__handle *handles;     /* sorted by platform, device */
    copse__physical *physicals; /* sorted by rank order */
    copse__warning *warnings;
    size_t warning_capacity;
    copse__node *nodes;
    size_t node_count;
    copse__measure *measures;
    size_t measure_count, measure_capacity;

    bool replayed;        /* from a saved report: nothing of it can be opened */
    char *vendors_folder; /* the private folder, where one was needed */
    char *vendors_before; /* OCL_ICD_VENDORS as it was */
    bool vendors_were_set;
};

/* The rank order of a physical device's handle: NUMA node, PCI address, platform, device.
 * Unknown sorts last. The low 8 bits are free for a part. */
uint64_t copse__handle_order(const copse__topo *topo, const copse__handle *handle);

/* Unknown, in a saved topology that does not say, counts as usable. */
static inline bool copse__handle_usable(const copse__handle *handle) {
    return handle->available != 0 && handle->compiler != 0;
}

/* snprintf that cuts on purpose, at a character's boundary, and returns the length that
 * out has now. capacity >= 1. */
size_t copse__put(char *out, size_t capacity, const char *format, ...) COPSE_PRINTF(3, 4);

/* "0000:03:00.0" into a buffer of at least 24 bytes. Returns it. */
const char *copse__pci_text(char buffer[24], copse__pci pci);

/* "gpu", "cpu+gpu+accelerator", "unknown". Returns buffer. */
const char *copse__type_text(char *buffer, size_t capacity, uint64_t type);

/* Adds a warning; silently not where memory ran out. */
void copse__topo_warn(copse__topo *topo, const char *code, const char *format, ...)
    COPSE_PRINTF(3, 4);

/* identity.c: the better of two handles for one device, by the rule written there. */
bool copse__handle_better(const copse__topo *topo, const copse__handle *a,
                          const copse__handle *b);
/* Sets tag from the vendor's words and number. */
void copse__handle_set_tag(copse__handle *handle);
/* Fills physicals from the handles, and each handle's physical and preferred. */
COPSE_CHECKED copse_status copse__identify(copse__topo *topo, copse_error *err);

/* The rest of it, when the nodes are known: each physical device's place, link and CPUs, the
 * GPUs that no driver shows; sorts the physical devices by rank order. */
COPSE_CHECKED copse_status copse__locate(copse__topo *topo, copse_error *err);

/* json_write.c: the whole report as one JSON object with sorted keys and a newline at the
 * end: the same bytes for the same machine. redact hides host name and UUIDs. */
COPSE_CHECKED copse_status copse__json_report(copse__text *out, const copse__topo *topo,
                                              bool redact, copse_error *err);
/* json_read.c: fills an empty topology from a saved report; COPSE_FORMAT with the place of
 * what is wrong. _text: from memory, place is the name for messages. */
COPSE_CHECKED copse_status copse__json_read(copse__topo *topo, const char *path,
                                            copse_error *err);
COPSE_CHECKED copse_status copse__json_read_text(copse__topo *topo, const char *text,
                                                 size_t bytes, const char *place,
                                                 copse_error *err);

/* measures.c: adds to topo the figures in saved: of each handle that is here too (by platform,
 * name, driver and its number among equal ones), and of the host where it may use as many CPUs.
 * COPSE_INVALID at place where no handle is. */
COPSE_CHECKED copse_status copse__topo_take_measures(copse__topo *topo,
                                                     const copse__topo *saved,
                                                     const char *place, copse_error *err);

/* names.c: the words of the report. Static; "unknown" for a value out of range. */
const char *copse__icd_status_name(copse__icd_status status);
const char *copse__confidence_name(copse__confidence confidence);
const char *copse__node_kind_name(copse__node_kind kind);
const char *copse__evidence_name(copse__evidence evidence);
/* Names of the single bits of `why` and `type`, NULL past the last. */
const char *copse__why_bit_name(unsigned bit);
const char *copse__type_bit_name(unsigned bit);
/* Replaces what is not UTF-8 by `?`, in place. */
void copse__clean_utf8(char *text);

/* probe_hwloc.c: fills nodes, cpus_allowed, from this machine (xml NULL) or a saved one of
 * `bytes` characters; place names it in messages. In the latter case the handles too, from
 * the OpenCL objects that it has. */
COPSE_CHECKED copse_status copse__read_machine(copse__topo *topo, const char *xml,
                                               size_t bytes, const char *place,
                                               copse_error *err);

/* read_xml.c: copse__read_machine of a saved topology, by a child process: hwloc may crash
 * on a damaged file. */
COPSE_CHECKED copse_status copse__read_xml(copse__topo *topo, const char *xml,
                                           size_t bytes, const char *place,
                                           copse_error *err);

/* child.c: what a forked child does first. Its signals, handlers and input are its own, its
 * output goes to the descriptor (-1: stays), it leaves no core file, ends with its parent,
 * and never runs the exit handlers of the program it is a copy of. */
void copse__child_begin(pid_t parent, int output);

/* topo.c: copse__topo_open of a saved hwloc topology that is in memory. */
COPSE_CHECKED copse_status copse__topo_from_xml(copse__topo **out, const char *xml,
                                                size_t bytes, const char *place,
                                                copse_error *err);

/* path.c: how near two nodes are. A worse path is the greater number. */
typedef enum copse__path_kind {
    COPSE__PATH_SELF,   /* X: the same device */
    COPSE__PATH_PIX,    /* at most one PCI switch between */
    COPSE__PATH_PXB,    /* several, without the host bridge */
    COPSE__PATH_PHB,    /* through one host bridge */
    COPSE__PATH_NODE,   /* between host bridges of one NUMA node */
    COPSE__PATH_SYS,    /* across NUMA nodes */
    COPSE__PATH_UNKNOWN /* ?: the place of one is not known */
} copse__path_kind;
/* "X", "PIX", …, "?". */
const char *copse__path_name(copse__path_kind kind);
/* What a reader of the matrix wants to know of it; one line. */
const char *copse__path_meaning(copse__path_kind kind);
/* node indices; -1: unknown. */
copse__path_kind copse__node_path(const copse__topo *topo, int a, int b);
/* From the host CPU to a PCI device: through its host bridge, where the CPUs are in one
 * place; over several NUMA nodes the host CPU is near and far at once, so unknown. */
copse__path_kind copse__host_path(const copse__topo *topo, int node);
/* Between physical devices, which may be the host CPU. */
copse__path_kind copse__device_path(const copse__topo *topo, size_t a, size_t b);

/* icds.c: what the loader of this process would read, in name order. Sets icds. */
COPSE_CHECKED copse_status copse__icds_list(copse__topo *topo, copse_error *err);
/* A folder with links to the .icd files with keep[i], named as they are. free() *out. */
COPSE_CHECKED copse_status copse__icds_folder(char **out, const copse__topo *topo,
                                              const bool *keep, copse_error *err);
void copse__icds_folder_remove(const char *folder);

/* isolate.c: asks the drivers, in children or not, and fills icds, platforms and handles. In
 * two steps, so that the machine is read while the drivers think. _finish frees asking and
 * is called in any case; wanted false: nobody cares for the answers any more. */
typedef struct copse__asking copse__asking;
COPSE_CHECKED copse_status copse__ask_begin(copse__asking **out, copse__topo *topo,
                                            const copse__topo_options *options,
                                            copse_error *err);
COPSE_CHECKED copse_status copse__ask_finish(copse__asking *asking, bool wanted,
                                             copse_error *err);

/* What a probe found, of fixed size so that a child can fill it in shared memory. */
typedef struct copse__probe_handle {
    copse__handle handle; /* extensions not set */
    char extensions[8192];
} copse__probe_handle;

typedef struct copse__probe {
    _Atomic int finished;
    char stage[96]; /* the call now running */
    uint32_t platform_count, handle_count, dropped;
    uint32_t icd_loaded[COPSE__MAX_ICDS]; /* 1 loaded, 2 loadable, 3 not loadable */
    char icd_message[COPSE__MAX_ICDS][256];
    copse__platform platforms[COPSE__MAX_PLATFORMS];
    copse__probe_handle handles[COPSE__MAX_HANDLES];
} copse__probe;

/* probe_opencl.c: enumerates everything the loader shows into *probe (zeroed). Makes
 * OpenCL calls in this process. topo gives the list of ICDs for matching platforms to them; no
 * library of an ICD that only[i] leaves out is touched (NULL: all are looked at). */
void copse__probe_opencl(copse__probe *probe, const copse__topo *topo, const bool *only);

#endif
