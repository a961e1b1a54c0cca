/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the exported API. */
#ifndef RUNTIME_API_API_H
#define RUNTIME_API_API_H

#include "runtime/api/runtime.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "hvd.h"

/* The calling thread's error text, cleared; hvd_last_error() returns it. */
struct err *api_fresh_error(void);
/* The operation of a handle, with a reference; NULL with an error. */
struct op *api_find(hvd_handle h, struct err *err);
/* The deadline of hvd_wait, and the cases that it refuses: in a callback, or a held
 * op. */
uint64_t api_deadline(int64_t timeout_ms);
int api_may_wait(const struct op *op, const char *call, struct err *err);
/* The op has ended or is POSTED: HVD_OK, HVD_IN_PROGRESS or its failure. */
int api_report_status(const struct op *op, int status, struct err *err);

/* --- api_device.c --- */
/* For ops on a GPU, records when their inputs can be read: one event per stream. All
 * ops or none. A negative enum hvd_status. */
int api_record(struct coordinator *co,
               struct op *const *ops,
               uint32_t n,
               struct err *err);
void api_unrecord(struct op *op);
/* --- api_register.c --- */
/* Sets the region of a request on a GPU. A negative enum hvd_status. */
int api_region(struct coordinator *co, struct op *op, struct err *err);

#endif
