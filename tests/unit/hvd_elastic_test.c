/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of an elastic job in worlds that follow each other. The parent is their launcher;
 * rank in a test body is the slot, which HOROVOD_RANK has while it waits. */
#include <poll.h>
#include <sched.h>

#include "tests/lib/elastic_leader.h"
#include "tests/unit/hvd_world.h"

static const uint64_t PATIENCE_NS = 60 * NS_PER_S;

struct elastic_world {
    struct proc_world w;
    struct leader leader;
};

static void set_slot(const struct elastic_world *e, int slot)
{
    struct member_address a = {.slot = (uint32_t)slot, .incarnation = 1};
    char text[80];

    (void)snprintf(a.name, sizeof(a.name), "%s", e->leader.name);
    member_address_write(&a, text, sizeof(text));
    set_place(&e->w, 1, slot);
    (void)setenv("HVD_ELASTIC", text, 1);
    (void)setenv("HOROVOD_ELASTIC", "1", 1);
}

/* n processes; none has a world yet. */
static void elastic_start(struct elastic_world *e, int n, rank_fn fn)
{
    struct err err = ERR_INIT;

    memset(e, 0, sizeof(*e));
    if (shared)
        (void)munmap(shared, sizeof(*shared));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    e->w.size = n;
    (void)snprintf(e->w.token_file, sizeof(e->w.token_file), "/tmp/hvd-unit-%d.token",
                   (int)getpid());
    if (leader_open(&e->leader, e->w.token_file, &err) < 0)
        fail_msg("%s", err.text);
    (void)fflush(stdout);
    (void)fflush(stderr);
    for (int slot = 0; slot < n; slot++) {
        e->w.pid[slot] = fork();
        assert_true(e->w.pid[slot] >= 0);
        if (e->w.pid[slot] == 0) {
            (void)alarm(CHILD_LIMIT_S);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            set_slot(e, slot);
            fd_close(&e->leader.listen_fd); /* its end is the parent's */
            fn(slot, n);
            _exit(0);
        }
    }
}

static void elastic_end(struct elastic_world *e, int dead)
{
    world_end(&e->w, dead);
    leader_close(&e->leader);
}

static struct leader_event event_next(struct elastic_world *e)
{
    uint64_t until = clock_now_ns() + PATIENCE_NS;
    struct leader_event event = {.type = LEADER_NOTHING};

    while (event.type == LEADER_NOTHING && clock_now_ns() < until) {
        event = leader_next(&e->leader, -1, clock_now_ns() + 100 * NS_PER_MS);
        for (int r = 0; r < WORLD_MAX; r++)
            if (shared->r[r].check[0] != 0)
                fail_msg("slot %d: %s", r, shared->r[r].check);
    }
    return event;
}

/* Waits until the slots of the mask report ready after this generation. */
static void ready_wait(struct elastic_world *e, unsigned mask, uint32_t generation)
{
    while (mask) {
        struct leader_event event = event_next(e);

        assert_int_not_equal(event.type, LEADER_NOTHING);
        if (event.type == LEADER_GONE || event.message.type != MEMBER_READY)
            continue;
        assert_int_equal(event.message.generation, generation);
        assert_true(mask >> event.slot & 1);
        mask &= ~(1u << event.slot);
    }
}

static void world_form(struct elastic_world *e, uint32_t generation, uint32_t n, ...)
{
    uint32_t slots[WORLD_MAX];
    va_list ap;

    va_start(ap, n);
    for (uint32_t i = 0; i < n; i++)
        slots[i] = (uint32_t)va_arg(ap, int);
    va_end(ap);
    assert_int_equal(leader_form(&e->leader, generation, slots, n), 0);
}

/* Child: this rank's world has n ranks and works. */
static void expect_world(int rank, int n)
{
    float v = 1;

    CHECK(hvd_rank() == rank && hvd_size() == n, "rank %d of %d", hvd_rank(),
          hvd_size());
    CHECK(hvd_local_size() == n && hvd_cross_size() == 1, "local %d", hvd_local_size());
    CHECK_OK(sum_now("world", &v, 1));
    CHECK((int)v == n, "sum %g", (double)v);
}

