/* SPDX-License-Identifier: Apache-2.0 */
/* A training process with the runtime and without a framework: forms the world, sums a
 * few tensors a few times and prints what the runtime's variables have changed.
 *
 *     launch-world [STEPS [FILE]]     with FILE rank 1 submits nothing until it exists
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hvd.h"

enum { TENSORS = 4, NUMBERS = 64 };

static void hvd_check(int rc)
{
    if (rc == HVD_OK)
        return;
    (void)fprintf(stderr, "launch-world: %s\n", hvd_last_error());
    exit(7);
}

static void world_step(void)
{
    static float data[TENSORS][NUMBERS];
    const int64_t shape[1] = {NUMBERS};
    hvd_handle h[TENSORS];
    char name[32];
    for (int i = 0; i < TENSORS; i++) {
        (void)snprintf(name, sizeof(name), "tensor/%d", i);
        for (int k = 0; k < NUMBERS; k++)
            data[i][k] = 1;
        struct hvd_tensor t = {.size_bytes = sizeof(t),
                               .name = name,
                               .data = data[i],
                               .output = data[i],
                               .dtype = HVD_FLOAT32,
                               .ndim = 1,
                               .shape = shape,
                               .device = -1};
        hvd_check(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h[i]));
    }
    for (int i = 0; i < TENSORS; i++) {
        hvd_check(hvd_wait(h[i], -1));
        hvd_check(hvd_release(h[i]));
        if (data[i][NUMBERS - 1] != (float)hvd_size())
            exit(8);
    }
}

/* The CPUs of the runtime's thread, if it exists: it may start after the first steps,
 * which the caller then carries out, and gets its name once it is bound. */
static bool print_thread(void)
{
    bool found = false;
    DIR *d = opendir("/proc/self/task");
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char path[300], line[256], name[32] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof(line), f)) {
            if (sscanf(line, "Name: %31s", name) == 1)
                continue;
            if (!strncmp(line, "Cpus_allowed_list:", 18)
                && !strcmp(name, "hvd-coordinator")) {
                printf("thread_cpus=%s", line + 19);
                found = true;
            }
        }
        if (f)
            (void)fclose(f);
    }
    if (d)
        (void)closedir(d);
    return found;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 3;
    struct hvd_stats s = {.size_bytes = sizeof(s)};
    hvd_check(hvd_init(NULL));
    while (argc > 2 && hvd_rank() == 1 && access(argv[2], F_OK) < 0)
        (void)usleep(10000);
    for (int i = 0; i < steps; i++)
        world_step();
    hvd_check(hvd_stats(&s));
    printf("fusion_bytes=%llu\ngather_ns=%llu\ncache_hits=%llu\nfused=%llu\n",
           (unsigned long long)s.fusion_bytes, (unsigned long long)s.gather_ns,
           (unsigned long long)s.cache_hits, (unsigned long long)s.fused);
    for (int i = 0; i < 1000 && !print_thread(); i++)
        (void)usleep(10000);
    hvd_check(hvd_shutdown());
    return 0;
}
