/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers over real sockets, with a clock of the test's own. A stranger is admitted when
 * it sends 'x'; 'o' asks for an answer that fills the socket. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/door.h"

enum { CLIENTS = 600, LIMIT = 40 };

struct scene {
    struct door *door;
    int listen_fd;
    uint16_t port;
    uint64_t now_ns;
    int client[CLIENTS];
    size_t n;
    int admitted[CLIENTS];
    size_t n_admitted, n_released;
};
static struct scene scene;

static int scene_step(void *arg, struct stranger *s, struct err *err)
{
    struct scene *c = arg;
    char letter = 0;
    ssize_t n = read(s->fd, &letter, 1);

    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return -EPIPE;
    s->has_sent = true;
    if (letter == 'x') {
        c->admitted[c->n_admitted++] = stranger_take(s);
        return 0;
    }
    return letter == '.' ? 0 : err_set(err, -EPROTO, "letter %c", letter);
}

static void scene_release(struct stranger *s)
{
    (void)s;
    scene.n_released++;
}

static void scene_open(size_t max)
{
    const struct door_kind kind = {.name = "test",
                                   .data_bytes = 1,
                                   .max = max,
                                   .step = scene_step,
                                   .release = scene_release};

    scene = (struct scene){.listen_fd = -1, .now_ns = 1000 * NS_PER_S};
    assert_int_equal(tcp_listen("0.0.0.0", 0, &scene.listen_fd, &scene.port, NULL), 0);
    assert_int_equal(door_open(&kind, &scene.door, NULL), 0);
    assert_int_equal(door_listen(scene.door, scene.listen_fd, false, NULL), 0);
}

static void scene_close(void)
{
    door_close(scene.door);
    fd_close(&scene.listen_fd);
    for (size_t i = 0; i < scene.n; i++)
        fd_close(&scene.client[i]);
    for (size_t i = 0; i < scene.n_admitted; i++)
        fd_close(&scene.admitted[i]);
}

/* Serves until nothing is ready. */
static void scene_serve(void)
{
    struct pollfd p = {.fd = door_fd(scene.door), .events = POLLIN};

    do
        door_serve(scene.door, &scene, scene.now_ns);
    while (poll(&p, 1, 0) > 0);
}

/* A client from 127.0.0.host; connect returns when it is in the backlog. */
static size_t scene_dial(uint8_t host)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(scene.port)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(0x7f000001);
    from.sin_addr.s_addr = htonl(0x7f000000u | host);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    scene.client[scene.n] = fd;
    return scene.n++;
}

static void scene_send(size_t i, char letter)
{
    assert_int_equal(send(scene.client[i], &letter, 1, MSG_NOSIGNAL), 1);
}

