/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the unit tests of runtime/launch: cmocka, units of time, failure reports, and
 * workers of a meet. */
#ifndef TESTS_UNIT_LAUNCH_FIXTURE_H
#define TESTS_UNIT_LAUNCH_FIXTURE_H

#include "runtime/base/mem.h"
#include "runtime/launch/core/meet.h"
#include "tests/unit/unit.h"

#define S  1000000000ull
#define MS 1000000ull

/* A failure of one rank on host-RANK; rank -1: of no rank. */
static inline struct report
report_of(int32_t rank, int code, int sig, int32_t blames, uint64_t at_us)
{
    struct report r;
    memset(&r, 0, sizeof(r));
    r.f.rank = rank;
    r.f.exit_code = code;
    r.f.signal = sig;
    r.f.at_wall_us = at_us;
    r.blames = blames;
    r.first_rank = rank < 0 ? 0 : (uint32_t)rank;
    r.n_ranks = rank < 0 ? 0 : 1;
    (void)snprintf(r.f.host, sizeof(r.f.host), "host-%d", rank);
    return r;
}

static inline void meet_start(struct meet *m, uint32_t workers, uint32_t slots)
{
    assert_int_equal(meet_init(m, workers, slots, 0, 60, 0, NULL), 0);
}

/* HELLO of worker i, w-i at 10.0.0.i, with the given world. */
static inline int worker_join_world(
    struct meet *m, uint32_t i, uint32_t generation, uint32_t workers, struct err *err)
{
    char address[32];
    struct hello h = {.worker = i,
                      .workers = workers,
                      .slots = m->slots,
                      .np = m->np,
                      .generation = generation};
    (void)snprintf(h.host, sizeof(h.host), "w-%u", i);
    (void)snprintf(address, sizeof(address), "10.0.0.%u", i);
    return meet_hello(m, &h, address, err);
}

static inline int worker_join(struct meet *m, uint32_t i, struct err *err)
{
    return worker_join_world(m, i, m->generation, m->workers, err);
}

/* All workers join and the ranks start. */
static inline void meet_run(struct meet *m)
{
    struct err err = ERR_INIT;
    for (uint32_t i = 0; i < m->workers; i++)
        assert_int_equal(worker_join(m, i, &err), 0);
    assert_int_equal(meet_due(m, 1, 0), MEET_RUNNING);
    meet_enter(m, MEET_RUNNING);
}

#endif
