/* SPDX-License-Identifier: Apache-2.0 */
/* Token bucket for requests to the API server. Pure: time comes in. */
#ifndef OPERATOR_KUBE_LIMIT_H
#define OPERATOR_KUBE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct limit {
    uint64_t interval_ns; /* between two requests at the full rate */
    uint64_t burst_ns;    /* how much may be saved up */
    uint64_t next_ns;     /* the moment from which the bucket counts */
};
void limit_init(struct limit *l, uint32_t qps, uint32_t burst, uint64_t now_ns);
bool limit_take(struct limit *l, uint64_t now_ns); /* false: not now */
uint64_t limit_ready_ns(const struct limit *l);    /* when the next take will succeed */
void limit_pause(struct limit *l, uint64_t until_ns); /* the server asked for it */

#endif
