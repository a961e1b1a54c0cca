/* SPDX-License-Identifier: Apache-2.0 */
/* A node that reports the end of a task to srun, in a thread. */
#ifndef TESTS_UNIT_SPANK_END_NODE_H
#define TESTS_UNIT_SPANK_END_NODE_H

#include <pthread.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "spank_plugin/ends.h"

#define LONG_NS (60 * NS_PER_S)

static const struct token token = {.key = {1, 2, 3}};

struct node { /* a node that reports, in a thread of its own */
    uint16_t port;
    struct failure f;
    struct token token;
    const char *job_id;
    uint64_t wait_ns;
    pthread_t thread;
    int rc;
    struct err err;
};

static inline void *node_main(void *arg)
{
    struct node *n = arg;

    n->rc = end_report(&n->token, "127.0.0.1", n->port, n->job_id, &n->f,
                       clock_now_ns() + n->wait_ns, &n->err);
    return NULL;
}

static inline void node_start(struct node *n, uint16_t port, uint32_t rank, int code)
{
    *n = (struct node){.port = port,
                       .f = {.rank = (int32_t)rank, .host = "node1", .exit_code = code},
                       .token = token,
                       .job_id = "slurm.12.3",
                       .wait_ns = LONG_NS};
    assert_int_equal(pthread_create(&n->thread, NULL, node_main, n), 0);
}

static inline int node_join(struct node *n)
{
    assert_int_equal(pthread_join(n->thread, NULL), 0);
    return n->rc;
}

#endif
