/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_SIGNALS_H
#define TOOLS_COPSE_SIGNALS_H

#include <stdbool.h>

#include "train/run.h"
#include "train/trainer.h"

/* What signals do. SIGINT, SIGTERM and SIGHUP (but for nohup's choice) end the command: at once with 130
 * while it only prepares, as nothing is written then; behind the current step while it trains or
 * evaluates, which then saves. A second one always ends it at once. SIGUSR1 saves behind the step. */

/* From here on. saves: SIGUSR1, too. */
void signals_catch(bool saves);
/* This trainer is to be stopped, this run (NULL: none) to be saved, from now on. */
void signals_attend(copse__trainer *trainer, copse__run *run);
/* What still comes is let pass: the command is about to end by itself. */
void signals_dismiss(void);

/* How many asked to stop. */
unsigned signals_seen(void);

#endif
