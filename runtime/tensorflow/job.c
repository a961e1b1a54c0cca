/* SPDX-License-Identifier: Apache-2.0 */
/* job.c: runs a collective for TensorFlow, asynchronously.
 *
 *   compute()   takes the inputs, allocates the outputs whose size is known, submits an
 *               operation for each tensor (a "part"), and returns
 *   part_alloc  the runtime knows a result's rows: TensorFlow allocates that output
 *   part_done   a part has ended; the last one ends the job: releases the tensors and
 *               runs TensorFlow's `done`
 *
 * When the self-test of completion failed (self_test.c), Python sets the attribute
 * `blocking`: compute() then waits for its parts and completes before it returns, and
 * Python chains the operations of a graph by control dependencies, because blocking
 * operations in free order would deadlock between ranks.
 *
 * Invariants: a job owns references to its tensors until its last part has ended.
 * `left` counts the parts under way and the submitter. The thread that decrements it to
 * 0 ends the job; job and context are not used after that. Only one part at a time
 * writes to the context: parts of a group end on the thread that runs them, after all
 * have been submitted. */
#include "runtime/tensorflow/job.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tensorflow/done.h"
#include "runtime/tensorflow/kernel.h"
#include "runtime/tensorflow/numbers.h"
#include "runtime/tensorflow/part.h"
#include "runtime/tensorflow/tf_c_api.h"

#define ITERATIONS 64 /* iterations of a loop with names of their own */

/* --- errors --- */

const char job_not_initialized[] = "Horovod has not been initialized; use hvd.init().";

void job_refuse(struct TF_OpKernelContext *context, int tf_code, const char *text)
{
    struct TF_Status *s = TF_NewStatus();

    TF_SetStatus(s, tf_code, text);
    TF_OpKernelContext_Failure(context, s);
    TF_DeleteStatus(s);
}

void job_fail(struct tf_job *j, int tf_code, const char *text)
{
    /* relaxed: `left` publishes the context */
    if (!atomic_exchange_explicit(&j->has_failed, true, memory_order_relaxed))
        job_refuse(j->context, tf_code, text);
}

/* Horovod's codes. Elastic training treats UNKNOWN with the prefix HorovodInternalError
 * as a broken world. Never ABORTED or UNAVAILABLE: MonitoredSession treats these as a
 * preempted parameter server and creates new sessions endlessly. */
void job_fail_by_status(struct tf_job *j, int status, const char *text, bool at_end)
{
    char lost[1200];

    switch ((enum hvd_status)status) {
    case HVD_INVALID_ARGUMENT: /* at the end: ranks disagree */
        job_fail(j, at_end ? TF_FAILED_PRECONDITION : TF_INVALID_ARGUMENT, text);
        return;
    case HVD_NOT_INITIALIZED:
        job_fail(j, TF_FAILED_PRECONDITION, job_not_initialized);
        return;
    case HVD_NO_MEMORY:
        job_fail(j, TF_RESOURCE_EXHAUSTED, text);
        return;
    case HVD_OK:
    case HVD_IN_PROGRESS:
    case HVD_PRECONDITION:
    case HVD_ABORTED:
    case HVD_TIMEOUT:
    case HVD_INTERNAL:
    case HVD_UNSUPPORTED: /* for registered buffers only */
        break;
    }
    (void)snprintf(lost, sizeof(lost), "HorovodInternalError: %s", text);
    job_fail(j, TF_UNKNOWN, lost);
}

/* --- the end --- */

/* Accepts a job that is not complete. */
static void job_free(struct tf_job *j)
{
    for (int i = 0; i < j->n_parts; i++) {
        if (j->parts[i].input)
            TF_DeleteTensor(j->parts[i].input);
        if (j->parts[i].output)
            TF_DeleteTensor(j->parts[i].output);
        if (j->parts[i].handle > 0)
            (void)hvd_release(j->parts[i].handle); /* an error here has no receiver */
    }
    if (j->number >= 0)
        numbers_give_back(j->k->numbers, j->number);
    free(j);
}

/* Releases everything, then runs `done`: after that the context is invalid. */
static void job_end(struct tf_job *j)
{
    struct done *done = j->done;
    struct TF_AsyncOpKernelDoneCallback *callback = j->callback;

    job_free(j);
    if (done)
        done_run(done);
    else if (callback)
        TF_RunAsyncOpKernelDoneCallback(callback);
}

static void job_put(struct tf_job *j, int n)
{
    /* acq_rel: the thread that ends the job sees the writes of all parts and the
     * submitter */
    if (atomic_fetch_sub_explicit(&j->left, n, memory_order_acq_rel) == n)
        job_end(j);
}

static void part_end(struct tf_part *p, int status, const char *error)
{
    if (status != HVD_OK)
        job_fail_by_status(p->job, status, error ? error : "failed without a sentence",
                           true);
    else
        part_finish(p);
}

