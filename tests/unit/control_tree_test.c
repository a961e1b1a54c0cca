/* SPDX-License-Identifier: Apache-2.0 */
/* The control tree with real connections between processes, by twos, so that 15 ranks
 * are four levels: who receives what, in which order, and one sentence whatever dies.
 *
 *               0
 *         1           2
 *      3     4     5     6
 *     7 8  9 10  11 12 13 14      (one host) */
#include <pthread.h>

#include "tests/unit/control_world.h"
#include "tests/unit/timed.h"
#include "tests/unit/torture.h"
#include "tests/unit/wire_server.h"

/* --- traffic --- */

static void everybody_talks(const char *hosts)
{
    uint32_t others;

    world_up(hosts);
    others = world.size - 1;
    for (uint32_t r = 1; r < world.size; r++)
        world_send_order(r, ORDER_UP, 300, 4 + r * 7, NULL);
    world_send_order(0, ORDER_DOWN, 500, 33, NULL);
    wait_for(&board->seen[0].n_ups, others * 300);
    for (uint32_t r = 1; r < world.size; r++)
        wait_for(&board->seen[r].n_downs, 500);
    world_close();
}

UNIT_TEST(all_messages_arrive_once_and_in_order)
{
    everybody_talks(one_host);
    everybody_talks(three_hosts);
    everybody_talks("abcabcabcabc");
    everybody_talks("ab");
}

/* Rank 1 is stopped while all below it speak: rank 0 gets that in a few frames, not in
 * one a message. */
UNIT_TEST(what_comes_together_travels_together)
{
    uint32_t before;

    world_up(one_host);
    for (uint32_t r = 3; r <= 4; r++)
        world_send_order(r, ORDER_UP, 1, 20, NULL);
    wait_for(&board->seen[0].n_ups, 2);
    before = atomic_load(&seen_of(0)->n_frames);
    assert_int_equal(kill(world.pid[1], SIGSTOP), 0);
    for (uint32_t r = 3; r <= 4; r++)
        world_send_order(r, ORDER_UP, 200, 20, NULL);
    for (uint32_t r = 3; r <= 4; r++)
        wait_for(&board->seen[r].n_done, 2);
    assert_int_equal(kill(world.pid[1], SIGCONT), 0);
    wait_for(&board->seen[0].n_ups, 402);
    assert_true(atomic_load(&seen_of(0)->n_frames) - before <= 10);
    world_close();
}

/* Each fits a frame, together they do not. */
UNIT_TEST(large_requests_pass_through)
{
    world_open(one_host);
    world.bundle_max = 120000;
    world_start();
    assert_int_equal(kill(world.pid[1], SIGSTOP), 0);
    for (uint32_t r = 3; r <= 4; r++) {
        world_send_order(r, ORDER_UP, 3, 50000, NULL);
        world_send_order(r, ORDER_UP, 30, 9000, NULL);
        world_send_order(r, ORDER_UP, 1, 119991, NULL); /* as large as may be */
        world_send_order(r, ORDER_UP, 1, 119992, NULL); /* more is refused */
    }
    for (uint32_t r = 3; r <= 4; r++)
        wait_for(&board->seen[r].n_done, 4);
    assert_int_equal(kill(world.pid[1], SIGCONT), 0);
    wait_for(&board->seen[0].n_ups, 68);
    world_send_order(0, ORDER_DOWN, 1, 1 << 20, NULL);
    for (uint32_t r = 1; r < world.size; r++)
        wait_for(&board->seen[r].n_downs, 1);
    assert_int_equal(atomic_load(&seen_of(0)->n_ups), 68);
    world_close();
}

UNIT_TEST(the_way_is_shown)
{
    world_up(one_host);
    assert_string_equal(seen_of(3)->transport[3], "self");
    assert_string_equal(seen_of(3)->transport[1], "unix");
    assert_string_equal(seen_of(3)->transport[8], "unix");
    assert_string_equal(seen_of(3)->transport[0], "via rank 1");
    assert_string_equal(seen_of(3)->transport[14], "via rank 1");
    assert_string_equal(seen_of(0)->transport[14], "via rank 2");
    assert_string_equal(seen_of(1)->transport[8], "via rank 3");
    world_close();
    world_up(three_hosts);
    assert_string_equal(seen_of(0)->transport[10], "tcp");
    assert_string_equal(seen_of(5)->transport[0], "tcp");
    assert_string_equal(seen_of(5)->transport[6], "unix");
    assert_string_equal(seen_of(9)->transport[0], "via rank 6");
    world_close();
}

/* --- deaths --- */

static const uint64_t SURELY_NS = 20 * NS_PER_S; /* silence ends it after 30 s */

