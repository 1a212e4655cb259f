/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "topo/model.h"

#define VENDORS_FOLDER "/etc/OpenCL/vendors"

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static bool ends_with_icd(const char *name) {
    size_t length = strlen(name);
    return length > 4 && !strcmp(name + length - 4, ".icd");
}

/* The library named on the first line of an .icd file. An unreadable or empty one stays
 * "".
 */
static void read_library(copse__icd *icd) {
    FILE *file = fopen(icd->file, "re");
    if (!file)
        return;
    if (fgets(icd->shared_object, sizeof icd->shared_object, file)) {
        size_t length = strlen(icd->shared_object);
        while (length > 0 && (unsigned char)icd->shared_object[length - 1] <= ' ')
            icd->shared_object[--length] = '\0';
    }
    fclose(file);
}

static void add_icd(copse__topo *topo, const char *file, const char *library) {
    if (topo->icd_count == COPSE__MAX_ICDS) {
        copse__topo_warn(topo, "TOO_MANY_ICDS", "only the first %d drivers are looked at",
                         COPSE__MAX_ICDS);
        return;
    }
    copse__icd *icd = &topo->icds[topo->icd_count++];
    icd->status = COPSE__ICD_UNKNOWN;
    copse__put(icd->file, sizeof icd->file, "%s", file);
    if (library)
        copse__put(icd->shared_object, sizeof icd->shared_object, "%s", library);
    else
        read_library(icd);
}

static int only_icd(const struct dirent *entry) {
    return ends_with_icd(entry->d_name);
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_folder(copse__topo *topo, const char *folder) {
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, only_icd, by_bytes);
    for (int i = 0; i < count; i++) {
        char path[600];
        copse__put(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        add_icd(topo, path, NULL);
        free(entries[i]);
    }
    free(entries);
}

copse_status copse__icds_list(copse__topo *topo, copse_error *err) {
    copse_status status =
        copse__calloc(&topo->icds, COPSE__MAX_ICDS, sizeof topo->icds[0], err);
    if (status != COPSE_OK)
        return status;
    const char *chosen = setting("OCL_ICD_VENDORS");
    const char *folder = setting("OPENCL_VENDOR_PATH");
    if (!folder)
        folder = VENDORS_FOLDER;
    struct stat info;
    if (!chosen) {
        add_folder(topo, folder);
    } else if (stat(chosen, &info) == 0 && S_ISDIR(info.st_mode)) {
        add_folder(topo, chosen);
    } else if (ends_with_icd(chosen)) {
        char path[600];
        copse__put(path, sizeof path, "%s/%s", folder, chosen);
        bool there = !strchr(chosen, '/') && copse__file_exists(path);
        add_icd(topo, there ? path : chosen, NULL);
    } else {
        add_icd(topo, chosen, chosen);
    }
    return COPSE_OK;
}

copse_status copse__icds_folder(char **out, const copse__topo *topo, const bool *keep,
                                copse_error *err) {
    char path[256];
    const char *base = setting("TMPDIR");
    copse__put(path, sizeof path, "%s/copse-icd-XXXXXX", base ? base : "/tmp");
    *out = NULL;
    if (!mkdtemp(path)) {
        int first = errno;
        copse__put(path, sizeof path, "/dev/shm/copse-icd-XXXXXX");
        if (!mkdtemp(path))
            return copse__fail(err, COPSE_IO, first, base ? base : "/tmp",
                               "cannot make a folder to leave out a broken OpenCL "
                               "driver: %s; set TMPDIR",
                               strerror(first));
    }
    for (size_t i = 0; i < topo->icd_count; i++) {
        if (!keep[i])
            continue;
        /* Written anew, since the loaders differ in whether they follow links; numbered,
         * so that the order of names stays. */
        char name[320];
        copse__put(name, sizeof name, "%s/%02zu.icd", path, i);
        FILE *file = fopen(name, "we");
        bool bad = !file || fprintf(file, "%s\n", topo->icds[i].shared_object) < 0;
        if (file && fclose(file) != 0)
            bad = true;
        if (bad) {
            int code = errno;
            copse__icds_folder_remove(path);
            return copse__fail(err, COPSE_IO, code, name, "cannot write it: %s",
                               strerror(code));
        }
    }
    copse_status status = copse__strdup(out, path, err);
    if (status != COPSE_OK)
        copse__icds_folder_remove(path);
    return status;
}

void copse__icds_folder_remove(const char *folder) {
    for (int i = 0; i < COPSE__MAX_ICDS; i++) {
        char name[320];
        copse__put(name, sizeof name, "%s/%02d.icd", folder, i);
        unlink(name);
    }
    rmdir(folder);
}
