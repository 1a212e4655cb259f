/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/model.h"

/* A saved topology is read by hwloc, and hwloc can crash on a damaged one (2.9 does, on one
 * wrong digit of a cpuset). So a child reads it, and this process takes what it made of it
 * from memory they share, trusting nothing. */

enum { LIMIT_S = 20 };

typedef struct xml_result {
    uint32_t finished;
    copse_status status;
    copse_error error;
    char host[128], cpus_allowed[256];
    uint32_t cpu_count;
    size_t node_count, handle_count, platform_count;
    copse__node nodes[COPSE__MAX_NODES];
    copse__handle handles[COPSE__MAX_HANDLES];
    copse__platform platforms[COPSE__MAX_PLATFORMS];
} xml_result;

static void work(xml_result *to, const char *xml, size_t bytes, const char *place) {
    copse__topo *topo = NULL;
    to->status = copse__calloc(&topo, 1, sizeof *topo, &to->error);
    if (to->status == COPSE_OK)
        to->status = copse__read_machine(topo, xml, bytes, place, &to->error);
    if (to->status == COPSE_OK) {
        memcpy(to->host, topo->host, sizeof to->host);
        memcpy(to->cpus_allowed, topo->cpus_allowed, sizeof to->cpus_allowed);
        to->cpu_count = topo->cpu_count;
        to->node_count = topo->node_count;
        to->handle_count = topo->handle_count;
        to->platform_count = topo->platform_count;
        memcpy(to->nodes, topo->nodes, topo->node_count * sizeof topo->nodes[0]);
        memcpy(to->handles, topo->handles, topo->handle_count * sizeof topo->handles[0]);
        memcpy(to->platforms, topo->platforms,
               topo->platform_count * sizeof topo->platforms[0]);
    }
    to->finished = 1;
}

static void run(xml_result *to, const char *xml, size_t bytes, const char *place) {
    uint64_t start = copse__now_ns();
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        copse__child_begin(parent, -1);
        work(to, xml, bytes, place);
        _exit(0);
    }
    while (pid > 0) {
        pid_t got = waitpid(pid, NULL, WNOHANG);
        if (got == pid || (got < 0 && errno == ECHILD))
            return;
        if (copse__now_ns() - start > (uint64_t)LIMIT_S * 1000000000u)
            kill(pid, SIGKILL);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

/* A text that may be anything. */
static void take_text(char *to, size_t capacity, const char *from) {
    memcpy(to, from, capacity);
    to[capacity - 1] = '\0';
    copse__clean_utf8(to);
}

#define TAKE_TEXT(to, from, member)                                                      \
    take_text((to)->member, sizeof(to)->member, (from)->member)

static bool take_node(copse__node *to, const copse__node *from, size_t index) {
    *to = *from;
    TAKE_TEXT(to, from, name);
    TAKE_TEXT(to, from, interface);
    TAKE_TEXT(to, from, cpus);
    bool machine = index == 0;
    return to->kind <= COPSE__NODE_PCI && (to->kind == COPSE__NODE_MACHINE) == machine &&
           (machine ? to->parent == -1 : to->parent >= 0 && to->parent < (int)index);
}

static copse_status take_handle(copse__handle *to, const copse__handle *from,
                                copse_error *err) {
    *to = *from;
    TAKE_TEXT(to, from, name);
    TAKE_TEXT(to, from, vendor);
    to->driver[0] = to->version[0] = to->c_version[0] = to->tag[0] = '\0';
    to->name_raw_bytes =
        (uint32_t)copse__min_size(to->name_raw_bytes, sizeof to->name_raw);
    to->physical = -1;
    to->pci_evidence = from->pci_evidence ? COPSE__BY_HWLOC : COPSE__BY_NOTHING;
    to->extensions = NULL;
    return copse__strdup(&to->extensions, "", err);
}

static copse_status take(copse__topo *topo, const xml_result *from, const char *place,
                         copse_error *err) {
    size_t nodes = copse__min_size(from->node_count, COPSE__MAX_NODES);
    size_t handles = copse__min_size(from->handle_count, COPSE__MAX_HANDLES);
    size_t platforms = copse__min_size(from->platform_count, COPSE__MAX_PLATFORMS);
    copse_status status = copse__calloc(&topo->nodes, nodes, sizeof topo->nodes[0], err);
    if (status == COPSE_OK)
        status = copse__calloc(&topo->handles, handles, sizeof topo->handles[0], err);
    if (status == COPSE_OK)
        status =
            copse__calloc(&topo->platforms, platforms, sizeof topo->platforms[0], err);
    if (status != COPSE_OK)
        return status;
    TAKE_TEXT(topo, from, host);
    TAKE_TEXT(topo, from, cpus_allowed);
    topo->cpu_count = from->cpu_count;
    for (size_t i = 0; i < nodes; i++)
        if (!take_node(&topo->nodes[i], &from->nodes[i], i))
            return copse__fail(err, COPSE_FORMAT, 0, place, "hwloc made nonsense of it");
    topo->node_count = nodes;
    for (; topo->platform_count < platforms; topo->platform_count++) {
        copse__platform *to = &topo->platforms[topo->platform_count];
        const copse__platform *of = &from->platforms[topo->platform_count];
        *to = (copse__platform){.icd = -1, .device_count = of->device_count};
        TAKE_TEXT(to, of, name);
    }
    for (size_t i = 0; i < handles; i++) {
        const copse__handle *of = &from->handles[i];
        /* Two objects that say the same pair: the first counts. */
        bool again = of->platform >= platforms;
        for (size_t k = 0; k < topo->handle_count; k++)
            again = again || (topo->handles[k].platform == of->platform &&
                              topo->handles[k].device == of->device);
        if (again)
            continue;
        status = take_handle(&topo->handles[topo->handle_count], of, err);
        if (status != COPSE_OK)
            return status;
        topo->handle_count++;
    }
    return COPSE_OK;
}

copse_status copse__read_xml(copse__topo *topo, const char *xml, size_t bytes,
                             const char *place, copse_error *err) {
    xml_result *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED)
        return copse__fail_nomem(err, sizeof *result);
    run(result, xml, bytes, place);
    copse_status status;
    if (!result->finished) {
        status = copse__fail(err, COPSE_FORMAT, 0, place,
                             "hwloc crashes on it: it is damaged; save it again with "
                             "lstopo FILE.xml");
    } else if (result->status != COPSE_OK) {
        result->error.text[sizeof result->error.text - 1] = '\0';
        status = copse__fail(err, result->status, result->error.native, place, "%s",
                             result->error.text);
    } else {
        status = take(topo, result, place, err);
    }
    munmap(result, sizeof *result);
    return status;
}
