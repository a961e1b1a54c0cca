/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c: options -> hosts with their ranks, and which of them are this host. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include "runtime/launch/hosts.h"
#include "tests/unit/launch_fixture.h"
#include "tests/unit/torture.h"

static int
no_config(void *arg, const char *path, struct launch_options *o, struct err *err)
{
    (void)arg;
    (void)path;
    (void)o;
    return err_set(err, -ENOENT, "none");
}

static int
hosts_discover(void *arg, const char *command, struct hostlist *ret, struct err *err)
{
    const char *told = arg;
    assert_string_equal(command, "ask");
    return told ? hostlist_parse_hosts(told, ret, err)
                : err_set(err, -EINVAL, "nobody answers");
}

/* np "" : not given; option "-H" and the like with its value, "": none. */
static int read_hosts(const char *np,
                      const char *option,
                      const char *value,
                      struct launch_options *o,
                      struct run_hosts *h,
                      struct err *err)
{
    char words[5][64];
    char *argv[6] = {words[0], words[1], words[2], words[3], words[4], NULL};
    char told[] = "localhost:3,far:1";
    int n = 1;
    (void)snprintf(words[0], sizeof(words[0]), "horovodrun");
    if (*np) {
        (void)snprintf(words[n++], sizeof(words[0]), "-np");
        (void)snprintf(words[n++], sizeof(words[0]), "%s", np);
    }
    if (*option) {
        (void)snprintf(words[n++], sizeof(words[0]), "%s", option);
        (void)snprintf(words[n++], sizeof(words[0]), "%s", value);
    }
    argv[n] = NULL;
    memset(h, 0, sizeof(*h));
    int rc = options_parse(n, argv, no_config, NULL, o, err);
    return rc < 0 ? rc : run_hosts_read(o, hosts_discover, told, h, err);
}