static bool is_closed(size_t i)
{
    char c;
    ssize_t n = recv(scene.client[i], &c, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static size_t count_closed(size_t from, size_t to)
{
    size_t n = 0;

    for (size_t i = from; i < to; i++)
        n += is_closed(i);
    return n;
}

UNIT_TEST(a_member_is_admitted_and_counts_no_longer)
{
    scene_open(0);
    for (int i = 0; i < 100; i++)
        scene_send(scene_dial(1), 'x');
    scene_serve();
    assert_int_equal(scene.n_admitted, 100);
    assert_int_equal(scene.n_released, 100);
    assert_int_equal(door_next_ns(scene.door), UINT64_MAX);
    assert_int_equal(count_closed(0, 100), 0);
    scene_close();
}

UNIT_TEST(a_wrong_letter_is_refused_and_named)
{
    scene_open(0);
    scene_send(scene_dial(1), 'q');
    scene_serve();
    assert_true(is_closed(0));
    assert_string_equal(door_last_refusal(scene.door), "letter q");
    scene_close();
}

UNIT_TEST(the_silent_have_3_s_and_the_slow_10)
{
    scene_open(0);
    (void)scene_dial(1);
    scene_send(scene_dial(1), '.');
    scene_serve();
    assert_int_equal(door_next_ns(scene.door), scene.now_ns + DOOR_FIRST_BYTE_NS);
    scene.now_ns += DOOR_FIRST_BYTE_NS - 1;
    scene_serve();
    assert_int_equal(count_closed(0, 2), 0);
    scene.now_ns += 1;
    scene_serve();
    assert_true(is_closed(0));
    assert_false(is_closed(1));
    scene_send(1, '.'); /* dripping does not help */
    scene.now_ns += DOOR_TOTAL_NS - DOOR_FIRST_BYTE_NS;
    scene_serve();
    assert_true(is_closed(1));
    scene_close();
}

UNIT_TEST(the_oldest_of_the_address_with_the_most_is_closed)
{
    scene_open(LIMIT);
    (void)scene_dial(2); /* the oldest, but alone */
    for (int i = 1; i < LIMIT; i++)
        (void)scene_dial(1);
    scene_serve();
    (void)scene_dial(3);
    scene.now_ns += DOOR_GRACE_NS;
    scene_serve();
    assert_false(is_closed(0));
    assert_true(is_closed(1));
    assert_int_equal(count_closed(0, scene.n), 1);
    scene_send(LIMIT, 'x');
    scene_serve();
    assert_int_equal(scene.n_admitted, 1);
    scene_close();
}

UNIT_TEST(a_stranger_has_its_grace_and_the_backlog_waits)
{
    size_t late;

    scene_open(LIMIT);
    for (int i = 0; i < LIMIT; i++)
        (void)scene_dial(1);
    scene_serve();
    late = scene_dial(1);
    scene_send(late, 'x');
    scene_serve(); /* ends: listening pauses, there is no busy loop */
    assert_int_equal(scene.n_admitted, 0);
    assert_int_equal(door_next_ns(scene.door), scene.now_ns + DOOR_GRACE_NS);
    scene_send(3, 'x'); /* one leaves: listening resumes at once */
    scene_serve();
    assert_int_equal(scene.n_admitted, 2);
    assert_int_equal(count_closed(0, scene.n), 0);
    scene_close();
}

/* The server was busy: bytes that have arrived are read before a stranger is closed. */
UNIT_TEST(a_stranger_whose_last_bytes_have_arrived_is_admitted_not_closed)
{
    scene_open(LIMIT);
    for (int i = 0; i < LIMIT; i++)
        (void)scene_dial(1);
    scene_serve();
    (void)scene_dial(1);
    for (int i = 0; i < LIMIT; i++)
        scene_send((size_t)i, 'x');
    scene.now_ns += DOOR_TOTAL_NS;
    scene_serve();
    assert_int_equal(scene.n_admitted, LIMIT);
    assert_int_equal(count_closed(0, scene.n), 0);
    scene_close();
}

UNIT_TEST(five_hundred_strangers_keep_no_member_out)
{
    scene_open(LIMIT);
    for (int i = 0; i < 500; i++)
        (void)scene_dial(1);
    (void)scene_dial(1);
    scene_send(500, 'x');
    for (int turn = 0; scene.n_admitted == 0; turn++) {
        scene_serve();
        scene.now_ns += DOOR_GRACE_NS;
        assert_true(turn < 20); /* 4 s of the test's clock */
    }
    scene_close();
}

UNIT_TEST(with_room_for_few_a_crowd_waits_in_the_backlog)
{
    scene_open(0);
    door_set_room(scene.door, 8);
    for (int i = 0; i < 50; i++)
        (void)scene_dial(1);
    scene_send(49, 'x');
    scene_serve(); /* 0 to 7 are in */
    assert_int_equal(door_next_ns(scene.door), scene.now_ns + DOOR_STUCK_NS);
    for (size_t i = 0; i < 41; i++) {
        scene.now_ns += DOOR_STUCK_NS / 4;
        scene_send(i, 'x'); /* one leaves, and one comes */
        scene_serve();
        assert_int_equal(scene.n_admitted, i + 1);
    }
    scene_send(41, 'x');
    scene_serve();
    assert_int_equal(scene.n_admitted, 43);
    scene_close();
}

UNIT_TEST(the_room_for_strangers_that_are_stuck_is_doubled)
{
    scene_open(0);
    door_set_room(scene.door, 8);
    for (int i = 0; i < 40; i++) {
        (void)scene_dial(1);
        scene_send((size_t)i, '.');
    }
    (void)scene_dial(1);
    scene_send(40, 'x');
    for (size_t n = 8; n < 64; n *= 2) {
        scene_serve();
        assert_int_equal(scene.n_admitted, 0);
        scene.now_ns += DOOR_STUCK_NS;
    }
    scene_serve();
    assert_int_equal(scene.n_admitted, 1);
    for (size_t i = 0; i < 40; i++) /* all leave: 8 again */
        scene_send(i, 'x');
    scene_serve();
    assert_int_equal(scene.n_admitted, 41);
    for (int i = 0; i < 20; i++)
        (void)scene_dial(1);
    scene_send(60, 'x');
    scene_serve();
    assert_int_equal(scene.n_admitted, 41);
    scene_close();
}

/* Strangers that come and go: none is taken, so the room grows. */
UNIT_TEST(strangers_that_leave_are_no_progress)
{
    size_t n = 0;

    scene_open(0);
    door_set_room(scene.door, 8);
    for (; n < 100; n++)
        (void)scene_dial(1);
    (void)scene_dial(1);
    scene_send(n, 'x');
    for (size_t i = 0; scene.n_admitted == 0; i++) {
        assert_true(i < 40);
        scene_serve();
        fd_close(&scene.client[i]); /* one leaves, and one comes */
        scene.now_ns += DOOR_STUCK_NS / 4;
    }
    scene_close();
}

/* The process has no descriptor left. */
UNIT_TEST(without_descriptors_the_oldest_is_closed_or_listening_pauses)
{
    struct rlimit old, few;
    int probe;

    scene_open(0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    (void)scene_dial(1);
    scene_serve();
    (void)scene_dial(1);
    scene_send(1, 'x');
    probe = dup(0);
    assert_true(probe >= 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)probe, .rlim_max = old.rlim_max};
    (void)close(probe);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    scene_serve(); /* ends */
    assert_int_equal(scene.n_admitted, 0);
    scene.now_ns += DOOR_GRACE_NS;
    scene_serve(); /* the silent one is closed, the other takes its descriptor */
    assert_int_equal(scene.n_admitted, 1);
    assert_true(is_closed(0));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    (void)scene_dial(1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    scene_serve(); /* no stranger to close: it pauses */
    assert_int_equal(door_next_ns(scene.door), scene.now_ns + DOOR_PAUSE_NS);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    scene_send(2, 'x');
    scene.now_ns += DOOR_PAUSE_NS;
    scene_serve();
    assert_int_equal(scene.n_admitted, 2);
    scene_close();
}

UNIT_TEST(closing_drops_all_strangers)
{
    scene_open(0);
    for (int i = 0; i < 20; i++)
        (void)scene_dial(1);
    scene_serve();
    door_close(scene.door);
    scene.door = NULL;
    assert_int_equal(count_closed(0, 20), 20);
    assert_int_equal(scene.n_released, 20);
    scene_close();
}

UNIT_MAIN(NULL, NULL)
