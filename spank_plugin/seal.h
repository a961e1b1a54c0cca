/* SPDX-License-Identifier: Apache-2.0 */
/* Encrypts a few bytes for one user of the cluster: a munge credential. */
#ifndef SPANK_PLUGIN_SEAL_H
#define SPANK_PLUGIN_SEAL_H

#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/err.h"

/* Encrypts for the calling user. auth_info: Slurm's AuthInfo (its socket= names
 * munged's socket), or NULL. Caller frees *ret_cred with mem_free. */
int seal_close(
    const char *auth_info, const void *p, size_t n, char **ret_cred, struct err *err);
/* Decrypts as the user that it was created for (effective uid); created by another
 * user: -EACCES. Caller frees *ret_p with mem_free. Works after the credential's
 * lifetime and any number of times: the credential only encrypts, it does not prove
 * that a request is new. */
int seal_open(const char *auth_info,
              const char *cred,
              void **ret_p,
              size_t *ret_n,
              struct err *err);

#endif
