/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between agents and the hub. Pure.
 *
 *   HELLO    to hub    worker:4 workers:4 slots:4 np:4 generation:4 host:str
 *   TABLE    to agent  rdv_port:4 master_port:4 address:str n:4 {name:str slots:4} * n
 *   FAILED   to hub    generation:4 failure
 *   STOP     to agent  failure: the first one of the job
 *   DONE     to hub    worker:4 generation:4: all of its ranks exited with 0
 *   FINISH   to agent  all workers are done
 *   REFUSED  to agent  message:str
 *   WORLD    to hub    generation:4 workers:4: a world in this agent's file
 *            to agent  the same: stop the ranks; send HELLO in this world, or exit
 *   LEAVING  to hub    worker:4 generation:4: it received a stop signal
 *   LIVE     to hub    generation:4 and a rank's record (live/live_worker.h)
 *   STALL    to hub    generation:4 and rank 0's record (contract/stall_record.h); without
 *                      it: the stall is over
 *   EXAMINE  to agent  generation:4 number:4: examine all ranks
 *   FOUND    to hub    generation:4 number:4 and a finding (hang.h)
 *   PING     both
 *
 *   failure  blames+1:4 first_rank:4 n_ranks:4 message:str
 *
 * Integers are little-endian; str is length:4 and bytes. message is a failure line
 * (failure.h) and the last lines, as in a termination message. */
#ifndef RUNTIME_LAUNCH_CORE_MESSAGE_H
#define RUNTIME_LAUNCH_CORE_MESSAGE_H

#include <stdint.h>

#include "runtime/contract/hostlist.h"
#include "runtime/contract/job_world.h"
#include "runtime/launch/core/verdict.h"

enum message_type {
    MESSAGE_HELLO = 1,
    MESSAGE_TABLE,
    MESSAGE_FAILED,
    MESSAGE_STOP,
    MESSAGE_DONE,
    MESSAGE_FINISH,
    MESSAGE_REFUSED,
    MESSAGE_PING,
    MESSAGE_WORLD,
    MESSAGE_LEAVING,
    MESSAGE_LIVE,
    MESSAGE_STALL,
    MESSAGE_EXAMINE,
    MESSAGE_FOUND
};
#define MESSAGE_TO_HUB_MAX_BYTES   32768
#define MESSAGE_TO_AGENT_MAX_BYTES (24u << 20) /* a table of 65536 hosts */

struct hello {
    uint32_t worker, workers, slots, np, generation;
    char host[HOST_NAME_MAX_BYTES];
};
struct origin { /* sender of DONE and LEAVING */
    uint32_t worker, generation;
};
struct table {
    uint16_t rdv_port, master_port;
    char address[HOST_NAME_MAX_BYTES]; /* of worker 0, for the other workers */
    struct hostlist hosts;
};

void hello_write(const struct hello *h, struct strbuf *out);
int hello_read(const uint8_t *p, size_t n, struct hello *ret, struct err *err);
void table_write(const struct table *t, struct strbuf *out);
int table_read(const uint8_t *p, size_t n, struct table *ret, struct err *err);
void table_release(struct table *t);
void report_write(const struct report *r, struct strbuf *out);
int report_read(const uint8_t *p, size_t n, struct report *ret, struct err *err);
/* The same, allocated: the caller frees *ret, which is NULL after an error. */
int report_read_new(const uint8_t *p, size_t n, struct report **ret, struct err *err);
/* FAILED: a report and the generation of its ranks. */
void failed_write(uint32_t generation, const struct report *r, struct strbuf *out);
int failed_read(const uint8_t *p,
                size_t n,
                uint32_t *ret_generation,
                struct report *ret,
                struct err *err);
void world_write(const struct job_world *w, struct strbuf *out);
int world_read(const uint8_t *p, size_t n, struct job_world *ret, struct err *err);
void origin_write(const struct origin *o, struct strbuf *out);
int origin_read(const uint8_t *p, size_t n, struct origin *ret, struct err *err);

#endif
