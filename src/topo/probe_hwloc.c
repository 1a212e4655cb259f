/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "topo/model.h"

enum { XML_LIMIT = 64 << 20 };

typedef struct reader {
    copse__topo *topo;
    hwloc_topology_t machine;
    size_t capacity;
    bool this_system, full;
    hwloc_bitmap_t bound; /* the CPUs this process is bound to; NULL: not known */
} reader;

/* Those CPUs of a set that this process may use, as "0-7,16-23". hwloc leaves out what a
 * container forbids, but not what the affinity mask does. */
static void cpus_text(const reader *r, char *out, size_t capacity,
                      hwloc_const_bitmap_t set) {
    char *text = NULL;
    hwloc_bitmap_t both = NULL;
    out[0] = '\0';
    if (set && r->bound && (both = hwloc_bitmap_alloc()) != NULL) {
        hwloc_bitmap_and(both, set, r->bound);
        set = both;
    }
    if (set && hwloc_bitmap_list_asprintf(&text, set) >= 0)
        copse__put(out, capacity, "%s", text);
    free(text);
    hwloc_bitmap_free(both);
}

static int add_node(reader *r, copse__node_kind kind, int parent) {
    if (r->topo->node_count >= COPSE__MAX_NODES ||
        copse__grow(&r->topo->nodes, &r->capacity, r->topo->node_count + 1,
                    sizeof r->topo->nodes[0], NULL) != COPSE_OK) {
        r->full = true;
        return -1;
    }
    copse__node *made = &r->topo->nodes[r->topo->node_count];
    *made = (copse__node){.kind = kind,
                          .parent = parent,
                          .numa = parent >= 0 ? r->topo->nodes[parent].numa : -1,
                          .link = {-1, -1, -1, -1, 0}};
    return (int)r->topo->node_count++;
}

