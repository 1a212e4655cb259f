/* SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* What the handlers may reach. */
static copse__trainer *volatile trainer_to_stop;
static copse__run *volatile run_to_save;
static volatile sig_atomic_t seen, ending;
static pid_t owner; /* probes of drivers are children, and end silently */

static void say(const char *text) {
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_stop(int number) {
    copse__trainer *trainer = trainer_to_stop;
    if (getpid() != owner)
        _exit(130);
    seen = seen + 1;
    if (seen > 1)
        _exit(128 + number);
    if (ending)
        return;
    if (!trainer) {
        say("\ncopse: interrupted before anything was computed or saved\n");
        _exit(130);
    }
    say("\ncopse: stopping after this step; once more to stop at once\n");
    copse__trainer_stop(trainer);
}

static void on_save(int number) {
    (void)number;
    copse__run *run = run_to_save;
    if (run && getpid() == owner)
        copse__run_want_save(run);
}

void signals_catch(bool saves) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    owner = getpid();
    for (size_t i = 0; i < COPSE__COUNT(numbers); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    action.sa_handler = on_save;
    if (saves)
        sigaction(SIGUSR1, &action, NULL);
}

void signals_attend(copse__trainer *trainer, copse__run *run) {
    run_to_save = run;
    trainer_to_stop = trainer;
}

void signals_dismiss(void) {
    ending = 1;
    trainer_to_stop = NULL;
    run_to_save = NULL;
}

unsigned signals_seen(void) {
    return (unsigned)seen;
}