/* Whether they knew in time. */
static bool
assert_cause(uint64_t dead, const char *want, uint64_t since_ns, uint64_t limit_ns)
{
    bool are_in_time = true;

    for (uint32_t r = 0; r < world.size; r++) {
        const struct seen *s = seen_of(r);

        if (dead >> r & 1)
            continue;
        wait_at(&s->stage, 3);
        if (strcmp(s->cause, want) != 0)
            fail_msg("rank %u says \"%s\", not \"%s\"", r, s->cause, want);
        if (s->over_ns > since_ns + limit_ns) {
            print_message("# rank %u knows after %.3f s\n", r,
                          (double)(s->over_ns - since_ns) / 1e9);
            are_in_time = false;
        }
    }
    return are_in_time;
}

static const char lost[] = " was lost: connection closed";

static bool is_reported_soon(const char *hosts, uint32_t who)
{
    uint64_t t0;

    world_up(hosts);
    t0 = clock_now_ns();
    assert_int_equal(kill(world.pid[who], SIGKILL), 0);
    bool is_soon =
        assert_cause(1u << who, rank_text(hosts[who], who, lost), t0, NS_PER_S);
    world_close();
    return is_soon;
}

static void kill_one(const char *hosts, uint32_t who)
{
    ASSERT_IN_TIME(is_reported_soon(hosts, who));
}

UNIT_TEST(a_rank_that_dies_is_named_by_all)
{
    for (uint32_t r = 0; r < 15; r++) /* 0, inner ranks of each level, leaves */
        kill_one(one_host, r);
    kill_one(three_hosts, 5); /* the head of a host */
    kill_one(three_hosts, 9);
    kill_one(three_hosts, 0);
    kill_one("abcdefghijklmno", 1); /* every host apart */
    kill_one("abcdefghijklmno", 0);
    kill_one("ab", 0);
    kill_one("ab", 1);
}

/* A failure that the death of another explains: a leaf's neighbour of the data path has
 * died, and the leaf speaks first. */
UNIT_TEST(the_dead_rank_is_named_not_the_one_that_noticed)
{
    static const uint32_t dead[] = {9, 1, 2, 6};

    for (size_t i = 0; i < ARRAY_LEN(dead); i++) {
        uint64_t t0;

        world_up(one_host);
        t0 = clock_now_ns();
        world_send_order(14, ORDER_SUSPECT, 0, 0, "broken pipe");
        assert_int_equal(kill(world.pid[dead[i]], SIGKILL), 0);
        assert_true(
            assert_cause(1u << dead[i], rank_text('a', dead[i], lost), t0, SURELY_NS));
        world_close();
    }
}

/* What a rank does ends the world, of which all but the dead give this cause. */
static void check_order(uint32_t rank,
                        enum order_kind kind,
                        uint32_t arg,
                        const char *text,
                        uint64_t dead,
                        const char *want)
{
    world_up(one_host);
    world_send_order(rank, kind, arg, 0, text);
    assert_true(assert_cause(dead, want, clock_now_ns(), SURELY_NS));
    world_close();
}

UNIT_TEST(a_failure_without_a_death_is_the_cause)
{
    static const uint32_t ranks[] = {14, 5, 1, 0};

    for (size_t i = 0; i < ARRAY_LEN(ranks); i++)
        check_order(ranks[i], ORDER_SUSPECT, 0, "no memory", 0,
                    rank_text('a', ranks[i], ": no memory"));
}

UNIT_TEST(an_abort_reaches_every_rank)
{
    static const uint32_t ranks[] = {14, 1};

    for (size_t i = 0; i < ARRAY_LEN(ranks); i++)
        check_order(ranks[i], ORDER_ABORT, 0, "it ends", 0,
                    rank_text('a', ranks[i], ": it ends"));
    check_order(0, ORDER_ABORT, 0, "it ends", 0, "it ends");
}

/* Two at once may cut the tree: everybody names one of them. */
UNIT_TEST(two_deaths_at_once_end_the_world_too)
{
    static const uint32_t pairs[][2] = {{1, 2}, {1, 4}, {3, 14}, {0, 6}, {0, 1}};

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        uint64_t t0;

        world_up(one_host);
        t0 = clock_now_ns();
        for (int k = 0; k < 2; k++)
            assert_int_equal(kill(world.pid[pairs[i][k]], SIGKILL), 0);
        for (uint32_t r = 0; r < world.size; r++) {
            const struct seen *s = seen_of(r);

            if (r == pairs[i][0] || r == pairs[i][1])
                continue;
            wait_at(&s->stage, 3);
            assert_true(strcmp(s->cause, rank_text('a', pairs[i][0], lost)) == 0
                        || strcmp(s->cause, rank_text('a', pairs[i][1], lost)) == 0);
            assert_true(s->over_ns < t0 + SURELY_NS);
        }
        world_close();
    }
}

/* --- silence --- */

