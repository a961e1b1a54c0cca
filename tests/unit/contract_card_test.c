/* SPDX-License-Identifier: Apache-2.0 */
/* Cards, and the place that follows from them: against a table, against places_assign,
 * and every invalid card. */
#include "tests/unit/unit.h"

#include "runtime/contract/card.h"
#include "tests/unit/seeded.h"
#include "tests/unit/torture.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct card full_card(void)
{
    return (struct card){.host = "0a1b",
                         .net = "ff",
                         .local_rank = 3,
                         .port = 4711,
                         .token = HEX64,
                         .addrs = "10.0.0.1,fd00::2",
                         .job = "mpiexec/kvs_1_0_vm"};
}

UNIT_TEST(rendered_card_is_parsed_back)
{
    struct card a = full_card(), b;
    char text[CARD_MAX_BYTES + 1];

    assert_int_equal(card_format(&a, text, sizeof(text), NULL), 0);
    assert_string_equal(text, "hvd1;0a1b;ff;3;4711;" HEX64
                              ";10.0.0.1,fd00::2;mpiexec/kvs_1_0_vm");
    assert_int_equal(card_parse(text, 0, &b, NULL), 0);
    assert_string_equal(a.host, b.host);
    assert_string_equal(a.net, b.net);
    assert_int_equal(a.local_rank, b.local_rank);
    assert_int_equal(a.port, b.port);
    assert_string_equal(a.token, b.token);
    assert_string_equal(a.addrs, b.addrs);
    assert_string_equal(a.job, b.job);

    a.port = 0;
    a.local_rank = CARD_NO_LOCAL;
    a.net[0] = '\0';
    assert_int_equal(card_format(&a, text, sizeof(text), NULL), 0);
    assert_string_equal(text, "hvd1;0a1b;;-");
    assert_int_equal(card_parse(text, 0, &b, NULL), 0);
    assert_int_equal(b.port, 0);
    assert_int_equal(b.local_rank, CARD_NO_LOCAL);
    assert_string_equal(b.token, "");
}

/* PMI separates by blanks, and a job's name may contain any text. */
UNIT_TEST(job_name_of_blanks_is_transported)
{
    struct card a = full_card(), b;
    char text[CARD_MAX_BYTES + 1];

    (void)snprintf(a.job, sizeof(a.job), "my job;\t1=2\xc3\xa4");
    assert_int_equal(card_format(&a, text, sizeof(text), NULL), 0);
    assert_null(strpbrk(text, " \t\n"));
    assert_int_equal(card_parse(text, 0, &b, NULL), 0);
    assert_string_equal(b.job, "my_job__1=2__");
}

UNIT_TEST(the_longest_card_fits_and_a_short_buffer_is_an_error)
{
    struct card a = full_card();
    char text[CARD_MAX_BYTES + 1];
    struct err e = ERR_INIT;

    memset(a.host, 'a', sizeof(a.host) - 1);
    memset(a.net, 'b', sizeof(a.net) - 1);
    memset(a.addrs, '1', sizeof(a.addrs) - 1);
    memset(a.job, 'j', sizeof(a.job) - 1);
    assert_int_equal(card_format(&a, text, sizeof(text), &e), 0);
    assert_int_equal(card_parse(text, 0, &a, NULL), 0);
    assert_int_equal(card_format(&a, text, 100, &e), -E2BIG);
    assert_non_null(strstr(e.text, "transports 99"));
}

UNIT_TEST(invalid_card_names_its_rank)
{
    static const char *const bad[] = {
        "",
        "unknown",
        "hvd2;0a;ff;3",
        "hvd1;0a;ff",
        "hvd1;0a;ff;x",
        "hvd1;0a;ff;-1",
        "hvd1;0A;ff;1",
        "hvd1;0a;fg;1",
        "hvd1;0a;ff;1;4711",
        "hvd1;0a;ff;1;0;" HEX64 ";;j",
        "hvd1;0a;ff;1;65536;" HEX64 ";;j",
        "hvd1;0a;ff;1;1;0123;;j",
        "hvd1;0a;ff;1;1;" HEX64 "0;;j",
        "hvd1;0a;ff;1;1;" HEX64 ";;",
        "hvd1;0a;ff;1;1;" HEX64 ";a b;j",
        "hvd1;0a;ff;1;1;" HEX64 ";;j;more",
        "hvd1;000000000000000000000000000000000;ff;1",
    };
    static char huge[4096];

    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        struct err e = ERR_INIT;
        struct card c;

        memset(huge, 'x', sizeof(huge) - 1);
        int rc = card_parse(i < ARRAY_LEN(bad) ? bad[i] : huge, 17, &c, &e);
        if (rc != -EPROTO || !strstr(e.text, "card of rank 17 is invalid"))
            fail_msg("case %zu: rc %d: %s", i, rc, e.text);
    }
}

