/* SPDX-License-Identifier: Apache-2.0 */
/* What users can observe of GPU tensors through hvd.h, on the fakes: the timeline's
 * names, the report of the machine, and HVD_NANCHECK. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 1000 };

static char path[64];

/* --- timeline --- */

RANK_BODY(is_drawn)
{
    float *v, *w;
    hvd_handle h[8];

    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    w = floats_on_gpu(rank, N);
    for (int i = 0; i < 8; i++) { /* names come again before the GPU is done */
        CHECK_OK(sum_on_gpu(rank, "g", i % 2 ? v : w, N, 0, &h[i]));
        CHECK_OK(hvd_wait_on_stream(h[i], NULL, -1));
    }
    for (int i = 0; i < 8; i++)
        CHECK_OK(wait_release(h[i]));
    CHECK_OK(hvd_shutdown());
}

static unsigned n_of(const char *text, const char *what)
{
    unsigned n = 0;

    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

UNIT_TEST(the_timeline_has_nccl_s_names)
{
    struct err err = ERR_INIT;
    AUTOFREE char *text = NULL;

    (void)snprintf(path, sizeof(path), "/tmp/hvdgpu_observe_test.%d", (int)getpid());
    (void)setenv("HOROVOD_TIMELINE", path, 1);
    gpu_world_run("22705", 2, is_drawn);
    (void)unsetenv("HOROVOD_TIMELINE");
    assert_int_equal(fd_read_file(path, 1 << 20, &text, NULL, &err), 0);
    (void)unlink(path);
    assert_int_equal(n_of(text, "\"INIT_NCCL\""), 1);
    assert_int_equal(n_of(text, "\"NCCL_ALLREDUCE\""), 8);
    assert_true(strstr(text, "\"INIT_NCCL\"") < strstr(text, "\"NCCL_ALLREDUCE\""));
    assert_int_equal(n_of(text, "\"CPU_ALLREDUCE\""), 0);
    assert_int_equal(n_of(text, "\"ph\":\"B\""), n_of(text, "\"ph\":\"E\""));
}

/* --- the report --- */

RANK_BODY(is_reported)
{
    char text[4096];

    CHECK(hvd_device_report(text, sizeof(text)) < sizeof(text), "long");
    CHECK(strstr(text, "{\"can\":true,\"problem\":\"\",\"driver\":\"")
              && strstr(text, "\"nccl\":\"2.27.5\"") && strstr(text, "/libnccl.so.2\"")
              && strstr(text, "\"kernels\":\"sm_") && strstr(text, "{\"index\":7,")
              && strstr(text, "\"uuid\":\"GPU-") && !strstr(text, "{\"index\":8,"),
          "%s", text);
}

RANK_BODY(rank_cannot)
{
    char text[4096];

    (void)setenv("HVD_FAKE_NCCL", "20804", 1);
    (void)hvd_device_report(text, sizeof(text));
    CHECK(strstr(text, "{\"can\":false,\"problem\":\"NCCL 2.8.4 "), "%s", text);
}

UNIT_TEST(the_report_lists_what_exists)
{
    gpu_world_run("22705", 1, is_reported);
    world_run(1, rank_cannot);
}

/* --- NaN --- */

RANK_BODY(not_finite)
{
    float *v;
    hvd_handle h;

    (void)setenv("HVD_NANCHECK", "1", 1);
    CHECK_OK(hvd_init(NULL));
    v = floats_on_gpu(rank, N);
    memset(v, 0, N * sizeof(*v));
    CHECK_OK(sum_on_gpu(rank, "well", v, N, 0, &h));
    CHECK_OK(wait_release(h));
    if (rank == 1)
        v[70] = v[999] = v[0] / v[1];
    CHECK_OK(sum_on_gpu(rank, "n", v, N, 0, &h));
    if (rank == 1)
        CHECK(hvd_wait_on_stream(h, NULL, -1) == HVD_ABORTED /* it would be too late */
                  && wait_release(h) == HVD_ABORTED,
              "ok");
    else /* its own part may have ended well; what comes next has not */
        CHECK(wait_release(h) != HVD_OK || sum_now("next", v, 1) == HVD_ABORTED, "ok");
    CHECK(strstr(shared->r[rank].text, "NaN on rank 1 (host testhost): element 70 of "
                                       "1000 in tensor \"n\", input of ALLREDUCE (2 "
                                       "such elements; HVD_NANCHECK)"),
          "%s", shared->r[rank].text);
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(a_nan_is_named_on_all_ranks)
{
    gpu_world_run("22705", 3, not_finite);
}

UNIT_MAIN(NULL, NULL)
