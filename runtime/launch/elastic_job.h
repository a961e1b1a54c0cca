/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun of an elastic job, on one host or several. */
#ifndef RUNTIME_LAUNCH_ELASTIC_JOB_H
#define RUNTIME_LAUNCH_ELASTIC_JOB_H

#include "runtime/launch/remote.h"

struct elastic_job {              /* all borrowed */
    const struct remote_job *job; /* np is not used */
    const struct elastic_options *options;
    const char *discovery; /* command that prints the host list; NULL: it is constant */
    uint32_t slots_per_host; /* of hosts for which it prints none */
};

/* Runs the job to its end. Call before any thread exists. 0 with ret, or -errno with err
 * if nothing was started. */
int elastic_job_run(const struct elastic_job *job,
                    struct signals *signals,
                    struct remote_end *ret,
                    struct err *err);

#endif