UNIT_TEST(hosts_have_their_ranks)
{
    static const struct {
        const char *np, *option, *value;
        uint32_t wanted_np, hosts, first, n; /* of the last host that has ranks */
    } table[] = {
        {"4", "", "", 4, 1, 0, 4},
        {"", "-H", "localhost:3", 3, 1, 0, 3},
        {"", "-H", "localhost", 1, 1, 0, 1},
        {"3", "-H", "localhost:2,127.0.0.2:2", 3, 2, 2, 1},
        {"2", "-H", "localhost:2,far:2", 2, 1, 0, 2}, /* far has no rank */
        {"", "-H", "localhost:2,far:2", 4, 2, 2, 2},
        {"", "-H", "[::1]:2,far", 3, 2, 2, 1},
        {"", "--host-discovery-script", "ask", 4, 2, 3, 1},
        {"2", "--host-discovery-script", "ask", 2, 1, 0, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err err = ERR_INIT;
        struct launch_options o;
        struct run_hosts h;
        if (read_hosts(table[i].np, table[i].option, table[i].value, &o, &h, &err) < 0)
            fail_msg("%s: %s", table[i].value, err.text);
        if (!h.v || !h.places) { /* the analyzer does not know cmocka */
            fail();
            return;
        }
        assert_int_equal(h.np, table[i].wanted_np);
        assert_int_equal(h.n, table[i].hosts);
        assert_int_equal(h.v[h.n - 1].first_rank, table[i].first);
        assert_int_equal(h.v[h.n - 1].n_ranks, table[i].n);
        assert_int_equal(h.places[h.np - 1].rank, h.np - 1);
        assert_int_equal(h.places[h.np - 1].host, h.n - 1);
        run_hosts_release(&h);
        options_release(&o);
    }
}

UNIT_TEST(only_hosts_with_ranks_count_as_far)
{
    struct err err = ERR_INIT;
    CLEANUP(options_release) struct launch_options o;
    CLEANUP(run_hosts_release) struct run_hosts h;
    assert_int_equal(read_hosts("2", "-H", "localhost:2,far:2", &o, &h, &err), 0);
    assert_true(run_hosts_all_local(&h) && run_hosts_any_local(&h));
    run_hosts_release(&h);
    options_release(&o);
    assert_int_equal(read_hosts("", "-H", "far:2,localhost:2", &o, &h, &err), 0);
    assert_true(!run_hosts_all_local(&h) && run_hosts_any_local(&h));
    run_hosts_release(&h);
    options_release(&o);
    assert_int_equal(read_hosts("", "-H", "far:2,farther:2", &o, &h, &err), 0);
    assert_true(!run_hosts_all_local(&h) && !run_hosts_any_local(&h));
}

UNIT_TEST(what_does_not_fit_is_an_error)
{
    static const struct {
        const char *np, *option, *value, *part;
    } table[] = {
        {"", "", "", "-np is missing: how many processes? (see --help)"},
        {"5", "-H", "localhost:2,far:2", "-np 5 exceeds the 4 slots of the host list"},
        {"5000", "", "", "host localhost: 5000 ranks exceed 4096 on one host"},
        {"", "-H", "a:2,a:2", "-H: "},
        {"", "-H", "a:zero", "-H: "},
        {"", "-hostfile", "/nonexistent/hosts", "/nonexistent/hosts"},
        {"", "-hostfile", "/dev/null", "/dev/null: it contains no host"},
        {"9", "--host-discovery-script", "ask", "-np 9 exceeds the 4 slots"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err err = ERR_INIT;
        CLEANUP(options_release) struct launch_options o;
        CLEANUP(run_hosts_release) struct run_hosts h;
        assert_true(
            read_hosts(table[i].np, table[i].option, table[i].value, &o, &h, &err) < 0);
        if (!strstr(err.text, table[i].part))
            fail_msg("%s %s: %s", table[i].option, table[i].value, err.text);
    }
}

UNIT_TEST(this_host_is_known_by_all_its_names)
{
    char own[HOST_NAME_MAX_BYTES] = "", other[HOST_NAME_MAX_BYTES + 16];
    static const char *const far[] = {"far",       "localhost.example",
                                      "192.0.2.1", "2001:db8::1",
                                      "",          "127.0.0.1.example"};
    assert_true(host_is_local("localhost"));
    assert_true(host_is_local("127.0.0.1"));
    assert_true(host_is_local("127.1.2.3")); /* all of it is this host */
    assert_int_equal(gethostname(own, sizeof(own) - 1), 0);
    assert_true(host_is_local(own));
    (void)snprintf(other, sizeof(other), "%sx", own);
    assert_false(host_is_local(other));
    if (*own && !strchr(own, '.')) { /* the same with its domain */
        (void)snprintf(other, sizeof(other), "%s.example.org", own);
        assert_true(host_is_local(other));
    }
    for (size_t i = 0; i < ARRAY_LEN(far); i++)
        if (host_is_local(far[i]))
            fail_msg("\"%s\" is taken for this host", far[i]);
}

UNIT_TEST(addresses_of_its_interfaces_are_this_host)
{
    struct ifaddrs *all = NULL;
    unsigned n = 0;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN];
        struct sockaddr_in6 in6;
        struct sockaddr_in in;
        if (!i->ifa_addr
            || (i->ifa_addr->sa_family != AF_INET
                && i->ifa_addr->sa_family != AF_INET6))
            continue;
        bool is_6 = i->ifa_addr->sa_family == AF_INET6;
        memcpy(is_6 ? (void *)&in6 : (void *)&in, i->ifa_addr,
               is_6 ? sizeof(in6) : sizeof(in));
        assert_non_null(inet_ntop(is_6 ? AF_INET6 : AF_INET,
                                  is_6 ? (void *)&in6.sin6_addr : (void *)&in.sin_addr,
                                  text, sizeof(text)));
        if (!host_is_local(text))
            fail_msg("%s of %s is not known", text, i->ifa_name);
        n++;
    }
    freeifaddrs(all);
    assert_true(n > 0);
}

static int hosts_once(void *arg)
{
    struct err err = ERR_INIT;
    CLEANUP(options_release) struct launch_options o;
    CLEANUP(run_hosts_release) struct run_hosts h;
    return read_hosts("3", "-H", arg, &o, &h, &err);
}

UNIT_TEST(memory_that_runs_out_is_an_error)
{
    char hosts[] = "localhost:2,far:2";
    torture(hosts_once, hosts);
}

UNIT_MAIN(NULL, NULL)