/* A number of a PCI device's folder in sysfs. */
static bool sysfs_text(copse__pci pci, const char *name, char *out, int capacity) {
    char path[160], address[24];
    copse__put(path, sizeof path, "/sys/bus/pci/devices/%s/%s",
               copse__pci_text(address, pci), name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool got = fgets(out, capacity, file) != NULL;
    fclose(file);
    return got;
}

/* "16.0 GT/s PCIe" is generation 4. */
static int generation_of(const char *speed) {
    static const double rates[] = {2.5, 5, 8, 16, 32, 64, 128};
    double rate = strtod(speed, NULL);
    for (size_t i = 0; i < COPSE__COUNT(rates); i++)
        if (rate > rates[i] - 0.1 && rate < rates[i] + 0.1)
            return (int)i + 1;
    return -1;
}

static void read_link(const reader *r, copse__node *node, double gbytes_per_s) {
    char text[64];
    node->link.gbytes_per_s = gbytes_per_s > 0 ? gbytes_per_s : 0;
    if (!r->this_system)
        return;
    if (sysfs_text(node->pci, "current_link_speed", text, sizeof text))
        node->link.generation = generation_of(text);
    if (sysfs_text(node->pci, "max_link_speed", text, sizeof text))
        node->link.max_generation = generation_of(text);
    if (sysfs_text(node->pci, "current_link_width", text, sizeof text) && atoi(text) > 0)
        node->link.width = atoi(text);
    /* 255 is what the kernel says where it does not know. */
    if (sysfs_text(node->pci, "max_link_width", text, sizeof text) && atoi(text) > 0 &&
        atoi(text) < 255)
        node->link.max_width = atoi(text);
}

static const char *info_of(hwloc_obj_t object, const char *key) {
    const char *value = hwloc_obj_get_info_by_name(object, key);
    return value ? value : "";
}

static void read_pci(const reader *r, copse__node *node,
                     const struct hwloc_pcidev_attr_s *from) {
    node->has_pci = true;
    node->pci = (copse__pci){from->domain, from->bus, from->dev, from->func};
    node->class_id = from->class_id;
    node->vendor_id = from->vendor_id;
    node->device_id = from->device_id;
    read_link(r, node, (double)from->linkspeed);
}

static uint64_t kib(hwloc_obj_t object, const char *key) {
    return strtoull(info_of(object, key), NULL, 10) << 10;
}

/* hwloc saved what its own OpenCL plug-in saw: enough to show the machine again. */
static void read_opencl(reader *r, hwloc_obj_t object, const copse__node *at) {
    copse__topo *topo = r->topo;
    unsigned long platform = strtoul(info_of(object, "OpenCLPlatformIndex"), NULL, 10);
    unsigned long device =
        strtoul(info_of(object, "OpenCLPlatformDeviceIndex"), NULL, 10);
    const char *type = info_of(object, "OpenCLDeviceType");
    if (topo->handle_count >= COPSE__MAX_HANDLES || platform >= COPSE__MAX_PLATFORMS ||
        device >= COPSE__MAX_HANDLES)
        return;
    copse__handle *made = &topo->handles[topo->handle_count];
    *made = (copse__handle){.platform = (uint32_t)platform,
                            .device = (uint32_t)device,
                            .physical = -1,
                            .available = -1,
                            .compiler = -1,
                            .unified = -1,
                            .fp16 = -1,
                            .fp64 = -1,
                            .subgroups = -1,
                            .images = -1,
                            .native_kernels = -1};
    if (copse__strdup(&made->extensions, "", NULL) != COPSE_OK)
        return;
    topo->handle_count++;
    made->type = !strcmp(type, "GPU")           ? COPSE__TYPE_GPU
                 : !strcmp(type, "Accelerator") ? COPSE__TYPE_ACCELERATOR
                 : !strcmp(type, "CPU")         ? COPSE__TYPE_CPU
                                                : 0;
    copse__put(made->name, sizeof made->name, "%s", info_of(object, "GPUModel"));
    copse__put(made->vendor, sizeof made->vendor, "%s", info_of(object, "GPUVendor"));
    made->name_raw_bytes = (uint32_t)strlen(made->name);
    memcpy(made->name_raw, made->name, made->name_raw_bytes);
    made->vendor_id = at->vendor_id;
    made->compute_units =
        (uint32_t)strtoul(info_of(object, "OpenCLComputeUnits"), NULL, 10);
    made->memory_bytes = kib(object, "OpenCLGlobalMemorySize");
    if (at->has_pci) {
        made->pci = at->pci;
        made->pci_evidence = COPSE__BY_HWLOC;
    }
    if (platform >= topo->platform_count)
        topo->platform_count = platform + 1;
    copse__put(topo->platforms[platform].name, sizeof topo->platforms[0].name, "%s",
               info_of(object, "OpenCLPlatformName"));
    topo->platforms[platform].icd = -1;
    topo->platforms[platform].device_count++;
}

static void read_functions(reader *r, hwloc_obj_t device, int index, bool with_opencl) {
    for (hwloc_obj_t os = device->io_first_child; os; os = os->next_sibling) {
        if (os->type != HWLOC_OBJ_OS_DEVICE)
            continue;
        copse__node *node = &r->topo->nodes[index];
        if (os->subtype && !strcmp(os->subtype, "OpenCL")) {
            if (with_opencl)
                read_opencl(r, os, node);
        } else if (node->class_id >> 8 == 0x02 && os->name) {
            size_t used = strlen(node->interface);
            copse__put(node->interface + used, sizeof node->interface - used, "%s%s",
                       used ? "," : "", os->name);
        }
    }
}

static void read_io(reader *r, hwloc_obj_t object, int parent, bool with_opencl) {
    bool host = false;
    copse__node_kind kind = COPSE__NODE_PCI;
    if (object->type == HWLOC_OBJ_BRIDGE) {
        host = object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
        kind = host ? COPSE__NODE_HOST_BRIDGE : COPSE__NODE_BRIDGE;
    } else if (object->type != HWLOC_OBJ_PCI_DEVICE) {
        return;
    }
    int index = add_node(r, kind, parent);
    if (index < 0)
        return;
    copse__node *node = &r->topo->nodes[index];
    copse__put(node->name, sizeof node->name, "%s", info_of(object, "PCIDevice"));
    if (kind == COPSE__NODE_PCI) {
        read_pci(r, node, &object->attr->pcidev);
        read_functions(r, object, index, with_opencl);
        return;
    }
    const struct hwloc_bridge_attr_s *bridge = &object->attr->bridge;
    if (bridge->downstream_type == HWLOC_OBJ_BRIDGE_PCI) {
        node->domain = bridge->downstream.pci.domain;
        node->bus_first = bridge->downstream.pci.secondary_bus;
        node->bus_last = bridge->downstream.pci.subordinate_bus;
    }
    if (!host)
        read_pci(r, node, &bridge->upstream.pci);
    for (hwloc_obj_t io = object->io_first_child; io; io = io->next_sibling)
        read_io(r, io, index, with_opencl);
}

/* Whether the system itself says where the buses under a bridge are. On a machine of one
 * node hwloc puts all of them there, said or not. */
static bool system_says_node(hwloc_obj_t object) {
    char text[32];
    if (object->type == HWLOC_OBJ_PCI_DEVICE) {
        const struct hwloc_pcidev_attr_s *at = &object->attr->pcidev;
        copse__pci pci = {at->domain, at->bus, at->dev, at->func};
        if (sysfs_text(pci, "numa_node", text, sizeof text) && atoi(text) >= 0)
            return true;
    }
    for (hwloc_obj_t io = object->io_first_child; io; io = io->next_sibling)
        if (system_says_node(io))
            return true;
    return false;
}

/* The node of what hangs at a host object: its NUMA node where that is one, else the
 * machine, which says "not known". */
static int find_parent(const reader *r, hwloc_obj_t host, hwloc_obj_t child) {
    if (!host->nodeset || hwloc_bitmap_weight(host->nodeset) != 1)
        return 0;
    if (r->this_system && host->type == HWLOC_OBJ_MACHINE && !system_says_node(child))
        return 0;
    int os_index = hwloc_bitmap_first(host->nodeset);
    for (size_t i = 0; i < r->topo->node_count; i++)
        if (r->topo->nodes[i].kind == COPSE__NODE_NUMA &&
            r->topo->nodes[i].numa == os_index)
            return (int)i;
    return 0;
}

static void read_hosts(reader *r, hwloc_obj_t object, bool with_opencl) {
    for (hwloc_obj_t io = object->io_first_child; io; io = io->next_sibling)
        read_io(r, io, find_parent(r, object, io), with_opencl);
    for (hwloc_obj_t child = object->first_child; child; child = child->next_sibling)
        read_hosts(r, child, with_opencl);
}

static void read_numa(reader *r) {
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(r->machine, HWLOC_OBJ_NUMANODE, node))) {
        int index = add_node(r, COPSE__NODE_NUMA, 0);
        if (index < 0)
            return;
        copse__node *made = &r->topo->nodes[index];
        made->numa = (int)node->os_index;
        made->memory_bytes = node->attr->numanode.local_memory;
        cpus_text(r, made->cpus, sizeof made->cpus, node->cpuset);
        hwloc_obj_t package =
            hwloc_get_ancestor_obj_by_type(r->machine, HWLOC_OBJ_PACKAGE, node);
        if (!package && node->cpuset && !hwloc_bitmap_iszero(node->cpuset))
            package = hwloc_get_next_obj_covering_cpuset_by_type(r->machine, node->cpuset,
                                                                 HWLOC_OBJ_PACKAGE, NULL);
        if (package)
            copse__put(made->name, sizeof made->name, "%s", info_of(package, "CPUModel"));
        if (!made->name[0])
            copse__put(made->name, sizeof made->name, "%s",
                       info_of(hwloc_get_root_obj(r->machine), "CPUModel"));
    }
}

