/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a machine's GPUs. Each report has a process of its own, because loaded
 * libraries stay loaded. */
#include "runtime/backend/nccl/report.h"
#include "tests/unit/gpu_fake.h"

static struct device_report r;
static const struct device_config none;

CHILD_TEST(a_machine_is_reported)
{
    fake_begin();
    fake.setup("13000", "3", NULL);
    (void)setenv("HVD_FAKE_HOST", "h", 1);
    (void)setenv("HVD_FAKE_NCCL", "22705", 1);
    gpu_report(&none, "sm_90 ptx_70", &r);
    CHILD_NEEDS(!strcmp(r.problem, ""));
    CHILD_NEEDS(!strcmp(r.driver, "550.54.15"));
    CHILD_NEEDS(!strcmp(r.cuda, "13.0"));
    CHILD_NEEDS(!strcmp(r.nccl, "2.27.5"));
    CHILD_NEEDS(strstr(r.nccl_path, "/fakes/libnccl.so.2"));
    CHILD_NEEDS(!strcmp(r.kernels, "sm_90 ptx_70"));
    CHILD_NEEDS(r.n_gpus == 3);
    CHILD_NEEDS(!strcmp(r.gpus[2].name, "NVIDIA Fake"));
    CHILD_NEEDS(!strcmp(r.gpus[2].uuid, "GPU-68000000-0000-0000-0000-000000000002"));
    CHILD_NEEDS(!strcmp(r.gpus[2].pci, "0000:12:00.0"));
    CHILD_NEEDS(r.gpus[2].sm == 90 && !r.gpus[2].is_mig);
    CHILD_NEEDS(r.gpus[2].memory_bytes == 8ull << 30);
    CHILD_NEEDS(r.gpus[0].nvlinks[1] == 2 && r.gpus[1].nvlinks[0] == 2);
    CHILD_NEEDS(r.gpus[2].nvlinks[0] == 0 && r.gpus[2].n_nvlinks == 2);
    return 0;
}

CHILD_TEST(mig_instances_are_reported)
{
    (void)setenv("HVD_FAKE_MIG", "1", 1);
    gpu_report(&none, "ptx_70", &r);
    CHILD_NEEDS(r.gpus[0].is_mig);
    CHILD_NEEDS(!strncmp(r.gpus[0].uuid, "MIG-", 4));
    return 0;
}

CHILD_TEST(gpus_are_reported_without_nvml)
{
    (void)setenv("HVD_FAKE_NVML", "9", 1);
    gpu_report(&none, "ptx_70", &r);
    CHILD_NEEDS(!strcmp(r.driver, "") && !strcmp(r.problem, ""));
    CHILD_NEEDS(r.n_gpus == 1 && r.gpus[0].n_nvlinks == 0);
    return 0;
}

static const struct problem {
    const char *kernels, *cuda, *gpus; /* cuda and gpus of the fake; NULL: as usual */
    const char *name, *value;          /* of the environment */
    const char *text;
} problems[] = {
    {.kernels = "", .text = "no GPU kernels were built in"},
    {.name = "TEST_NCCL",
     .value = "/none/x.so",
     .text = "NCCL was not found: tried HVD_NCCL_LIB: /none/x.so: "},
    {.gpus = "0", .text = "no CUDA device is present"},
    {.name = "CUDA_VISIBLE_DEVICES",
     .value = "-1",
     .text = "no CUDA device is visible (CUDA_VISIBLE_DEVICES=\"-1\")"},
    {.cuda = "10020", .text = "the driver is for CUDA 10.2; 11.0 or later is needed"},
    {.name = "HVD_FAKE_SM",
     .value = "61",
     .text = "GPU 0 (NVIDIA Fake) has compute capability 6.1; 7.0 or later is needed"},
};

static int has_problem(const void *row)
{
    const struct problem *p = row;

    fake_begin();
    if (p->cuda || p->gpus)
        fake.setup(p->cuda, p->gpus, NULL);
    if (p->name)
        (void)setenv(p->name, p->value, 1);
    const struct device_config c = {.nccl_lib = getenv("TEST_NCCL")};
    gpu_report(&c, p->kernels ? p->kernels : "ptx_70", &r);
    if (strncmp(r.problem, p->text, strlen(p->text)) != 0)
        (void)fprintf(stderr, "\"%s\" is not \"%s\"\n", r.problem, p->text);
    CHILD_NEEDS(strncmp(r.problem, p->text, strlen(p->text)) == 0);
    CHILD_NEEDS(!p->gpus || !strcmp(r.cuda, "12.4")); /* known without a device */
    return 0;
}

/* It may be for the display. */
CHILD_TEST(an_old_gpu_beside_a_new_one_is_no_problem)
{
    fake_begin();
    (void)setenv("HVD_FAKE_OLD", "1", 1);
    fake.setup(NULL, "2", NULL);
    gpu_report(&(const struct device_config){0}, "ptx_70", &r);
    CHILD_NEEDS(r.n_gpus == 2 && r.gpus[0].sm == 90 && r.gpus[1].sm == 61);
    CHILD_NEEDS(!r.problem[0]);
    return 0;
}

UNIT_TEST(the_first_problem_is_reported)
{
    ASSERT_CHILDREN(has_problem, problems);
}

/* What the program prints; its exit status. */
static int output_of(const char *command, char *ret, size_t size)
{
    FILE *f = popen(command, "r"); /* NOLINT(cert-env33-c): a test */

    assert_non_null(f);
    ret[fread(ret, 1, size - 1, f)] = '\0';
    return WEXITSTATUS(pclose(f));
}

/* An NCCL in nccl/ of lib/ beside the program's folder is found when no other is. */
UNIT_TEST(the_bundled_nccl_is_found)
{
    char folder[] = "/tmp/hvd-gpu-bundle-XXXXXX";
    char text[4096], self[2048], command[12288];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    assert_true(n > 0);
    self[n] = '\0';
    *strstr(self, "/unit/") = '\0';
    assert_non_null(mkdtemp(folder));
    (void)snprintf(command, sizeof(command),
                   "cd %s && mkdir -p bin lib/nccl driver && cp %s/bin/hvd-gpu bin/ && "
                   "ln -s %s/fakes/libnccl.so.2 lib/nccl/ && "
                   "ln -s %s/fakes/libcuda.so.1 driver/ && "
                   "export HVD_FAKE_GPUS=1 LD_LIBRARY_PATH=$PWD/driver && "
                   "bin/hvd-gpu info && bin/hvd-gpu info $PWD",
                   folder, self, self, self);
    assert_int_equal(output_of(command, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "/fakes/libnccl.so.2\n"));
    /* another folder said: it is looked for there alone */
    assert_non_null(
        strstr(text, "problem NCCL was not found (nvidia-nccl-cu12 of PyPI "));
    assert_non_null(strstr(text, folder));
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(output_of(command, text, sizeof(text)), 0);
}

UNIT_MAIN(NULL, NULL)
