/* SPDX-License-Identifier: Apache-2.0 */
/* The thread "hvd-gpu-xid": XIDs of one GPU, as NVML reports them. All NVML calls of a
 * device are made there, because none is sure to return: callers do not wait, or wait
 * for a bounded time. */
#ifndef RUNTIME_BACKEND_NCCL_XID_H
#define RUNTIME_BACKEND_NCCL_XID_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

struct xids;

/* XIDs of the GPU at pci from about here on; without NVML none are reported. */
int xids_start(const char *pci, struct xids **ret, struct err *err);
/* Frees it; waits for the thread for a fifth of a second: a thread that is stuck in
 * NVML ends when that call returns, and frees the rest. No other thread uses x any
 * more. */
void xids_stop(struct xids *x);
/* Requests a query of NVML. Any thread; does not wait. */
void xids_request_query(struct xids *x);
/* The same, and waits for the answer for at most ns; false: no answer. Any thread. */
bool xids_query(struct xids *x, uint64_t ns);
/* Was one received after which no work of this GPU will finish? Any thread. */
bool xids_are_fatal(const struct xids *x);
/* The most significant XID received in the last 10 s; 0: none. Any thread. */
unsigned xids_last(struct xids *x);

#endif
