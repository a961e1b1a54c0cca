/* SPDX-License-Identifier: Apache-2.0 */
/* The stall report: tensors that some ranks have submitted and others have not, for
 * long. Pure. */
#ifndef RUNTIME_CORE_STALL_H
#define RUNTIME_CORE_STALL_H

#include "runtime/base/strbuf.h"
#include "runtime/core/negotiate.h"

struct stall {
    uint64_t warn_ns; /* age that is reported, and the interval of reports; 0: never */
    uint64_t fail_ns; /* age that breaks the world; 0: never */
    uint64_t last_ns; /* when the last report was made; 0: none yet */
    const char *(*host_of)(void *arg, uint32_t rank); /* NULL: hosts are not told */
    void *arg;
};

enum stall_act { STALL_NONE, STALL_WARN, STALL_FAIL };

/* Appends to out, for WARN and FAIL, which tensors are missing on which ranks:
 *   tensor "grad/0" waits since 61 s for ranks 1, 3 (and 5 more tensors)
 * *ret_next_ns: when to look again (UINT64_MAX: nothing pending). */
enum stall_act stall_step(struct stall *s,
                          const struct negotiate *n,
                          uint64_t now_ns,
                          struct strbuf *out,
                          uint64_t *ret_next_ns);

#endif
