/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files with jobs, and prints problems with file and line: for kubectl-hvd and
 * hvd-submit. */
#ifndef OPERATOR_CLI_JOB_INPUT_H
#define OPERATOR_CLI_JOB_INPUT_H

#include "operator/cli/core/job_file.h"

/* A file as messages name it; "-" is standard input. */
const char *job_input_name(const char *file);
/* The objects of a file as an array. 1: it is not YAML, and the problem is printed. Else
 * a negative errno with err. */
int job_input_read(struct arena *a,
                   const char *file,
                   const struct node **ret,
                   struct err *err);

/* "FILE:LINE: TEXT" to standard error, made safe. line 0: without it. */
void problem_put(const char *file, uint32_t line, const char *text);
/* Each different line "PATH: text", with the line of that path in the object; object NULL:
 * without. */
void problems_put(const char *file, const struct node *object, const char *all);

#endif
