/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's environment of one task -> place, hostfile, job id, master. The environments
 * are as seen on a real Slurm 22.05 (tests/slurm compares the same layouts there, task
 * by task). */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/layout.h"
#include "tests/unit/fake_env.h"
#include "tests/unit/torture.h"

static struct fake_env task_layout(const char *nodes,
                                   const char *counts,
                                   const char *size,
                                   const char *rank,
                                   const char *node,
                                   const char *local)
{
    struct fake_env e = {.n = 0};
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "SLURM_STEP_NODELIST=%s SLURM_STEP_TASKS_PER_NODE=%s "
                   "SLURM_STEP_NUM_TASKS=%s SLURM_PROCID=%s SLURM_NODEID=%s "
                   "SLURM_LOCALID=%s SLURM_JOB_ID=42 SLURM_STEP_ID=3 "
                   "SLURM_LAUNCH_NODE_IPADDR=10.0.0.9",
                   nodes, counts, size, rank, node, local);
    fake_set_all(&e, text);
    return e;
}

static const struct layout_paths paths = {
    .token_file = "/run/x/token",
    .hostfile = "/run/x/hosts",
    .iface = "ib0",
    .rdv_port = 40001,
    .master_port = 20007,
    .generation = 3,
};

UNIT_TEST(places_of_all_layouts)
{
    static const struct {
        const char *nodes, *counts, *size, *rank, *node, *local;
        struct place
            want; /* rank size local_rank local_size cross_rank cross_size host */
        const char *host;
    } rows[] = {
        /* -N2 -n4 --ntasks-per-node=2 */
        {"node[1-2]", "2(x2)", "4", "0", "0", "0", {0, 4, 0, 2, 0, 2, 0}, "node1"},
        {"node[1-2]", "2(x2)", "4", "3", "1", "1", {3, 4, 1, 2, 1, 2, 1}, "node2"},
        /* ragged 5,1: only local rank 0 has a peer on the other node */
        {"node[1-2]", "5,1", "6", "4", "0", "4", {4, 6, 4, 5, 0, 1, 0}, "node1"},
        {"node[1-2]", "5,1", "6", "5", "1", "0", {5, 6, 0, 1, 1, 2, 1}, "node2"},
        /* ragged the other way round: cross rank skips the short node */
        {"n[1-3]", "1,3,2", "6", "5", "2", "1", {5, 6, 1, 2, 1, 2, 2}, "n3"},
        {"n[1-3]", "1,3,2", "6", "3", "1", "2", {3, 6, 2, 3, 0, 1, 1}, "n2"},
        /* cyclic: ranks alternate, Slurm's numbers are kept */
        {"node[1-2]", "2(x2)", "4", "1", "1", "0", {1, 4, 0, 2, 1, 2, 1}, "node2"},
        {"node[1-2]", "2(x2)", "4", "2", "0", "1", {2, 4, 1, 2, 0, 2, 0}, "node1"},
        /* arbitrary: rank 0 on the second node */
        {"node[1-2]", "1,2", "3", "0", "1", "0", {0, 3, 0, 2, 1, 2, 1}, "node2"},
        /* one node, one task */
        {"gpu07", "1", "1", "0", "0", "0", {0, 1, 0, 1, 0, 1, 0}, "gpu07"},
        /* heterogeneous step: the variables span both components */
        {"node[1-2]", "2,3", "5", "4", "1", "2", {4, 5, 2, 3, 0, 1, 1}, "node2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake_env e = task_layout(rows[i].nodes, rows[i].counts, rows[i].size,
                                        rows[i].rank, rows[i].node, rows[i].local);
        struct contract c;
        struct err err = ERR_INIT;
        assert_int_equal(layout_contract(fake_get, &e, &paths, &c, &err), 0);
        assert_memory_equal(&c.place, &rows[i].want, sizeof(c.place));
        assert_string_equal(c.hostname, rows[i].host);
        assert_string_equal(c.rdv_host, "10.0.0.9");
        assert_int_equal(c.rdv_port, 40001);
        assert_string_equal(c.job_id, "slurm.42.3");
        assert_string_equal(c.token_file, "/run/x/token");
        assert_string_equal(c.iface, "ib0");
        assert_int_equal(c.generation, 3);
        assert_false(c.rank0_serves);
    }
}

