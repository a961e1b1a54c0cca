/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered list of hosts, each with a number of slots, and its text forms. Pure: no
 * files, no environment, no name resolution. */
#ifndef RUNTIME_CONTRACT_HOSTLIST_H
#define RUNTIME_CONTRACT_HOSTLIST_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define HOSTLIST_MAX_HOSTS                                                             \
    65536 /* "a[0-999999999]" must cost an error, not a machine */
#define HOST_NAME_MAX_BYTES 256
#define HOST_MAX_SLOTS      65536

struct host {
    char *name; /* owned by the list; no brackets around IPv6 */
    uint32_t slots;
};
struct hostlist {
    struct host *v;
    size_t n, cap;
};

void hostlist_init(struct hostlist *hl);
void hostlist_release(struct hostlist *hl); /* accepts a zeroed struct; CLEANUP works */
int hostlist_append(struct hostlist *hl,
                    const char *name,
                    uint32_t slots,
                    struct err *err);
uint64_t hostlist_slots(const struct hostlist *hl); /* sum */
int hostlist_copy(const struct hostlist *from, struct hostlist *ret, struct err *err);

/* All parsers append nothing on failure and report the offset or line, the text and
 * what is allowed: -EINVAL syntax, -E2BIG too many hosts, -ENOMEM. Duplicate names are
 * an error in -H lists and hostfiles (they would give two ranks 0 of a host), allowed
 * in Slurm's. */

/* horovodrun -H: "h1:8,h2:8", "h1" (1 slot), "[::1]:4", "10.0.0.1:2". */
int hostlist_parse_hosts(const char *s, struct hostlist *ret, struct err *err);
/* Hostfile: lines "host slots=n [max_slots=m]", "host:n", "host"; '#' comments; blank
 * lines. */
int hostlist_parse_hostfile(const char *text, struct hostlist *ret, struct err *err);
/* Slurm's node list "gpu[01-03,7],login" in order, duplicates kept, slots 0. */
int hostlist_parse_slurm(const char *s, struct hostlist *ret, struct err *err);
/* Slurm's counts "2(x3),1" -> 2,2,2,1. At most max counts. Caller frees *ret with
 * mem_free. */
int slurm_counts_parse(
    const char *s, size_t max, uint32_t **ret, size_t *ret_n, struct err *err);

/* Renderers; check the strbuf's status for lack of memory. */
void hostlist_render_hosts(const struct hostlist *hl, struct strbuf *out);
void hostlist_render_hostfile(const struct hostlist *hl,
                              struct strbuf *out); /* "h slots=n\n" */

#endif
