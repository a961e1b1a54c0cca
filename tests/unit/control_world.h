/* SPDX-License-Identifier: Apache-2.0 */
/* A world of control channels for the control_*_test.c programs: each rank is a process
 * with nothing but its channel, the parent a person who gives them orders and looks at
 * what they have seen, both through shared memory. The hosts are names only, so that
 * any shape can be had. Pids in sentences are 1000 + rank. */
#ifndef TESTS_UNIT_CONTROL_WORLD_H
#define TESTS_UNIT_CONTROL_WORLD_H

#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/control/address.h"
#include "runtime/control/tree.h"
#include "tests/unit/unit.h"

enum { RANKS_MAX = 16, CHILD_LIMIT_S = 60, HELLO_MAX = 256, LIMIT_S = 30 };

/* In trees by twos: four levels, and one of hosts above two within each. */
static const char one_host[] = "aaaaaaaaaaaaaaa";
static const char three_hosts[] = "aaaaabbbbbccccc";

enum order_kind {
    ORDER_NONE,
    ORDER_UP,      /* arg messages of `bytes` bytes */
    ORDER_DOWN,    /* rank 0: as above */
    ORDER_LEAVE,   /* arg: enum leave_reason; text: how it failed */
    ORDER_HURRY,   /* leaves and closes without waiting for anything */
    ORDER_SUSPECT, /* with text */
    ORDER_ABORT,   /* with text */
    ORDER_REPORT,  /* its totals */
    ORDER_FORGE,   /* an item in the name of rank arg */
    ORDER_RAW,     /* a goodbye with text as it is */
    ORDER_CLOSE,   /* closes and ends */
};

/* What a rank shows; written by it, read by the parent. */
struct seen {
    _Atomic uint32_t stage; /* 1 listens, 2 has joined, 3 its world is over, 4 closed */
    _Atomic uint32_t n_ups, n_downs, n_reports, n_done; /* n_done: orders carried out */
    _Atomic uint32_t n_wrong;  /* messages out of order or bent */
    _Atomic uint32_t n_frames; /* from below, of all kinds */
    _Atomic uint32_t n_open;   /* connections */
    _Atomic uint32_t n_ended;  /* goodbyes: once, and nothing after it */
    _Atomic uint32_t is_suspicious, has_reports;
    uint64_t over_ns;
    int join_status;
    char cause[CAUSE_BYTES], ended[CAUSE_BYTES];
    bool is_end_failure;
    uint8_t hello[HELLO_MAX];
    uint32_t n_hello;
    char transport[RANKS_MAX][24];
};
struct order {
    _Atomic uint32_t seq;
    enum order_kind kind;
    uint32_t arg, bytes;
    char text[400];
};
struct board {
    _Atomic uint32_t may_join;
    struct seen seen[RANKS_MAX];
    struct order order[RANKS_MAX];
};
static struct board *board;

struct control_world {
    uint32_t size, fanout, absent; /* absent: a rank that listens and never joins */
    uint32_t deaf;                 /* its down handler fails */
    uint32_t bundle_max;           /* 0: a frame */
    uint16_t via_port;             /* of a relay before rank 0, for rank 1; 0: none */
    uint64_t timeout_ns, join_ns;
    struct control_member members[RANKS_MAX];
    struct token token;
    pid_t pid[RANKS_MAX];
    int bell[RANKS_MAX]; /* an order waits */
};
static struct control_world world;

/* --- a rank --- */

struct rank_self {
    struct control *c;
    struct seen *seen;
    uint32_t rank, n_sent, next_up[RANKS_MAX], next_down;
    uint8_t *buf; /* of the largest message */
};
enum { BUF_BYTES = 1 << 20 };

