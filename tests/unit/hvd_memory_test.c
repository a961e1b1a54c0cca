/* SPDX-License-Identifier: Apache-2.0 */
/* What libhvd adds to a process beside its buffers: the promise is less than 16 MiB. */
#include "tests/unit/hvd_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

static long rss_kib(void)
{
    AUTOFREE char *text = NULL;
    const char *at;
    size_t n;

    CHECK(fd_read_file("/proc/self/status", 65536, &text, &n, NULL) == 0, "status");
    at = strstr(text, "VmRSS:");
    CHECK(at, "VmRSS");
    return strtol(at + 6, NULL, 10);
}

RANK_BODY(measured_body)
{
    enum { N = 16 << 20 }; /* 64 MiB of floats */
    float *big = malloc(sizeof(*big) * N), small[1024] = {0};
    long before, idle, after;
    char name[32];

    CHECK(big, "malloc");
    for (int i = 0; i < N; i++)
        big[i] = (float)rank;
    before = rss_kib();
    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof(name), "layer/%d/weight", i);
        CHECK_OK(sum_now(name, small, ARRAY_LEN(small)));
    }
    idle = rss_kib();
    for (int i = 0; i < 3; i++)
        CHECK_OK(sum_now("big", big, N));
    after = rss_kib();
    shared->r[rank].status = (int)(after - before);
    (void)fprintf(stderr,
                  "# rank %d: RSS +%ld KiB after 300 x 4 KiB, +%ld KiB after 64 MiB\n",
                  rank, idle - before, after - before);
    CHECK_OK(hvd_shutdown());
    free(big);
}

UNIT_TEST(the_library_adds_less_than_16_mib)
{
    world_run(2, measured_body);
    for (int r = 0; r < 2; r++)
        assert_in_range(shared->r[r].status, 0, 16 * 1024 - 1);
}

int main(void)
{
    if (IS_SANITIZED) {
        (void)printf("1..0 # SKIP a sanitizer's own memory would be measured\n");
        return 0;
    }
    return unit_run(NULL, NULL);
}
