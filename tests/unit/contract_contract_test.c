/* SPDX-License-Identifier: Apache-2.0 */
/* The launch contract and the agents' environment: parse(render(c)) == c for random
 * ones, what is never rendered, what is refused and with which message. */
#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/agent_env.h"
#include "runtime/contract/env_table.h"
#include "tests/unit/fake_env.h"
#include "tests/unit/seeded.h"

static void random_text(struct seeded *r, char *ret, size_t max, bool may_be_empty)
{
    uint32_t n = seeded_below(r, (uint32_t)max);

    if (!may_be_empty && n == 0)
        n = 1;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (char)('!' + seeded_below(r, 94));
    ret[n] = '\0';
}

static void random_contract(struct seeded *r, struct contract *c)
{
    contract_init(c);
    c->launcher = LAUNCHER_RINGMASTER;
    struct place *p = &c->place;
    p->size = 1 + seeded_below(r, 300);
    p->local_size = 1 + seeded_below(r, p->size);
    p->cross_size = 1 + seeded_below(r, p->size);
    p->rank = seeded_below(r, p->size);
    p->local_rank = seeded_below(r, p->local_size);
    p->cross_rank = seeded_below(r, p->cross_size);
    p->host = seeded_below(r, HOSTLIST_MAX_HOSTS);
    random_text(r, c->hostname, sizeof(c->hostname), false);
    if (p->size > 1 || seeded_below(r, 2)) {
        random_text(r, c->rdv_host, sizeof(c->rdv_host), false);
        c->rdv_port = (uint16_t)(1 + seeded_below(r, 65535));
        random_text(r, c->job_id, sizeof(c->job_id), false);
        c->token_source = seeded_below(r, 2) ? TOKEN_FILE : TOKEN_FD;
    }
    c->rank0_serves = seeded_below(r, 4) == 0;
    c->generation = (uint32_t)seeded_next(r);
    if (c->token_source == TOKEN_FILE)
        random_text(r, c->token_file, sizeof(c->token_file), false);
    if (c->token_source == TOKEN_FD)
        c->token_fd = (int)seeded_below(r, 1000);
    random_text(r, c->hostfile, sizeof(c->hostfile), true);
    random_text(r, c->iface, sizeof(c->iface), true);
    random_text(r, c->master_addr, sizeof(c->master_addr), true);
    if (c->master_addr[0])
        c->master_port = (uint16_t)(1 + seeded_below(r, 65535));
}

