/* SPDX-License-Identifier: Apache-2.0 */
/* The credentials of a request: the token (fixed, or a file that changes), name and
 * password, or the answer of a plug-in. Refreshed before it expires and after a 401.
 * One thread. */
#ifndef OPERATOR_KUBE_CREDS_H
#define OPERATOR_KUBE_CREDS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "operator/kube/config.h"

#define CREDS_FDS 3

struct identity {              /* NULL: none; valid until the next call */
    const char *authorization; /* value of that header */
    const char *cert_pem, *key_pem;
    uint64_t number; /* grows with each answer of a plug-in */
};

struct creds;
/* Starts the plug-in, if there is one. config must live as long. */
int creds_new(const struct kube_config *config, struct creds **ret, struct err *err);
void creds_free(struct creds *c); /* accepts NULL */
int creds_get(struct creds *c, uint64_t now_ns, struct identity *ret, struct err *err);
/* The server has answered 401 to the identity of that number. True: there may be, or
 * will be, another; try once more. */
bool creds_refused(struct creds *c, uint64_t number, uint64_t now_ns);
/* True while new credentials are fetched without which a request would fail. */
bool creds_is_waiting(const struct creds *c);
/* creds_run is due when one of these can be read, or at creds_next_ns. */
size_t creds_fds(const struct creds *c, struct pollfd ret[CREDS_FDS]);
uint64_t creds_next_ns(const struct creds *c); /* UINT64_MAX: never */
void creds_run(struct creds *c, uint64_t now_ns);

#endif
