/* SPDX-License-Identifier: Apache-2.0 */
/* A rank without Python: c_rank loop|lock RANK FOLDER. That rank hangs in a function of
 * this name, after it has created the file FOLDER/hangs.0. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hvd.h"

__attribute__((noinline)) static void hang_in_loop(void)
{
    for (volatile unsigned long n = 0;; n++)
        ;
}

__attribute__((noinline)) static void hang_in_lock(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&lock);
    (void)pthread_mutex_lock(&lock);
    puts("never"); /* no tail call: the function stays on the stack */
}

static void sum(void)
{
    float v[8] = {0};
    int64_t n = 8;
    struct hvd_tensor t = {.size_bytes = sizeof(t),
                           .name = "grad/0",
                           .dtype = HVD_FLOAT32,
                           .ndim = 1,
                           .device = HVD_DEVICE_HOST,
                           .shape = &n,
                           .data = v,
                           .output = v};
    hvd_handle h;

    if (hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h) != HVD_OK
        || hvd_wait(h, -1) != HVD_OK || hvd_release(h) != HVD_OK) {
        fprintf(stderr, "%s\n", hvd_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    char path[1000];
    FILE *f;

    if (argc != 4 || hvd_init(NULL) != HVD_OK)
        return 2;
    sum();
    if (hvd_rank() == atoi(argv[2])) {
        (void)snprintf(path, sizeof(path), "%s/hangs.0", argv[3]);
        f = fopen(path, "w");
        if (!f || fclose(f) != 0)
            return 3;
        if (strcmp(argv[1], "loop") == 0)
            hang_in_loop();
        else
            hang_in_lock();
    }
    sum();
    return hvd_shutdown();
}