static void part_done(void *arg, int status, const char *error)
{
    struct tf_part *p = arg;

    part_end(p, status, error);
    job_put(p->job, 1);
}

/* --- names --- */

/* The job's name, n bytes. In a loop of a graph, whose iterations run in parallel, it
 * includes the iteration. */
static void job_name(const struct tf_job *j, char *ret, size_t n)
{
    const struct tf_kernel *k = j->k;
    int64_t iteration;

    if (k->type->kind == KIND_JOIN) {
        (void)snprintf(ret, n, "join");
    } else if (j->number >= 0) {
        (void)snprintf(ret, n, "%s.eager.%" PRId32 ".%d", k->type->word, k->process_set,
                       j->number);
    } else {
        iteration = TF_GetIterId(j->context) % ITERATIONS;
        if (iteration > 0)
            (void)snprintf(ret, n, "%s#%" PRId64, k->name, iteration);
        else
            (void)snprintf(ret, n, "%s", k->name);
    }
}

/* --- compute --- */

/* Submits the held parts of a group: all of them or none. */
static int submit_group(struct tf_job *j)
{
    hvd_handle *handles = calloc((size_t)j->n_parts, sizeof(*handles));
    int rc;

    if (!handles) {
        job_fail(j, TF_RESOURCE_EXHAUSTED, "out of memory for a group");
        return 0;
    }
    for (int i = 0; i < j->n_parts; i++)
        handles[i] = j->parts[i].handle;
    rc = hvd_submit_held(handles, j->n_parts);
    free(handles);
    if (rc == HVD_OK)
        return j->n_parts;
    job_fail_by_status(j, rc, hvd_last_error(), false);
    return 0;
}

/* Submits all parts or none; returns how many are under way. */
static int job_submit(struct tf_job *j)
{
    hvd_done_fn done = j->k->is_blocking ? NULL : part_done;
    char name[PART_NAME_MAX - 24];

    if (j->k->numbers) /* with NUMBERS_MAX the runtime may refuse the name as in use */
        j->number = numbers_take(j->k->numbers);
    job_name(j, name, sizeof(name));
    for (int i = 0; i < j->n_parts; i++)
        if (part_submit(&j->parts[i], name, done))
            return 0;
    return j->k->type->is_grouped ? submit_group(j) : j->n_parts;
}

static void job_wait(struct tf_job *j, int n)
{
    for (int i = 0; i < n; i++) {
        int status = hvd_wait(j->parts[i].handle, -1);

        part_end(&j->parts[i], status, hvd_last_error());
    }
}

static struct tf_job *job_new(const struct tf_kernel *k,
                              struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *callback)
{
    int n = k->type->is_grouped ? TF_NumInputs(context) : 1;
    struct tf_job *j = calloc(1, sizeof(*j) + (size_t)n * sizeof(j->parts[0]));

    if (!j)
        return NULL;
    j->k = k;
    j->context = context;
    j->callback = callback;
    j->number = -1;
    j->n_parts = n;
    atomic_init(&j->left, n + 1);
    for (int i = 0; i < n; i++) {
        j->parts[i].job = j;
        j->parts[i].index = i;
    }
    if (k->is_blocking || !callback || !done_is_clonable(callback))
        return j;
    j->done = done_clone(callback);
    if (j->done)
        return j;
    job_free(j);
    return NULL;
}

static const char cannot_keep[] =
    "TensorFlow's completion callback has a form that cannot be kept; start with "
    "HVD_TF_BLOCKING=1 and build the graph again (it is written into each operation)";
static const char cannot_wait[] =
    "this operation was created by a TensorFlow with asynchronous kernels (2.13 and "
    "later), which this one lacks; build the graph with this TensorFlow";

void job_compute(const struct tf_kernel *k,
                 struct TF_OpKernelContext *context,
                 struct TF_AsyncOpKernelDoneCallback *callback)
{
    struct tf_job *j = job_new(k, context, callback);
    int n = 0, n_parts;

    if (!j) {
        job_refuse(context, TF_RESOURCE_EXHAUSTED, "out of memory for an operation");
        if (callback)
            TF_RunAsyncOpKernelDoneCallback(callback);
        return;
    }
    n_parts = j->n_parts;
    if (!k->is_blocking && !j->done)
        job_fail(j, TF_INTERNAL, callback ? cannot_keep : cannot_wait);
    else if (!hvd_is_initialized())
        job_fail(j, TF_FAILED_PRECONDITION, job_not_initialized);
    while (!atomic_load_explicit(&j->has_failed, memory_order_relaxed) && n < n_parts
           && !part_prepare(&j->parts[n]))
        n++;
    n = n == n_parts ? job_submit(j) : 0;
    if (k->is_blocking) {
        job_wait(j, n);
        n = 0;
    }
    job_put(j,
            n_parts - n + 1); /* the parts that have no callback, and the submitter */
}
