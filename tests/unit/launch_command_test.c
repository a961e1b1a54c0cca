/* SPDX-License-Identifier: Apache-2.0 */
/* command.c and environment.c: which python looks at PYTHONPATH, what ranks see. (Where
 * commands are found is tested with real files by tests/launch.) */
#include "runtime/launch/command.h"
#include "runtime/launch/environment.h"
#include "tests/unit/launch_fixture.h"

UNIT_TEST(isolated_pythons_are_recognised)
{
    static const struct {
        const char *argv[6];
        bool warns;
    } table[] = {
        {{"python", "-I", "x.py"}, true},
        {{"/usr/bin/python3.11", "-uE", "x.py"}, true},
        {{"python3", "-u", "-BI", "-m", "x"}, true},
        {{"python3", "-W", "ignore", "-E", "x.py"}, true},
        {{"python3", "-Wignore", "-X", "dev", "-E", "x.py"}, true},
        {{"python3", "x.py", "-I"}, false},
        {{"python3", "-c", "print()", "-E"}, false},
        {{"python3", "-mEvaluate"}, false},
        {{"python3", "-WError", "x.py"}, false},
        {{"python3", "-X", "Ia", "x.py"}, false},
        {{"python3", "--", "-I"}, false},
        {{"pythonic", "-I"}, false},
        {{"python-config", "-I"}, false},
        {{"bash", "-E"}, false},
        {{NULL}, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char text[400], *argv[6];
        memcpy(argv, table[i].argv, sizeof(argv));
        command_python_warning(argv, text, sizeof(text));
        if ((*text != '\0') != table[i].warns)
            fail_msg("row %zu: %s", i, text);
    }
}

UNIT_TEST(the_environment_loses_foreign_sets_and_gains_ours)
{
    CLEANUP(environment_release) struct environment e;
    struct err err = ERR_INIT;
    struct contract c;
    char home[] = "HOME=/h", rank[] = "OMPI_COMM_WORLD_RANK=1",
         own[] = "HVD_WORKER_INDEX=1", path[] = "PATH=/bin", odd[] = "novalue",
         old[] = "HOROVOD_SIZE=9", empty[] = "PYTHONPATH=";
    char *from[] = {home, rank, own, path, odd, old, empty, NULL};
    environment_init(&e);
    environment_inherit(&e, from);
    assert_null(environment_get(&e, "OMPI_COMM_WORLD_RANK"));
    assert_null(environment_get(&e, "HVD_WORKER_INDEX"));
    assert_string_equal(environment_get(&e, "HOME"), "/h");
    environment_runtime(&e, "/opt/ringmaster");
    assert_string_equal(environment_get(&e, "PATH"), "/opt/ringmaster/bin:/bin");
    assert_string_equal(environment_get(&e, "PYTHONPATH"), "/opt/ringmaster/python");
    environment_default(&e, "HOME", "/other");
    environment_default(&e, "NEW", "1");
    assert_string_equal(environment_get(&e, "HOME"), "/h");
    assert_string_equal(environment_get(&e, "NEW"), "1");
    contract_init(&c);
    c.launcher = LAUNCHER_RINGMASTER;
    c.place.size = c.place.local_size = 2;
    c.place.rank = c.place.local_rank = 1;
    c.rdv_port = 4;
    strcpy(c.rdv_host, "10.0.0.1");
    strcpy(c.hostname, "a");
    strcpy(c.job_id, "j");
    c.token_source = TOKEN_FILE;
    strcpy(c.token_file, "/t");
    if (environment_contract(&e, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(environment_get(&e, "HOROVOD_SIZE"), "2");
    size_t n = 0;
    for (size_t i = 0; i < e.n; i++)
        n += !strncmp(e.v[i], "HOROVOD_SIZE=", 13);
    assert_int_equal(n, 1);
    assert_null(e.v[e.n]);
}

UNIT_TEST(running_out_of_memory_is_reported_once_at_the_end)
{
    char home[] = "HOME=/h", path[] = "PATH=/bin";
    char *from[] = {home, path, NULL};
    for (long n = 0; n < 40; n++) {
        CLEANUP(environment_release) struct environment e;
        environment_init(&e);
        mem_fail_after(n);
        environment_inherit(&e, from);
        environment_runtime(&e, "/opt/r");
        environment_set(&e, "A", "b");
        bool fired = mem_fail_fired();
        mem_fail_after(-1);
        assert_int_equal(e.status, fired ? -ENOMEM : 0);
        if (!fired)
            return;
    }
    fail_msg("never got through");
}

UNIT_MAIN(NULL, NULL)
