/* SPDX-License-Identifier: Apache-2.0 */
/* preflight.c and core/memlock.c: what is refused before a program starts, and in which
 * words. tests/slurm/preflight.sh has the same on a real Slurm. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/core/memlock.h"
#include "spank_plugin/preflight.h"

/* want NULL: nothing is wrong. */
static void
expect_words(const char *what, int rc, const struct err *err, const char *want)
{
    if (!want && rc != 0)
        fail_msg("%s: %s", what, err->text);
    if (want && (rc == 0 || rc != err->code || !strstr(err->text, want)))
        fail_msg("%s: %d \"%s\", not \"%s\"", what, rc, err->text, want);
}

UNIT_TEST(the_runtime_has_the_plugins_version)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"# x\nRINGMASTER_VERSION = '1.2.3'\n__version__ = '9'\n", NULL},
        {"RINGMASTER_VERSION = \"1.2.3\"\n", NULL},
        {"RINGMASTER_VERSION = '1.2.30'\n",
         "dir=/opt/x: the runtime is version 1.2.30, but spank_hvd.so is 1.2.3: "
         "install"},
        {"RINGMASTER_VERSION = '1.2'\n", "is version 1.2, but"},
        {"", "/opt/x: python/_hvd/_version.py has no version"},
        {"RINGMASTER_VERSION = ''\n", "has no version"},
        {"RINGMASTER_VERSION = 3\n", "has no version"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        int rc = preflight_check_version("/opt/x", rows[i].text, "1.2.3", &err);
        expect_words(rows[i].text, rc, &err, rows[i].want);
    }
}

UNIT_TEST(tasks_have_the_gpus_that_they_are_bound_to)
{
    static const struct {
        const char *bind, *on_node;
        uint32_t n_tasks;
        const char *want;
    } rows[] = {
        /* as seen on Slurm 22.05: --gpus-per-task, --ntasks-per-gpu, --gpu-bind */
        {"gpu:per_task:1", "2", 2, NULL},
        {"gpu:per_task:1", "1", 2, "2 tasks need 2 GPUs (--gpu-bind=per_task:1, which"},
        {"gpu:per_task:2", "4", 2, NULL},
        {"gpu:per_task:2", "3", 2, "2 tasks need 4 GPUs (--gpu-bind=per_task:2, which"},
        {"gpu:single:1", "1", 2, "the step has 1 on this node"},
        {"gpu:single:2", "1", 2, NULL},
        {"gpu:single:2", "1", 3, "3 tasks need 2 GPUs (--gpu-bind=single:2, which"},
        {"gpu:verbose,single:1", "1", 2, "2 tasks need 2 GPUs"},
        {"gpu:single:1", "0", 1, "1 tasks need 1 GPUs"},
        /* nothing is asked for each task */
        {NULL, "1", 8, NULL},
        {"gpu:map_gpu:0,1", "1", 8, NULL},
        {"gpu:closest", "1", 8, NULL},
        {"gpu:none", "1", 8, NULL},
        {"nic:single:1", "1", 8, NULL},
        /* other forms say nothing */
        {"gpu:single:1", NULL, 8, NULL},
        {"gpu:single:1", "many", 8, NULL},
        {"gpu:single:", "1", 8, NULL},
        {"gpu:single:0", "1", 8, NULL},
        {"gpu:per_task:99999999999", "1", 8, NULL},
        {"", "", 8, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        int rc =
            preflight_check_gpus(rows[i].bind, rows[i].on_node, rows[i].n_tasks, &err);
        expect_words(rows[i].bind ? rows[i].bind : "(null)", rc, &err, rows[i].want);
    }
}

UNIT_TEST(rdma_needs_locked_memory)
{
    static const struct {
        uint64_t n_rdma, limit;
        const char *want;
    } rows[] = {
        {1, 64u << 10, "is 64 KiB, too low for its RDMA devices: slurmd needs"},
        {1, (64u << 20) - 1, "is 65535 KiB, too low"},
        {1, 64u << 20, NULL},
        {8, MEMLOCK_UNLIMITED, NULL},
        {0, 0, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        int rc = memlock_check(rows[i].n_rdma, rows[i].limit, &err);
        expect_words("memlock", rc, &err, rows[i].want);
    }
}

UNIT_TEST(slurm_sets_the_limit_that_srun_sends)
{
    static const struct {
        const char *sent;
        uint64_t soft, hard, want;
    } rows[] = {
        {NULL, 5, 9, 5},
        {"7", 5, 9, 7},
        {"U7", 5, 9, 7},
        {"9", 5, 9, 9},
        {"10", 5, 9, 5}, /* a user cannot raise the hard limit */
        {"18446744073709551615", 5, UINT64_MAX, UINT64_MAX},
        {"18446744073709551615", 5, 9, 5},
        {"", 5, 9, 5},
        {"7x", 5, 9, 5},
        {"99999999999999999999999", 5, UINT64_MAX, 5},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (memlock_of_task(rows[i].sent, rows[i].soft, rows[i].hard) != rows[i].want)
            fail_msg("row %zu", i);
}

UNIT_TEST(the_program_of_a_python_command_is_found)
{
    static const struct {
        const char *argv[6];
        const char *path, *text; /* both NULL: not seen */
    } rows[] = {
        {{"python", "train.py", "-c", "x"}, "train.py", NULL},
        {{"/opt/a b/python3.11", "-u", "-OB", "d/t.py"}, "d/t.py", NULL},
        {{"python3", "train.py"}, "train.py", NULL},
        {{"python3", "-c", "import horovod"}, NULL, "import horovod"},
        {{"python3", "-m", "horovod.x"}, NULL, NULL},
        {{"python3", "-I", "train.py"}, NULL, NULL},
        {{"python3", "-X", "dev", "train.py"}, NULL, NULL},
        {{"python3", "-", "train.py"}, NULL, NULL},
        {{"python3", "-c"}, NULL, NULL},
        {{"python3", "-u"}, NULL, NULL},
        {{"python3"}, NULL, NULL},
        {{"pythonw", "train.py"}, NULL, NULL},
        {{"bash", "-c", "python train.py"}, NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *argv[6];
        int argc = 0;
        struct python_program p;
        for (; argc < 6 && rows[i].argv[argc]; argc++)
            argv[argc] = strdup(rows[i].argv[argc]);
        bool is_found = python_program_find(argv, argc, &p);
        assert_int_equal(is_found, rows[i].path || rows[i].text);
        if (rows[i].path)
            assert_string_equal(p.path, rows[i].path);
        if (rows[i].text)
            assert_string_equal(p.text, rows[i].text);
        while (argc > 0)
            free(argv[--argc]);
    }
}

UNIT_TEST(only_an_import_that_always_runs_counts)
{
    static const struct {
        const char *text;
        bool want;
    } rows[] = {
        {"import horovod", true},
        {"import horovod.torch as hvd; hvd.init()", true},
        {"#!/x\nimport os\nfrom  perseus.torch import x\n", true},
        {"from perseus import torch", true},
        {"import asyncio", false}, /* as long as these names */
        {"import horovod_tools", false},
        {"import horovod2", false},
        {"import my.horovod", false},
        {"try:\n    import horovod\nexcept ImportError:\n    pass\n", false},
        {"# import horovod\n", false},
        {"(horovod.init())\n", false},
        {"importing horovod\n", false},
        {"import", false},
        {"", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (python_program_imports_us(rows[i].text) != rows[i].want)
            fail_msg("%s", rows[i].text);
}

UNIT_MAIN(NULL, NULL)
