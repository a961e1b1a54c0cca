/* SPDX-License-Identifier: Apache-2.0 */
/* An examination of all ranks, as their leader sees it: findings come in, a verdict and
 * a text with all stacks go out. Called by live_lead.c. */
#ifndef RUNTIME_LAUNCH_EXAM_H
#define RUNTIME_LAUNCH_EXAM_H

#include "runtime/launch/live_lead.h"

/* False: one is in progress, there are no ranks, or memory is out. */
bool exam_begin(struct live_exam *x, uint32_t n_ranks, uint64_t now_ns);
void exam_cancel(struct live_exam *x); /* keeps the text of the last one */
void exam_release(struct live_exam *x);
/* A finding of another examination is ignored. r: whose missing ranks are always kept.
 * -EPROTO. */
int exam_take(struct live_exam *x,
              uint32_t number,
              const void *p,
              size_t n,
              const struct stall_record *r,
              struct err *err);
/* All ranks have answered, or the time is over. */
bool exam_is_due(const struct live_exam *x, uint64_t now_ns);
/* Ends it: sets verdict and text. r: NULL if rank 0 has reported no stall. */
void exam_conclude(struct live_exam *x,
                   const struct stall_record *r,
                   const char *(*host_of)(void *arg, uint32_t rank),
                   void *arg,
                   uint64_t now_wall_us,
                   struct live_stall *ret);

/* What a record of a stall says by itself: all of *ret but cause and stacks. */
void record_describe(const struct stall_record *r,
                     const char *(*host_of)(void *arg, uint32_t rank),
                     void *arg,
                     uint64_t now_wall_us,
                     struct live_stall *ret);

#endif