static int on_up(void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err)
{
    struct rank_self *s = arg;
    uint32_t seq = 0, frames = 0;

    (void)err;
    memcpy(&seq, p, n < 4 ? n : 4);
    if (n < 4 || seq != s->next_up[rank]++ || (n > 4 && p[n - 1] != (uint8_t)rank))
        atomic_fetch_add(&s->seen->n_wrong, 1);
    for (uint32_t i = 1; i < s->c->n_edges; i++)
        frames += (uint32_t)s->c->edges[i].conn.recv.n;
    atomic_store(&s->seen->n_frames, frames);
    atomic_fetch_add(&s->seen->n_ups, 1);
    return 0;
}

static int on_down(void *arg, const uint8_t *p, size_t n, struct err *err)
{
    struct rank_self *s = arg;
    uint32_t seq = 0;

    if (s->rank == world.deaf)
        return err_set(err, -EPROTO, "an unknown answer");
    memcpy(&seq, p, n < 4 ? n : 4);
    if (n < 4 || seq != s->next_down++)
        atomic_fetch_add(&s->seen->n_wrong, 1);
    atomic_fetch_add(&s->seen->n_downs, 1);
    return 0;
}

static void on_ended(void *arg, const char *who, bool is_failure)
{
    struct rank_self *s = arg;

    if (atomic_load(&s->seen->n_ended) > 0)
        atomic_fetch_add(&s->seen->n_wrong, 1);
    (void)snprintf(s->seen->ended, CAUSE_BYTES, "%s", who);
    s->seen->is_end_failure = is_failure;
    s->seen->over_ns = clock_now_ns();
    atomic_fetch_add(&s->seen->n_ended, 1);
}

static void on_report(void *arg, uint32_t rank, const uint8_t *p, size_t n)
{
    struct rank_self *s = arg;
    bool is_ok = s->rank == 0 && n == 4 && bytes_load_u32(p) == rank;

    atomic_fetch_add(is_ok ? &s->seen->n_reports : &s->seen->n_wrong, 1);
}

static void send_many(struct rank_self *s, bool is_up, uint32_t k, uint32_t bytes)
{
    uint32_t n = bytes < 4 ? 4 : bytes;

    for (; k > 0; k--) {
        s->buf[n - 1] = (uint8_t)s->rank;
        memcpy(s->buf, &s->n_sent, 4);
        s->n_sent++;
        (void)(is_up ? control_up(s->c, s->buf, n) : control_down(s->c, s->buf, n));
    }
}

static void close_and_go(struct rank_self *s)
{
    control_close(s->c);
    atomic_store(&s->seen->stage, 4);
    _exit(0);
}

static void self_leave(struct rank_self *s, const struct order *o)
{
    struct leave l = {.why = (enum leave_reason)o->arg};

    (void)snprintf(l.how, sizeof(l.how), "%.*s", (int)sizeof(l.how) - 1, o->text);
    control_leave(s->c, &l);
}

static void self_run_order(struct rank_self *s)
{
    struct order *o = &board->order[s->rank];
    const struct up_item lie = {UP_WORK, o->arg, "lies", 4};
    uint64_t dummy;

    (void)!read(world.bell[s->rank], &dummy, sizeof(dummy));
    switch (o->kind) {
    case ORDER_NONE:
        break;
    case ORDER_UP:
    case ORDER_DOWN:
        send_many(s, o->kind == ORDER_UP, o->arg, o->bytes);
        break;
    case ORDER_LEAVE:
        self_leave(s, o);
        break;
    case ORDER_HURRY:
        self_leave(s, o);
        close_and_go(s);
        break;
    case ORDER_SUSPECT:
        control_suspect(s->c, o->text);
        break;
    case ORDER_ABORT:
        control_abort(s->c, o->text);
        break;
    case ORDER_REPORT:
        control_report(s->c, &s->rank, 4);
        break;
    case ORDER_FORGE:
        (void)tree_put_up(s->c, &lie);
        (void)tree_flush_up(s->c);
        break;
    case ORDER_RAW:
        (void)tree_put_up(
            s->c, &(struct up_item){UP_LEAVE, s->rank, o->text, strlen(o->text)});
        (void)tree_flush_up(s->c);
        break;
    case ORDER_CLOSE:
        close_and_go(s);
        break;
    }
    atomic_fetch_add(&s->seen->n_done, 1);
}

