/* SPDX-License-Identifier: Apache-2.0 */
/* A new ssh key pair for an MPIJob, of mpi-operator's type: ECDSA on P-521. OpenSSL
 * stays inside ssh_key.c. */
#ifndef OPERATOR_SSH_KEY_H
#define OPERATOR_SSH_KEY_H

#include "runtime/base/err.h"

struct ssh_key {            /* zeroed: empty strings */
    char private_pem[1024]; /* "EC PRIVATE KEY" (SEC 1), PEM */
    char public_line[512];  /* a line of authorized_keys, with its newline */
};
int ssh_key_make(struct ssh_key *ret, struct err *err);
void ssh_key_wipe(struct ssh_key *k);

#endif
