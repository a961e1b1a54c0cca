/* SPDX-License-Identifier: Apache-2.0 */
/* A client certificate and its key, fixed or from files that somebody renews. */
#ifndef OPERATOR_KUBE_PAIR_H
#define OPERATOR_KUBE_PAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "operator/kube/config.h"

struct pair_stamp { /* by which a file that has changed is known */
    uint64_t device, inode, size_bytes;
    struct timespec changed;
};

struct key_pair {
    const struct kube_config *config; /* borrowed */
    char *cert_pem, *key_pem;         /* NULL: there is none. They fit */
    struct pair_stamp cert_stamp, key_stamp;
    uint64_t retry_ns; /* they were not good: not read again before */
    bool is_told;      /* that they were not good */
};
int pair_init(struct key_pair *p, const struct kube_config *config, struct err *err);
void pair_release(struct key_pair *p); /* accepts a zeroed struct */
/* Before each use: reads files that have changed. Two that do not belong together, as
 * while they are being written, are not taken; the former ones are used then. */
void pair_refresh(struct key_pair *p, uint64_t now_ns);
void pair_stale(
    struct key_pair *p); /* the server has said 401: read them in any case */

#endif
