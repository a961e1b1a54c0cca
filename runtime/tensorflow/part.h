/* SPDX-License-Identifier: Apache-2.0 */
/* part.h: the tensors of a job: one, or each of a group. Between job.c, which starts
 * and ends jobs, and part.c, which handles TensorFlow's tensors and the runtime's. */
#ifndef RUNTIME_TENSORFLOW_PART_H
#define RUNTIME_TENSORFLOW_PART_H

#include <stdatomic.h>
#include <stdbool.h>

#include "hvd.h"

struct TF_AsyncOpKernelDoneCallback;
struct TF_OpKernelContext;
struct TF_Tensor;
struct done;
struct tf_job;
struct tf_kernel;

#define PART_NAME_MAX 512

struct tf_part {
    struct tf_job *job;
    int index; /* of its input and output */
    hvd_handle handle;
    /* References. No input: it became the output. No output: part_alloc creates it, or
     * it is the input. */
    struct TF_Tensor *input, *output;
};

struct tf_job {
    atomic_int left; /* parts under way, and the submitter */
    atomic_bool has_failed;
    const struct tf_kernel *k;
    struct TF_OpKernelContext *context;
    struct TF_AsyncOpKernelDoneCallback *callback; /* valid inside compute() */
    struct done *done;                             /* NULL when blocking */
    int number; /* of an eager operation without a name; else -1 */
    int n_parts;
    struct tf_part parts[];
};

/* Fails a job; only the first failure counts. */
void job_fail(struct tf_job *j, int tf_code, const char *text);
/* status: enum hvd_status. at_end: the operation had been submitted. */
void job_fail_by_status(struct tf_job *j, int status, const char *text, bool at_end);

/* Each returns 0, or -1 after the job has failed. */
int part_prepare(
    struct tf_part *p); /* takes the input, allocates the output if its size is known */
/* Starts the operation; holds it if it is part of a group. done (may be NULL) receives
 * the part. */
int part_submit(struct tf_part *p, const char *job_name, hvd_done_fn done);

/* Informs the runtime that this process has no GPU for its tensors, so that ranks with
 * tensors on GPUs report the reason. Any thread. */
void part_has_no_gpu(void);

/* The part has succeeded: sets the outputs that are known only now. */
void part_finish(struct tf_part *p);

#endif
