/* SPDX-License-Identifier: Apache-2.0 */
/* Host lists in all their text forms: tables of valid and invalid ones, both ways with
 * random lists, and that a failure leaves nothing behind. */
#include "tests/unit/unit.h"

#include "runtime/contract/hostlist.h"
#include "tests/unit/seeded.h"
#include "tests/unit/torture.h"

typedef int (*parse_fn)(const char *s, struct hostlist *ret, struct err *err);

/* The list as "name:slots,..." with IPv6 bare, for comparison. */
static const char *hostlist_flat(const struct hostlist *hl, char *buf, size_t size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < hl->n && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s=%u", i ? " " : "", hl->v[i].name,
                              hl->v[i].slots);
    return buf;
}

struct row {
    const char *text, *want; /* want NULL: refused, with `says` in the message */
    const char *says;
};

static void check_rows(parse_fn parse, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CLEANUP(hostlist_release) struct hostlist hl;
        struct err e = ERR_INIT;
        char buf[2048];

        hostlist_init(&hl);
        assert_int_equal(hostlist_append(&hl, "before", 9, NULL), 0);
        int rc = parse(rows[i].text, &hl, &e);
        if (rows[i].want) {
            char want[2048];

            if (rc)
                fail_msg("%s: %s", rows[i].text, e.text);
            (void)snprintf(want, sizeof(want), "before=9%s%s",
                           rows[i].want[0] ? " " : "", rows[i].want);
            assert_string_equal(hostlist_flat(&hl, buf, sizeof(buf)), want);
        } else {
            if (rc != -EINVAL || !strstr(e.text, rows[i].says))
                fail_msg("%s: rc %d: %s", rows[i].text, rc, e.text);
            assert_string_equal(hostlist_flat(&hl, buf, sizeof(buf)), "before=9");
        }
    }
}

UNIT_TEST(hosts_of_the_command_line)
{
    static const struct row rows[] = {
        {"h1:8,h2:8", "h1=8 h2=8", NULL},
        {"h1", "h1=1", NULL},
        {"[::1]:4", "::1=4", NULL},
        {"[fe80::1%eth0]", "fe80::1%eth0=1", NULL},
        {"10.0.0.1:2,a-b_c.d", "10.0.0.1=2 a-b_c.d=1", NULL},
        {"h:65536", "h=65536", NULL},
        {"", NULL, "offset 0: an entry is empty"},
        {"a,", NULL, "offset 2: an entry is empty"},
        {"a,,b", NULL, "offset 2"},
        {"a:0", NULL, "slots: \"0\" is not a number from 1 to 65536"},
        {"a:", NULL, "is not a number"},
        {"a:65537", NULL, "is not a number"},
        {"a:-1", NULL, "is not a number"},
        {"a:99999999999999999999", NULL, "must be host"},
        {"::1", NULL, "requires brackets"},
        {"::1:4", NULL, "requires brackets"},
        {"[::1", NULL, "lacks its ]"},
        {"[]:2", NULL, "host name of 0 bytes"},
        {"[::1]4", NULL, "must be host"},
        {"a b:2", NULL, "byte 0x20"},
        {"a=2", NULL, "byte 0x3d"},
        {"h\xc3\xa9:2", NULL, "byte 0xc3"},
        {"a:2,b:1,a:3", NULL, "host a is listed twice"},
        {"before:1", NULL, "listed twice"},
    };

    check_rows(hostlist_parse_hosts, rows, ARRAY_LEN(rows));
}

