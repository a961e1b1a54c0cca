/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the exported API share. */
#ifndef RUNTIME_API_API_H
#define RUNTIME_API_API_H

#include "runtime/api/runtime.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "hvd.h"

/* The calling thread's sentence, emptied: what hvd_last_error() will say. */
struct err *api_fresh_error(void);
/* The operation of a handle, a reference; NULL with its sentence. */
struct op *api_find(hvd_handle h, struct err *err);
/* hvd_wait's deadline, and what it refuses about op: in a callback, or held. */
uint64_t api_deadline(int64_t timeout_ms);
int api_may_wait(const struct op *op, const char *call, struct err *err);
/* The op has ended or is POSTED: HVD_OK, HVD_IN_PROGRESS or its failure. */
int api_report_status(const struct op *op, int status, struct err *err);

/* --- api_device.c --- */
/* Those on a GPU: when their inputs can be read, one event for all of a stream. All or
 * none. A negative enum hvd_status. */
int api_record(struct coordinator *co,
               struct op *const *ops,
               uint32_t n,
               struct err *err);
void api_unrecord(struct op *op);
/* --- api_register.c --- */
/* Sets the request's region, of one that is on a GPU. A negative enum hvd_status. */
int api_region(struct coordinator *co, struct op *op, struct err *err);

#endif