static void self_publish(struct rank_self *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->c->n_edges; i++)
        n += s->c->edges[i].conn.fd >= 0;
    atomic_store(&s->seen->is_suspicious, s->c->suspect_until_ns > 0);
    atomic_store(&s->seen->n_open, n);
    atomic_store(&s->seen->has_reports, !control_awaits_reports(s->c));
}

static void self_run(struct rank_self *s)
{
    struct err err = ERR_INIT;

    for (;;) {
        struct pollfd p[2] = {{.fd = control_epoll_fd(s->c), .events = POLLIN},
                              {.fd = world.bell[s->rank], .events = POLLIN}};

        if (control_pump(s->c, &err) < 0 && atomic_load(&s->seen->stage) < 3) {
            (void)snprintf(s->seen->cause, CAUSE_BYTES, "%s", err.text);
            s->seen->over_ns = clock_now_ns();
            atomic_store(&s->seen->stage, 3);
        }
        self_publish(s);
        if (atomic_load(&s->seen->stage) >= 3)
            p[0].fd = -1; /* as the coordinator: a broken world is pumped no more */
        (void)poll(p, 2, clock_left_ms(control_next_ns(s->c)));
        if (p[1].revents)
            self_run_order(s);
    }
}

static void wait_at(const _Atomic uint32_t *at, uint32_t least)
{
    uint64_t deadline = clock_now_ns() + LIMIT_S * NS_PER_S;

    while (atomic_load(at) < least && clock_now_ns() < deadline)
        (void)poll(NULL, 0, 1);
}

/* The hello of the rank above; from another host its Unix socket cannot be reached. */
static size_t hello_of_parent(uint32_t rank, uint32_t parent, uint8_t *ret)
{
    const struct seen *p = &board->seen[parent];
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct control_address a;

    strbuf_init(&out, HELLO_MAX);
    if (address_read(p->hello, p->n_hello, parent, &a, NULL) < 0)
        _exit(71);
    if (rank == 1 && world.via_port)
        a.port = world.via_port;
    if (strcmp(world.members[rank].host, world.members[parent].host) != 0)
        a.unix_name[0] = '\0';
    address_write(&a, &out);
    memcpy(ret, strbuf_str(&out), out.n);
    return out.n;
}

static void rank_main(uint32_t rank)
{
    struct rank_self s = {.rank = rank, .seen = &board->seen[rank]};
    struct control_config cfg = {
        .rank = rank,
        .size = world.size,
        .fanout = world.fanout,
        .id = {&world.token, "unit/control", 0},
        .peer_timeout_ns = world.timeout_ns,
        .members = world.members,
        .handlers = {on_up, on_down, on_ended, on_report, &s},
    };
    CLEANUP(strbuf_release) struct strbuf hello = {0};
    struct err err = ERR_INIT;
    uint8_t above[HELLO_MAX];
    size_t n_above;

    (void)alarm(CHILD_LIMIT_S);
    s.buf = mem_calloc(1, BUF_BYTES);
    if (!s.buf || control_open(&cfg, "127.0.0.1", &s.c, &err) < 0
        || control_listen(s.c, &err) < 0)
        _exit(70);
    if (world.bundle_max > 0)
        s.c->up.max = world.bundle_max;
    strbuf_init(&hello, HELLO_MAX);
    control_hello(s.c, &hello);
    memcpy(s.seen->hello, strbuf_str(&hello), hello.n);
    s.seen->n_hello = (uint32_t)hello.n;
    atomic_store(&s.seen->stage, 1);
    wait_at(&board->may_join, 1);
    if (rank == world.absent)
        for (;;)
            (void)pause();
    n_above = hello_of_parent(rank, control_parent(s.c), above);
    s.seen->join_status =
        control_join(s.c, above, n_above, clock_now_ns() + world.join_ns, &err);
    if (s.seen->join_status < 0) {
        (void)snprintf(s.seen->cause, CAUSE_BYTES, "%s", err.text);
        close_and_go(&s);
    }
    for (uint32_t r = 0; r < world.size; r++)
        (void)snprintf(s.seen->transport[r], 24, "%s", control_transport(s.c, r));
    atomic_store(&s.seen->stage, 2);
    self_run(&s);
}

