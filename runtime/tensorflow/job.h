/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: one run of an operation: from TensorFlow's compute() to its `done`. */
#ifndef RUNTIME_TENSORFLOW_JOB_H
#define RUNTIME_TENSORFLOW_JOB_H

struct TF_AsyncOpKernelDoneCallback;
struct TF_OpKernelContext;
struct tf_kernel;

/* Submits the operation and returns; the end comes on the runtime's thread. Where the
 * kernel is blocking it has come when this returns. callback: NULL of a kernel that is
 * not asynchronous, which must be blocking. */
void job_compute(const struct tf_kernel *k,
                 struct TF_OpKernelContext *context,
                 struct TF_AsyncOpKernelDoneCallback *callback);

/* The sentence of an operation before hvd.init(). */
extern const char job_not_initialized[];

/* Fails the operation that this context is of. */
void job_refuse(struct TF_OpKernelContext *context, int tf_code, const char *text);

#endif
