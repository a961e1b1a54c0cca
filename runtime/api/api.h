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

#endif
