/* SPDX-License-Identifier: Apache-2.0 */
/* live_lead.c: when ranks are examined. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/live_lead.h"

static void on_examine(void *arg, uint32_t number)
{
    *(uint32_t *)arg = number;
}

static const char *host_of(void *arg, uint32_t rank)
{
    (void)arg;
    return rank == 0 ? "a" : "b";
}

/* Rank 0's record that rank 1 is missing, as it is written every few seconds. */
static void take_stall(struct live_lead *l, uint64_t seen_wall_us)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct stall_record r = {.since_wall_us = 1000,
                             .seen_wall_us = seen_wall_us,
                             .size = 2,
                             .op = "ALLREDUCE",
                             .tensor = "grad/0",
                             .n_missing = 1,
                             .n_listed = 1,
                             .missing = {{.rank = 1}}};

    strbuf_init(&b, STALL_FILE_MAX_BYTES);
    stall_record_pack(&r, &b);
    live_lead_take_part(l, LIVE_PART_STALL, 0, strbuf_str(&b), b.n);
}

static void take_finding(struct live_lead *l, uint32_t rank, enum live_cause cause)
{
    static struct hang_finding f;
    CLEANUP(strbuf_release) struct strbuf b = {0};

    f.rank = rank;
    f.cause = cause;
    f.is_in_collective = rank == 0;
    strbuf_init(&b, HANG_FINDING_MAX);
    hang_finding_pack(&f, &b);
    live_lead_take_part(l, LIVE_PART_FINDING, l->exam.number, strbuf_str(&b), b.n);
}

UNIT_TEST(a_rank_that_could_not_be_examined_in_time_is_examined_again)
{
    struct live_lead l;
    uint32_t examined = 0;

    live_lead_init(&l, &(struct live_lead_config){.examine = on_examine,
                                                  .host_of = host_of,
                                                  .is_silent = true,
                                                  .arg = &examined});
    live_lead_meet(&l, 0, 2);
    live_lead_start(&l, 2, 1);
    take_stall(&l, 2000);
    assert_int_equal(examined, 1);
    take_finding(&l, 0, LIVE_CAUSE_SLEEPING);
    take_stall(&l, 3000); /* one is in progress */
    assert_int_equal(examined, 1);
    l.exam.deadline_ns = 1;
    live_lead_serve(&l);
    assert_int_equal(l.job.stall.cause, LIVE_CAUSE_UNKNOWN);
    take_stall(&l, 4000);
    assert_int_equal(examined, 2);
    take_finding(&l, 0, LIVE_CAUSE_SLEEPING);
    take_finding(&l, 1, LIVE_CAUSE_LOCK);
    live_lead_serve(&l);
    assert_int_equal(l.job.stall.cause, LIVE_CAUSE_LOCK);
    assert_int_equal(l.job.stall.rank, 1);
    take_stall(&l, 5000); /* the cause is known */
    assert_int_equal(examined, 2);
    live_lead_release(&l);
}

UNIT_MAIN(NULL, NULL)
