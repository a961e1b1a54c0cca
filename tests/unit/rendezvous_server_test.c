/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous with real sockets and threads: a server, members as threads, and peers
 * that misbehave. Waits are joins and reads with deadlines, never sleeps. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/rdv_wire.h"

#define MAX_MEMBERS 16
#define LONG_MS     20000u

static const struct token token_a = {{1, 2, 3}};

struct world {
    struct rdv_server *server;
    uint16_t port;
    struct auth_id id;
};

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

static struct world world_up(uint32_t size)
{
    struct world w = {.id = {&token_a, "ns/demo/uid", 0}};
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &w.port, &err), 0);
    assert_int_equal(rdv_server_start(fd, &w.id, size, &w.server, &err), 0);
    return w;
}

static int connect_as(const struct world *w,
                      uint32_t rank,
                      uint32_t size,
                      uint64_t ms,
                      struct rdv_client **ret,
                      struct err *err)
{
    return rdv_client_connect("127.0.0.1", w->port, &w->id, rank, size, in_ms(ms), ret,
                              err);
}

/* One member in a thread: connects, then n_rounds exchanges. */
struct member {
    const struct world *w;
    uint32_t rank, size, n_rounds, wait_ms;
    int rc;
    struct err err;
    pthread_t thread;
};

static uint32_t blob_for(uint32_t rank, uint32_t round, uint8_t *blob)
{
    uint32_t n = (rank * 977u + round * 31u) % 5000u; /* rank 0 round 0: empty */

    for (uint32_t i = 0; i < n; i++)
        blob[i] = (uint8_t)(rank + round + i);
    return n;
}

static int check_round(struct member *m, struct rdv_client *c, uint32_t round)
{
    uint8_t blob[5000], want[5000];
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    uint32_t n = blob_for(m->rank, round, blob);
    int rc =
        rdv_client_exchange(c, blob, n, in_ms(m->wait_ms), &blobs, &sizes, &m->err);

    if (rc)
        return rc;
    for (uint32_t r = 0; r < m->size && rc == 0; r++) {
        uint32_t k = blob_for(r, round, want);

        if (sizes[r] != k || (k && memcmp(blobs[r], want, k) != 0))
            rc =
                err_set(&m->err, -EBADMSG, "round %u: wrong blob of rank %u", round, r);
    }
    mem_free(blobs);
    return rc;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct rdv_client *c = NULL;

    m->rc = connect_as(m->w, m->rank, m->size, m->wait_ms, &c, &m->err);
    for (uint32_t round = 0; round < m->n_rounds && m->rc == 0; round++)
        m->rc = check_round(m, c, round);
    rdv_client_close(c);
    return NULL;
}

static void member_go(struct member *m,
                      const struct world *w,
                      uint32_t rank,
                      uint32_t size,
                      uint32_t wait_ms)
{
    *m = (struct member){
        .w = w, .rank = rank, .size = size, .n_rounds = 2, .wait_ms = wait_ms};
    assert_int_equal(pthread_create(&m->thread, NULL, member_main, m), 0);
}

static void member_join(struct member *m)
{
    assert_int_equal(pthread_join(m->thread, NULL), 0);
}

static void two_rounds_for_1_to_16_members(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 16};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct world w = world_up(sizes[i]);
        struct member m[MAX_MEMBERS];

        for (uint32_t r = 0; r < sizes[i]; r++)
            member_go(&m[r], &w, r, sizes[i], LONG_MS);
        for (uint32_t r = 0; r < sizes[i]; r++) {
            member_join(&m[r]);
            if (m[r].rc)
                print_error("rank %u: %s\n", r, m[r].err.text);
            assert_int_equal(m[r].rc, 0);
        }
        assert_int_equal(rdv_server_joined(w.server), sizes[i]);
        rdv_server_stop(w.server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_rounds_for_1_to_16_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
