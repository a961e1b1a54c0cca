/* SPDX-License-Identifier: Apache-2.0 */
/* The output of the ranks of all hosts, with the credit that limits it: an agent may send
 * so many bytes, and more as they are printed. One thread. */
#ifndef RUNTIME_LAUNCH_REMOTE_OUTPUT_H
#define RUNTIME_LAUNCH_REMOTE_OUTPUT_H

#include "runtime/launch/links.h"
#include "runtime/launch/output.h"
#include "runtime/launch/remote.h"
#include "runtime/launch/remote_hosts.h"

struct remote_output {
    struct output output;
    uint32_t *owed_bytes; /* per host: whose credit was not given back */
    uint32_t n_hosts;
    const char *program;
};

/* Of n ranks, or slots. Borrows job. Release o in every case. */
int remote_output_open(struct remote_output *o,
                       const struct remote_job *job,
                       uint32_t n,
                       uint32_t n_hosts,
                       struct err *err);
void remote_output_release(struct remote_output *o); /* accepts a zeroed struct */
/* OUTPUT of a host; from is the host's. */
int remote_output_take(struct remote_output *o,
                       uint32_t host,
                       const struct remote_host *from,
                       const uint8_t *p,
                       size_t n,
                       struct err *err);
/* The output of a host's ranks has ended: prints lines without a newline. */
void remote_output_end(struct remote_output *o, const struct remote_host *from);
/* Prints each line of a NOTE on standard error, with the host's name. */
void remote_output_note(const struct remote_output *o,
                        const char *host,
                        const uint8_t *p,
                        size_t n);
/* Prints the rest, and reports what was lost. fds: one, and those of output_pollfds.
 * is_stopped is called before each wait, and takes signals; when it is true, a slow reader
 * has 2 s more. */
void remote_output_finish(struct remote_output *o,
                          int signal_fd,
                          struct pollfd *fds,
                          bool (*is_stopped)(void *arg),
                          void *arg);
/* Gives no credit while our reader is slow; the ranks then block on their pipes. */
void remote_output_give_credit(struct remote_output *o, struct link_set *links);

#endif