/* A file of hwloc 3 differs from one of hwloc 2 in nothing that is read here, but the
 * library of hwloc 2 refuses the number. */
static void lower_version(char *text, size_t bytes) {
    static const char mark[] = "<topology version=\"3.";
    char *at = memmem(text, copse__min_size(bytes, 4096), mark, sizeof mark - 1);
    if (at && hwloc_get_api_version() < 0x00030000)
        at[sizeof mark - 3] = '2';
}

static copse_status set_source(reader *r, const char *xml, size_t bytes,
                               const char *place, char **buffer, copse_error *err) {
    if (bytes >= XML_LIMIT)
        return copse__fail(err, COPSE_FORMAT, 0, place, "larger than any topology is");
    copse_status status = copse__calloc(buffer, bytes + 1, 1, err);
    if (status != COPSE_OK)
        return status;
    memcpy(*buffer, xml, bytes);
    lower_version(*buffer, bytes);
    if (hwloc_topology_set_xmlbuffer(r->machine, *buffer, (int)bytes + 1) != 0)
        return copse__fail(err, COPSE_FORMAT, errno, place,
                           "hwloc cannot read it: is it a topology saved by lstopo?");
    return COPSE_OK;
}

static int compare_nodes(const copse__node *a, const copse__node *b) {
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    const copse__pci x =
        a->has_pci ? a->pci : (copse__pci){a->domain, a->bus_first, 0, 0};
    const copse__pci y =
        b->has_pci ? b->pci : (copse__pci){b->domain, b->bus_first, 0, 0};
    if (a->kind == COPSE__NODE_NUMA)
        return a->numa < b->numa ? -1 : a->numa > b->numa;
    if (x.domain != y.domain)
        return x.domain < y.domain ? -1 : 1;
    uint32_t p = x.bus << 8 | x.device << 3 | x.function;
    uint32_t q = y.bus << 8 | y.device << 3 | y.function;
    return p < q ? -1 : p > q;
}