/* Child: the next operation fails; then the next world is this one. */
static void expect_end(const char *words)
{
    float v = 1;

    CHECK_KEPT(sum_now("pending", &v, 1), HVD_ABORTED, words);
    CHECK(hvd_elastic_is_over() == 1, "the world is not over");
    CHECK_OK(hvd_shutdown());
    CHECK(hvd_elastic_is_over() == 0, "over without a world");
}

/* --- losses --- */

RANK_BODY(survivor)
{
    CHECK_OK(hvd_init(NULL));
    CHECK(hvd_elastic_has_new() == 1, "all are new");
    expect_world(rank, 3);
    stage_set(rank, 1);
    if (rank == 1) {
        go_wait(1); /* for a signal */
        return;
    }
    expect_end("rank 1 (host testhost");
    CHECK_OK(hvd_init(NULL));
    CHECK(hvd_elastic_has_new() == 0, "none is new");
    expect_world(rank == 2 ? 0 : 1, 2); /* the ranks change */
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(survivors_of_a_loss_form_the_next_world)
{
    struct elastic_world e;

    elastic_start(&e, 3, survivor);
    ready_wait(&e, 7, 0);
    world_form(&e, 1, 3, 0, 1, 2);
    for (int r = 0; r < 3; r++)
        stage_wait(r, 1);
    assert_int_equal(kill(e.w.pid[1], SIGKILL), 0);
    ready_wait(&e, 5, 1);
    world_form(&e, 2, 2, 2, 0);
    elastic_end(&e, 1);
}

RANK_BODY(newcomer)
{
    CHECK_OK(hvd_init(NULL));
    if (rank < 2) {
        expect_world(rank, 2);
        CHECK_OK(hvd_shutdown());
        CHECK_OK(hvd_init(NULL));
    }
    CHECK(hvd_elastic_has_new() == 1, "slot 2 is new");
    expect_world(2 - rank, 3);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(a_new_rank_joins_those_that_left_in_order)
{
    struct elastic_world e;

    elastic_start(&e, 3, newcomer);
    ready_wait(&e, 7, 0);
    world_form(&e, 1, 2, 0, 1);
    ready_wait(&e, 3, 1);
    world_form(&e, 2, 3, 2, 1, 0);
    elastic_end(&e, -1);
}

RANK_BODY(alone)
{
    CHECK_OK(hvd_init(NULL));
    expect_world(rank, 2);
    stage_set(rank, 1);
    if (rank == 1) {
        go_wait(1);
        return;
    }
    expect_end("rank 1 (host");
    CHECK_OK(hvd_init(NULL));
    expect_world(0, 1);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(the_last_one_is_a_world_of_its_own)
{
    struct elastic_world e;

    elastic_start(&e, 2, alone);
    ready_wait(&e, 3, 0);
    world_form(&e, 1, 2, 0, 1);
    stage_wait(0, 1);
    stage_wait(1, 1);
    assert_int_equal(kill(e.w.pid[1], SIGKILL), 0);
    ready_wait(&e, 1, 1);
    world_form(&e, 2, 1, 0);
    elastic_end(&e, 1);
}

/* --- the launcher says that a world is over --- */

RANK_BODY(broken)
{
    CHECK_OK(hvd_init(NULL));
    expect_world(rank, 2);
    stage_set(rank, 1);
    if (rank == 1) { /* idle: its next operation is refused */
        float v = 1;
        int rc;

        while ((rc = sum_in(0, "ended", &v, 0)) == HVD_OK)
            ;
        CHECK_KEPT_AS(rc, HVD_ABORTED, "slot 5 was replaced");
        CHECK_OK(hvd_shutdown());
    } else {
        expect_end("slot 5 was replaced");
    }
    CHECK_OK(hvd_init(NULL));
    expect_world(rank, 2);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(a_broken_world_fails_with_the_launchers_reason)
{
    struct elastic_world e;

    elastic_start(&e, 2, broken);
    ready_wait(&e, 3, 0);
    world_form(&e, 4, 2, 0, 1);
    stage_wait(0, 1);
    stage_wait(1, 1);
    leader_break(&e.leader, 3, "not this one");
    leader_break(&e.leader, 5, "nor this one");
    leader_break(&e.leader, 4, "slot 5 was replaced");
    ready_wait(&e, 3, 4);
    world_form(&e, 6, 2, 0, 1);
    elastic_end(&e, -1);
}

RANK_BODY(launcher_lost)
{
    struct hvd_config none = {.size_bytes = sizeof(none)};

    CHECK_OK(hvd_init(NULL));
    expect_world(rank, 1);
    stage_set(rank, 1);
    for (int rc = HVD_OK; rc == HVD_OK;) {
        float v = 1;

        rc = sum_now("until", &v, 1);
    }
    CHECK(strcmp(KEPT_TEXT, "the launcher of this process has gone") == 0, "%s",
          KEPT_TEXT);
    CHECK_OK(hvd_shutdown());
    CHECK_FAILS(hvd_init(&none), HVD_INTERNAL, "the launcher of this process has gone");
}

UNIT_TEST(the_end_of_the_launcher_ends_the_world)
{
    struct elastic_world e;

    elastic_start(&e, 1, launcher_lost);
    ready_wait(&e, 1, 0);
    world_form(&e, 1, 1, 0);
    stage_wait(0, 1);
    leader_close(&e.leader);
    world_end(&e.w, -1);
}

/* --- worlds that do not form --- */

RANK_BODY(patient)
{
    CHECK_OK(hvd_init(NULL));
    CHECK(hvd_elastic_has_new() == 1, "they were in no world that has formed");
    expect_world(rank, 2);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(a_world_that_does_not_form_is_followed_by_the_next)
{
    struct elastic_world e;

    elastic_start(&e, 2, patient);
    ready_wait(&e, 3, 0);
    world_form(&e, 1, 3, 0, 1, 2); /* slot 2 does not come */
    leader_break(&e.leader, 1, "slot 2 was lost");
    ready_wait(&e, 3, 1);
    world_form(&e, 2, 2, 0, 1);
    elastic_end(&e, -1);
}

/* The rendezvous that a late rank looks for is not there any more. */
UNIT_TEST(a_rendezvous_that_is_gone_is_left_when_the_world_is_over)
{
    struct member_message m = {.type = MEMBER_FORM,
                               .generation = 1,
                               .place = {0, 2, 0, 2, 0, 1, 0},
                               .rdv_host = "127.0.0.1"};
    struct elastic_world e;
    int fd, conn;

    elastic_start(&e, 2, patient);
    ready_wait(&e, 3, 0);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &m.rdv_port, NULL), 0);
    leader_send(&e.leader, 0, &m);
    assert_true(fd_wait(fd, POLLIN, clock_now_ns() + PATIENCE_NS) > 0);
    assert_int_equal(tcp_accept(fd, &conn), 0);
    m.place.rank = m.place.local_rank = 1;
    fd_close(&fd); /* later connections are refused */
    fd_close(&conn);
    leader_send(&e.leader, 1, &m);
    leader_break(&e.leader, 1, "its leader was lost");
    ready_wait(&e, 3, 1);
    world_form(&e, 2, 2, 0, 1);
    elastic_end(&e, -1);
}

RANK_BODY(worn_out)
{
    CHECK_FAILS(hvd_init(NULL), HVD_ABORTED, "world 5 fails");
    stage_set(rank, 1);
}

/* A process is in the last world's rendezvous: one that breaks before is not counted. */
static void await_joined(struct elastic_world *e)
{
    const struct rdv_server *s = e->leader.servers[e->leader.n_servers - 1];
    uint64_t until = clock_now_ns() + PATIENCE_NS;

    while (rdv_server_joined(s) == 0 && clock_now_ns() < until)
        (void)sched_yield();
    assert_int_equal(rdv_server_joined(s), 1);
}

UNIT_TEST(after_some_worlds_that_do_not_form_init_fails)
{
    struct elastic_world e;

    elastic_start(&e, 1, worn_out);
    for (uint32_t i = 1; i <= 5; i++) {
        char why[40];

        (void)snprintf(why, sizeof(why), "world %u fails", i);
        ready_wait(&e, 1, i - 1);
        world_form(&e, i, 2, 0, 1);
        await_joined(&e);
        leader_break(&e.leader, i, why);
    }
    elastic_end(&e, -1);
}

/* --- what the program asks and says --- */

RANK_BODY(asking)
{
    struct hvd_progress commit = {.size_bytes = sizeof(commit),
                                  .step = -1,
                                  .total_steps = -1,
                                  .epoch = -1,
                                  .total_epochs = -1,
                                  .samples = -1,
                                  .is_commit = 1};
    int change = 0;

    CHECK(hvd_elastic_take_change() == 0 && hvd_elastic_has_new() == 0, "no world");
    CHECK_OK(hvd_init(NULL));
    expect_world(1 - rank, 2);
    CHECK(hvd_elastic_take_change() == 0, "nothing was announced");
    stage_set(rank, 1);
    while (!change)
        change = hvd_elastic_take_change();
    CHECK(change == HVD_ELASTIC_ADDED, "%d", change);
    CHECK(hvd_elastic_take_change() == 0, "it is cleared");
    CHECK_OK(hvd_progress(&commit));
    CHECK_OK(barrier_now("all have"));
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(changes_come_and_rank_0_says_what_is_saved)
{
    struct leader_event event;
    struct elastic_world e;

    elastic_start(&e, 2, asking);
    ready_wait(&e, 3, 0);
    world_form(&e, 9, 2, 1, 0);
    stage_wait(0, 1);
    stage_wait(1, 1);
    leader_notify(&e.leader, 8, 1);
    leader_notify(&e.leader, 9, 2);
    event = event_next(&e);
    assert_int_equal(event.message.type, MEMBER_COMMIT);
    assert_int_equal(event.message.generation, 9);
    assert_int_equal(event.slot, 1); /* which is rank 0 */
    assert_int_equal(event_next(&e).type, LEADER_GONE);
    assert_int_equal(event_next(&e).type, LEADER_GONE);
    elastic_end(&e, -1);
}

RANK_BODY(with_sets)
{
    static const int sizes[] = {2, 1, 1}, ranks[] = {0, 1, 2, 1};
    struct hvd_config c = {
        .size_bytes = sizeof(c), .n_sets = 3, .set_sizes = sizes, .set_ranks = ranks};
    int members[2] = {-1, -1};

    CHECK_OK(hvd_init(&c));
    CHECK(hvd_process_set_ids(NULL, 0) == 2, "%d sets", hvd_process_set_ids(NULL, 0));
    CHECK(hvd_process_set_ranks(1, members, 2) == 1 && members[0] == 1, "%d",
          members[0]);
    expect_world(rank, 2);
    CHECK_OK(hvd_shutdown());
}

/* {0, 1} is the world, and there is no rank 2. */
UNIT_TEST(sets_that_the_world_cannot_have_are_left_out)
{
    struct elastic_world e;

    elastic_start(&e, 2, with_sets);
    ready_wait(&e, 3, 0);
    world_form(&e, 1, 2, 0, 1);
    elastic_end(&e, -1);
}

RANK_BODY(choosy)
{
    static const int ranks[] = {0, 1};
    struct hvd_config c = {.size_bytes = sizeof(c), .n_ranks = 2, .ranks = ranks};

    CHECK_FAILS(hvd_init(&c), HVD_INVALID_ARGUMENT, "in an elastic job the launcher");
    (void)setenv("HVD_ELASTIC", "x", 1);
    CHECK_FAILS(hvd_init(NULL), HVD_INVALID_ARGUMENT, "HVD_ELASTIC=x is not NAME:SLOT");
    (void)unsetenv("HVD_ELASTIC");
    CHECK_FAILS(hvd_init(NULL), HVD_INVALID_ARGUMENT, "with horovodrun --min-np");
}

UNIT_TEST(what_an_elastic_job_does_not_have_is_refused)
{
    struct elastic_world e;

    elastic_start(&e, 1, choosy);
    elastic_end(&e, -1);
}

UNIT_MAIN(NULL, NULL)