static void stop_one(uint32_t who)
{
    uint64_t t0;

    world_open(one_host);
    world.timeout_ns = 3 * NS_PER_S; /* on a busy machine others may pause */
    world_start();
    if (who > 0) { /* so that it is the last that those above it receive from */
        world_send_order(who, ORDER_UP, 1, 0, NULL);
        wait_for(&board->seen[0].n_ups, 1);
    }
    t0 = clock_now_ns();
    assert_int_equal(kill(world.pid[who], SIGSTOP), 0);
    assert_true(assert_cause(
        1u << who, rank_text('a', who, " was lost: silent for 3 s (HVD_PEER_TIMEOUT)"),
        t0, SURELY_NS));
    /* Rank 0 has judged before those below give up: what they do then is explained. */
    if (who > 0 && 2 * who + 1 < world.size)
        assert_true(seen_of(0)->over_ns <= seen_of(2 * who + 1)->over_ns);
    for (uint32_t r = 0; r < world.size; r++)
        assert_true(r == who || seen_of(r)->over_ns > t0 + 1500 * NS_PER_MS);
    world_close();
}

UNIT_TEST(a_stopped_rank_is_named_by_all)
{
    static const uint32_t ranks[] = {0, 1, 6, 14};

    for (size_t i = 0; i < ARRAY_LEN(ranks); i++)
        stop_one(ranks[i]);
}

/* Those below a silent rank do not receive rank 0's verdict, but see what other ranks
 * then give up. That is no cause. */
UNIT_TEST(silence_above_explains_a_failure)
{
    static const char want[] =
        "rank 1 (host a, pid 1001) was lost: silent for 6 s (HVD_PEER_TIMEOUT)";
    uint64_t t0, half;

    world_open(one_host);
    world.timeout_ns = 6 * NS_PER_S;
    world_start();
    t0 = clock_now_ns();
    assert_int_equal(kill(world.pid[1], SIGSTOP), 0);
    half = t0 + 3300 * NS_PER_MS; /* time itself is what is waited for */
    while (clock_now_ns() < half)
        (void)poll(NULL, 0, clock_left_ms(half));
    world_send_order(4, ORDER_SUSPECT, 0, 0, "broken pipe");
    wait_at(&board->seen[4].stage, 3);
    wait_at(&board->seen[10].stage, 3);
    assert_string_equal(seen_of(4)->cause, want);
    assert_string_equal(seen_of(10)->cause, want);
    assert_true(seen_of(10)->over_ns < t0 + world.timeout_ns);
    assert_true(assert_cause(1u << 1, want, t0, SURELY_NS));
    world_close();
}

/* --- those who break the rules --- */

UNIT_TEST(a_rank_speaks_for_those_below_it_only)
{
    static const uint32_t origins[] = {0, 6, 13, 99};

    for (size_t i = 0; i < ARRAY_LEN(origins); i++)
        check_order(14, ORDER_FORGE, origins[i], NULL, 1u << 14,
                    "rank 14 (host a, pid 1014) was lost: its control frame failed the "
                    "check");
}

UNIT_TEST(an_answer_that_one_cannot_take_ends_the_world)
{
    world_open(one_host);
    world.deaf = 5;
    world_start();
    world_send_order(0, ORDER_DOWN, 1, 9, NULL);
    assert_true(assert_cause(0, "rank 5 (host a, pid 1005): an unknown answer",
                             clock_now_ns(), SURELY_NS));
    world_close();
}

/* --- joining --- */

UNIT_TEST(a_rank_that_never_joins_is_named)
{
    world_open(one_host);
    world.absent = 11;
    world.join_ns = NS_PER_S / 2;
    world_fork();
    all_reach(3);
    assert_int_equal(seen_of(5)->join_status, -ETIMEDOUT);
    assert_string_equal(
        seen_of(5)->cause,
        "rank 5 timed out waiting for the control connection of 1 rank: "
        "11");
    assert_string_equal(seen_of(7)->cause,
                        "rank 5 (host a, pid 1005): rank 5 timed out waiting for the "
                        "control connection of 1 rank: 11");
    assert_string_equal(seen_of(12)->cause, seen_of(7)->cause);
    world_close();
}

/* Accepts one connection, proves who it is, and ends. */
static _Noreturn void parent_main(int listener, const struct auth_id *id)
{
    struct admitted m;

    _exit(admit_one(listener, ROLE_COORDINATOR, ROLE_CONTROL, id,
                    clock_now_ns() + SURELY_NS, &m));
}

/* The launcher reads this sentence and reports rank 0 as the cause, whichever rank it
 * reaps first. */
