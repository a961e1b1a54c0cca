/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over TCP with threads as members of a real mesh: bit for bit the sum in
 * member order at any position; small socket buffers; guards behind outputs. The other
 * collectives: cpu_coll_test.c, scattered sums: cpu_order_test.c. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"

#include "runtime/backend/cpu/net.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "tests/unit/seeded.h"

enum { MAX_MEMBERS = 10, SAID_BYTES = 640 };

struct mesh {
    uint32_t n;
    int buffer_bytes; /* of sockets; 0: the kernel's default */
    int (*body)(struct net *net, struct mesh *m, char *said);
    bool long_pipes; /* the smallest chunks, so that there are many */
    size_t n_layouts;
    struct peer peers[MAX_MEMBERS];
    uint32_t ranks[MAX_MEMBERS];
    int fd[MAX_MEMBERS];
    uint64_t deadline_ns;
    atomic_uint n_done, stop, n_checks;
    char said[MAX_MEMBERS][SAID_BYTES];
};

struct seat {
    struct mesh *m;
    uint32_t me;
};

static int go_on(void *arg, uint32_t rank, struct err *err)
{
    struct mesh *m = arg;
    atomic_fetch_add(&m->n_checks, 1); /* a member found nothing to do */
    if (atomic_load(&m->stop) || clock_now_ns() > m->deadline_ns)
        return err_set(err, -ECANCELED, "gave up waiting for %u", rank);
    return 0;
}

static void *member_run(void *arg)
{
    struct seat *s = arg;
    struct mesh *m = s->m;
    struct token token = {{1}};
    struct auth_id id = {.token = &token, .job_id = "test/job/1"};
    struct waiter w = {.n_spins = 4, .check = go_on, .arg = m};
    struct net_join j = {.id = &id,
                         .w = &w,
                         .deadline_ns = m->deadline_ns,
                         .peer_timeout_ns = 30 * NS_PER_S,
                         .n = m->n,
                         .me = s->me,
                         .ranks = m->ranks,
                         .by_rank = m->peers};
    struct net net;
    struct err err = ERR_INIT;
    char *said = m->said[s->me];
    if (net_connect(&net, &j, m->fd[s->me], &err) < 0) {
        snprintf(said, SAID_BYTES, "%s", err.text);
        atomic_store(&m->stop, 1);
        return NULL;
    }
    for (uint32_t i = 0; i < m->n && m->buffer_bytes > 0; i++) {
        if (i == s->me)
            continue;
        setsockopt(net.peers[i].fd, SOL_SOCKET, SO_SNDBUF, &m->buffer_bytes,
                   sizeof(m->buffer_bytes));
        setsockopt(net.peers[i].fd, SOL_SOCKET, SO_RCVBUF, &m->buffer_bytes,
                   sizeof(m->buffer_bytes));
    }
    if (m->long_pipes)
        net.n_scratch = (size_t)NET_CHUNK_MIN * 3 * m->n;
    if (m->body(&net, m, said) != 0) {
        atomic_store(&m->stop, 1);
        if (said[0] == '\0')
            snprintf(said, SAID_BYTES, "failed");
    }
    atomic_fetch_add(&m->n_done, 1);
    while (atomic_load(&m->n_done) < m->n && go_on(m, 0, &err) == 0)
        usleep(1000); /* not to synchronise: only to leave after the others */
    net_close(&net);
    return NULL;
}

static void mesh_run(struct mesh *m)
{
    pthread_t t[MAX_MEMBERS];
    struct seat s[MAX_MEMBERS];
    struct err err = ERR_INIT;
    m->deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    for (uint32_t i = 0; i < m->n; i++) {
        m->ranks[i] = i;
        snprintf(m->peers[i].addr, sizeof(m->peers[i].addr), "127.0.0.1");
        snprintf(m->peers[i].host, sizeof(m->peers[i].host), "h%u", i);
        assert_int_equal(tcp_listen("127.0.0.1", 0, &m->fd[i], &m->peers[i].port, &err),
                         0);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        s[i] = (struct seat){m, i};
        assert_int_equal(pthread_create(&t[i], NULL, member_run, &s[i]), 0);
    }
    for (uint32_t i = 0; i < m->n; i++)
        pthread_join(t[i], NULL);
    for (uint32_t i = 0; i < m->n; i++) {
        fd_close(&m->fd[i]);
        assert_string_equal(m->said[i], "");
    }
}

