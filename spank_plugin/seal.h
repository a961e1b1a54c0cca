/* SPDX-License-Identifier: Apache-2.0 */
/* A few bytes that only one user of the cluster can read: a munge credential. */
#ifndef SPANK_PLUGIN_SEAL_H
#define SPANK_PLUGIN_SEAL_H

#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/err.h"

/* Encrypts for the calling user. auth_info: Slurm's AuthInfo (its socket= is munged's),
 * or NULL. Caller frees *ret_cred with mem_free. */
int seal_close(
    const char *auth_info, const void *p, size_t n, char **ret_cred, struct err *err);
/* Opens, as the user that it was made for (effective uid); made by anyone else:
 * -EACCES. Caller frees *ret_p with mem_free. Works after the credential's lifetime and
 * any number of times: it is an envelope here, not a proof of a fresh request. */
int seal_open(const char *auth_info,
              const char *cred,
              void **ret_p,
              size_t *ret_n,
              struct err *err);

#endif
