/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in files: what validate, render, convert and hvd-submit have in common. Pure. */
#ifndef OPERATOR_CLI_CORE_JOB_FILE_H
#define OPERATOR_CLI_CORE_JOB_FILE_H

#include "operator/core/front.h"

/* All objects of a file in YAML or JSON, with those of Lists, as an array. -EINVAL with
 * err, *ret_line: where, 0 if unknown; -ENOMEM. */
int job_file_read(struct arena *a,
                  const char *text,
                  size_t n,
                  const struct node **ret,
                  uint32_t *ret_line,
                  struct err *err);

/* The line of the member at a path such as "spec.a.b[0].c", or of its nearest parent; 0
 * if the object was not read from YAML. */
uint32_t job_file_line(const struct node *object, const char *path);

/* KUBE_JOB or KUBE_MPIJOB as this operator serves it; -1: another kind. */
int job_file_kind(const struct node *object);

/* True if the object, which job_file_kind does not know, is meant to be a job: ret is a
 * problem "PATH: text". False: another object, such as a Service. */
#define JOB_FILE_TEXT 300
bool job_file_refuses(const struct node *object, char ret[JOB_FILE_TEXT]);

/* The job as its front opens it, in a namespace and with a uid if it has none. Adds a line
 * "PATH: text" for each problem. NULL: out of memory. */
const struct job_meta *job_file_open(struct build *b,
                                     const struct node *object,
                                     const char *ns,
                                     struct strbuf *problems);

/* The objects that the operator creates, in order. Of a suspended job those of its next
 * start. Random content is replaced by a text that says so. notes: one line for each
 * difference from what a cluster would show. The job must have no problems. */
struct node *job_render(struct build *b,
                        const struct node *object,
                        const char *ns,
                        const struct object_config *cfg,
                        struct strbuf *notes,
                        struct err *err);

/* Converts an MPIJob of any version, a PyTorchJob, a TFJob or arena's TrainingJob to a
 * HorovodJob. notes: one line "PATH: text" for each field without a counterpart and for
 * each difference in meaning. NULL, err set: -ENOTSUP: another kind; -EINVAL; -ENOMEM. */
struct node *job_convert(struct build *b,
                         const struct node *object,
                         struct strbuf *notes,
                         struct err *err);

#endif
