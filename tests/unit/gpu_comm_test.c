/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on the fakes: created lazily after a meeting, used before they are
 * ready, split, closed. A start that fails is one error message. */
#include "tests/unit/gpu_members.h"

enum { COUNT = 3000, MANY = 40 };

/* n (n + 1) / 2: rank r gives r + 1. */
static float sum_of(uint32_t n)
{
    return (float)(n * (n + 1) / 2);
}

MEMBER_BODY(member_sums)
{
    struct err err = ERR_INIT;
    struct backend *b;
    uint64_t ticket = 0, done;
    float *v[MANY];

    for (int i = 0; i < MANY; i++)
        HOLDS((v[i] = floats_new(g, COUNT, (float)(g->config.rank + 1), &err)));
    HOLDS(case_open(g, meeting, &b, &err) == 0);
    for (int i = 0; i < MANY; i++) /* posted before it is ready */
        HOLDS(post_sum(b, v[i], COUNT, &ticket, &err) == 0);
    HOLDS(ticket == MANY);
    struct device_event *e = comm_ticket_event(b, ticket);
    HOLDS(e && !comm_ticket_event(b, ticket + 1));
    HOLDS(wait_ticket(b, ticket, 30, &err) == 0);
    HOLDS(event_wait_recorded(e, clock_now_ns() + NS_PER_S) == 0);
    HOLDS(!comm_ticket_event(b, ticket)); /* long done */
    event_unref(e);
    HOLDS(b->ops->poll(b, &done, &err) == 0 && done == MANY);
    for (int i = 0; i < MANY; i++)
        HOLDS(floats_are(g, v[i], COUNT, sum_of(p->size), &err));
    b->ops->close(b);
    return 0;
}

/* The fake ends the test where a call is made before the last one is over. */
UNIT_TEST(a_communicator_is_used_before_it_is_ready_on_every_version)
{
#define SLOWLY .env = "HVD_FAKE_NCCL_DELAY_US", .value = "1500"
    static const struct gpu_case cases[] = {
        {.n = 3},
        {.n = 2, .version = "21403", SLOWLY},
        {.n = 2, .version = "22105", SLOWLY},
        {.n = 2, .version = "23007", SLOWLY},
        {.n = 2, .version = "21003"}, /* blocks on the launcher */
        {.n = 2, .env = "NCCL_COMM_BLOCKING", .value = "1"},
        {.n = 1, .faults = "init_hang=0"}, /* calls no NCCL */
    };
#undef SLOWLY

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gpu_case c = cases[i];

        c.body = member_sums;
        run_case(&c);
    }
}

/* --- failures of the start --- */

static int
fails_to_start(struct device *g, struct backend *meeting, const char *words, char *said)
{
    struct err err = ERR_INIT;
    struct backend *b;
    uint64_t ticket;
    float *v;

    HOLDS((v = floats_new(g, 10, 1, &err)));
    HOLDS(case_open(g, meeting, &b, &err) == 0);
    (void)post_sum(b, v, 10, &ticket, &err); /* may fail already */
    HOLDS(wait_ticket(b, 1, 20, &err) == -ECONNABORTED);
    HOLDS(strstr(err.text, words));
    HOLDS(post_sum(b, v, 10, &ticket, &err) == -ECONNABORTED);
    b->ops->close(b);
    gpu_free(v, g->streams[0]);
    return 0;
}

MEMBER_BODY(init_fails)
{
    int rc = 0;

    if (g->config.rank == 1)
        rc = fails_to_start(g, meeting, "unhandled system error", said);
    else { /* NCCL succeeds here; the control plane reports the failure */
        struct err err = ERR_INIT;
        struct backend *b;
        HOLDS(case_open(g, meeting, &b, &err) == 0);
    }
    meet_all(p, 1);
    return rc;
}

UNIT_TEST(a_failed_start_breaks_the_device)
{
    RUN_CASE(.n = 2, .body = init_fails, .faults = "init_error=1:2");
    RUN_CASE(.n = 2, .body = init_fails, .faults = "init_refused=1:2");
}

MEMBER_TEST(a_start_that_takes_too_long_names_its_ranks,
            .n = 3,
            .faults = "init_hang=1",
            .init_timeout_ns = NS_PER_S)
{
    return fails_to_start(
        g, meeting,
        "NCCL did not connect ranks 0 to 2 within 1 s (NCCL_SOCKET_IFNAME=", said);
}

/* --- sets --- */