UNIT_TEST(hostfiles_are_parsed)
{
    static const struct row rows[] = {
        {"", "", NULL},
        {"# nothing\n\n  \t\n", "", NULL},
        {"a slots=4\nb slots=2\n", "a=4 b=2", NULL},
        {"a slots=4 max_slots=8", "a=4", NULL},
        {"a max-slots=8 slots=4", "a=4", NULL},
        {"a:3\nb\n[::1] slots=2\n[::2]:5\n", "a=3 b=1 ::1=2 ::2=5", NULL},
        {"  a\tslots=4 # the first\r\n#b\r\nc#x\r\n", "a=4 c=1", NULL},
        {"a slots=0", NULL, "line 1: slots: \"0\""},
        {"a\nb slots=x", NULL, "line 2: slots: \"x\""},
        {"a slots=", NULL, "slots: \"\""},
        {"a slots=2 slots=3", NULL, "given twice"},
        {"a:2 slots=3", NULL, "given twice"},
        {"a slots=4 max_slots=2", NULL, "max_slots=2 is below slots=4"},
        {"a port=22", NULL, "neither slots=N nor max_slots=N"},
        {"a slots = 4", NULL, "neither slots=N"},
        {"a\nb\na\n", NULL, "host a is listed twice"},
        {"::1 slots=2", NULL, "requires brackets"},
    };

    check_rows(hostlist_parse_hostfile, rows, ARRAY_LEN(rows));
}

UNIT_TEST(slurm_node_lists)
{
    static const struct row rows[] = {
        {"gpu1", "gpu1=0", NULL},
        {"gpu[01-03,7],login", "gpu01=0 gpu02=0 gpu03=0 gpu7=0 login=0", NULL},
        {"n[8-11]", "n8=0 n9=0 n10=0 n11=0", NULL},
        {"n[008-010]", "n008=0 n009=0 n010=0", NULL},
        {"r[1-2]n[1-2]-ib", "r1n1-ib=0 r1n2-ib=0 r2n1-ib=0 r2n2-ib=0", NULL},
        {"a,a", "a=0 a=0", NULL},
        {"[1-2]", "1=0 2=0", NULL},
        {"", NULL, "offset 0: an entry is empty"},
        {"a,", NULL, "an entry is empty"},
        {"a[", NULL, "[ without ]"},
        {"a]", NULL, "] without ["},
        {"a[]", NULL, "a number of 1 to 10 digits is missing"},
        {"a[1-]", NULL, "offset 4: a number"},
        {"a[-2]", NULL, "offset 2: a number"},
        {"a[3-1]", NULL, "runs backwards"},
        {"a[1;2]", NULL, "expected digits"},
        {"a[1,]", NULL, "a number"},
        {"a[12345678901]", NULL, "1 to 10 digits"},
        {"a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]", NULL, "more than 8 brackets"},
        {"a b", NULL, "byte 0x20"},
    };

    check_rows(hostlist_parse_slurm, rows, ARRAY_LEN(rows));
}

UNIT_TEST(a_huge_range_is_an_error)
{
    CLEANUP(hostlist_release) struct hostlist hl;
    struct err e = ERR_INIT;
    char name[400];

    hostlist_init(&hl);
    assert_int_equal(hostlist_parse_slurm("a[0-999999999]", &hl, &e), -E2BIG);
    assert_int_equal(hl.n, 0);
    assert_non_null(strstr(e.text, "65536"));
    assert_int_equal(hostlist_parse_slurm("a[0-9999999999]b[0-9999999999]", &hl, &e),
                     -E2BIG);
    assert_int_equal(hostlist_parse_slurm("n[1-65536]", &hl, &e), 0);
    assert_int_equal(hl.n, 65536);
    assert_int_equal(hostlist_append(&hl, "one-more", 1, &e), -E2BIG);
    memset(name, 'a', sizeof(name));
    name[256] = '\0';
    assert_int_equal(hostlist_parse_hosts(name, &hl, &e), -EINVAL);
    memcpy(name + 250, "[1-99]", 7);
    hostlist_release(&hl);
    assert_int_equal(hostlist_parse_slurm(name, &hl, &e), 0);
    memcpy(name + 254, "[1-99]", 7);
    assert_int_equal(hostlist_parse_slurm(name, &hl, &e), -EINVAL);
}

