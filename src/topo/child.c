/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "topo/model.h"

/* A driver that calls exit() must not run the handlers and flush the files of the program
 * that this process is a copy of. */
static void leave_at_once(void) {
    _exit(EXIT_FAILURE);
}

void copse__child_begin(pid_t parent, int output) {
    setpgid(0, 0);
    atexit(leave_at_once);
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE,  SIGILL,
                                SIGTERM, SIGINT, SIGHUP,  SIGPIPE, SIGTRAP};
    for (size_t i = 0; i < COPSE__COUNT(fatal); i++)
        signal(fatal[i], SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    if (getppid() != parent)
        _exit(EXIT_FAILURE); /* it is gone already, and nobody would end this process */
}