UNIT_TEST(a_parent_that_ends_while_a_rank_joins_is_named)
{
    CLEANUP(strbuf_release) struct strbuf hello = {0};
    struct control_config cfg = {.rank = 1,
                                 .size = 2,
                                 .fanout = 2,
                                 .peer_timeout_ns = SURELY_NS,
                                 .members = world.members};
    struct err err = ERR_INIT;
    struct control *c;
    uint16_t port = 0;
    int fd = -1, rc;
    pid_t parent;

    world_open(one_host);
    cfg.id = (struct auth_id){&world.token, "unit/control", 0};
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, NULL), 0);
    parent = fork();
    assert_true(parent >= 0);
    if (parent == 0)
        parent_main(fd, &cfg.id);
    fd_close(&fd);
    strbuf_init(&hello, HELLO_MAX);
    bytes_put_name(&hello, "127.0.0.1", 64);
    bytes_put(&hello, port, 2);
    bytes_put_name(&hello, "", 2); /* no Unix socket */
    assert_int_equal(control_open(&cfg, "127.0.0.1", &c, NULL), 0);
    rc = control_join(c, (const uint8_t *)strbuf_str(&hello), hello.n,
                      clock_now_ns() + SURELY_NS, &err);
    assert_true(rc == -EPIPE || rc == -ECONNRESET);
    assert_string_equal(err.text, "rank 0 (host a, pid 1000) was lost: it closed the "
                                  "connection while this rank joined");
    control_close(c);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
}

/* --- the launcher says that the world is over --- */

static const char no_use[] = "the launcher has no use for it";

static void *break_main(void *arg)
{
    control_break(arg, no_use);
    control_break(arg, "a second reason");
    return NULL;
}

/* It joins without an end, and control_break is called meanwhile. */
static void join_is_broken(struct control *c, const struct strbuf *hello)
{
    struct err err = ERR_INIT;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, break_main, c), 0);
    assert_int_equal(
        control_join(c, (const uint8_t *)strbuf_str(hello), hello->n, UINT64_MAX, &err),
        -ECONNABORTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(err.text, no_use);
}

/* Rank 0 waits for a rank that does not come. */
UNIT_TEST(a_broken_world_ends_the_wait_for_children)
{
    struct control_config cfg = {.rank = 0,
                                 .size = 2,
                                 .fanout = 2,
                                 .peer_timeout_ns = SURELY_NS,
                                 .members = world.members};
    CLEANUP(strbuf_release) struct strbuf hello = {0};
    struct err err = ERR_INIT;
    struct control *c;

    world_open(one_host);
    cfg.id = (struct auth_id){&world.token, "unit/control", 0};
    assert_int_equal(control_open(&cfg, "127.0.0.1", &c, NULL), 0);
    assert_int_equal(control_listen(c, NULL), 0);
    strbuf_init(&hello, HELLO_MAX);
    control_hello(c, &hello);
    join_is_broken(c, &hello);
    assert_int_equal(control_pump(c, &err), -ECONNABORTED);
    assert_string_equal(err.text, no_use);
    control_close(c);
}

/* Rank 1 waits for its parent, whose host is silent: the connection is in its backlog. */
UNIT_TEST(a_broken_world_ends_the_wait_for_the_parent)
{
    struct control_config cfg = {
        .size = 2, .fanout = 2, .peer_timeout_ns = SURELY_NS, .members = world.members};
    CLEANUP(strbuf_release) struct strbuf hello = {0};
    struct control *parent, *c;

    world_open(one_host);
    cfg.id = (struct auth_id){&world.token, "unit/control", 0};
    assert_int_equal(control_open(&cfg, "127.0.0.1", &parent, NULL), 0);
    assert_int_equal(control_listen(parent, NULL), 0);
    strbuf_init(&hello, HELLO_MAX);
    control_hello(parent, &hello);
    cfg.rank = 1;
    assert_int_equal(control_open(&cfg, "127.0.0.1", &c, NULL), 0);
    join_is_broken(c, &hello);
    control_close(c);
    control_close(parent);
}

/* --- memory --- */

static int open_and_close(void *arg)
{
    struct control_config cfg = {.rank = 1,
                                 .size = world.size,
                                 .fanout = 2,
                                 .id = {&world.token, "unit/control", 0},
                                 .peer_timeout_ns = NS_PER_S,
                                 .members = world.members};
    struct control *c;
    int rc = control_open(&cfg, "127.0.0.1", &c, NULL);

    (void)arg;
    if (rc == 0)
        control_close(c);
    return rc;
}

UNIT_TEST(memory_may_be_out)
{
    world_open(three_hosts);
    torture(open_and_close, NULL);
}

UNIT_TEST(a_fanout_out_of_range_is_refused)
{
    struct control_config cfg = {.size = 2, .fanout = 1};
    struct control *c;
    struct err err;

    assert_int_equal(control_open(&cfg, "127.0.0.1", &c, &err), -EINVAL);
    assert_string_equal(err.text,
                        "rank 0's HVD_CONTROL_FANOUT is 1, 2 to 64 is allowed");
}

UNIT_MAIN(NULL, NULL)
