/* SPDX-License-Identifier: Apache-2.0 */
/* A leader of an elastic job and its processes, for tests of one decision at a time.
 * What the leader does is one line: "start 0, start 1", "form 2: 1 0 3" (generation, slots
 * by rank), "break", "notify added removed", "stop 3", "end". */
#ifndef TESTS_UNIT_LAUNCH_LEADER_H
#define TESTS_UNIT_LAUNCH_LEADER_H

#include "runtime/base/mem.h"
#include "runtime/launch/core/elastic.h"
#include "runtime/wire/member_message.h"
#include "tests/unit/unit.h"

#define S 1000000000ull

static struct elastic e;
static uint64_t now;

static inline void
job_begin(uint32_t workers, uint32_t slots, uint32_t least, uint32_t most)
{
    const struct elastic_config c = {.n_workers = workers,
                                     .slots = slots,
                                     .start_ranks = least,
                                     .min_ranks = least,
                                     .max_ranks = most,
                                     .reset_limit = ELASTIC_NO_LIMIT,
                                     .wait_ns = 600 * S,
                                     .leave_ns = 30 * S,
                                     .exclude_ns = 10 * S,
                                     .exclude_max_ns = 25 * S};
    struct err err = ERR_INIT;

    elastic_release(&e);
    now = S;
    assert_int_equal(elastic_init(&e, &c, now, &err), 0);
}

static inline void worker_comes(uint32_t worker)
{
    elastic_offer_slots(&e, worker, e.config.slots);
}

static inline void workers_come(void)
{
    for (uint32_t i = 0; i < e.config.n_workers; i++)
        worker_comes(i);
}

static inline void put_action(const struct elastic_action *a, struct strbuf *out)
{
    static const char *const names[] = {"start", "stop",   "form",
                                        "break", "notify", "end"};

    strbuf_printf(out, "%s%s", out->n ? ", " : "", names[a->act]);
    if (a->act == ELASTIC_START || a->act == ELASTIC_STOP)
        strbuf_printf(out, " %u", a->slot);
    if (a->change & MEMBER_CHANGE_ADDED)
        strbuf_puts(out, " added");
    if (a->change & MEMBER_CHANGE_REMOVED)
        strbuf_puts(out, " removed");
    if (a->act != ELASTIC_FORM)
        return;
    strbuf_printf(out, " %u:", e.generation);
    for (uint32_t r = 0; r < e.n_members; r++)
        strbuf_printf(out, " %u", e.members[r]);
}

/* All that the leader does now is this. */
static inline void leader_does(const char *want)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct elastic_action a;

    strbuf_init(&out, 4096);
    while (elastic_next(&e, now, &a))
        put_action(&a, &out);
    assert_string_equal(strbuf_str(&out), want);
}

static inline uint32_t slot_incarnation(uint32_t slot)
{
    return e.slots[slot].incarnation;
}

static inline void slot_reports(uint32_t slot)
{
    elastic_take_ready(&e, slot, slot_incarnation(slot), e.slots[slot].generation, now);
}

static inline void slot_fails(uint32_t slot, uint64_t cause)
{
    elastic_take_failure(&e, slot, slot_incarnation(slot), cause, now);
}

static inline void slot_reports_end(uint32_t slot)
{
    elastic_take_ending(&e, slot, slot_incarnation(slot), e.slots[slot].generation,
                        now);
}

static inline void slot_succeeds(uint32_t slot)
{
    elastic_take_done(&e, slot, slot_incarnation(slot), now);
}

/* Those of a broken world report. */
static inline void members_report(void)
{
    for (uint32_t i = 0; i < e.n_slots; i++)
        if (e.slots[i].state == SLOT_MEMBER)
            slot_reports(i);
}

/* A job whose processes have started and whose first world has formed. */
static inline void
job_runs(uint32_t workers, uint32_t slots, uint32_t least, uint32_t most)
{
    struct elastic_action a;

    job_begin(workers, slots, least, most);
    workers_come();
    while (elastic_next(&e, now, &a))
        ;
    for (uint32_t i = 0; i < e.n_slots; i++)
        slot_reports(i);
    while (elastic_next(&e, now, &a))
        ;
    assert_int_equal(e.state, ELASTIC_RUNNING);
}

/* All processes do what they are asked to, until a world works. */
static inline void job_settle(void)
{
    struct elastic_action a;

    for (int n = 0; n < 5; n++) {
        while (elastic_next(&e, now, &a))
            ;
        for (uint32_t i = 0; i < e.n_slots; i++)
            if (e.slots[i].state == SLOT_STARTING)
                slot_reports(i);
        if (e.state == ELASTIC_WAITING || e.has_notified)
            members_report();
    }
}

static inline void
leader_adopts(uint32_t slot, uint32_t generation, uint32_t rank, uint32_t n)
{
    elastic_adopt(&e, slot,
                  &(struct elastic_process){.incarnation = 5,
                                            .is_member = true,
                                            .generation = generation,
                                            .rank = rank,
                                            .n_ranks = n,
                                            .since = 1 + slot});
}

static inline int job_release(void **state)
{
    (void)state;
    elastic_release(&e);
    return 0;
}

#endif
