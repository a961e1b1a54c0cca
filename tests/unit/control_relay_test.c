/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between two ranks damages the stream of their control connection at a seeded
 * place, from the handshake on. Each rank then receives all messages, as they were sent,
 * or has an error that names its peer; no rank waits without end. RELAY_RUNS: how many
 * places; RELAY_SEED: others. */
#include <sys/socket.h>

#include "tests/unit/control_world.h"
#include "tests/unit/damage.h"

enum { MESSAGES = 5, BYTES = 200, STREAM = 1600 /* about the bytes of each way */ };

static void relay_write(int fd, const uint8_t *p, size_t n)
{
    if (fd_write_full(fd, p, n, UINT64_MAX) < 0)
        _exit(0);
}

static int relay_reach_rank_0(void)
{
    const struct seen *s = &board->seen[0];
    struct control_address a;
    int fd = -1;

    if (address_read(s->hello, s->n_hello, 0, &a, NULL) < 0
        || tcp_connect(a.addr, a.port, clock_now_ns() + 20 * NS_PER_S, true, &fd, NULL)
               < 0
        || fd_nonblock(fd, false) < 0)
        _exit(1);
    return fd;
}

/* way: the side that is damaged; 0: what rank 1 sends. */
static _Noreturn void relay_main(int listen_fd, const struct damage *d, uint32_t way)
{
    static uint8_t p[65536], damaged[65536 + DAMAGE_MAX];
    uint64_t seen = 0;
    int fd[2];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    fd[0] = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd[0] < 0)
        _exit(1);
    fd_close(&listen_fd); /* a second connection is refused, as by a rank that ended */
    fd[1] = relay_reach_rank_0();
    for (;;) {
        struct pollfd polls[2] = {{.fd = fd[0], .events = POLLIN},
                                  {.fd = fd[1], .events = POLLIN}};

        (void)poll(polls, 2, -1);
        for (uint32_t i = 0; i < 2; i++) {
            ssize_t n;

            if (polls[i].revents == 0)
                continue;
            n = recv(fd[i], p, sizeof(p), 0);
            if (n <= 0)
                _exit(0);
            if (i != way) {
                relay_write(fd[1 - i], p, (size_t)n);
                continue;
            }
            relay_write(fd[1 - i], damaged,
                        damage_apply(d, seen, p, (size_t)n, damaged));
            seen += (uint64_t)n;
        }
    }
}

static bool rank_has_failed(uint32_t rank)
{
    return atomic_load(&seen_of(rank)->stage) >= 3;
}

static bool rank_has_all(uint32_t rank)
{
    const struct seen *s = seen_of(rank);

    return atomic_load(rank == 0 ? &s->n_ups : &s->n_downs) == MESSAGES;
}

static bool rank_names_peer(uint32_t rank)
{
    const char *cause = seen_of(rank)->cause;

    return rank == 1 ? strstr(cause, "rank 0") != NULL
                     : strstr(cause, "rank 1") || strstr(cause, "1 rank: 1");
}

static void wait_until_settled(bool (*is_settled)(uint32_t))
{
    uint64_t deadline = clock_now_ns() + LIMIT_S * NS_PER_S;

    for (uint32_t r = 0; r < 2; r++)
        while (!is_settled(r) && clock_now_ns() < deadline)
            (void)poll(NULL, 0, 1);
}

static bool rank_has_joined_or_failed(uint32_t rank)
{
    return atomic_load(&seen_of(rank)->stage) >= 2;
}

static bool rank_is_over(uint32_t rank)
{
    return rank_has_failed(rank) || rank_has_all(rank);
}

static void relay_world(const struct damage *d, uint32_t way)
{
    int fd = -1;
    pid_t relay;

    world_open("ab");
    world.timeout_ns = 200 * NS_PER_MS;
    world.join_ns = 500 * NS_PER_MS;
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &world.via_port, NULL), 0);
    assert_int_equal(fd_nonblock(fd, false), 0);
    relay = fork();
    assert_true(relay >= 0);
    if (relay == 0)
        relay_main(fd, d, way);
    fd_close(&fd);
    world_fork();
    wait_until_settled(rank_has_joined_or_failed);
    if (!rank_has_failed(0) && !rank_has_failed(1)) {
        world_send_order(1, ORDER_UP, MESSAGES, BYTES, NULL);
        world_send_order(0, ORDER_DOWN, MESSAGES, BYTES, NULL);
    }
    wait_until_settled(rank_is_over);
    for (uint32_t r = 0; r < 2; r++)
        if (!rank_has_all(r) && !rank_names_peer(r))
            fail_msg("damage %d, way %u, at %llu, %u bytes: rank %u is at %u: %s",
                     d->kind, way, (unsigned long long)d->at, d->n, r,
                     atomic_load(&seen_of(r)->stage), seen_of(r)->cause);
    world_close();
    (void)kill(relay, SIGKILL);
    assert_int_equal(waitpid(relay, NULL, 0), relay);
}

UNIT_TEST(damage_is_an_error_that_names_the_peer)
{
    struct seeded r = {damage_number("RELAY_SEED", 1)};
    uint32_t n_failed = 0, n = damage_number("RELAY_RUNS", 60 / FEWER);

    for (uint32_t i = 0; i < n; i++) {
        struct damage d = damage_choose(&r, STREAM);

        relay_world(&d, seeded_below(&r, 2));
        n_failed += rank_has_failed(0) || rank_has_failed(1);
    }
    assert_true(n_failed > n / 2); /* the rest was behind the last message */
}

UNIT_MAIN(NULL, NULL)
