/* SPDX-License-Identifier: Apache-2.0 */
/* No deadlock: the world and overlapping sets in one common order, while user streams
 * wait for results and inputs for user streams, each rank at its own speed. What would
 * hang ends at a deadline; calls that differ end the test in the fake. */
#include "tests/unit/gpu_members.h"
#include "tests/unit/seeded.h"

enum { N_SETS = 5, N_BATCHES = 120, N_USER_STREAMS = 3, COUNT = 64 };

static uint64_t the_seed;

static const struct {
    uint32_t ranks[4], n;
} sets[N_SETS] = {
    {{0, 1, 2, 3}, 4}, {{0, 1}, 2}, {{1, 2}, 2}, {{2, 3}, 2}, {{0, 2, 3}, 3},
};

struct user { /* of one rank */
    struct device *g;
    struct backend *b[N_SETS]; /* NULL: not ours */
    struct device_event *done[N_BATCHES];
    uint64_t ticket[N_BATCHES];
    float *v[N_BATCHES];
    int of[N_BATCHES];
    cu_stream streams[N_USER_STREAMS];
    struct seeded all, own;
};

static bool set_has(int set, uint32_t me)
{
    for (uint32_t i = 0; i < sets[set].n; i++)
        if (sets[set].ranks[i] == me)
            return true;
    return false;
}

static int split_sets(struct user *u, char *said)
{
    struct err err = ERR_INIT;

    for (int i = 1; i < N_SETS; i++)
        if (row->comm_split(u->b[0], sets[i].ranks, sets[i].n, &u->b[i], &err))
            return SAYS("split: %s", err.text);
    return 0;
}

/* The k-th batch of the common order: the set is everybody's choice, the rest ours. */
static int post_one(struct user *u, int k, char *said)
{
    struct device *g = u->g;
    cu_stream s = u->streams[seeded_below(&u->own, N_USER_STREAMS)];
    struct device_event *ready = NULL;
    struct err err = ERR_INIT;

    u->of[k] = (int)seeded_below(&u->all, N_SETS);
    if (!set_has(u->of[k], g->config.rank))
        return 0;
    for (int i = 0; i < 2 && k > 0; i++) { /* on what was posted before */
        int on = (int)seeded_below(&u->own, (uint32_t)k);
        if (u->done[on])
            HOLDS(row->wait(g, u->done[on], s, clock_now_ns() + 20 * NS_PER_S, &err)
                  == 0);
    }
    HOLDS(row->record(g, s, &ready, &err) == 0);
    struct batch_item item = {
        .in = u->v[k], .out = u->v[k], .count = COUNT, .ready = ready};
    const struct batch batch = batch_of(&item, 1);
    struct backend *b = u->b[u->of[k]];
    HOLDS(b->ops->post(b, &batch, &u->ticket[k], &err) == 0);
    row->event_unref(ready);
    u->done[k] = row->ticket_event(b, u->ticket[k]);
    if (seeded_below(&u->own, 8) == 0)
        (void)usleep(seeded_below(&u->own, 400));
    return 0;
}

static int user_run(struct user *u, char *said)
{
    struct device *g = u->g;
    struct err err = ERR_INIT;

    for (int k = 0; k < N_BATCHES; k++)
        HOLDS((u->v[k] = floats_new(g, COUNT, (float)(k + 1), &err)));
    for (int k = 0; k < N_BATCHES; k++)
        if (post_one(u, k, said))
            return 1;
    for (int k = 0; k < N_BATCHES; k++) {
        float want = (float)(k + 1);
        if (u->done[k]) {
            HOLDS(wait_ticket(u->b[u->of[k]], u->ticket[k], 20, &err) == 0);
            want *= (float)sets[u->of[k]].n;
        }
        HOLDS(floats_are(g, u->v[k], COUNT, want, &err));
        row->event_unref(u->done[k]);
    }
    return 0;
}

ROW_BODY(order_body)
{
    struct user u = {.g = g,
                     .b = {b},
                     .all = {the_seed},
                     .own = {the_seed * 64 + g->config.rank + 1}};
    struct err err = ERR_INIT;
    struct gpu_scope scope;

    HOLDS(gpu_enter(g, &scope, &err) == 0);
    for (int i = 0; i < N_USER_STREAMS; i++)
        (void)g->cu->stream_new(&u.streams[i], CU_STREAM_NON_BLOCKING, 0);
    gpu_leave(&scope);
    int rc = split_sets(&u, said);
    if (!rc)
        rc = user_run(&u, said);
    for (int i = N_SETS - 1; i > 0 && !rc; i--)
        comm_backend_ops.close(u.b[i]);
    return rc;
}

UNIT_TEST(sets_and_user_streams_make_no_circle)
{
    const char *n = getenv("GPU_ORDER_SEEDS");
    const uint64_t n_seeds = n ? strtoull(n, NULL, 10) : 8;

    for (the_seed = 1; the_seed <= n_seeds; the_seed++)
        RUN_CASE(.n = 4, .row_body = order_body);
}

UNIT_MAIN(NULL, NULL)
