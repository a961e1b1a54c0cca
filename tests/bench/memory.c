/* SPDX-License-Identifier: Apache-2.0 */
/* The memory bandwidth that bounds an allreduce: N processes copy at the same time, each
 * its own memory, 4 bytes read and 4 written an element.
 *
 *     memory N
 *
 * Sizes, rows and "the slowest process counts" as in measure.h. An allreduce in place
 * must at least read and write every element of every rank's tensor once, so it cannot
 * take less than this by much; DECISIONS.md has the model. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/timing.h"

enum { MAX_RANKS = 64, ITERS = 40, SPIN = 1000 };

struct shared {
    _Atomic uint32_t arrived; /* counts up for ever: barrier k is over at k * n */
    double times[MAX_RANKS][ITERS];
};

static void shared_barrier(struct shared *s, uint32_t n)
{
    uint32_t mine = atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel);
    uint32_t over = (mine / n + 1) * n;
    for (int i = 0; atomic_load_explicit(&s->arrived, memory_order_acquire) < over; i++)
        if (i >= SPIN)
            (void)sched_yield();
}

static int run_rank(struct shared *s, uint32_t me, uint32_t n, size_t bytes)
{
    float *x, *y;
    if (posix_memalign((void **)&x, 4096, bytes) != 0
        || posix_memalign((void **)&y, 4096, bytes) != 0)
        return 1;
    memset(x, 0, bytes);
    memset(y, 0, bytes);
    for (int i = -3; i < ITERS; i++) {
        shared_barrier(s, n);
        double a = now_us();
        memcpy(x, y, bytes);
        __asm__ volatile("" ::"r"(x) : "memory"); /* it counts as read */
        s->times[me][i < 0 ? 0 : i] = now_us() - a;
    }
    shared_barrier(s, n);
    free(x);
    free(y);
    return 0;
}

static int memory_measure(struct shared *s, uint32_t n, size_t bytes)
{
    pid_t pid[MAX_RANKS];
    int failed = 0;
    double mean = 0;
    atomic_store(&s->arrived, 0);
    for (uint32_t i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(run_rank(s, i, n, bytes));
    }
    for (uint32_t i = 0; i < n; i++) {
        int st;
        if (waitpid(pid[i], &st, 0) != pid[i] || !WIFEXITED(st) || WEXITSTATUS(st) != 0)
            failed = 1;
    }
    if (failed)
        return 1;
    for (int i = 0; i < ITERS; i++) {
        for (uint32_t r = 1; r < n; r++)
            if (s->times[r][i] > s->times[0][i])
                s->times[0][i] = s->times[r][i];
        mean += s->times[0][i] / ITERS;
    }
    print_row("copy", (int)n, bytes, s->times[0], ITERS, mean);
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1 << 20, 16 << 20, 128 << 20};
    uint32_t n = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    if (n < 1 || n > MAX_RANKS) {
        fprintf(stderr, "usage: %s N   (1 to %d processes)\n", argv[0], MAX_RANKS);
        return 2;
    }
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (memory_measure(s, n, sizes[i]) != 0)
            return 1;
    return 0;
}
