/* SPDX-License-Identifier: Apache-2.0 */
/* Token bucket for requests to the API server, which slows down when the server answers
 * 429. Pure: the caller passes the time. */
#ifndef OPERATOR_KUBE_LIMIT_H
#define OPERATOR_KUBE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LIMIT_MAX_PAUSE_S 60u /* even if the server requests more */
#define LIMIT_MAX_SLOW    5u  /* at most 32 times slower than configured */

struct limit {
    uint64_t interval_ns; /* between two requests at the full rate */
    uint64_t burst_ns;    /* how much may accumulate */
    uint64_t next_ns;     /* the bucket is filled from this time on */
    uint64_t changed_ns;  /* the last 429, or the last time the rate was raised */
    uint64_t paused_ns;   /* end of the requested pause */
    unsigned slow;        /* how many times the rate is halved */
};
void limit_init(struct limit *l, uint32_t qps, uint32_t burst, uint64_t now_ns);
bool limit_take(struct limit *l, uint64_t now_ns); /* false: not now */
uint64_t limit_ready_ns(const struct limit *l);    /* when the next take will succeed */
/* The server answered 429. after_s: the requested pause; 0: none was requested, which
 * means 1 s at first, and twice as long each time. */
void limit_throttled(struct limit *l, uint64_t now_ns, uint32_t after_s);

#endif
