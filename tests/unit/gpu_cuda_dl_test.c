/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the driver, and what its errors become. */
#include "tests/unit/gpu_fake.h"

UNIT_TEST(no_driver_is_a_sentence)
{
    struct cuda_api api;
    struct err err = ERR_INIT;

    assert_int_equal(cuda_load("libcuda-none.so.1", &api, &err), -ENODEV);
    assert_non_null(strstr(err.text, "no NVIDIA driver here (libcuda-none.so.1: "));
}

UNIT_TEST(old_driver_is_refused)
{
    struct cuda_api api;
    struct err err = ERR_INIT;

    fake_begin();
    fake.setup("10020", "1", NULL);
    assert_int_equal(cuda_load(CUDA_LIBRARY, &api, &err), -ENOTSUP);
    assert_string_equal(err.text,
                        "the driver is for CUDA 10.2; 11.0 or later is needed "
                        "(NVIDIA driver 450 or later)");
}

UNIT_TEST(what_a_version_has_not_is_null)
{
    fake_begin_as("11000", "1", NULL);
    assert_int_equal(fake.cu.version, 11000);
    assert_null(fake.cu.mem_alloc_async);
    assert_null(fake.cu.graph_make);
    assert_non_null(fake.cu.device_uuid_v1);
    assert_null(fake.cu.device_uuid);
    fake_begin_as("12040", "1", NULL);
    assert_non_null(fake.cu.mem_alloc_async);
    assert_non_null(fake.cu.graph_make);
    assert_null(fake.cu.ctx_record_event);
    fake_begin_as("12050", "1", NULL);
    assert_non_null(fake.cu.ctx_record_event);
}

UNIT_TEST(error_text_names_call_and_code)
{
    static const struct {
        const char *call;
        int result, rc;
        const char *text;
    } rows[] = {
        {"cuMemAlloc_v2", CU_OUT_OF_MEMORY, -ENOMEM,
         "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"},
        {"cuEventQuery", CU_ILLEGAL_ADDRESS, -EIO,
         "cuEventQuery: an illegal memory access was encountered "
         "(CUDA_ERROR_ILLEGAL_ADDRESS); the CUDA context of this process is lost: "
         "restart it"},
        {"cuX", 12345, -EINVAL, "cuX: CUDA error 12345"},
        {"cuInit", CU_SYSTEM_NOT_READY, -ENODEV,
         "cuInit: system not yet initialized (CUDA_ERROR_SYSTEM_NOT_READY); where GPUs "
         "have NVSwitches, the host's service nvidia-fabricmanager must run, in the "
         "version of the driver"},
        {"cuX", CU_DEVICE_UNAVAILABLE, -ENODEV,
         "cuX: CUDA error 46; another process has this GPU, whose compute mode is "
         "exclusive (nvidia-smi -q -d COMPUTE,PIDS)"},
    };
    struct err err = ERR_INIT;

    fake_begin();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(cuda_fail(&fake.cu, rows[i].call, rows[i].result, &err),
                         rows[i].rc);
        assert_string_equal(err.text, rows[i].text);
    }
    assert_int_equal(cuda_fail(&fake.cu, "cuInit", CU_SYSTEM_DRIVER_MISMATCH, &err),
                     -ENOTSUP);
    assert_non_null(strstr(err.text, "does not fit the driver of the host"));
    assert_string_equal(cuda_symbol(CUDA_stream_wait), "cuStreamWaitEvent");
    assert_int_equal(fake.cu.init(0), 0);
    assert_int_equal(CUDA_TRY(&fake.cu, device_get, &err, &(cu_device){0}, 99),
                     -ENODEV);
    assert_string_equal(
        err.text, "cuDeviceGet: invalid device ordinal (CUDA_ERROR_INVALID_DEVICE)");
}

/* cuda.h specifies for each whether the process can continue. */
UNIT_TEST(what_loses_the_context_is_reported)
{
    static const int lost[] = {214, 220, 226, 700, 702, 709, 710, 714,
                               715, 716, 717, 718, 719, 721, 810, 911};
    static const int passes[] = {1, 2, 201, 400, 701, 704, 711, 712, 713, 720, 999};
    struct err err = ERR_INIT;

    fake_begin();
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        assert_int_equal(cuda_fail(&fake.cu, "cuX", lost[i], &err), -EIO);
        assert_non_null(strstr(err.text, "is lost: restart it"));
    }
    for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++)
        assert_int_not_equal(cuda_fail(&fake.cu, "cuX", passes[i], &err), -EIO);
}

UNIT_MAIN(NULL, NULL)
