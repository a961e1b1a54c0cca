/* SPDX-License-Identifier: Apache-2.0 */
/* A job of horovodrun whose ranks all run on this host. */
#ifndef RUNTIME_LAUNCH_LOCAL_JOB_H
#define RUNTIME_LAUNCH_LOCAL_JOB_H

#include "runtime/launch/core/options.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/scratch.h"
#include "runtime/launch/signals.h"

#define LOCAL_JOB_FAILED 125 /* a failure of the launcher */

struct local_job_config { /* all borrowed */
    const char *program;  /* for messages */
    char *const *env;
    const struct launch_options *o;
    const struct run_hosts *hosts;
    const char *dir; /* of the installed runtime, "": none */
    struct scratch_folder *scratch;
    struct signals *signals;
    struct guard *guard; /* already started */
};

/* Runs the job to its end and prints its failure. Call before any thread exists. Returns
 * the exit code; err is set if the launcher failed. */
int local_job_run(const struct local_job_config *c, struct err *err);

#endif
