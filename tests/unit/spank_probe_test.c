/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c: which nodes connect to each other, and what is said when they cannot.
 * tests/slurm/preflight.sh has nodes that lose packets. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/probe.h"

#define N_NODES 3

static struct contract node_contract(uint32_t node, uint32_t n_nodes)
{
    struct contract c;
    contract_init(&c);
    c.place.cross_rank = node;
    c.place.cross_size = n_nodes;
    (void)snprintf(c.hostname, sizeof(c.hostname), "node%u", node + 1);
    return c;
}

/* The nodes of a step, on addresses of this host. */
struct meeting {
    struct probe node[N_NODES];
    char hello[N_NODES][PROBE_HELLO_MAX];
};
static void meeting_open(struct meeting *m)
{
    for (uint32_t i = 0; i < N_NODES; i++) {
        struct contract c = node_contract(i, N_NODES);
        char address[16];
        (void)snprintf(address, sizeof(address), "127.0.0.%u", i + 1);
        m->node[i] = (struct probe)PROBE_INIT;
        probe_open(&m->node[i], &c, address, m->hello[i]);
        assert_true(m->node[i].listen_fd >= 0);
    }
}
static int meeting_check(const struct meeting *m, uint32_t node, struct err *err)
{
    uint8_t *hellos[N_NODES];
    uint32_t sizes[N_NODES];
    for (uint32_t i = 0; i < N_NODES; i++) {
        sizes[i] = (uint32_t)strlen(m->hello[i]);
        hellos[i] = malloc(sizes[i] + 1);
        memcpy(hellos[i], m->hello[i], sizes[i]);
    }
    int rc = probe_check(&m->node[node], hellos, sizes, N_NODES, err);
    for (uint32_t i = 0; i < N_NODES; i++)
        free(hellos[i]);
    return rc;
}
static void meeting_close(struct meeting *m)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        probe_close(&m->node[i]);
}

UNIT_TEST(nodes_that_reach_each_other_say_nothing)
{
    struct meeting m;
    struct err err = ERR_INIT;
    meeting_open(&m);
    for (uint32_t i = 0; i < N_NODES; i++)
        assert_int_equal(meeting_check(&m, i, &err), 0);
    probe_close(&m.node[2]); /* its kernel refuses, so packets arrive */
    assert_int_equal(meeting_check(&m, 0, &err), 0);
    meeting_close(&m);
}

UNIT_TEST(both_ends_name_the_pair_in_the_same_words)
{
    static const char want[] =
        "node1 and node3 cannot connect to each other, between 127.0.0.1 and "
        "255.255.255.255: Network is unreachable; --hvd=iface= selects another network";
    struct meeting m;
    struct err err = ERR_INIT;
    meeting_open(&m);
    /* no TCP connection goes there, whatever routes this host has */
    (void)snprintf(m.hello[2], sizeof(m.hello[2]), "2 255.255.255.255 7 node3");
    assert_int_equal(meeting_check(&m, 0, &err), -EHOSTUNREACH);
    assert_string_equal(err.text, want);
    (void)snprintf(m.hello[0], sizeof(m.hello[0]), "0 255.255.255.255 7 node1");
    (void)snprintf(m.node[2].address, sizeof(m.node[2].address), "127.0.0.1");
    assert_int_equal(meeting_check(&m, 2, &err), -EHOSTUNREACH);
    assert_string_equal(err.text,
                        "node1 and node3 cannot connect to each other, between "
                        "255.255.255.255 and 127.0.0.1: Network is unreachable; "
                        "--hvd=iface= selects another network");
    meeting_close(&m);
}

UNIT_TEST(a_text_that_is_no_hello_is_passed_over)
{
    static const char *const bad[] = {"",
                                      "2",
                                      "x 255.255.255.255 7 node3",
                                      "2 255.255.255.255 0 node3",
                                      "2 255.255.255.255 65536 node3",
                                      "2 255.255.255.255 99999 node3",
                                      "2 255.255.255.255 7",
                                      "7 255.255.255.255 7 node8",
                                      "2 not-an-address 7 node3"};
    struct meeting m;
    struct err err = ERR_INIT;
    meeting_open(&m);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        (void)snprintf(m.hello[2], sizeof(m.hello[2]), "%s", bad[i]);
        if (meeting_check(&m, 0, &err) != 0)
            fail_msg("%s: %s", bad[i], err.text);
    }
    memset(m.hello[2], '9', sizeof(m.hello[2]) - 1);
    m.hello[2][sizeof(m.hello[2]) - 1] = '\0';
    assert_int_equal(meeting_check(&m, 0, &err), 0);
    meeting_close(&m);
}

UNIT_TEST(only_the_first_task_of_a_node_among_others_listens)
{
    struct probe r = PROBE_INIT;
    char hello[PROBE_HELLO_MAX];
    struct contract c = node_contract(0, 1);
    probe_open(&r, &c, "127.0.0.1", hello);
    assert_string_equal(hello, "");
    c = node_contract(1, 2);
    c.place.local_rank = 1;
    probe_open(&r, &c, "127.0.0.1", hello);
    assert_string_equal(hello, "");
    c.place.local_rank = 0;
    probe_open(&r, &c, "192.0.2.1", hello); /* not ours */
    assert_string_equal(hello, "");
    assert_int_equal(r.listen_fd, -1);
    (void)snprintf(c.iface, sizeof(c.iface), "lo");
    probe_open(&r, &c, "192.0.2.1", hello); /* the interface replaces the route's */
    assert_non_null(strstr(hello, "1 127.0.0.1 "));
    probe_close(&r);
}

UNIT_TEST(all_nodes_are_connected_and_each_is_asked_by_few)
{
    static uint32_t asked[500];
    for (uint32_t n = 2; n < ARRAY_LEN(asked); n += n < 40 ? 1 : 53) {
        memset(asked, 0, sizeof(asked));
        for (uint32_t i = 0; i < n; i++) {
            uint32_t peers[PROBE_MAX_PEERS], k = probe_peers(i, n, peers);
            assert_in_range(k, 1, PROBE_MAX_PEERS);
            assert_int_equal(peers[0], (i + 1) % n); /* a ring */
            while (k > 0) {
                assert_int_not_equal(peers[--k], i);
                assert_true(peers[k] < n);
                asked[peers[k]]++;
            }
        }
        for (uint32_t i = 0; i < n; i++)
            assert_in_range(asked[i], 1, 18);
    }
}

UNIT_MAIN(NULL, NULL)
