/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/model.h"

#define DEFAULT_TIMEOUT_NS 10000000000u
/* How long the common probe may run before the drivers are asked one by one beside it. */
#define HEDGE_NS 2000000000u

/* One probing process. The result lies in memory shared with it, so that what a crashed
 * one had reached can still be read. */
typedef struct child {
    pid_t pid;
    copse__probe *probe;
    uint64_t started_ns;
    char *folder; /* its OCL_ICD_VENDORS, owned; NULL: the environment as it is */
    bool only[COPSE__MAX_ICDS]; /* the drivers in the folder */
    int output;                 /* what it printed */
    bool running, timed_out;
    int wait_status;
} child;

static copse_status start(child *made, const copse__topo *topo, copse_error *err) {
    made->running = false;
    made->probe = mmap(NULL, sizeof *made->probe, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made->probe == MAP_FAILED) {
        made->probe = NULL;
        return copse__fail_nomem(err, sizeof *made->probe);
    }
    made->output = memfd_create("copse-probe", MFD_CLOEXEC);
    made->started_ns = copse__now_ns();
    pid_t parent = getpid();
    made->pid = fork();
    if (made->pid < 0)
        return copse__fail(err, COPSE_IO, errno, "fork",
                           "cannot start a process that asks the OpenCL drivers: %s",
                           strerror(errno));
    if (made->pid == 0) {
        copse__child_begin(parent, made->output);
        if (made->folder)
            setenv("OCL_ICD_VENDORS", made->folder, 1);
        copse__probe_opencl(made->probe, topo, made->folder ? made->only : NULL);
        _exit(0);
    }
    setpgid(made->pid, made->pid);
    made->running = true;
    return COPSE_OK;
}

static bool answered(const child *c) {
    return c->probe && c->probe->finished;
}

static void look(child *c) {
    if (!c->running)
        return;
    pid_t got = waitpid(c->pid, &c->wait_status, WNOHANG);
    /* Where the program ignores SIGCHLD, the kernel reaps: there is no status to read. */
    if (got == c->pid || (got < 0 && errno == ECHILD)) {
        if (got < 0)
            c->wait_status = 0;
        c->running = false;
    } else if (answered(c)) {
        /* It has said all; a driver's thread must not keep it. */
        kill(-c->pid, SIGKILL);
    }
}

static void stop(child *c) {
    if (!c->running)
        return;
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &c->wait_status, 0) < 0 && errno == EINTR) {
    }
    c->running = false;
}

static void discard(child *c) {
    stop(c);
    if (c->probe)
        munmap(c->probe, sizeof *c->probe);
    if (c->output >= 0)
        close(c->output);
    if (c->folder) {
        copse__icds_folder_remove(c->folder);
        free(c->folder);
    }
    *c = (child){.output = -1};
}

