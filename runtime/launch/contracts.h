/* SPDX-License-Identifier: Apache-2.0 */
/* The contracts (contract/contract.h) of the ranks of one host. */
#ifndef RUNTIME_LAUNCH_CONTRACTS_H
#define RUNTIME_LAUNCH_CONTRACTS_H

#include "runtime/contract/contract.h"
#include "runtime/contract/hostlist.h"

/* Creates one contract for each rank of host h: a copy of common with the rank's place
 * and the host's name. np 0: all slots. The caller frees *ret with mem_free. *ret_n may
 * be 0. */
int contracts_make(const struct hostlist *hosts,
                   uint32_t np,
                   uint32_t h,
                   const struct contract *common,
                   struct contract **ret,
                   uint32_t *ret_n,
                   struct err *err);

#endif
