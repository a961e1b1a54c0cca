/* SPDX-License-Identifier: Apache-2.0 */
/* A rank without a GPU has joined while the other ranks move GPU tensors, so it must
 * contribute zeros. No rank waits for it, and all receive its name and the reason. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 10 };

static const struct without {
    const char *name, *value; /* of the environment of rank 1 */
    const char *sentence;
} withouts[] = {
    {"CUDA_VISIBLE_DEVICES", "",
     "rank 1 (host testhost) cannot move tensors on GPUs: no CUDA device is visible "
     "(CUDA_VISIBLE_DEVICES=\"\")"},
    {"HVD_GPU", "off",
     "rank 1 (host testhost) cannot move tensors on GPUs: HVD_GPU=off"},
};
static const struct without *the_case;

RANK_BODY(joined_body)
{
    struct hvd_tensor j = {.size_bytes = sizeof(j), .name = "join"};
    const uint64_t begin_ns = clock_now_ns();
    hvd_handle h;

    if (rank == 1)
        (void)setenv(the_case->name, the_case->value, 1);
    CHECK_OK(hvd_init(NULL));
    if (rank == 1)
        CHECK_OK(hvd_join_async(&j, &h));
    else
        CHECK_OK(sum_on_gpu(rank, "x", floats_on_gpu(rank, N), N, 0, &h));
    CHECK(wait_release(h) == HVD_ABORTED, "status %d", hvd_poll(h));
    CHECK(clock_now_ns() - begin_ns < 10 * NS_PER_S, "told late");
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(all_ranks_report_which_has_no_gpu)
{
    if (!has_kernels())
        return;
    use_nccl("22705");
    for (size_t i = 0; i < sizeof(withouts) / sizeof(withouts[0]); i++) {
        the_case = &withouts[i];
        world_run(3, joined_body);
        assert_non_null(strstr(shared->r[0].text, the_case->sentence));
        for (int r = 1; r < 3; r++) /* the first reporter is in front of it */
            assert_string_equal(shared->r[r].text, shared->r[0].text);
    }
}

UNIT_MAIN(NULL, NULL)