/* --- the parent --- */

/* hosts: one letter a rank. */
static void world_open(const char *hosts)
{
    world = (struct control_world){.size = (uint32_t)strlen(hosts),
                                   .fanout = 2,
                                   .absent = UINT32_MAX,
                                   .deaf = UINT32_MAX,
                                   .timeout_ns = 30 * NS_PER_S,
                                   .join_ns = LIMIT_S * NS_PER_S};
    assert_true(world.size <= RANKS_MAX);
    assert_int_equal(token_random(&world.token, NULL), 0);
    for (uint32_t r = 0; r < world.size; r++) {
        (void)snprintf(world.members[r].host, sizeof(world.members[r].host), "%c",
                       hosts[r]);
        world.members[r].pid = 1000 + r;
    }
    if (board)
        (void)munmap(board, sizeof(*board));
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
}

static void all_reach(uint32_t stage)
{
    for (uint32_t r = 0; r < world.size; r++) {
        if (r == world.absent)
            continue;
        wait_at(&board->seen[r].stage, stage);
        if (atomic_load(&board->seen[r].stage) < stage)
            fail_msg("rank %u is at %u: %s", r, atomic_load(&board->seen[r].stage),
                     board->seen[r].cause);
    }
}

static void world_fork(void)
{
    (void)fflush(stdout);
    (void)fflush(stderr);
    for (uint32_t r = 0; r < world.size; r++)
        world.bell[r] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (uint32_t r = 0; r < world.size; r++) {
        world.pid[r] = fork();
        assert_true(world.pid[r] >= 0);
        if (world.pid[r] == 0) {
            /* A stopped rank must not outlive a test that failed. */
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_main(r);
        }
    }
    all_reach(1);
    atomic_store(&board->may_join, 1);
}

static void world_start(void)
{
    world_fork();
    all_reach(2);
}

static void world_send_order(
    uint32_t rank, enum order_kind kind, uint32_t arg, uint32_t bytes, const char *text)
{
    struct order *o = &board->order[rank];
    uint64_t one = 1;

    /* The last one has been carried out: one order at a time. */
    wait_at(&board->seen[rank].n_done, atomic_load(&o->seq));
    o->kind = kind;
    o->arg = arg;
    o->bytes = bytes;
    (void)snprintf(o->text, sizeof(o->text), "%s", text ? text : "");
    atomic_fetch_add(&o->seq, 1);
    assert_int_equal(write(world.bell[rank], &one, sizeof(one)), sizeof(one));
}

/* All processes end; dead ones are reaped. */
static void world_close(void)
{
    for (uint32_t r = 0; r < world.size; r++) {
        (void)kill(world.pid[r], SIGKILL);
        (void)waitpid(world.pid[r], NULL, 0);
        fd_close(&world.bell[r]);
        assert_int_equal(atomic_load(&board->seen[r].n_wrong), 0);
    }
}

static const struct seen *seen_of(uint32_t r)
{
    return &board->seen[r];
}

/* Until it is that, not more. */
static inline void wait_for(const _Atomic uint32_t *n, uint32_t want)
{
    uint64_t deadline = clock_now_ns() + LIMIT_S * NS_PER_S;

    while (atomic_load(n) != want && clock_now_ns() < deadline)
        (void)poll(NULL, 0, 1);
    assert_int_equal(atomic_load(n), want);
}

static inline void world_up(const char *hosts)
{
    world_open(hosts);
    world_start();
}

/* How a rank of this host is named, and then what; valid until the next call. */
static inline const char *rank_text(char host, uint32_t rank, const char *what)
{
    static char text[128];

    (void)snprintf(text, sizeof(text), "rank %u (host %c, pid %u)%s", rank, host,
                   1000 + rank, what);
    return text;
}

#endif
