/* SPDX-License-Identifier: Apache-2.0 */
/* part.h: the tensors of a job: one, or each of a group. Between job.c, which begins
 * and ends jobs, and part.c, which knows TensorFlow's tensors and the runtime's. */
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
    /* References. No input: it became the output; no output: it comes from part_alloc
     * or is the input. */
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

/* The first failure of a job is its failure. */
void job_fail(struct tf_job *j, int tf_code, const char *text);
/* status: enum hvd_status. at_end: of an operation that was submitted. */
void job_fail_by_status(struct tf_job *j, int status, const char *text, bool at_end);

/* Each 0, or -1 after the job has failed by it. */
int part_prepare(
    struct tf_part *p); /* takes the input, makes the output if it is known */
/* Begins the operation, but of a group only makes it; done (may be NULL) gets the part.
 */
int part_submit(struct tf_part *p, const char *job_name, hvd_done_fn done);

/* From now on other ranks are told why, where they have a tensor on a GPU that this
 * process has in host memory: it has no GPU for it. Any thread. */
void part_has_no_gpu(void);

/* The part has ended well: outputs that are known only now. */
void part_finish(struct tf_part *p);

#endif