UNIT_TEST(what_a_task_gets_is_what_hvd_init_reads)
{
    struct fake_env e = task_layout("node[1-2]", "5,1", "6", "5", "1", "0");
    struct env_pair env[CONTRACT_MAX_ENV];
    struct fake_env started = {.n = 0};
    struct contract c, back;
    struct err err = ERR_INIT;
    size_t n;
    assert_int_equal(layout_contract(fake_get, &e, &paths, &c, &err), 0);
    assert_int_equal(contract_render(&c, env, &n, &err), 0);
    fake_start(&started, env, n);
    assert_string_equal(fake_get(&started, "HOROVOD_RANK"), "5");
    assert_string_equal(fake_get(&started, "HOROVOD_CROSS_SIZE"), "2");
    assert_int_equal(contract_parse(fake_get, &started, &back, &err), 0);
    assert_memory_equal(&back.place.rank, &c.place.rank, 6 * sizeof(uint32_t));
    assert_string_equal(back.rdv_host, c.rdv_host);
    assert_int_equal(back.rdv_port, c.rdv_port);
    assert_string_equal(back.job_id, c.job_id);
    assert_string_equal(back.token_file, c.token_file);
    for (size_t i = 0; i < n; i++)
        assert_true(strncmp(env[i].name, "SLURM_", 6) != 0);
}

UNIT_TEST(tf_config_counts_tasks_node_by_node)
{
    static const struct tf_roles roles = {.framework = FRAMEWORK_TF_PS};
    /* cyclic: rank 1 is the first task of node2, so the third of the step */
    struct fake_env e = task_layout("node[1-2]", "2(x2)", "4", "1", "1", "0");
    CLEANUP(strbuf_release) struct strbuf text;
    struct err err = ERR_INIT;
    strbuf_init(&text, TF_CONFIG_MAX_BYTES);
    assert_int_equal(layout_tf_config(fake_get, &e, &roles, 20007, &text, &err), 0);
    assert_string_equal(strbuf_str(&text),
                        "{\"cluster\": {\"chief\": [\"node1:20007\"], \"worker\": "
                        "[\"node1:20008\", \"node2:20009\"], \"ps\": "
                        "[\"node2:20010\"]}, \"task\": {\"type\": \"worker\", "
                        "\"index\": 1}}");
}

UNIT_TEST(master_is_the_node_of_rank_0)
{
    struct fake_env e = task_layout("node[1-2]", "1,2", "3", "2", "1", "1");
    struct contract c;
    struct err err = ERR_INIT;
    assert_int_equal(layout_contract(fake_get, &e, &paths, &c, &err), 0);
    assert_string_equal(c.master_addr, "node1");
    fake_set_all(&e, "SLURM_DISTRIBUTION=arbitrary SLURM_HVD_FIRST_HOST=node2");
    assert_int_equal(layout_contract(fake_get, &e, &paths, &c, &err), 0);
    assert_string_equal(c.master_addr, "node2");
    assert_int_equal(c.master_port, 20007);
}

/* Contradictions of the lists of nodes: contract_discover_test.c. */
UNIT_TEST(missing_and_bad_values_are_named)
{
    static const struct {
        const char *change, *in_text, *also;
    } rows[] = {
        {"SLURM_PROCID=", "SLURM_PROCID is unset", "srun"},
        {"SLURM_LAUNCH_NODE_IPADDR=", "SLURM_LAUNCH_NODE_IPADDR", "unset"},
        {"SLURM_JOB_ID=x", "SLURM_JOB_ID", "\"x\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake_env e = task_layout("node[1-2]", "2(x2)", "4", "3", "1", "1");
        struct contract c;
        struct err err = ERR_INIT;
        fake_set_all(&e, rows[i].change);
        assert_true(layout_contract(fake_get, &e, &paths, &c, &err) < 0);
        assert_non_null(strstr(err.text, rows[i].in_text));
        assert_non_null(strstr(err.text, rows[i].also));
    }
}

UNIT_TEST(hostfile_has_all_nodes_in_order)
{
    struct fake_env e = task_layout("gpu[01-02],login", "2(x2),1", "5", "0", "0", "0");
    struct err err = ERR_INIT;
    CLEANUP(strbuf_release) struct strbuf b;
    strbuf_init(&b, 1000);
    assert_int_equal(layout_hostfile(fake_get, &e, &b, &err), 0);
    assert_string_equal(strbuf_str(&b),
                        "gpu01 slots=2\ngpu02 slots=2\nlogin slots=1\n");
    strbuf_release(&b);
    strbuf_init(&b, 10);
    assert_true(layout_hostfile(fake_get, &e, &b, &err) < 0);
}

static int contract_of_task(void *arg)
{
    struct contract c;
    struct err err = ERR_INIT;
    return layout_contract(fake_get, arg, &paths, &c, &err);
}

UNIT_TEST(survives_every_failed_allocation)
{
    struct fake_env e = task_layout("node[1-2]", "2(x2)", "4", "3", "1", "1");
    torture(contract_of_task, &e);
}

UNIT_MAIN(NULL, NULL)
