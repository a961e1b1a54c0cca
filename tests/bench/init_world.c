/* SPDX-License-Identifier: Apache-2.0 */
/* How long hvd_init takes: N ranks as processes on this host, from the call to the
 * formed world, the slowest rank of each world. Ranks are forked, so that
 * program loading is not counted.
 *
 *     init_world [worlds of each size] [ranks ...]        default: 5 2 8 64
 *
 * Prints one line a size: median, best and worst of the slowest rank's hvd_init. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/token.h"
#include "hvd.h"
#include "runtime/rendezvous/rendezvous.h"

enum { MAX_RANKS = 256, MAX_WORLDS = 100, LIMIT_S = 60 };

struct board {
    _Atomic int n_ready, go;
    uint64_t took_ns[MAX_RANKS];
};

static void parent_die(const char *what)
{
    (void)fprintf(stderr, "init_world: %s\n", what);
    exit(1);
}

static void
set_place(const char *token_file, uint16_t port, uint32_t rank, uint32_t size)
{
    static struct env_pair env[CONTRACT_MAX_ENV];
    struct contract c;
    struct err err = ERR_INIT;
    size_t n;

    contract_init(&c);
    c.launcher = LAUNCHER_RINGMASTER;
    c.place = (struct place){.rank = rank,
                             .size = size,
                             .local_rank = rank,
                             .local_size = size,
                             .cross_size = 1};
    (void)snprintf(c.hostname, sizeof(c.hostname), "benchhost");
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "127.0.0.1");
    c.rdv_port = port;
    (void)snprintf(c.job_id, sizeof(c.job_id), "bench/init");
    c.token_source = TOKEN_FILE;
    (void)snprintf(c.token_file, sizeof(c.token_file), "%s", token_file);
    if (contract_render(&c, env, &n, &err) < 0)
        parent_die(err.text);
    for (size_t i = 0; i < n; i++)
        (void)setenv(env[i].name, env[i].value, 1);
}

static void be_a_rank(struct board *b, uint32_t rank)
{
    uint64_t t0;

    (void)alarm(LIMIT_S);
    atomic_fetch_add(&b->n_ready, 1);
    while (!atomic_load(&b->go))
        (void)usleep(500); /* nothing that other ranks need runs yet */
    t0 = clock_now_ns();
    if (hvd_init(NULL) != HVD_OK)
        parent_die(hvd_last_error());
    b->took_ns[rank] = clock_now_ns() - t0;
    if (hvd_shutdown() != HVD_OK)
        parent_die(hvd_last_error());
    _exit(0);
}

/* The slowest rank's time. */
static uint64_t one_world(uint32_t size)
{
    char file[64];
    struct token token;
    struct auth_id id = {&token, "bench/init", 0};
    struct rdv_server *server;
    struct err err = ERR_INIT;
    struct board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t worst = 0;
    uint16_t port;
    int fd, status;

    (void)snprintf(file, sizeof(file), "/tmp/hvd-bench-%d.token", (int)getpid());
    if (b == MAP_FAILED || token_random(&token, &err) < 0
        || token_write_file(file, &token, &err) < 0
        || tcp_listen("127.0.0.1", 0, &fd, &port, &err) < 0)
        parent_die(err.text);
    for (uint32_t r = 0; r < size; r++) {
        if (fork() == 0) {
            set_place(file, port, r, size);
            be_a_rank(b, r);
        }
    }
    if (rdv_server_start(fd, &id, size, &server, &err) < 0)
        parent_die(err.text);
    while (atomic_load(&b->n_ready) < (int)size)
        (void)usleep(1000);
    atomic_store(&b->go, 1);
    while (wait(&status) > 0)
        if (status != 0)
            parent_die("a rank failed");
    rdv_server_stop(server);
    (void)unlink(file);
    for (uint32_t r = 0; r < size; r++)
        worst = b->took_ns[r] > worst ? b->took_ns[r] : worst;
    (void)munmap(b, sizeof(*b));
    return worst;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void world_measure(uint32_t size, int n_worlds)
{
    uint64_t ns[MAX_WORLDS];

    for (int i = 0; i < n_worlds; i++)
        ns[i] = one_world(size);
    qsort(ns, (size_t)n_worlds, sizeof(ns[0]), by_value);
    (void)printf("%3u ranks, %d worlds: median %.1f ms, best %.1f, worst %.1f\n", size,
                 n_worlds, (double)ns[n_worlds / 2] / 1e6, (double)ns[0] / 1e6,
                 (double)ns[n_worlds - 1] / 1e6);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint32_t usual[] = {2, 8, 64};
    int n_worlds = argc > 1 ? atoi(argv[1]) : 5;

    if (n_worlds < 1 || n_worlds > MAX_WORLDS)
        parent_die("worlds: 1 to 100");
    for (int i = 2; i < argc; i++) {
        int size = atoi(argv[i]);

        if (size < 1 || size > MAX_RANKS)
            parent_die("ranks: 1 to 256");
        world_measure((uint32_t)size, n_worlds);
    }
    for (size_t i = 0; argc < 3 && i < sizeof(usual) / sizeof(usual[0]); i++)
        world_measure(usual[i], n_worlds);
    return 0;
}
