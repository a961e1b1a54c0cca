/* SPDX-License-Identifier: Apache-2.0 */
/* A client certificate and its key, fixed or from files that are renewed. */
#ifndef OPERATOR_KUBE_PAIR_H
#define OPERATOR_KUBE_PAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "operator/kube/config.h"

struct pair_stamp { /* identifies a version of a file */
    uint64_t device, inode, size_bytes;
    struct timespec changed;
};

struct key_pair {
    const struct kube_config *config; /* borrowed */
    char *cert_pem, *key_pem;         /* NULL: none. They match */
    struct pair_stamp cert_stamp, key_stamp;
    uint64_t retry_ns; /* after a failure: the files are not read before this time */
    bool is_logged;    /* the failure was logged */
};
int pair_init(struct key_pair *p, const struct kube_config *config, struct err *err);
void pair_release(struct key_pair *p); /* accepts a zeroed struct */
/* Before each use: reads files that have changed. If the two do not match, for example
 * while they are being written, the former ones stay in use. */
void pair_refresh(struct key_pair *p, uint64_t now_ns);
void pair_stale(struct key_pair *p); /* the server has answered 401: read them again */

#endif