/* Communicators of one thread by turns: what one has in progress must be over in every
 * way before another begins. */
MEMBER_BODY(by_turns)
{
    static const uint32_t members[] = {0, 1};
    struct backend *v[3] = {NULL}, *alone;
    struct err err = ERR_INIT;
    uint64_t ticket = 0;
    float *x;

    HOLDS((x = floats_new(g, COUNT, 1, &err)));
    HOLDS(case_open(g, meeting, &v[0], &err) == 0);
    HOLDS(post_sum(v[0], x, COUNT, &ticket, &err) == 0);
    HOLDS(case_open(g, meeting, &v[1], &err) == 0);
    HOLDS(comm_split(v[0], members, 2, &v[2], &err) == 0);
    HOLDS(comm_split(v[0], members + 1, 1, &alone, &err) == 0);
    HOLDS((alone != NULL) == (g->config.rank == 1));
    if (alone) {
        HOLDS(((struct comm *)alone)->n_nc == 0);
        alone->ops->close(alone);
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            HOLDS(post_sum(v[k], x, COUNT, &ticket, &err) == 0);
    (void)usleep(250000); /* the watcher looks at them, too */
    HOLDS(wait_ticket(v[2], ticket, 20, &err) == 0);
    v[1]->ops->close(v[1]);
    v[2]->ops->close(v[2]);
    HOLDS(post_sum(v[0], x, COUNT, &ticket, &err) == 0);
    HOLDS(wait_ticket(v[0], ticket, 20, &err) == 0);
    HOLDS(floats_are(g, x, COUNT, 1 << 11, &err));
    v[0]->ops->close(v[0]);
    return 0;
}

/* Several of one set share nothing: what shares runs one after the other. */
MEMBER_TEST(communicators_of_several_streams_share_nothing, .n = 2, .n_streams = 2)
{
    struct err err = ERR_INIT;
    struct backend *b;
    struct nccl_id id;
    uint64_t ticket;
    char *(*begun)(void), *text;
    float *x;

    HOLDS((x = floats_new(g, COUNT, 1, &err)));
    HOLDS(case_open(g, meeting, &b, &err) == 0);
    HOLDS(post_sum(b, x, COUNT, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0);
    meet_all(p, 1);
    if (g->config.rank == 0) {
        void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
        int pid, number;

        *(void **)&begun = dlsym(lib, "fake_nccl_begun");
        HOLDS((text = begun()));
        HOLDS(strstr(text, "split 0 of 0/2, alone\n"));
        free(text);
        /* the second id that was requested: an id has a thread until it is used */
        HOLDS(g->nccl->unique_id(&id) == NCCL_OK);
        HOLDS(sscanf(id.bytes, "hvd-fake-nccl-%d-%d-", &pid, &number) == 2);
        HOLDS(number == 1);
    }
    HOLDS(floats_are(g, x, COUNT, 2, &err));
    b->ops->close(b);
    return 0;
}

UNIT_TEST(communicators_take_turns_in_all_versions)
{
    run_versions((struct gpu_case){.n = 2, .body = by_turns}, 1);
}

/* Closed at once after the post: it is done all the same, and the object goes. */
MEMBER_BODY(closes_early)
{
    const uint64_t deadline_ns = clock_now_ns() + 30 * NS_PER_S;
    struct err err = ERR_INIT;
    struct backend *b;
    uint64_t ticket;
    float *v;

    HOLDS((v = floats_new(g, COUNT, (float)(g->config.rank + 1), &err)));
    HOLDS(case_open(g, meeting, &b, &err) == 0);
    HOLDS(post_sum(b, v, COUNT, &ticket, &err) == 0);
    b->ops->close(b);
    HOLDS(launcher_drain(&g->launcher, deadline_ns) == 0);
    HOLDS(floats_are(g, v, COUNT, sum_of(p->size), &err));
    HOLDS(!g->comms);
    b = NULL;
    comm_backend_ops.close(b);
    return 0;
}

UNIT_TEST(a_set_that_is_removed_in_flight_is_drained)
{
    RUN_CASE(.n = 3, .body = closes_early);
    RUN_CASE(.n = 2, .body = closes_early, .version = "21003");
}

UNIT_TEST(the_watcher_does_not_query_while_a_group_starts)
{
    RUN_CASE(.n = 2, .body = closes_early, .version = "22605",
             .env = "HVD_FAKE_NCCL_DELAY_US",
             .value = "250000"); /* it looks each 100 ms */
}

UNIT_MAIN(NULL, NULL)