#define FAIL(...) (snprintf(said, SAID_BYTES, __VA_ARGS__), 1)

static uint64_t word_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* --- reductions --- */

/* Member's value of element i: magnitudes so different that the order of a sum changes
 * its bits. */
static float element_value(uint32_t member, uint64_t i)
{
    uint64_t h = word_mix(i * 16 + member + 1);
    float x = (float)(h >> 40) * 0x1p-24f + 0.5f;
    uint32_t e = (uint32_t)(h & 15) + 120;
    uint32_t bits = e << 23;
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return (h & 16 ? -x : x) * scale;
}

/* Sequentially in member order. */
static float want_of(uint32_t n, uint64_t i, double pre)
{
    float sum = element_value(0, i) * (float)pre;
    for (uint32_t j = 1; j < n; j++)
        sum += element_value(j, i) * (float)pre;
    return sum;
}

struct layout { /* a batch: the tensors' numbers of elements */
    size_t n;
    uint64_t count[8];
};

enum { MODEST = 8, ALL = 9 }; /* layouts */

struct trial {
    bool is_reduce; /* to the root alone */
    bool in_place;
    double pre;
    uint32_t root;
};

static int trial_compare(const struct trial *x,
                         const struct net *net,
                         const float *out,
                         uint64_t first,
                         uint64_t n,
                         char *said)
{
    for (uint64_t i = 0; i < n; i++) {
        float want = want_of(net->n, first + i, x->pre);
        if (memcmp(&out[i], &want, sizeof(want)) != 0)
            return FAIL("reduce %d n=%u in_place %d: element %llu differs",
                        x->is_reduce, net->n, x->in_place,
                        (unsigned long long)(first + i));
    }
    return 0;
}

static int reduce_once(struct net *net,
                       const struct trial *x,
                       const struct layout *l,
                       uint64_t base,
                       char *said)
{
    const float guard = 90;
    float *in[8], *out[8];
    struct piece p[8];
    struct err err = ERR_INIT;
    struct reduction r = {kernel_for(OP_SUM, DT_F32, kernel_has_wide()), x->pre,
                          FINISH_NONE};
    uint64_t at = base;
    bool has_out = !x->is_reduce || net->me == x->root;
    for (size_t k = 0; k < l->n; k++) {
        size_t n_bytes = (l->count[k] + 1) * sizeof(float);
        in[k] = malloc(n_bytes);
        out[k] = !has_out ? NULL : x->in_place ? in[k] : malloc(n_bytes);
        p[k] = (struct piece){(uint8_t *)in[k], (uint8_t *)out[k], n_bytes - 4};
        for (uint64_t i = 0; i < l->count[k]; i++)
            in[k][i] = element_value(net->me, at++);
        if (has_out)
            out[k][l->count[k]] = guard;
    }
    struct vec v = vec_of(p, l->n);
    int rc = x->is_reduce ? net_reduce(net, &v, x->root, &r, &err)
                          : net_allreduce(net, &v, &r, &err);
    if (rc < 0)
        rc = FAIL("%s", err.text);
    at = base;
    for (size_t k = 0; k < l->n; at += l->count[k++]) {
        if (rc == 0 && has_out)
            rc = trial_compare(x, net, out[k], at, l->count[k], said);
        if (rc == 0 && has_out && out[k][l->count[k]] != guard)
            rc = FAIL("written past the end");
        for (uint64_t i = 0; rc == 0 && out[k] != in[k] && i < l->count[k]; i++)
            if (in[k][i] != element_value(net->me, at + i))
                rc = FAIL("the input has changed");
        if (out[k] != in[k])
            free(out[k]);
        free(in[k]);
    }
    return rc;
}

/* The same elements alone, in large and small batches, at several places: all equal
 * the sum in member order, so they are equal among themselves. */
