/* SPDX-License-Identifier: Apache-2.0 */
/* What the leader of a job (the hub, or horovodrun) knows of its progress: records of all
 * ranks come in, the report goes out to readers. A failure here never fails the job:
 * what does not fit memory is dropped. One thread. */
#ifndef RUNTIME_LAUNCH_LIVE_LEAD_H
#define RUNTIME_LAUNCH_LIVE_LEAD_H

#include "runtime/launch/core/live_job.h"
#include "runtime/launch/readers.h"

struct live_lead {
    struct live_job job;
    struct readers readers;
};

void live_lead_init(struct live_lead *l);
void live_lead_release(struct live_lead *l);
/* Workers are awaited, at first or for another world. */
void live_lead_meet(struct live_lead *l, uint32_t generation, uint32_t n_workers);
void live_lead_set_present(struct live_lead *l, uint32_t n_present);
void live_lead_start(struct live_lead *l, uint32_t size, uint32_t slots);
void live_lead_end(struct live_lead *l);
/* A packed record of a rank of the current world. -EPROTO. */
int live_lead_take(struct live_lead *l, const void *p, size_t n, struct err *err);
/* Answers readers; after each poll. */
void live_lead_serve(struct live_lead *l);

#endif