UNIT_TEST(slurm_counts)
{
    static const struct {
        const char *s, *want;
        int rc;
    } t[] = {
        {"2(x3),1", "2 2 2 1", 0},
        {"4", "4", 0},
        {"1,2,3", "1 2 3", 0},
        {"0", "0", 0},
        {"65536", "65536", 0},
        {"65537", NULL, -EINVAL},
        {"", NULL, -EINVAL},
        {"2(x0)", NULL, -EINVAL},
        {"2(3)", NULL, -EINVAL},
        {"2(x3", NULL, -EINVAL},
        {"2(x)", NULL, -EINVAL},
        {"2,", NULL, -EINVAL},
        {"2x3", NULL, -EINVAL},
        {"2(x9999999999)", NULL, -E2BIG},
        {"1(x8)", "1 1 1 1 1 1 1 1", 0},
        {"1(x9)", NULL, -E2BIG},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTOFREE uint32_t *v = NULL;
        size_t n = 0, k = 0;
        char got[100] = "";
        struct err e = ERR_INIT;

        assert_int_equal(slurm_counts_parse(t[i].s, 8, &v, &n, &e), t[i].rc);
        assert_int_equal(e.code, t[i].rc);
        for (size_t j = 0; j < n; j++)
            k += (size_t)snprintf(got + k, sizeof(got) - k, j ? " %u" : "%u", v[j]);
        if (t[i].want)
            assert_string_equal(got, t[i].want);
        else
            assert_null(v);
    }
}

static void random_list(struct seeded *r, struct hostlist *hl)
{
    static const char chars[] = "abcXYZ019-._:";
    uint32_t n = 1 + seeded_below(r, 20);

    for (uint32_t i = 0; i < n; i++) {
        char name[64];
        uint32_t k = 1 + seeded_below(r, 20);

        for (uint32_t j = 0; j < k; j++)
            name[j] = chars[seeded_below(r, sizeof(chars) - 1)];
        (void)snprintf(name + k, sizeof(name) - k, "-%u", i); /* no name twice */
        assert_int_equal(
            hostlist_append(hl, name, 1 + seeded_below(r, HOST_MAX_SLOTS), NULL), 0);
    }
}

UNIT_TEST(rendered_lists_are_parsed_back)
{
    struct seeded r = {.state = 42};

    for (int round = 0; round < 500; round++) {
        CLEANUP(hostlist_release) struct hostlist a = {0};
        CLEANUP(hostlist_release) struct hostlist b = {0};
        CLEANUP(hostlist_release) struct hostlist c = {0};
        CLEANUP(strbuf_release) struct strbuf s;
        char want[4096], got[4096];

        random_list(&r, &a);
        strbuf_init(&s, 8192);
        hostlist_render_hosts(&a, &s);
        assert_int_equal(hostlist_parse_hosts(strbuf_str(&s), &b, NULL), 0);
        assert_string_equal(hostlist_flat(&a, want, sizeof(want)),
                            hostlist_flat(&b, got, sizeof(got)));
        strbuf_clear(&s);
        hostlist_render_hostfile(&a, &s);
        assert_int_equal(strbuf_status(&s), 0);
        assert_int_equal(hostlist_parse_hostfile(strbuf_str(&s), &c, NULL), 0);
        assert_string_equal(want, hostlist_flat(&c, got, sizeof(got)));
    }
}

static int parse_all(void *arg)
{
    CLEANUP(hostlist_release) struct hostlist hl = {0};
    CLEANUP(hostlist_release) struct hostlist copy = {0};
    AUTOFREE uint32_t *counts = NULL;
    size_t n = 0;
    int rc = hostlist_parse_hosts("a:2,b:3,c", &hl, NULL);

    (void)arg;
    if (rc == 0)
        rc = hostlist_parse_hostfile("d slots=2\ne\nf:9\n", &hl, NULL);
    if (rc == 0)
        rc = hostlist_parse_slurm("n[1-20],x", &hl, NULL);
    if (rc == 0)
        rc = hostlist_copy(&hl, &copy, NULL);
    if (rc == 0)
        rc = slurm_counts_parse("2(x30),1", 100, &counts, &n, NULL);
    if (rc == 0)
        assert_int_equal(copy.n, 27);
    return rc;
}

UNIT_TEST(lack_of_memory_is_an_error)
{
    torture(parse_all, NULL);
}

UNIT_MAIN(NULL, NULL)
