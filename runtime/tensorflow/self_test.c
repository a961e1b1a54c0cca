/* SPDX-License-Identifier: Apache-2.0 */
/* self_test.c: checks that the clone of TensorFlow's completion callback works in this
 * TensorFlow. A thread completes the operation after compute() has returned and the
 * original is invalid. Python runs it before the first operation. If it fails, or does
 * not exist because this TensorFlow has no asynchronous kernels, operations block
 * (job.c). */
#include "runtime/tensorflow/self_test.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/tensorflow/done.h"
#include "runtime/tensorflow/job.h"
#include "runtime/tensorflow/tf_c_api.h"

struct self_test {
    pthread_mutex_t returned; /* held by compute() until it is about to return */
    struct TF_OpKernelContext *context;
    struct done *done;
};

static void self_test_complete(struct TF_OpKernelContext *context)
{
    struct TF_Status *s = TF_NewStatus();
    struct TF_Tensor *in = NULL, *out = NULL;

    TF_GetInput(context, 0, &in, s);
    if (TF_GetCode(s) == TF_OK)
        out = TF_AllocateOutput(context, 0, TF_INT32, NULL, 0, sizeof(int32_t), s);
    if (TF_GetCode(s) == TF_OK)
        *(int32_t *)TF_TensorData(out) = *(const int32_t *)TF_TensorData(in) + 1;
    else
        TF_OpKernelContext_Failure(context, s);
    if (in)
        TF_DeleteTensor(in);
    if (out)
        TF_DeleteTensor(out);
    TF_DeleteStatus(s);
}

static void *self_test_thread(void *arg)
{
    struct self_test *t = arg;

    pthread_mutex_lock(&t->returned);
    pthread_mutex_unlock(&t->returned);
    self_test_complete(t->context);
    done_run(t->done);
    pthread_mutex_destroy(&t->returned);
    free(t);
    return NULL;
}

void self_test_compute(void *kernel,
                       struct TF_OpKernelContext *context,
                       struct TF_AsyncOpKernelDoneCallback *callback)
{
    struct self_test *t = calloc(1, sizeof(*t));
    pthread_mutex_t *returned;
    pthread_t thread;

    (void)kernel;
    if (!t || !done_is_clonable(callback)) {
        job_refuse(context, TF_FAILED_PRECONDITION,
                   "the completion callback is not libstdc++'s std::function");
        TF_RunAsyncOpKernelDoneCallback(callback);
        free(t);
        return;
    }
    t->context = context;
    t->done = done_clone(callback);
    pthread_mutex_init(&t->returned, NULL);
    returned = &t->returned;
    pthread_mutex_lock(returned);
    if (!t->done || pthread_create(&thread, NULL, self_test_thread, t)) {
        done_free(t->done);
        pthread_mutex_unlock(returned);
        pthread_mutex_destroy(returned);
        free(t);
        job_refuse(context, TF_RESOURCE_EXHAUSTED, "no thread for the self-test");
        TF_RunAsyncOpKernelDoneCallback(callback);
        return;
    }
    pthread_detach(thread);
    pthread_mutex_unlock(returned);
}
