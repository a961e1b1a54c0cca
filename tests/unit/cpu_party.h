/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a cpu communicator as threads of one process, so that ThreadSanitizer sees
 * all of them and a test can inspect each. Hosts are named by HVD_HOST_ID. Every wait
 * has a deadline; a member that fails leaves a message. */
#ifndef TESTS_UNIT_CPU_PARTY_H
#define TESTS_UNIT_CPU_PARTY_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "runtime/backend/cpu/cpu.h"
#include "tests/unit/cpu_batch.h"
#include "tests/unit/unit.h"

enum { MAX_MEMBERS = 18, N_EXCHANGES = 3, SAID_BYTES = 640 };
/* Ends a hang: spinning members need a turn of the processors each. */
enum { PARTY_LIMIT_S = 240 };

struct party;
typedef int (*party_body_fn)(struct backend *b,
                             uint32_t me,
                             struct party *p,
                             char *said);

struct party { /* members as threads of this process */
    uint32_t size;
    const char *hosts; /* a letter each; NULL: all on one */
    uint32_t n_rounds;
    party_body_fn body;
    atomic_uint n_in[N_EXCHANGES]; /* the exchange */
    void *blob[N_EXCHANGES][MAX_MEMBERS];
    uint32_t len[N_EXCHANGES][MAX_MEMBERS];
    struct cpu *cpu[MAX_MEMBERS]; /* for bodies that look at each other */
    atomic_uint n_done, n_at;
    char said[MAX_MEMBERS][SAID_BYTES];
    uint64_t deadline_ns;
};

struct seat {
    struct party *p;
    uint32_t me;
    unsigned round;
};

static inline uint64_t word_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static pthread_mutex_t environment = PTHREAD_MUTEX_INITIALIZER;

static void wait_for(atomic_uint *n, unsigned want, uint64_t deadline_ns)
{
    while (atomic_load(n) < want && clock_now_ns() < deadline_ns)
        sched_yield();
}

static int party_exchange(void *arg,
                          const void *blob,
                          uint32_t n,
                          uint8_t ***ret_blobs,
                          uint32_t **ret_sizes,
                          struct err *err)
{
    struct seat *s = arg;
    struct party *p = s->p;
    unsigned k = s->round++;
    uint8_t **all = mem_calloc(1, p->size * (sizeof(*all) + sizeof(uint32_t)));
    p->blob[k][s->me] = malloc(n);
    memcpy(p->blob[k][s->me], blob, n);
    p->len[k][s->me] = n;
    atomic_fetch_add(&p->n_in[k], 1);
    wait_for(&p->n_in[k], p->size, p->deadline_ns);
    if (atomic_load(&p->n_in[k]) < p->size || !all) {
        mem_free(all);
        return err_set(err, -ETIMEDOUT, "round %u", k);
    }
    for (uint32_t i = 0; i < p->size; i++) {
        all[i] = p->blob[k][i];
        ((uint32_t *)(all + p->size))[i] = p->len[k][i];
    }
    *ret_sizes = (uint32_t *)(all + p->size);
    *ret_blobs = all;
    return 0;
}

static int seat_describe(struct seat *s,
                         struct backend_env *env,
                         struct backend **ret,
                         void **ret_blob,
                         uint32_t *ret_n,
                         struct err *err)
{
    const char host[2] = {s->p->hosts ? s->p->hosts[s->me] : 'h', '\0'};
    /* the host name is a variable of the whole process */
    pthread_mutex_lock(&environment);
    setenv("HVD_HOST_ID", host, 1);
    setenv("HOROVOD_HOSTNAME", host, 1);
    int rc = backend_cpu.describe(env, ret, ret_blob, ret_n, err);
    pthread_mutex_unlock(&environment);
    return rc;
}

static void *seat_run(void *arg)
{
    struct seat *s = arg;
    struct party *p = s->p;
    struct err err = ERR_INIT;
    struct token token = {{1}};
    struct backend *b = NULL;
    struct backend_env env = {
        .rank = s->me,
        .size = p->size,
        .id = {.token = &token, .job_id = "test/job/1"},
        .local_addr = "127.0.0.1",
        .deadline_ns = p->deadline_ns,
        .peer_timeout_ns = 30 * NS_PER_S,
        .exchange = party_exchange,
        .arg = s,
    };
    void *blob;
    uint8_t **all;
    uint32_t n, *sizes;
    int rc = seat_describe(s, &env, &b, &blob, &n, &err);
    if (rc == 0)
        rc = party_exchange(s, blob, n, &all, &sizes, &err);
    if (rc == 0)
        rc = backend_cpu.connect(b, all, sizes, &err);
    if (rc < 0) {
        snprintf(p->said[s->me], sizeof(p->said[0]), "%s", err.text);
        return NULL;
    }
    mem_free(blob);
    mem_free(all);
    p->cpu[s->me] = (struct cpu *)b;
    atomic_fetch_add(&p->n_at, 1);
    wait_for(&p->n_at, p->size, p->deadline_ns);
    if (p->body(b, s->me, p, p->said[s->me]) != 0 && p->said[s->me][0] == '\0')
        snprintf(p->said[s->me], sizeof(p->said[0]), "failed");
    /* to members that still wait, leaving looks like a loss */
    atomic_fetch_add(&p->n_done, 1);
    wait_for(&p->n_done, p->size, p->deadline_ns);
    backend_cpu.close(b);
    return NULL;
}

/* Members on these hosts, a letter each, run the body. */
static inline void party_run(const char *hosts, party_body_fn body, uint32_t n_rounds)
{
    struct party party = {.size = (uint32_t)strlen(hosts),
                          .hosts = hosts,
                          .n_rounds = n_rounds,
                          .body = body};
    struct party *p = &party;
    pthread_t t[MAX_MEMBERS];
    struct seat s[MAX_MEMBERS];
    p->deadline_ns = clock_now_ns() + PARTY_LIMIT_S * NS_PER_S;
    for (uint32_t i = 0; i < p->size; i++) {
        s[i] = (struct seat){.p = p, .me = i};
        assert_int_equal(pthread_create(&t[i], NULL, seat_run, &s[i]), 0);
    }
    for (uint32_t i = 0; i < p->size; i++)
        pthread_join(t[i], NULL);
    for (int k = 0; k < N_EXCHANGES; k++)
        for (uint32_t i = 0; i < p->size; i++)
            free(p->blob[k][i]);
    for (uint32_t i = 0; i < p->size; i++)
        assert_string_equal(p->said[i], "");
}

/* The sockets of a member, which are on other hosts, hold little. */
static inline void party_narrow(struct backend *b, int bytes)
{
    const struct net *net = &((struct cpu *)b)->net;
    for (uint32_t i = 0; i < net->n; i++) {
        (void)setsockopt(net->peers[i].fd, SOL_SOCKET, SO_SNDBUF, &bytes,
                         sizeof(bytes));
        (void)setsockopt(net->peers[i].fd, SOL_SOCKET, SO_RCVBUF, &bytes,
                         sizeof(bytes));
    }
}

static inline int party_fails(
    struct backend *b, char *said, const char *what, uint32_t round, struct err *e)
{
    snprintf(said, SAID_BYTES, "%s, round %u, rank %u: %s", what, round,
             ((struct cpu *)b)->env.rank, e->text);
    return 1;
}

#endif