static int body_reductions(struct net *net, struct mesh *m, char *said)
{
    static const struct layout layouts[] = {
        {1, {1}},
        {1, {7}},
        {1, {1023}},
        {3, {3, 0, 5}},
        {1, {9000}},
        {8, {1, 0, 17001, 3, 17, 9000, 0, 2}},
        {4, {100, 100, 100, 9}},
        {1, {40001}},
        {2, {300001, 2}},
    };
    int rc = 0;
    for (size_t k = 0; k < m->n_layouts; k++)
        for (uint32_t i = 0; i < (k < MODEST ? 8 : 4) && rc == 0; i++) {
            struct trial x = {.is_reduce = i % 2,
                              .in_place = i / 2 % 2,
                              .pre = i % 3 == 2 ? 0.5 : 1.0,
                              .root = (uint32_t)(k + i) % net->n};
            rc = reduce_once(net, &x, &layouts[k], 1000 * i, said);
        }
    return rc;
}

UNIT_TEST(sums_are_in_member_order_wherever_they_lie)
{
    for (uint32_t n = 2; n <= 5; n++) {
        struct mesh m = {
            .n = n, .body = body_reductions, .n_layouts = MODEST, .long_pipes = n > 2};
        mesh_run(&m);
    }
    struct mesh ten = {.n = MAX_MEMBERS, .body = body_reductions, .n_layouts = 6};
    mesh_run(&ten);
    ten = (struct mesh){
        .n = 9, .body = body_reductions, .n_layouts = 6, .long_pipes = true};
    mesh_run(&ten);
    struct mesh large = {.n = 2, .body = body_reductions, .n_layouts = ALL};
    mesh_run(&large);
}

UNIT_TEST(full_socket_buffers_do_not_deadlock)
{
    const size_t n = FEWER > 1 ? MODEST : ALL; /* both exceed the buffers */
    struct mesh m = {
        .n = 3, .body = body_reductions, .n_layouts = n, .buffer_bytes = 32768};
    mesh_run(&m);
    struct mesh two = {
        .n = 2, .body = body_reductions, .n_layouts = n, .buffer_bytes = 32768};
    mesh_run(&two);
}

/* In place, member 0 has all summands before its own values are sent: they must be sent
 * unchanged. Member 1's side is written out here. */
static int body_late_reader(struct net *net, struct mesh *m, char *said)
{
    enum { N = 30000 };
    struct err err = ERR_INIT;
    float *x = malloc(N * sizeof(*x));
    struct piece p = {(uint8_t *)x, (uint8_t *)x, N * sizeof(*x)};
    struct vec v = vec_of(&p, 1);
    struct reduction r = {kernel_for(OP_SUM, DT_F32, false), 1.0, FINISH_NONE};
    uint8_t lead[NET_LEAD_BYTES] = {0};
    int rc = 0;
    for (uint32_t i = 0; i < N; i++)
        x[i] = net->me == 0 ? (float)i : 1.0f;
    if (net->me == 0) {
        rc = net_allreduce(net, &v, &r, &err) < 0 ? FAIL("%s", err.text) : 0;
        for (uint32_t i = 0; i < N && rc == 0; i++)
            if (x[i] != (float)i + 1.0f)
                rc = FAIL("sum %u", i);
        free(x);
        return rc;
    }
    int fd = net->peers[0].fd;
    if (fd_write_full(fd, lead, sizeof(lead), m->deadline_ns) < 0
        || fd_write_full(fd, x, v.n_bytes, m->deadline_ns) < 0)
        rc = FAIL("write");
    unsigned seen = atomic_load(&m->n_checks); /* 0 has received all, and sleeps */
    while (atomic_load(&m->n_checks) < seen + 3 && clock_now_ns() < m->deadline_ns)
        sched_yield();
    if (rc == 0
        && (fd_read_full(fd, lead, sizeof(lead), m->deadline_ns) < 0
            || fd_read_full(fd, x, v.n_bytes, m->deadline_ns) < 0))
        rc = FAIL("read");
    for (uint32_t i = 0; i < N && rc == 0; i++)
        if (x[i] != (float)i)
            rc = FAIL("value %u left as %g", i, (double)x[i]);
    free(x);
    return rc;
}

UNIT_TEST(values_leave_before_the_sum_covers_them)
{
    struct mesh m = {.n = 2, .body = body_late_reader, .buffer_bytes = 8192};
    mesh_run(&m);
}

UNIT_MAIN(NULL, NULL)