/* Appends the children of `from` to the new order, sorted, each followed by its own. */
static void order_children(const copse__topo *topo, int from, int parent,
                           copse__node *out, size_t *count) {
    int last = -1;
    for (;;) {
        int best = -1;
        for (size_t i = 0; i < topo->node_count; i++) {
            const copse__node *node = &topo->nodes[i];
            if (node->parent != from)
                continue;
            int with_last = last < 0 ? 1 : compare_nodes(node, &topo->nodes[last]);
            if (with_last < 0 || (with_last == 0 && (int)i <= last))
                continue;
            if (best < 0 || compare_nodes(node, &topo->nodes[best]) < 0)
                best = (int)i;
        }
        if (best < 0)
            return;
        size_t at = (*count)++;
        out[at] = topo->nodes[best];
        out[at].parent = parent;
        order_children(topo, best, (int)at, out, count);
        last = best;
    }
}

static copse_status order_nodes(copse__topo *topo, copse_error *err) {
    copse__node *ordered = NULL;
    copse_status status = copse__calloc(&ordered, topo->node_count, sizeof *ordered, err);
    if (status != COPSE_OK)
        return status;
    size_t count = 1;
    ordered[0] = topo->nodes[0];
    order_children(topo, 0, 0, ordered, &count);
    free(topo->nodes);
    topo->nodes = ordered;
    topo->node_count = count;
    return COPSE_OK;
}

