/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce at the level of the cpu backend:
 *
 *     allreduce_backend N [NAME [ADDRESS NETNS...]]
 *
 * The parent serves the rendezvous at ADDRESS (127.0.0.1) and forks N ranks, which meet
 * through it and run measure.h; rank i does so in the i-th network namespace, where
 * there is one ("-": the parent's), with BENCH_PIN set on the i-th CPU.
 * HVD_TRANSPORT=tcp measures TCP; BENCH_CHECK=crc or mac, with HVD_DATA_CRC=1 or
 * HVD_DATA_MAC=1. Exit status 0 when every rank's was. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/rendezvous.h"
#include "tests/bench/measure.h"

#define MAX_RANKS 64

struct rank {
    struct backend_env env;
    struct backend *b;
    struct rdv_client *rdv;
};

static void rc_must(int rc, const struct err *err, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

static void rank_run_batch(struct rank *r,
                           enum collective coll,
                           const void *in,
                           void *out,
                           uint64_t n,
                           enum dtype t)
{
    struct err err = ERR_INIT;
    uint64_t counts[MAX_RANKS];
    for (uint32_t i = 0; i < r->env.size; i++)
        counts[i] = n;
    struct batch_item item = {.in = in, .out = out, .count = n, .counts = counts};
    struct batch b = {.coll = coll,
                      .dtype = t,
                      .op = OP_SUM,
                      .prescale = 1,
                      .postscale = 1,
                      .items = &item,
                      .n_items = 1};
    uint64_t ticket;
    rc_must(backend_cpu.post(r->b, &b, &ticket, &err), &err, collective_name(coll));
}

static void rank_allreduce(void *ctx, float *x, size_t n)
{
    rank_run_batch(ctx, COLL_ALLREDUCE, x, x, n, DT_F32);
}

static void rank_barrier(void *ctx)
{
    rank_run_batch(ctx, COLL_BARRIER, NULL, NULL, 0, DT_U8);
}

static void rank_max(void *ctx, double *x, int n)
{
    struct rank *r = ctx;
    double *all = calloc((size_t)n * r->env.size, sizeof(*all));
    if (!all)
        exit(1);
    rank_run_batch(r, COLL_ALLGATHER, x, all, (uint64_t)n, DT_F64);
    for (size_t i = 0; i < (size_t)n * r->env.size; i++)
        if (all[i] > x[i % (size_t)n])
            x[i % (size_t)n] = all[i];
    free(all);
}

static int rank_exchange(void *arg,
                         const void *blob,
                         uint32_t n,
                         uint8_t ***ret_blobs,
                         uint32_t **ret_sizes,
                         struct err *err)
{
    struct rank *r = arg;
    return rdv_client_exchange(r->rdv, blob, n, r->env.deadline_ns, ret_blobs,
                               ret_sizes, err);
}

static void enter_netns(const char *name)
{
    char path[200];
    snprintf(path, sizeof(path), "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        perror(path);
        exit(1);
    }
    close(fd);
}

static void rank_pin(uint32_t rank)
{
    cpu_set_t set;
    if (!getenv("BENCH_PIN"))
        return;
    CPU_ZERO(&set);
    CPU_SET(rank % (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        perror("sched_setaffinity");
}

static enum data_check bench_check(void)
{
    const char *s = getenv("BENCH_CHECK");
    return !s                      ? DATA_BARE
           : strcmp(s, "crc") == 0 ? DATA_CRC
           : strcmp(s, "mac") == 0 ? DATA_MAC
                                   : DATA_BARE;
}

static int rank_main(uint32_t me,
                     uint32_t size,
                     const struct auth_id *id,
                     const char *addr,
                     uint16_t port,
                     const char *name)
{
    struct err err = ERR_INIT;
    struct rank r = {
        .env = {.rank = me,
                .size = size,
                .id = *id,
                .data_check = bench_check(),
                .deadline_ns = clock_now_ns() + 30 * NS_PER_S,
                .peer_timeout_ns = 30 * NS_PER_S,
                .exchange = rank_exchange},
    };
    void *blob;
    uint8_t **all;
    uint32_t n, *sizes;
    r.env.arg = &r;
    rc_must(
        rdv_client_connect(addr, port, id, me, size, r.env.deadline_ns, &r.rdv, &err),
        &err, "rendezvous");
    r.env.local_addr = rdv_client_local_addr(r.rdv);
    rc_must(backend_cpu.describe(&r.env, &r.b, &blob, &n, &err), &err, "describe");
    rc_must(rank_exchange(&r, blob, n, &all, &sizes, &err), &err, "exchange");
    rc_must(backend_cpu.connect(r.b, all, sizes, &err), &err, "connect");
    mem_free(all);
    mem_free(blob);
    struct peer_ops p = {.name = name,
                         .rank = (int)me,
                         .size = (int)size,
                         .ctx = &r,
                         .allreduce = rank_allreduce,
                         .barrier = rank_barrier,
                         .max = rank_max};
    int rc = peer_measure(&p);
    backend_cpu.close(r.b);
    rdv_client_close(r.rdv);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    struct token token = {{0}};
    struct auth_id id = {.token = &token, .job_id = "bench", .generation = 0};
    struct rdv_server *s = NULL;
    uint32_t size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    const char *name = argc > 2 ? argv[2] : "backend";
    const char *addr = argc > 3 ? argv[3] : "127.0.0.1";
    pid_t pid[MAX_RANKS];
    int fd = -1, failed = 0;
    uint16_t port;
    if (size < 1 || size > MAX_RANKS) {
        fprintf(stderr, "usage: %s RANKS [NAME [ADDRESS NETNS...]]   (1 to %d ranks)\n",
                argv[0], MAX_RANKS);
        return 2;
    }
    rc_must(token_random(&token, &err), &err, "token");
    rc_must(tcp_listen(addr, 0, &fd, &port, &err), &err, "listen");
    for (uint32_t i = 0; i < size; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            close(fd);
            rank_pin(i);
            if ((int)i + 4 < argc && strcmp(argv[i + 4], "-") != 0)
                enter_netns(argv[i + 4]);
            exit(rank_main(i, size, &id, addr, port, name));
        }
    }
    rc_must(rdv_server_start(fd, &id, size, NULL, &s, &err), &err, "rendezvous server");
    for (uint32_t i = 0; i < size; i++) {
        int st;
        if (waitpid(pid[i], &st, 0) != pid[i] || !WIFEXITED(st) || WEXITSTATUS(st) != 0)
            failed = 1;
    }
    rdv_server_stop(s);
    return failed;
}