/* Waits until each child ended, or `enough` answered, or the time is over. */
static void wait_all(child *const children[], size_t count, const child *enough,
                     uint64_t limit_ns) {
    for (;;) {
        size_t running = 0;
        uint64_t now = copse__now_ns();
        for (size_t i = 0; i < count; i++) {
            child *c = children[i];
            look(c);
            if (c->running && now - c->started_ns > limit_ns) {
                c->timed_out = true;
                stop(c);
            }
            running += c->running;
        }
        if (running == 0 || (enough && answered(enough)))
            return;
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

/* The last line that a child printed: drivers say there why they give up. */
static void last_line(const child *c, char *out, size_t capacity) {
    char text[1024];
    if (c->output < 0)
        return;
    off_t end = lseek(c->output, 0, SEEK_END);
    off_t from = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
    ssize_t got = pread(c->output, text, sizeof text - 1, from);
    if (got <= 0)
        return;
    while (got > 0 && (unsigned char)text[got - 1] <= ' ')
        got--;
    text[got] = '\0';
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            *at = ' ';
    copse__put(out, capacity, "%s", line);
}

#define END_TEXT(array)                                                                  \
    do {                                                                                 \
        (array)[sizeof(array) - 1] = '\0';                                               \
        copse__clean_utf8(array);                                                        \
    } while (0)

static void end_handle_texts(copse__handle *handle) {
    END_TEXT(handle->name);
    END_TEXT(handle->vendor);
    END_TEXT(handle->driver);
    END_TEXT(handle->version);
    END_TEXT(handle->c_version);
    if (handle->name_raw_bytes > sizeof handle->name_raw)
        handle->name_raw_bytes = sizeof handle->name_raw;
}

/* Copies a finished probe; nothing in it is trusted, a driver may have written there. */
static copse_status take(copse__topo *topo, copse__probe *probe, copse_error *err) {
    size_t platforms = copse__min_size(probe->platform_count, COPSE__MAX_PLATFORMS);
    size_t handles = copse__min_size(probe->handle_count, COPSE__MAX_HANDLES);
    copse_status status =
        copse__calloc(&topo->platforms, platforms, sizeof topo->platforms[0], err);
    if (status == COPSE_OK)
        status = copse__calloc(&topo->handles, handles, sizeof topo->handles[0], err);
    if (status != COPSE_OK)
        return status;
    topo->platform_count = platforms;
    for (size_t i = 0; i < platforms; i++) {
        copse__platform *to = &topo->platforms[i];
        *to = probe->platforms[i];
        END_TEXT(to->name);
        END_TEXT(to->vendor);
        END_TEXT(to->version);
        if (to->icd < -1 || to->icd >= (int)topo->icd_count)
            to->icd = -1;
    }
    for (size_t i = 0; i < handles; i++) {
        copse__probe_handle *from = &probe->handles[i];
        copse__handle *to = &topo->handles[topo->handle_count];
        END_TEXT(from->extensions);
        *to = from->handle;
        to->extensions = NULL;
        end_handle_texts(to);
        if (to->platform >= platforms)
            continue;
        topo->handle_count++;
        status = copse__strdup(&to->extensions, from->extensions, err);
        if (status != COPSE_OK)
            return status;
    }
    if (probe->dropped)
        copse__topo_warn(topo, "TOO_MANY_DEVICES",
                         "%u devices beyond the first %d were left out", probe->dropped,
                         COPSE__MAX_HANDLES);
    return COPSE_OK;
}

/* What one finished probe of all drivers tells about each. */
static void judge_together(copse__topo *topo, copse__probe *probe) {
    bool hidden = false;
    for (size_t p = 0; p < topo->platform_count; p++)
        hidden |= topo->platforms[p].icd < 0;
    for (size_t i = 0; i < topo->icd_count; i++) {
        copse__icd *icd = &topo->icds[i];
        if (probe->icd_loaded[i] == 0)
            continue; /* not among those asked here */
        icd->devices = 0;
        icd->platforms = 0;
        for (size_t p = 0; p < topo->platform_count; p++) {
            if (topo->platforms[p].icd != (int)i)
                continue;
            icd->platforms++;
            icd->devices += topo->platforms[p].device_count;
        }
        if (probe->icd_loaded[i] == 3) {
            END_TEXT(probe->icd_message[i]);
            icd->status = COPSE__ICD_MISSING;
            copse__put(icd->message, sizeof icd->message, "%s", probe->icd_message[i]);
        } else if (icd->devices > 0) {
            icd->status = COPSE__ICD_OK;
        } else {
            bool unknown = icd->platforms == 0 && hidden;
            icd->status = unknown ? COPSE__ICD_UNKNOWN : COPSE__ICD_EMPTY;
        }
    }
}

/* What a probe of one driver alone tells about it. */
static void judge_alone(copse__icd *icd, size_t index, child *c) {
    copse__probe *probe = c->probe;
    last_line(c, icd->message, sizeof icd->message);
    icd->signal = 0;
    if (answered(c)) {
        icd->devices = probe->handle_count;
        icd->platforms = probe->platform_count;
        icd->status = probe->handle_count > 0 ? COPSE__ICD_OK : COPSE__ICD_EMPTY;
        if (probe->icd_loaded[index] == 3) {
            END_TEXT(probe->icd_message[index]);
            icd->status = COPSE__ICD_MISSING;
            copse__put(icd->message, sizeof icd->message, "%s",
                       probe->icd_message[index]);
        }
        return;
    }
    END_TEXT(probe->stage);
    copse__put(icd->stage, sizeof icd->stage, "%s", probe->stage);
    icd->status = c->timed_out ? COPSE__ICD_TIMEOUT : COPSE__ICD_CRASH;
    if (!c->timed_out && WIFSIGNALED(c->wait_status))
        icd->signal = WTERMSIG(c->wait_status);
}

static copse_status probe_here(copse__topo *topo, copse_error *err) {
    copse__probe *probe = NULL;
    copse_status status = copse__calloc(&probe, 1, sizeof *probe, err);
    if (status != COPSE_OK)
        return status;
    copse__probe_opencl(probe, topo, NULL);
    status = take(topo, probe, err);
    if (status == COPSE_OK)
        judge_together(topo, probe);
    free(probe);
    return status;
}

/* Whether a driver already runs in this process: then a child would inherit a half of it.
 */
static bool drivers_loaded(const copse__topo *topo) {
    for (size_t i = 0; i < topo->icd_count; i++) {
        void *library = topo->icds[i].shared_object[0]
                            ? dlopen(topo->icds[i].shared_object, RTLD_LAZY | RTLD_NOLOAD)
                            : NULL;
        if (library) {
            dlclose(library);
            return true;
        }
    }
    return false;
}

static copse_status start_alone(child *c, const copse__topo *topo, size_t icd,
                                copse_error *err) {
    c->only[icd] = true;
    copse_status status = copse__icds_folder(&c->folder, topo, c->only, err);
    return status == COPSE_OK ? start(c, topo, err) : status;
}

/* One probe of the drivers kept, in a folder of their own; *good on its answer. */
static copse_status try_kept(child *c, const copse__topo *topo, const bool *keep,
                             uint64_t limit_ns, bool *good, copse_error *err) {
    discard(c);
    memcpy(c->only, keep, sizeof c->only);
    copse_status status = copse__icds_folder(&c->folder, topo, keep, err);
    if (status == COPSE_OK)
        status = start(c, topo, err);
    if (status == COPSE_OK)
        wait_all(&c, 1, c, limit_ns);
    *good = status == COPSE_OK && answered(c);
    return status;
}

static void leave_out(copse__topo *topo, copse__icd *icd, const child *c) {
    icd->status = c->timed_out ? COPSE__ICD_TIMEOUT : COPSE__ICD_CRASH;
    copse__put(icd->stage, sizeof icd->stage, "%s", "loaded together with other drivers");
    copse__topo_warn(topo, "ICD_CONFLICT",
                     "%s works alone but not beside the other drivers: left out",
                     icd->file);
}

/* Settles on the drivers this process may load, and keeps their folder as its own. */
static copse_status settle(copse__topo *topo, uint64_t limit_ns, copse_error *err) {
    bool keep[COPSE__MAX_ICDS] = {false}, good = false;
    child all = {.output = -1};
    for (size_t i = 0; i < topo->icd_count; i++)
        keep[i] = topo->icds[i].status == COPSE__ICD_OK ||
                  topo->icds[i].status == COPSE__ICD_EMPTY;
    copse_status status = try_kept(&all, topo, keep, limit_ns, &good, err);
    if (status == COPSE_OK && !good) {
        /* Each works alone: add them one by one, and leave out the one that breaks it. */
        bool wanted[COPSE__MAX_ICDS];
        memcpy(wanted, keep, sizeof keep);
        memset(keep, 0, sizeof keep);
        for (size_t i = 0; status == COPSE_OK && i < topo->icd_count; i++) {
            if (!wanted[i])
                continue;
            keep[i] = true;
            status = try_kept(&all, topo, keep, limit_ns, &good, err);
            if (!good) {
                keep[i] = false;
                leave_out(topo, &topo->icds[i], &all);
            }
        }
        if (status == COPSE_OK)
            status = try_kept(&all, topo, keep, limit_ns, &good, err);
    }
    if (status == COPSE_OK && good)
        status = take(topo, all.probe, err);
    if (status == COPSE_OK && good)
        judge_together(topo, all.probe);
    if (status == COPSE_OK) {
        const char *before = getenv("OCL_ICD_VENDORS");
        topo->vendors_were_set = before != NULL;
        if (before)
            status = copse__strdup(&topo->vendors_before, before, err);
    }
    if (status == COPSE_OK) {
        topo->vendors_folder = all.folder;
        all.folder = NULL;
        setenv("OCL_ICD_VENDORS", topo->vendors_folder, 1);
    }
    discard(&all);
    return status;
}

static const char *plural(size_t n) {
    return n == 1 ? "" : "s";
}

static void warn_broken(copse__topo *topo, uint64_t limit_ns) {
    for (size_t i = 0; i < topo->icd_count; i++) {
        const copse__icd *icd = &topo->icds[i];
        if (icd->status == COPSE__ICD_CRASH)
            copse__topo_warn(topo, "ICD_CRASH", "%s %s%s (%s): left out", icd->file,
                             icd->signal ? "crashed with " : "ended the process",
                             icd->signal ? strsignal(icd->signal) : "",
                             icd->stage[0] ? icd->stage : "at its start");
        else if (icd->status == COPSE__ICD_TIMEOUT)
            copse__topo_warn(topo, "ICD_TIMEOUT",
                             "%s did not answer within %.1f second%s (%s): left out",
                             icd->file, (double)limit_ns / 1e9,
                             plural(limit_ns == 1000000000u),
                             icd->stage[0] ? icd->stage : "at its start");
    }
}

struct copse__asking {
    copse__topo *topo;
    const copse__topo_options *options;
    uint64_t limit_ns;
    bool here; /* in this process, in the second step */
    child all; /* asks all drivers together */
};

copse_status copse__ask_begin(copse__asking **out, copse__topo *topo,
                              const copse__topo_options *options, copse_error *err) {
    copse__asking *asking = NULL;
    *out = NULL;
    copse_status status = copse__calloc(&asking, 1, sizeof *asking, err);
    if (status != COPSE_OK)
        return status;
    asking->topo = topo;
    asking->options = options;
    asking->limit_ns = options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS;
    asking->all.output = -1;
    COPSE__TRY(copse__icds_list(topo, err), out);
    asking->here = options->isolate == COPSE__ISOLATE_NONE;
    if (!asking->here && drivers_loaded(topo)) {
        asking->here = true;
        copse__topo_warn(topo, "NOT_ISOLATED",
                         "an OpenCL driver was loaded before: asked in this process");
    }
    if (!asking->here)
        status = start(&asking->all, topo, err);
out:
    if (status != COPSE_OK) {
        discard(&asking->all);
        free(asking);
        return status;
    }
    *out = asking;
    return COPSE_OK;
}

/* Waits for the common probe; where it is broken or slow, for each driver alone too. */
static copse_status ask_children(copse__asking *asking, child *alone, copse_error *err) {
    copse__topo *topo = asking->topo;
    child *all = &asking->all, *every[COPSE__MAX_ICDS + 1] = {all};
    bool each = asking->options->each_icd;
    uint64_t limit_ns = asking->limit_ns;
    size_t count = 1;
    copse_status status = COPSE_OK;
    if (!each)
        wait_all(every, 1, all, HEDGE_NS < limit_ns ? HEDGE_NS : limit_ns);
    if (!answered(all) || each) {
        /* Find out which one, all at once. The common probe goes on, if it only was slow. */
        if (all->timed_out) {
            discard(all);
            COPSE__TRY(start(all, topo, err), out);
        }
        for (size_t i = 0; i < topo->icd_count; i++) {
            COPSE__TRY(start_alone(&alone[i], topo, i, err), out);
            every[count++] = &alone[i];
        }
        wait_all(every, count, each ? NULL : all, limit_ns);
    }
    if (answered(all)) {
        COPSE__TRY(take(topo, all->probe, err), out);
        judge_together(topo, all->probe);
        for (size_t i = 0; each && i < topo->icd_count; i++)
            judge_alone(&topo->icds[i], i, &alone[i]);
    } else {
        stop(all);
        for (size_t i = 0; i < topo->icd_count; i++)
            judge_alone(&topo->icds[i], i, &alone[i]);
        COPSE__TRY(settle(topo, limit_ns, err), out);
    }
    warn_broken(topo, limit_ns);
out:
    return status;
}

copse_status copse__ask_finish(copse__asking *asking, bool wanted, copse_error *err) {
    child alone[COPSE__MAX_ICDS];
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__MAX_ICDS; i++)
        alone[i] = (child){.output = -1};
    if (wanted)
        status = asking->here ? probe_here(asking->topo, err)
                              : ask_children(asking, alone, err);
    discard(&asking->all);
    for (size_t i = 0; i < COPSE__MAX_ICDS; i++)
        discard(&alone[i]);
    free(asking);
    return status;
}