/* --- places --- */

static void host_key(uint32_t h, char ret[CARD_KEY_BYTES])
{
    (void)snprintf(ret, CARD_KEY_BYTES, "%x", (h * 2654435761u) | 1u); /* any order */
}

/* By hosts alone, ranks filled host by host: equal to places_assign. */
UNIT_TEST(hosts_in_blocks_are_as_in_a_host_list)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        CLEANUP(hostlist_release) struct hostlist hl = {0};
        struct seeded r = {seed};
        struct card_place v[64];
        struct place want[64];
        char text[256] = "";
        uint32_t n = 0, n_hosts = 1 + seeded_below(&r, 7);

        for (uint32_t h = 0; h < n_hosts; h++) {
            uint32_t slots = 1 + seeded_below(&r, 8);
            size_t at = strlen(text);

            (void)snprintf(text + at, sizeof(text) - at, "%sh%u:%u", h ? "," : "", h,
                           slots);
            for (uint32_t k = 0; k < slots; k++, n++) {
                host_key(h, v[n].host);
                v[n].local_rank = CARD_NO_LOCAL;
            }
        }
        assert_int_equal(hostlist_parse_hosts(text, &hl, NULL), 0);
        assert_int_equal(places_assign(&hl, 0, want, NULL), 0);
        for (uint32_t i = 0; i < n; i++) {
            struct place p = {.rank = i, .size = n};

            assert_int_equal(card_find_place(v, &p, NULL), 0);
            assert_memory_equal(&p, &want[i], sizeof(p));
        }
    }
}

UNIT_TEST(ranks_dealt_in_turn)
{
    struct card_place v[5];
    static const struct place want[] = {
        /* rank size lrank lsize crank csize host: a b c a b */
        {0, 5, 0, 2, 0, 3, 0}, {1, 5, 0, 2, 1, 3, 1}, {2, 5, 0, 1, 2, 3, 2},
        {3, 5, 1, 2, 0, 2, 0}, {4, 5, 1, 2, 1, 2, 1},
    };

    for (uint32_t i = 0; i < 5; i++) {
        host_key(i % 3, v[i].host);
        v[i].local_rank = CARD_NO_LOCAL;
    }
    for (uint32_t i = 0; i < 5; i++) {
        struct place p = {.rank = i, .size = 5};

        assert_int_equal(card_find_place(v, &p, NULL), 0);
        assert_memory_equal(&p, &want[i], sizeof(p));
    }
}

/* One machine under two names: mpirun counts two hosts, and its local ranks are
 * kept. */
UNIT_TEST(local_ranks_of_the_launcher_are_kept)
{
    struct card_place v[4];
    struct err e = ERR_INIT;

    for (uint32_t i = 0; i < 4; i++) {
        host_key(0, v[i].host);
        v[i].local_rank = i % 2;
    }
    struct place p = {.rank = 3, .size = 4, .local_rank = 1, .local_size = 2};
    assert_int_equal(card_find_place(v, &p, NULL), 0);
    const struct place want = {3, 4, 1, 2, 1, 2, 0};
    assert_memory_equal(&p, &want, sizeof(p));

    v[2].local_rank = CARD_NO_LOCAL;
    assert_int_equal(card_find_place(v, &p, &e), -EPROTO);
    assert_string_equal(
        e.text, "the launcher sets the local rank of rank 3, but not of rank 2");
}

static int find_one(void *arg)
{
    struct place p = {.rank = 1, .size = 2};

    return card_find_place(arg, &p, NULL);
}

UNIT_TEST(lack_of_memory_is_an_error)
{
    static struct card_place v[2] = {{"a", CARD_NO_LOCAL}, {"b", CARD_NO_LOCAL}};

    torture(find_one, v);
}

UNIT_MAIN(NULL, NULL)
