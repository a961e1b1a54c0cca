/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_mac: all ranks of a world compute the same, for one purpose and one token only.
 * HVD_DATA_MAC: a rank with another value is one error on all ranks. What it protects is
 * tested by cpu_relay_test.c. */
#include "runtime/base/sha256.h"
#include "tests/unit/hvd_world.h"

static struct macs {
    unsigned char plain[HVD_MAC_BYTES], other[HVD_MAC_BYTES];
} * of_rank; /* shared with the parent */

static void ranks_compute(int rank, int size)
{
    unsigned char empty[HVD_MAC_BYTES], again[HVD_MAC_BYTES];

    (void)size;
    CHECK_FAILS(hvd_mac("a", "x", 1, again), HVD_NOT_INITIALIZED, "init");
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(hvd_mac("object of rank 1", "bytes", 5, of_rank[rank].plain));
    CHECK_OK(hvd_mac("object of rank 0", "bytes", 5, of_rank[rank].other));
    CHECK_OK(hvd_mac("object of rank 1b", "ytes", 4, again));
    CHECK(!mac_equal(again, of_rank[rank].plain), "the purpose has no end");
    CHECK_OK(hvd_mac("object of rank 1", NULL, 0, empty));
    CHECK(!mac_equal(empty, of_rank[rank].plain), "the data does not count");
    CHECK_FAILS_AS(hvd_mac(NULL, "x", 1, again), HVD_INVALID_ARGUMENT,
                   "purpose: is NULL");
    CHECK_FAILS_AS(hvd_mac("a", NULL, 1, again), HVD_INVALID_ARGUMENT, "data: is NULL");
    CHECK_FAILS_AS(hvd_mac("a", "x", 1, NULL), HVD_INVALID_ARGUMENT,
                   "ret_mac: is NULL");
    CHECK_OK(hvd_shutdown());
}

UNIT_TEST(ranks_compute_the_same)
{
    unsigned char first[HVD_MAC_BYTES];

    of_rank = mmap(NULL, sizeof(*of_rank) * WORLD_MAX, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(of_rank, MAP_FAILED);
    world_run(3, ranks_compute);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(of_rank[i].plain, of_rank[0].plain, HVD_MAC_BYTES);
        assert_memory_equal(of_rank[i].other, of_rank[0].other, HVD_MAC_BYTES);
    }
    assert_memory_not_equal(of_rank[0].plain, of_rank[0].other, HVD_MAC_BYTES);
    memcpy(first, of_rank[0].plain, sizeof(first));
    world_run(2, ranks_compute); /* another token */
    assert_memory_not_equal(of_rank[0].plain, first, HVD_MAC_BYTES);
}

UNIT_TEST(a_world_of_one_has_macs_too)
{
    world_run(1, ranks_compute);
}

WORLD_TEST(ranks_that_differ_in_data_mac_fail_at_once, 3)
{
    (void)size;
    (void)setenv("HVD_DATA_MAC", rank == 1 ? "0" : "1", 1);
    CHECK_FAILS(hvd_init(NULL), HVD_INVALID_ARGUMENT, "HVD_DATA_MAC is 1 on rank 0");
    CHECK(strstr(hvd_last_error(), "and 0 on rank 1"), "%s", hvd_last_error());
}

UNIT_MAIN(NULL, NULL)
