/* SPDX-License-Identifier: Apache-2.0 */
/* self_test.h: HvdSelfTest, which tests whether `done` can be kept (done.h). */
#ifndef RUNTIME_TENSORFLOW_SELF_TEST_H
#define RUNTIME_TENSORFLOW_SELF_TEST_H

struct TF_AsyncOpKernelDoneCallback;
struct TF_OpKernelContext;

/* x -> x + 1, completed by another thread after this has returned. kernel is NULL. */
void self_test_compute(void *kernel,
                       struct TF_OpKernelContext *context,
                       struct TF_AsyncOpKernelDoneCallback *callback);

#endif
