/* SPDX-License-Identifier: Apache-2.0 */
/* A server with several addresses, some of which are unreachable or another server's:
 * the 127.0.0.0/8 of this machine stands in for networks. */
#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/rendezvous.h"

static const struct token ours = {{1, 2, 3}}, others = {{3, 2, 1}};

struct spot {
    struct rdv_server *server;
    uint16_t port;
    struct auth_id id;
};

static struct spot
spot_start(const char *addr, uint16_t port, const struct token *token)
{
    struct spot p = {.id = {token, "job", 0}};
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen(addr, port, &fd, &p.port, &err), 0);
    assert_int_equal(rdv_server_start(fd, &p.id, 1, NULL, &p.server, &err), 0);
    return p;
}

struct result {
    int rc;
    uint64_t took_ms;
    char local[64];
    struct err err;
};

static struct result
spot_reach(const struct spot *p, const char *hosts, uint32_t rank, uint32_t ms)
{
    struct result r = {.err = ERR_INIT};
    struct rdv_client *c = NULL;
    const struct auth_id id = {&ours, "job", 0};
    uint64_t start = clock_now_ns();

    r.rc = rdv_client_connect(hosts, p->port, &id, rank, 1, start + ms * NS_PER_MS, &c,
                              &r.err);
    r.took_ms = (clock_now_ns() - start) / NS_PER_MS;
    if (r.rc == 0)
        (void)snprintf(r.local, sizeof(r.local), "%s", rdv_client_local_addr(c));
    rdv_client_close(c);
    return r;
}

UNIT_TEST(an_address_without_listener_is_skipped)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    struct result r =
        spot_reach(&p, "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4", 0, 10000);

    assert_int_equal(r.rc, 0);
    assert_true(r.took_ms < 5000);
    rdv_server_stop(p.server);
}

UNIT_TEST(another_jobs_server_is_not_used)
{
    struct spot right = spot_start("127.0.0.3", 0, &ours);
    struct spot wrong = spot_start("127.0.0.2", right.port, &others);
    struct result r = spot_reach(&right, "127.0.0.2,127.0.0.3", 0, 10000);

    assert_int_equal(r.rc, 0);
    assert_int_equal(rdv_server_joined(wrong.server), 0);
    assert_int_equal(rdv_server_joined(right.server), 1);
    rdv_server_stop(right.server);
    rdv_server_stop(wrong.server);
}

UNIT_TEST(a_silent_address_costs_half_a_second)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    CLEANUP(fd_close) int fd = -1;
    uint16_t port;

    assert_int_equal(tcp_listen("127.0.0.2", p.port, &fd, &port, NULL), 0);
    struct result r = spot_reach(&p, "127.0.0.2,127.0.0.3", 0, 20000);
    assert_int_equal(r.rc, 0);
    assert_in_range(r.took_ms, 400, 10000);
    rdv_server_stop(p.server);
}

UNIT_TEST(the_right_servers_refusal_is_final)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    struct result r = spot_reach(&p, "127.0.0.2,127.0.0.3", 7, 20000);

    assert_int_equal(r.rc, -EINVAL);
    assert_non_null(strstr(r.err.text, "rank 7 is not below size 1"));
    assert_true(r.took_ms < 5000);
    rdv_server_stop(p.server);
}

UNIT_TEST(no_server_at_all_names_all_addresses)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    struct result r = spot_reach(&p, "127.0.0.1,127.0.0.2", 0, 400);

    assert_int_equal(r.rc, -ETIMEDOUT);
    assert_non_null(
        strstr(r.err.text,
               "does not answer at any of its addresses 127.0.0.1,127.0.0.2 port"));
    assert_non_null(strstr(r.err.text, "onnection refused"));
    assert_non_null(strstr(r.err.text, "HOROVOD_GLOO_IFACE"));
    assert_true(r.took_ms >= 300);
    rdv_server_stop(p.server);
}

UNIT_MAIN(NULL, NULL)
