/* SPDX-License-Identifier: Apache-2.0 */
/* What agents and the hub tell each other, as bytes. Pure.
 *
 *   HELLO    agent -> hub   worker:4 workers:4 slots:4 np:4 host:str
 *   TABLE    hub -> agent   rdv_port:4 master_port:4 address:str n:4 { name:str slots:4
 * } * n FAILED   agent -> hub   blames+1:4 first_rank:4 n_ranks:4 message:str STOP hub
 * -> agent   the same: the first failure of the job DONE     agent -> hub   all ranks
 * of this worker exited with 0 FINISH   hub -> agent   all workers are done REFUSED hub
 * -> agent   sentence:str PING     both
 *
 * Integers are big-endian; str is length:4 and bytes. message is a failure line
 * (failure.h) and the last lines, as in a termination message. */
#ifndef RUNTIME_LAUNCH_CORE_MESSAGE_H
#define RUNTIME_LAUNCH_CORE_MESSAGE_H

#include <stdint.h>

#include "runtime/contract/hostlist.h"
#include "runtime/launch/core/verdict.h"

enum message_type {
    MESSAGE_HELLO = 1,
    MESSAGE_TABLE,
    MESSAGE_FAILED,
    MESSAGE_STOP,
    MESSAGE_DONE,
    MESSAGE_FINISH,
    MESSAGE_REFUSED,
    MESSAGE_PING
};
#define MESSAGE_TO_HUB_MAX_BYTES   8192
#define MESSAGE_TO_AGENT_MAX_BYTES (24u << 20) /* a table of 65536 hosts */

struct hello {
    uint32_t worker, workers, slots, np;
    char host[HOST_NAME_MAX_BYTES];
};
struct table {
    uint16_t rdv_port, master_port;
    char address[HOST_NAME_MAX_BYTES]; /* of worker 0, as the other workers reach it */
    struct hostlist hosts;
};

void hello_write(const struct hello *h, struct strbuf *out);
int hello_read(const uint8_t *p, size_t n, struct hello *ret, struct err *err);
void table_write(const struct table *t, struct strbuf *out);
int table_read(const uint8_t *p, size_t n, struct table *ret, struct err *err);
void table_release(struct table *t);
void report_write(const struct report *r, struct strbuf *out);
int report_read(const uint8_t *p, size_t n, struct report *ret, struct err *err);

#endif