static int by_pair(const void *a, const void *b) {
    const copse__handle *x = a, *y = b;
    if (x->platform != y->platform)
        return x->platform < y->platform ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

static copse_status read_all(reader *r, bool with_opencl, copse_error *err) {
    copse__topo *topo = r->topo;
    hwloc_obj_t root = hwloc_get_root_obj(r->machine);
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(r->machine);
    copse_status status = COPSE_OK;
    if (with_opencl) {
        status = copse__calloc(&topo->handles, COPSE__MAX_HANDLES,
                               sizeof topo->handles[0], err);
        if (status == COPSE_OK)
            status = copse__calloc(&topo->platforms, COPSE__MAX_PLATFORMS,
                                   sizeof topo->platforms[0], err);
        if (status != COPSE_OK)
            return status;
        for (size_t i = 0; i < COPSE__MAX_PLATFORMS; i++)
            topo->platforms[i].icd = -1;
    }
    if (add_node(r, COPSE__NODE_MACHINE, -1) < 0)
        return copse__fail_nomem(err, sizeof(copse__node));
    const char *model = info_of(root, "DMIProductName");
    copse__put(topo->nodes[0].name, sizeof topo->nodes[0].name, "%s", model);
    cpus_text(r, topo->cpus_allowed, sizeof topo->cpus_allowed, allowed);
    copse__put(topo->nodes[0].cpus, sizeof topo->nodes[0].cpus, "%s", topo->cpus_allowed);
    if (!r->this_system) {
        int count = allowed ? hwloc_bitmap_weight(allowed) : 0;
        topo->cpu_count = count > 0 ? (uint32_t)count : 0;
        copse__put(topo->host, sizeof topo->host, "%s", info_of(root, "HostName"));
    }
    read_numa(r);
    read_hosts(r, root, with_opencl);
    if (r->full)
        copse__topo_warn(topo, "TOO_MANY_NODES",
                         "only the first %d objects of the machine are shown",
                         COPSE__MAX_NODES);
    if (with_opencl)
        qsort(topo->handles, topo->handle_count, sizeof topo->handles[0], by_pair);
    return order_nodes(topo, err);
}

copse_status copse__read_machine(copse__topo *topo, const char *xml, size_t bytes,
                                 const char *place, copse_error *err) {
    reader r = {.topo = topo};
    char *buffer = NULL;
    copse_status status = COPSE_OK;
    if (hwloc_topology_init(&r.machine) != 0)
        return copse__fail_nomem(err, sizeof r);
    /* Plug-ins that would talk to drivers in this process; OpenCL is asked by ourselves. */
    static const char *const unwanted[] = {"opencl", "cuda",      "nvml",
                                           "rsmi",   "levelzero", "gl"};
    for (size_t i = 0; i < COPSE__COUNT(unwanted); i++)
        hwloc_topology_set_components(r.machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      unwanted[i]);
    hwloc_topology_set_type_filter(r.machine, HWLOC_OBJ_BRIDGE,
                                   HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(r.machine, HWLOC_OBJ_PCI_DEVICE,
                                   HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(r.machine, HWLOC_OBJ_OS_DEVICE,
                                   HWLOC_TYPE_FILTER_KEEP_ALL);
    if (xml)
        COPSE__TRY(set_source(&r, xml, bytes, place, &buffer, err), out);
    if (hwloc_topology_load(r.machine) != 0) {
        status = xml ? copse__fail(err, COPSE_FORMAT, errno, place,
                                   "hwloc cannot read it: is it a topology saved by "
                                   "lstopo?")
                     : copse__fail(err, COPSE_UNSUPPORTED, errno, NULL,
                                   "hwloc cannot read this machine: %s", strerror(errno));
        goto out;
    }
    r.this_system = !xml && hwloc_topology_is_thissystem(r.machine);
    r.bound = r.this_system ? hwloc_bitmap_alloc() : NULL;
    if (r.bound && hwloc_get_cpubind(r.machine, r.bound, HWLOC_CPUBIND_PROCESS) != 0) {
        hwloc_bitmap_free(r.bound);
        r.bound = NULL;
    }
    status = read_all(&r, xml != NULL, err);
out:
    hwloc_bitmap_free(r.bound);
    hwloc_topology_destroy(r.machine);
    free(buffer);
    return status;
}
