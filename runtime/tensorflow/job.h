/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: one run of an operation: from TensorFlow's compute() to its `done`. */
#ifndef RUNTIME_TENSORFLOW_JOB_H
#define RUNTIME_TENSORFLOW_JOB_H

struct TF_AsyncOpKernelDoneCallback;
struct TF_OpKernelContext;
struct tf_kernel;

/* Submits the operation and returns; it ends on the runtime's thread. A blocking kernel
 * has ended when this returns. callback: NULL for a kernel that is not asynchronous,
 * which must be blocking. */
void job_compute(const struct tf_kernel *k,
                 struct TF_OpKernelContext *context,
                 struct TF_AsyncOpKernelDoneCallback *callback);

/* The error text of an operation before hvd.init(). */
extern const char job_not_initialized[];

/* Fails the operation of this context. */
void job_refuse(struct TF_OpKernelContext *context, int tf_code, const char *text);

#endif
