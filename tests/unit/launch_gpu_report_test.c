/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_report.c: lines of hvd-gpu, whole and broken; the driver's version of the kernel.
 */
#include "runtime/launch/core/gpu_report.h"
#include "tests/unit/launch_fixture.h"

static struct gpu_report r;

UNIT_TEST(all_lines_are_read)
{
    gpu_report_read("driver 570.86.10\ncuda 12.8\nnccl 2.27.5\nnccl-path /a b/nccl\n"
                    "kernels sm_70 ptx_70\n"
                    "gpu 0 GPU-1 90 81559 - NVIDIA H100 80GB HBM3\n"
                    "gpu 1 MIG-2 80 9856 mig A100 MIG 1g.10gb\n"
                    "nvlink 0 1 18\nnvlink 0 - 2\n"
                    "ib mlx5_0 1 400 Gb/sec (4X NDR)\nib mlx5_1 1 -\n"
                    "problem \"it\" is\x01so\n",
                    &r);
    assert_string_equal(r.driver, "570.86.10");
    assert_string_equal(r.cuda, "12.8");
    assert_string_equal(r.nccl, "2.27.5");
    assert_string_equal(r.nccl_path, "/a b/nccl");
    assert_string_equal(r.kernels, "sm_70 ptx_70");
    assert_int_equal(r.n_gpus, 2);
    assert_int_equal(r.gpus[0].index, 0);
    assert_string_equal(r.gpus[0].uuid, "GPU-1");
    assert_int_equal(r.gpus[0].sm, 90);
    assert_int_equal(r.gpus[0].memory_mib, 81559);
    assert_false(r.gpus[0].is_mig);
    assert_string_equal(r.gpus[0].name, "NVIDIA H100 80GB HBM3");
    assert_true(r.gpus[1].is_mig);
    assert_string_equal(r.gpus[1].name, "A100 MIG 1g.10gb");
    assert_string_equal(r.nvlinks, "0-1:18 0-switch:2");
    assert_string_equal(r.ib, "mlx5_0/1 400 Gb/sec (4X NDR), mlx5_1/1 -");
    assert_string_equal(r.problem, "'it' is?so");
    assert_false(gpu_report_lacks_nccl(&r));
    gpu_report_read("problem NCCL was not found: tried x\n", &r);
    assert_true(gpu_report_lacks_nccl(&r));
    assert_int_equal(r.n_gpus, 0);
}

UNIT_TEST(of_broken_lines_nothing_is_taken)
{
    static const char *const broken[] = {"",
                                         "driver 570",
                                         "driver\n",
                                         "driver \n",
                                         "drivers 570\n",
                                         "gpu 0 GPU-1 90 81559\n",
                                         "gpu x GPU-1 90 81559 - N\n",
                                         "gpu\n",
                                         "nvlink 0 1\n",
                                         "ib mlx5_0\n",
                                         "\n\n\n",
                                         "else 1\n"};
    static const struct gpu_report nothing;
    char text[4000];

    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        gpu_report_read(broken[i], &r);
        assert_memory_equal(&r, &nothing, sizeof(r));
    }
    memset(text, 'x', sizeof(text));
    memcpy(text, "driver ", 7);
    (void)snprintf(text + 3000, 20, "\ncuda 12.4\n");
    gpu_report_read(text, &r); /* one line is too long, the next is fine */
    assert_string_equal(r.driver, "");
    assert_string_equal(r.cuda, "12.4");
    size_t n = 0;
    for (int i = 0; i < 60; i++)
        n += (size_t)sprintf(text + n, "gpu %d GPU-%d 90 1 - N\nnvlink %d - 9\n", i, i,
                             i);
    gpu_report_read(text, &r);
    assert_int_equal(r.n_gpus, GPU_REPORT_MAX_GPUS);
    assert_true(strlen(r.nvlinks) < sizeof(r.nvlinks));
}

UNIT_TEST(the_kernels_word_has_the_drivers_version)
{
    static const struct {
        const char *text, *version;
    } table[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Wed Jan  8 2025\n",
         "570.86.10"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release "
         "Build  (dvs-builder@U16)\nGCC version:  gcc 12.2.0\n",
         "550.54.15"},
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.87", "418.87"},
        {"", ""},
        {"nothing of that kind\n12.2\n", ""},
        {"NVRM version: a 11111111.222222222222222222222222222222222 x\n", ""},
    };
    char version[32];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        gpu_report_driver(table[i].text, version, sizeof(version));
        assert_string_equal(version, table[i].version);
    }
}

UNIT_TEST(a_line_for_people_has_all)
{
    static const struct {
        const char *answer, *line;
    } table[] = {
        {"driver 570.86.10\ncuda 12.8\nnccl 2.27.5\nnccl-path /a b/nccl\n"
         "gpu 0 GPU-1 90 81559 - NVIDIA H100 80GB HBM3\n"
         "gpu 1 GPU-2 90 81559 - NVIDIA H100 80GB HBM3\n"
         "nvlink 0 1 18\nib mlx5_0 1 400 Gb/sec (4X NDR)\n",
         "GPUs: 2 x NVIDIA H100 80GB HBM3 (81559 MiB, sm_90); driver 570.86.10, CUDA "
         "12.8, NCCL 2.27.5 (/a b/nccl); NVLink 0-1:18; InfiniBand mlx5_0/1 400 Gb/sec "
         "(4X NDR)"},
        {"cuda 12.8\ngpu 0 GPU-1 90 1 - A\ngpu 1 MIG-2 80 1 mig B\n"
         "gpu 2 GPU-3 90 1 - A\ngpu 3 GPU-4 90 2 - A\n",
         "GPUs: 2 x A (1 MiB, sm_90), 1 x B (1 MiB, sm_80, MIG), 1 x A (2 MiB, sm_90); "
         "CUDA 12.8"},
        {"driver 1.2\ngpu 0 GPU-1 90 1 - A\nproblem NCCL was not found: tried x\n",
         "GPUs: 1 x A (1 MiB, sm_90); driver 1.2; no NCCL in the system; ranks look "
         "for that of their framework"},
        {"problem no CUDA device is visible\n",
         "GPUs: none; no CUDA device is visible"},
        {"", "GPUs: none"},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        CLEANUP(strbuf_release) struct strbuf line = {0};
        strbuf_init(&line, 1000);
        gpu_report_read(table[i].answer, &r);
        gpu_report_line(&r, &line);
        assert_string_equal(strbuf_str(&line), table[i].line);
    }
}

UNIT_MAIN(NULL, NULL)
