/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a credential plug-in: a child process without terminal, whose output is
 * collected, and that is killed after EXEC_TIMEOUT_NS. One thread. */
#ifndef OPERATOR_KUBE_EXEC_H
#define OPERATOR_KUBE_EXEC_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "operator/kube/config.h"
#include "runtime/base/strbuf.h"

#define EXEC_TIMEOUT_NS 60000000000ull
#define EXEC_FDS        3

struct exec_run {
    const struct exec_spec *spec; /* borrowed */
    pid_t pid;                    /* 0: not running */
    int pid_fd, out_fd, err_fd;
    struct strbuf out, err; /* its output; err: only the start */
    uint64_t deadline_ns;
};
void exec_init(struct exec_run *x, const struct exec_spec *spec);
void exec_release(struct exec_run *x); /* kills a running plug-in */
int exec_start(struct exec_run *x, uint64_t now_ns, struct err *err);
bool exec_is_running(const struct exec_run *x);
size_t exec_fds(const struct exec_run *x, struct pollfd ret[EXEC_FDS]);
/* 1: it has succeeded, and out has its output; 0: it still runs; negative: it failed,
 * with its standard error in the error message. */
int exec_step(struct exec_run *x, uint64_t now_ns, struct err *err);

#endif
