/* SPDX-License-Identifier: Apache-2.0 */
/* The thread "hvd-gpu-xid": XIDs of one GPU, as NVML tells them. All of NVML that a
 * device needs is called there, for no call of it is sure to return: whoever asks does
 * not wait, or waits for a time that it names. */
#ifndef RUNTIME_BACKEND_NCCL_XID_H
#define RUNTIME_BACKEND_NCCL_XID_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

struct xids;

/* XIDs of the GPU at pci from about here on; without NVML none are told. */
int xids_start(const char *pci, struct xids **ret, struct err *err);
/* Frees it; waits for the thread for a fifth of a second: one that sits in NVML then
 * ends with that call, and frees what is left. Nobody asks any more. */
void xids_stop(struct xids *x);
/* Let NVML be asked. Any thread; does not wait. */
void xids_request_query(struct xids *x);
/* The same, and waits for the answer for at most ns; false: none came. Any thread. */
bool xids_query(struct xids *x, uint64_t ns);
/* One was heard after which no work of this GPU will end. Any thread. */
bool xids_are_fatal(const struct xids *x);
/* Of those that were heard in the last 10 s the one that says most; 0: none. Any
 * thread. */
unsigned xids_last(struct xids *x);

#endif
