/* SPDX-License-Identifier: Apache-2.0 */
/* core/node_facts.c: facts as text, and what is wrong with them. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/core/node_facts.h"

static const struct node_facts good = {.node = "node1",
                                       .agent = "0.1.0",
                                       .plugstack = FACTS_OK,
                                       .plugin = "0.1.0",
                                       .plugin_slurm = "22.05",
                                       .slurm = "22.05.8",
                                       .package = "0.1.0",
                                       .python = "/usr/bin/python3",
                                       .munge = FACTS_OK,
                                       .iface = "ib0",
                                       .ifaces = "eth0,ib0",
                                       .run = FACTS_OK,
                                       .memlock_bytes = UINT64_MAX,
                                       .shm_bytes = 1u << 30,
                                       .gpus = 8,
                                       .rdma = 2};

UNIT_TEST(facts_come_back)
{
    struct node_facts got;
    struct err err = ERR_INIT;
    struct strbuf b;

    strbuf_init(&b, 8192);
    node_facts_put(&good, &b);
    assert_int_equal(node_facts_parse(strbuf_str(&b), &got, &err), 0);
    assert_memory_equal(&got, &good, sizeof(got));
    strbuf_puts(&b, "\tlater=1");
    assert_int_equal(node_facts_parse(strbuf_str(&b), &got, &err), 0);
    strbuf_release(&b);
}

UNIT_TEST(control_characters_do_not_leave_a_value)
{
    struct node_facts f = good, got;
    struct strbuf b;

    (void)snprintf(f.munge, sizeof(f.munge), "a\tnode=x\nb");
    strbuf_init(&b, 8192);
    node_facts_put(&f, &b);
    assert_null(strchr(strbuf_str(&b), '\n'));
    assert_int_equal(node_facts_parse(strbuf_str(&b), &got, NULL), 0);
    assert_string_equal(got.munge, "a node=x b");
    assert_string_equal(got.node, "node1");
    strbuf_release(&b);
}

UNIT_TEST(a_node_that_sends_control_characters_does_not_reach_the_terminal)
{
    struct node_facts got;

    assert_int_equal(
        node_facts_parse("node=n\tagent=1\tpython=\033[2J\177x", &got, NULL), 0);
    assert_string_equal(got.python, "?[2J?x");
}

UNIT_TEST(other_texts_are_refused)
{
    static const char *const bad[] = {
        "", "hello", "node=1", "agent=1\tx", "=", "slurmstepd: error: execve()"};
    struct node_facts got;
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(node_facts_parse(bad[i], &got, &err), -EPROTO);
}

UNIT_TEST(each_problem_has_a_sentence)
{
#define TEXT(member, text) offsetof(struct node_facts, member), text, 0
    static const struct {
        size_t at;
        const char *text; /* NULL: a number */
        uint64_t number;
        const char *want;
    } rows[] = {
        {TEXT(plugstack, "x.conf has no line"), "node1: x.conf has no line\n"},
        {TEXT(plugin, "0.2.0"), "spank_hvd.so is version 0.2.0, but 0.1.0 where"},
        {TEXT(slurm, "23.02.1"), "compiled for Slurm 22.05, and Slurm here is 23.02.1"},
        {TEXT(package, "0.3.0"), "the Python package is version 0.3.0, but spank"},
        {TEXT(package, ""), "no Python package: /usr/bin/python3 finds no"},
        {TEXT(python, ""), "no python3 on PATH"},
        {TEXT(agent, "0.2.0"), "the runtime is version 0.2.0, but 0.1.0 on this"},
        {TEXT(munge, "Rewound credential (16)"), "credential: Rewound credential (16)"},
        {TEXT(iface, ""), "no interface of eth0,ib0 is on the route to srun"},
        {TEXT(run, "/run is on a read-only file system"), "node1: /run is on a read"},
        {offsetof(struct node_facts, memlock_bytes), NULL, 65536,
         "locked memory is 64 KiB, too low for its RDMA devices"},
        {offsetof(struct node_facts, shm_bytes), NULL, 1 << 20, "/dev/shm has 1 MiB"},
    };
#undef TEXT

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct node_facts f = good;
        struct strbuf b;

        if (rows[i].text)
            (void)snprintf((char *)&f + rows[i].at, FACT_MAX, "%s", rows[i].text);
        else
            *(uint64_t *)(void *)((char *)&f + rows[i].at) = rows[i].number;
        strbuf_init(&b, 8192);
        assert_true(node_facts_judge(&f, &good, &b) >= 1);
        assert_non_null(strstr(strbuf_str(&b), rows[i].want));
        strbuf_release(&b);
    }
}

UNIT_TEST(a_good_node_has_no_problem_and_low_memlock_matters_with_rdma_only)
{
    struct node_facts f = good;
    struct strbuf b;

    strbuf_init(&b, 8192);
    assert_int_equal(node_facts_judge(&f, &good, &b), 0);
    f.rdma = 0;
    f.memlock_bytes = 65536;
    assert_int_equal(node_facts_judge(&f, &good, &b), 0);
    assert_int_equal(b.n, 0);
    f.state = "not idle";
    assert_int_equal(node_facts_judge(&f, &good, &b), 1);
    strbuf_release(&b);
}

UNIT_TEST(the_version_is_found_in_the_plugin)
{
    char version[FACT_MAX], slurm[FACT_MAX], file[200] = "\177ELF\0\0";
    const size_t at = 100;

    assert_false(spank_version_find(file, sizeof(file), version, slurm));
    memcpy(file + at, SPANK_VERSION_MARK "0.1.0 0x160508", 29);
    assert_true(spank_version_find(file, sizeof(file), version, slurm));
    assert_string_equal(version, "0.1.0");
    assert_string_equal(slurm, "22.05");
    for (size_t n = at; n < at + 23; n++) /* a file that is cut */
        assert_false(spank_version_find(file, n, version, slurm));
}

UNIT_TEST(lines_of_plugstack_conf)
{
    static const struct {
        const char *line, *path, *dir, *run_dir;
        bool is_ours, is_include;
    } rows[] = {
        {"required /x/spank_hvd.so dir=/d run_dir=/r", "/x/spank_hvd.so", "/d", "/r",
         true, false},
        {"  optional\tspank_hvd.so # dir=/no", "spank_hvd.so", "", "", true, false},
        {"include /etc/p.d/*.conf", "/etc/p.d/*.conf", "", "", false, true},
        {"include /etc/spank_hvd.so", "/etc/spank_hvd.so", "", "", false, true},
        {"required /x/not_spank_hvd.so", "/x/not_spank_hvd.so", "", "", false, false},
        {"# required /x/spank_hvd.so", "", "", "", false, false},
        {"", "", "", "", false, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plugstack_line l;

        plugstack_line_parse(rows[i].line, &l);
        assert_string_equal(l.path, rows[i].path);
        assert_string_equal(l.dir, rows[i].dir);
        assert_string_equal(l.run_dir, rows[i].run_dir);
        assert_int_equal(l.is_ours, rows[i].is_ours);
        assert_int_equal(l.is_include, rows[i].is_include);
    }
}

UNIT_MAIN(NULL, NULL)