UNIT_TEST(rendered_contract_is_parsed_back)
{
    struct seeded r = {.state = 1};
    static struct env_pair v[CONTRACT_MAX_ENV];
    static struct fake_env env;

    for (int i = 0; i < 3000; i++) {
        struct contract a, b;
        struct err e = ERR_INIT;
        size_t n = 0;

        random_contract(&r, &a);
        assert_int_equal(contract_render(&a, v, &n, &e), 0);
        assert_true(n <= CONTRACT_MAX_ENV);
        env.n = 0;
        for (size_t k = 0; k < n; k++) {
            assert_null(fake_get(&env, v[k].name)); /* no name twice */
            fake_set(&env, v[k].name, v[k].value);
        }
        assert_int_equal(contract_parse(fake_get, &env, &b, &e), 0);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

static const char good[] =
    "HOROVOD_RANK=1 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 "
    "HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=2 HVD_JOB_ID=ns/demo/uid "
    "HVD_RENDEZVOUS_ADDR=10.0.0.1 HVD_RENDEZVOUS_PORT=4000 HVD_TOKEN_FILE=/t";

UNIT_TEST(contradictions_name_values)
{
    static const struct {
        const char *change, *says;
        int rc;
    } t[] = {
        {"HOROVOD_RANK=1", NULL, 0},
        {"HOROVOD_RANK= HOROVOD_SIZE=", "unset", -ENOENT},
        {"HOROVOD_RANK=4", "HOROVOD_RANK=4 is not below HOROVOD_SIZE=4", -EINVAL},
        {"HOROVOD_RANK=x", "HOROVOD_RANK: \"x\" is not a number", -EINVAL},
        {"HOROVOD_RANK=", "HOROVOD_RANK is unset, but", -EINVAL},
        {"HOROVOD_SIZE=", "HOROVOD_SIZE is unset, but", -EINVAL},
        {"HOROVOD_LOCAL_SIZE=", "HOROVOD_LOCAL_SIZE is unset, but", -EINVAL},
        {"HOROVOD_LOCAL_SIZE=5", "HOROVOD_LOCAL_SIZE=5 exceeds HOROVOD_SIZE=4",
         -EINVAL},
        {"HOROVOD_CROSS_RANK=2", "HOROVOD_CROSS_RANK=2 is not below", -EINVAL},
        {"HVD_RENDEZVOUS_PORT=",
         "HVD_RENDEZVOUS_ADDR=10.0.0.1 requires HVD_RENDEZVOUS_PORT", -EINVAL},
        {"HVD_RENDEZVOUS_ADDR=", "HOROVOD_SIZE=4 requires HVD_RENDEZVOUS_ADDR and",
         -EINVAL},
        {"HVD_RENDEZVOUS_PORT=0", "HVD_RENDEZVOUS_PORT: \"0\"", -EINVAL},
        {"HVD_RENDEZVOUS_PORT=65536", "HVD_RENDEZVOUS_PORT: \"65536\"", -EINVAL},
        {"HVD_RENDEZVOUS_ADDR= HOROVOD_GLOO_RENDEZVOUS_ADDR=h", "original horovodrun",
         -EINVAL},
        {"HVD_JOB_ID=", "requires HVD_JOB_ID", -EINVAL},
        {"HVD_JOB_ID=a\x01", "control character", -EINVAL},
        {"HVD_TOKEN_FILE=", "requires HVD_TOKEN_FILE or HVD_TOKEN_FD", -EINVAL},
        {"HVD_TOKEN_FD=3", "HVD_TOKEN_FILE=/t and HVD_TOKEN_FD=3", -EINVAL},
        {"HVD_TOKEN_FILE= HVD_TOKEN_FD=-1", "HVD_TOKEN_FD: \"-1\"", -EINVAL},
        {"HVD_GENERATION=4294967296", "HVD_GENERATION", -EINVAL},
        {"HVD_RENDEZVOUS_RANK0=maybe", "HVD_RENDEZVOUS_RANK0", -EINVAL},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        static struct fake_env env;
        struct contract c;
        struct err e = ERR_INIT;

        env.n = 0;
        fake_set_all(&env, good);
        fake_set_all(&env, t[i].change);
        int rc = contract_parse(fake_get, &env, &c, &e);
        if (rc != t[i].rc || (t[i].says && !strstr(e.text, t[i].says)))
            fail_msg("%s: rc %d: %s", t[i].change, rc, e.text);
    }
}

UNIT_TEST(a_value_too_long_is_refused)
{
    static struct fake_env env;
    char name[HOST_NAME_MAX_BYTES + 1];
    struct contract c;
    struct err e = ERR_INIT;

    env.n = 0;
    fake_set_all(&env, good);
    memset(name, 'h', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    fake_set(&env, "HVD_RENDEZVOUS_ADDR", name);
    assert_int_equal(contract_parse(fake_get, &env, &c, &e), -EINVAL);
    assert_string_equal(e.text, "HVD_RENDEZVOUS_ADDR has 256 bytes, allowed are 255");
}

UNIT_TEST(one_rank_needs_no_meeting_point)
{
    static struct fake_env env;
    struct contract c;

    env.n = 0;
    fake_set_all(&env,
                 "HOROVOD_RANK=0 HOROVOD_SIZE=1 HOROVOD_LOCAL_RANK=0 "
                 "HOROVOD_LOCAL_SIZE=1 HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1");
    assert_int_equal(contract_parse(fake_get, &env, &c, NULL), 0);
    assert_int_equal(c.place.size, 1);
    assert_int_equal(c.token_source, TOKEN_NONE);
}

UNIT_TEST(writer_refuses_what_the_reader_refuses)
{
    static struct env_pair v[CONTRACT_MAX_ENV];
    struct contract c;
    struct err e = ERR_INIT;
    size_t n;

    contract_init(&c);
    c.place.size = 2;
    assert_int_equal(contract_render(&c, v, &n, &e), -EINVAL);
    contract_init(&c);
    c.place.rank = 1;
    assert_int_equal(contract_render(&c, v, &n, &e), -EINVAL);
    contract_init(&c);
    c.token_source = TOKEN_WEAK;
    assert_int_equal(contract_render(&c, v, &n, &e), -EINVAL);
    contract_init(&c);
    (void)snprintf(c.master_addr, sizeof(c.master_addr), "h");
    assert_int_equal(contract_render(&c, v, &n, &e), -EINVAL);
}

UNIT_TEST(variables_of_other_launchers_are_never_set)
{
    static const char *const never[] = {"OMPI_", "PMI", "SLURM_", "TF_CONFIG",
                                        "TORCHELASTIC_"};
    static struct env_pair v[CONTRACT_MAX_ENV];
    struct seeded r = {.state = 3};
    struct contract c;
    size_t n = 0;

    do
        random_contract(&r, &c);
    while (!c.master_addr[0] || !c.iface[0]);
    assert_int_equal(contract_render(&c, v, &n, NULL), 0);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(never); k++)
            assert_true(strncmp(v[i].name, never[k], strlen(never[k])) != 0);
}

/* names: separated by blanks. */
static void inheritance_check(bool want, const char *names)
{
    char copy[512], *save = NULL;

    (void)snprintf(copy, sizeof(copy), "%s", names);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        if (contract_is_inherited(p) != want)
            fail_msg("%s is%s inherited", p, want ? " not" : "");
}

UNIT_TEST(tasks_of_slurm_are_known)
{
    static const struct {
        enum launcher launcher;
        const char *job_id;
        bool is_task;
    } table[] = {
        {LAUNCHER_RINGMASTER, "slurm.12.0", true}, {LAUNCHER_SLURM, "x", true},
        {LAUNCHER_RINGMASTER, "run.12", false},    {LAUNCHER_RINGMASTER, "", false},
        {LAUNCHER_OPENMPI, "slurm.12.0", false},   {LAUNCHER_NONE, "", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct contract c;

        contract_init(&c);
        c.launcher = table[i].launcher;
        (void)snprintf(c.job_id, sizeof(c.job_id), "%s", table[i].job_id);
        assert_int_equal(contract_is_task(&c), table[i].is_task);
    }
}

UNIT_TEST(outer_sets_are_inherited_and_knobs_are_not)
{
    inheritance_check(
        true, "HOROVOD_RANK HVD_TOKEN_FILE HVD_RENDEZVOUS_ADDR RANK MASTER_ADDR "
              "TORCHELASTIC_RUN_ID SLURM_PROCID SLURM_STEP_ID PMIX_RANK PMI_FD "
              "OMPI_COMM_WORLD_RANK TF_CONFIG JAX_PROCESS_ID "
              "HOROVOD_GLOO_RENDEZVOUS_ADDR");
    inheritance_check(false,
                      "PATH HOROVOD_FUSION_THRESHOLD HVD_LOG_LEVEL NCCL_SOCKET_IFNAME "
                      "SLURM_JOB_ID OMPI_MCA_btl CUDA_VISIBLE_DEVICES RANKS "
                      "HOROVOD_GLOO_IFACE HVD_DIR");
}

/* --- agents --- */

static void random_agent(struct seeded *r, struct agent_env *a)
{
    memset(a, 0, sizeof(*a));
    random_text(r, a->job_id, sizeof(a->job_id), false);
    a->generation = (uint32_t)seeded_next(r);
    a->num_workers = 1 + seeded_below(r, 1000);
    a->worker_index = seeded_below(r, a->num_workers);
    a->slots = 1 + seeded_below(r, 16);
    a->np = seeded_below(r, a->num_workers * a->slots + 1);
    random_text(r, a->checkin_addr, sizeof(a->checkin_addr), false);
    a->checkin_port = (uint16_t)(1 + seeded_below(r, 65535));
    random_text(r, a->token_file, sizeof(a->token_file), false);
    a->start_timeout_s = (uint32_t)seeded_next(r);
    random_text(r, a->dir, sizeof(a->dir), false);
    random_text(r, a->termination_log, sizeof(a->termination_log), true);
    random_text(r, a->world_file, sizeof(a->world_file), true);
}

UNIT_TEST(rendered_agent_env_is_parsed_back)
{
    struct seeded r = {.state = 5};
    static struct env_pair v[CONTRACT_MAX_ENV];
    static struct fake_env env;

    for (int i = 0; i < 3000; i++) {
        struct agent_env a, b;
        size_t n = 0;
        struct err e = ERR_INIT;

        random_agent(&r, &a);
        assert_int_equal(agent_env_render(&a, v, &n, &e), 0);
        assert_true(n <= CONTRACT_MAX_ENV);
        env.n = 0;
        for (size_t k = 0; k < n; k++)
            fake_set(&env, v[k].name, v[k].value);
        assert_int_equal(agent_env_parse(fake_get, &env, &b, &e), 0);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

UNIT_TEST(agents_have_defaults_and_refuse_invalid_values)
{
    static const char base[] = "HVD_JOB_ID=n/j/u HVD_WORKER_INDEX=1 HVD_NUM_WORKERS=2 "
                               "HVD_CHECKIN_ADDR=w0";
    static const struct {
        const char *change, *says; /* says NULL: accepted */
    } t[] = {
        {"HVD_NP=1", NULL},
        {"HVD_WORKER_INDEX=2", "HVD_WORKER_INDEX=2 is not below HVD_NUM_WORKERS=2"},
        {"HVD_WORKER_INDEX=", "HVD_WORKER_INDEX is unset"},
        {"HVD_NUM_WORKERS=", "HVD_NUM_WORKERS is unset"},
        {"HVD_NUM_WORKERS=0", "HVD_NUM_WORKERS=0"},
        {"HVD_SLOTS_PER_WORKER=0", "HVD_SLOTS_PER_WORKER=0"},
        {"HVD_NP=3", "HVD_NP=3 exceeds the 2 slots"},
        {"HVD_CHECKIN_PORT=x", "HVD_CHECKIN_PORT: \"x\""},
        {"HVD_CHECKIN_ADDR=", "HVD_CHECKIN_ADDR is unset"},
        {"HVD_JOB_ID=", "HVD_JOB_ID is unset"},
        {"HVD_NUM_WORKERS=65536 HVD_SLOTS_PER_WORKER=65536", "exceeds 1048576 ranks"},
    };
    static struct fake_env env;
    struct agent_env a;
    struct err e = ERR_INIT;

    env.n = 0;
    fake_set_all(&env, base);
    assert_int_equal(agent_env_parse(fake_get, &env, &a, &e), 0);
    assert_int_equal(a.slots, 1);
    assert_int_equal(a.np, 0);
    assert_int_equal(a.checkin_port, AGENT_DEFAULT_PORT);
    assert_int_equal(a.start_timeout_s, AGENT_DEFAULT_START_TIMEOUT_S);
    assert_string_equal(a.token_file, AGENT_TOKEN_PATH);
    assert_string_equal(a.dir, AGENT_DEFAULT_DIR);
    assert_string_equal(a.termination_log, "");
    assert_string_equal(a.world_file, "");
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        env.n = 0;
        fake_set_all(&env, base);
        fake_set_all(&env, t[i].change);
        int rc = agent_env_parse(fake_get, &env, &a, &e);
        if (!t[i].says) {
            assert_int_equal(rc, 0);
            continue;
        }
        assert_int_equal(rc, -EINVAL);
        assert_non_null(strstr(e.text, t[i].says));
    }
}

/* --- the document --- */

UNIT_TEST(the_readme_names_every_variable)
{
#define ROW(name, writer, meaning) "| `" #name "` | " writer " | " meaning " |",
    static const char *const rows[] = {CONTRACT_ENV(ROW) CONTRACT_ENV_KNOBS(ROW)
                                           CONTRACT_ENV_OTHERS(ROW) AGENT_ENV(ROW)};
#undef ROW
    AUTOFREE char *text = NULL;
    struct err e = ERR_INIT;

    assert_int_equal(
        fd_read_file("runtime/contract/README.md", 1 << 20, &text, NULL, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!strstr(text, rows[i]))
            fail_msg("README.md lacks: %s", rows[i]);
    }
}

UNIT_MAIN(NULL, NULL)
