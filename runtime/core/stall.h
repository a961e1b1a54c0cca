/* SPDX-License-Identifier: Apache-2.0 */
/* The stall report: tensors that some ranks have submitted and others have not, for a
 * long time. Pure. */
#ifndef RUNTIME_CORE_STALL_H
#define RUNTIME_CORE_STALL_H

#include "runtime/base/strbuf.h"
#include "runtime/contract/stall_record.h"
#include "runtime/core/negotiate.h"

struct stall {
    uint64_t warn_ns;     /* age that is reported, and interval of reports; 0: never */
    uint64_t fail_ns;     /* age that breaks the world; 0: never */
    uint64_t deadlock_ns; /* age of a deadlock that breaks the world; 0: never */
    uint64_t last_ns;     /* time of the last report; 0: none yet */
    uint64_t resumed_ns;  /* the process was stopped until then; 0: never */
    uint64_t waits_ns;    /* set by stall_step: see stall_notice_ns; 0: none waits */
    const char *(*host_of)(void *arg, uint32_t rank); /* NULL: no hosts in the report */
    void *arg;
};

enum stall_act { STALL_NONE, STALL_WARN, STALL_FAIL, STALL_DEADLOCK };

/* A tensor of this age is noticed: it may become a stall. 0: never. */
uint64_t stall_notice_ns(const struct stall *s);

/* Sets s->waits_ns to the time of submission of the oldest tensor, if it is noticed.
 * For WARN and FAIL, appends to out which tensors are missing on which ranks:
 *   tensor "g/0" (ALLREDUCE) has waited 61 s for ranks 1, 3; ... (and 5 more tensors)
 * In front of it, if some ranks wait only for each other (deadlock.h), one sentence that
 * says so. For DEADLOCK that sentence only.
 * *ret_next_ns: when to call again; UINT64_MAX: nothing is pending. */
enum stall_act stall_step(struct stall *s,
                          const struct negotiate *n,
                          uint64_t now_ns,
                          struct strbuf *out,
                          uint64_t *ret_next_ns);

/* Is a tensor as old as warn_ns? */
bool stall_lasts(const struct stall *s, const struct negotiate *n, uint64_t now_ns);

/* The stall as a record for the launcher, when a tensor is as old as warn_ns. Of those that
 * are half as old it names the one that the fewest ranks have not submitted, since these are more likely
 * the cause than the majority; of equal ones the oldest. False: there is none. Sets
 * tensor, op, missing ranks, deadlock, and the age of the tensor. */
bool stall_describe(const struct stall *s,
                    const struct negotiate *n,
                    uint64_t now_ns,
                    struct stall_record *ret,
                    uint64_t *ret_age_ns);

#endif
