/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator over a failure: the last rank of three leaves, the others make a world
 * of two in the same process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/park.h"
#include "tests/unit/gpu_members.h"

enum { COUNT = 500 };

static const struct device_ops *const row = &hvd_cuda_device_ops;

struct worlds {      /* what the cases differ in */
    bool is_old;     /* what was kept is too old */
    bool is_fresh;   /* what is wanted */
    bool has_sets;   /* the failed world had split one off */
    bool has_buffer; /* or had one registered */
};
static struct worlds the_worlds; /* of this process */

static int sum_once(struct device *g, struct backend *b, float want, char *said)
{
    struct err err = ERR_INIT;
    uint64_t ticket;
    float *v = floats_new(g, COUNT, (float)(((struct comm *)b)->me + 1), &err);

    HOLDS(v);
    HOLDS(post_sum(b, v, COUNT, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0);
    HOLDS(floats_are(g, v, COUNT, want, &err));
    return 0;
}

static int open_world(struct backend *meeting,
                      uint32_t me,
                      uint32_t size,
                      int ordinal,
                      struct device_parked *parked,
                      struct device **ret,
                      struct backend **ret_b,
                      char *said)
{
    struct device_config config = case_config(me, size);
    const struct backend_env env = {.rank = me, .size = size};
    struct err err = ERR_INIT;

    config.parked = parked;
    if (row->open(&config, ordinal, ret, &err))
        return SAYS("open: %s", err.text);
    if (row->comm_open(*ret, meeting, &env, case_ranks, ret_b, &err))
        return SAYS("comm_open: %s", err.text);
    return 0;
}

/* The first world, and its end by a failure while a batch waits for rank 2. */
static int fail_world(struct backend *meeting,
                      uint32_t me,
                      struct party *p,
                      struct device_parked **ret,
                      char *said)
{
    static const uint32_t all[] = {0, 1, 2};
    struct backend *b, *child;
    struct err err = ERR_INIT;
    struct device *g;
    uint64_t ticket;

    if (open_world(meeting, me, 3, (int)me, NULL, &g, &b, said)
        || sum_once(g, b, 6, said))
        return 1;
    if (the_worlds.has_sets) {
        HOLDS(row->comm_split(b, all, 3, &child, &err) == 0);
        if (sum_once(g, child, 6, said))
            return 1;
    }
    float *v = floats_new(g, COUNT, 1, &err);
    if (the_worlds.has_buffer)
        HOLDS(row->buffer_register(b, v, COUNT * sizeof(*v), &err) == 0);
    if (me != 2) {
        HOLDS(post_sum(b, v, COUNT, &ticket, &err) == 0);
        HOLDS(launcher_drain(&g->launcher, p->deadline_ns) == 0);
    }
    meet_all(p, 1);
    const uint64_t began_ns = clock_now_ns();
    row->abort(g);
    if (!row->quiesce(g, began_ns + NS_PER_S)) { /* the others go on with this one */
        (void)SLOW("rank %u: not soon", me);
        HOLDS(row->quiesce(g, began_ns + 20 * NS_PER_S));
    }
    row->free(v, NULL);
    HOLDS(row->close(g, ret) == 0);
    return 0;
}

/* Rank 0 and 1 of the old world. Another order is a row of gpu_card_test. */
static int new_world(struct backend *meeting,
                     uint32_t me,
                     struct device_parked *parked,
                     char *said)
{
    struct err err = ERR_INIT;
    struct device *g = NULL;
    struct backend *b;

    if (open_world(meeting, me, 2, (int)me, parked, &g, &b, said)
        || sum_once(g, b, 3, said))
        return 1;
    const enum comm_how how = ((struct comm *)b)->terms.how;
    if (the_worlds.is_fresh && how != COMM_FRESH)
        return SAYS("rank %u: shrunk", me);
    if (!the_worlds.is_fresh && how != COMM_SHRINK)
        return SLOW("rank %u: fresh", me); /* one that was not revoked in time is
                                              aborted */
    b->ops->close(b);
    HOLDS(row->close(g, &parked) == 0);
    return parked ? SAYS("an orderly end leaves something") : 0;
}

static int worlds_body(struct backend *b, uint32_t me, struct party *p, char *said)
{
    static const uint32_t left[] = {0, 1};
    struct device_parked *parked = NULL;
    struct backend *meeting;
    struct err err = ERR_INIT;

    if (fail_world(b, me, p, &parked, said))
        return 1;
    if (b->ops->subset(b, left, 2, p->deadline_ns, &meeting, &err))
        return SAYS("subset: %s", err.text);
    if (me == 2) {
        row->parked_free(parked);
        row->parked_free(NULL);
        return 0;
    }
    if (the_worlds.is_old && parked) {
        atomic_store(&parked->until_ns, 1);
        futex_wake(&parked->state);
        while (atomic_load(&parked->state) != PARK_OVER)
            (void)usleep(100);
    }
    int rc = new_world(meeting, me, parked, said);
    meeting->ops->close(meeting);
    return rc;
}

static void run_worlds(const char *version, struct worlds w)
{
    the_worlds = w;
    run_case(&(struct gpu_case){.n = 3, .version = version, .row_body = worlds_body});
}

static void survivors_shrink_what_was_revoked(void **state)
{
    (void)state;
    run_worlds("22809", (struct worlds){0});
    run_worlds("23007", (struct worlds){0});
}

static void below_2_28_7_nothing_is_kept(void **state)
{
    (void)state;
    run_worlds("22705", (struct worlds){.is_fresh = true});
}

static void what_was_kept_too_long_is_fresh(void **state)
{
    (void)state;
    run_worlds("22809", (struct worlds){.is_fresh = true, .is_old = true});
}

/* Their abort would reach the communicator by what they share with it. */
static void a_world_with_sets_keeps_nothing(void **state)
{
    (void)state;
    run_worlds("22809", (struct worlds){.is_fresh = true, .has_sets = true});
}

/* Of memory that goes with the world. */
static void a_world_with_registered_buffers_keeps_nothing(void **state)
{
    (void)state;
    run_worlds("22809", (struct worlds){.is_fresh = true, .has_buffer = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_shrink_what_was_revoked),
        cmocka_unit_test(below_2_28_7_nothing_is_kept),
        cmocka_unit_test(what_was_kept_too_long_is_fresh),
        cmocka_unit_test(a_world_with_sets_keeps_nothing),
        cmocka_unit_test(a_world_with_registered_buffers_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
