/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives over TCP with threads as members of a real mesh: reductions are bit
 * for bit the sum in member order at any position; small socket buffers; guards around
 * outputs. */
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

static void element_put(enum dtype t, void *p, uint64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (t == DT_F32)
        ((float *)p)[i] = x;
    else if (t == DT_F64)
        ((double *)p)[i] = (double)x;
    else if (t == DT_BF16)
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
    else
        ((int64_t *)p)[i] = (int64_t)(x * 1000);
}

/* Sequentially in member order, with the precision that the type is computed in. */
static void want_of(enum dtype t, uint32_t n, uint64_t i, double pre, void *ret)
{
    float f = 0;
    double d = 0;
    int64_t k = 0;
    for (uint32_t j = 0; j < n; j++) {
        float x = element_value(j, i);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        if (t == DT_BF16) { /* prescale here is a power of two: exact */
            bits &= 0xffff0000;
            memcpy(&x, &bits, sizeof(x));
        }
        f = j == 0 ? x * (float)pre : f + x * (float)pre;
        d = j == 0 ? (double)x * pre : d + (double)x * pre;
        k += (int64_t)((double)(int64_t)(x * 1000) * pre);
    }
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if (t == DT_F32)
        memcpy(ret, &f, 4);
    else if (t == DT_F64)
        memcpy(ret, &d, 8);
    else if (t == DT_I64)
        memcpy(ret, &k, 8);
    else /* one rounding, to nearest even */
        *(uint16_t *)ret = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct layout { /* a batch: the tensors' numbers of elements */
    size_t n;
    uint64_t count[8];
};

enum { MODEST = 8, ALL = 9 }; /* layouts */

enum way { ALLREDUCE, REDUCE, REDUCE_SCATTER };

struct trial {
    enum way way;
    enum dtype t;
    bool in_place;
    double pre;
    uint32_t root;
};

static int trial_compare(const struct trial *x,
                         const struct net *net,
                         const uint8_t *out,
                         uint64_t first,
                         uint64_t n,
                         char *said)
{
    size_t es = dtype_size(x->t);
    uint8_t want[8];
    for (uint64_t i = 0; i < n; i++) {
        want_of(x->t, net->n, first + i, x->pre, want);
        if (memcmp(out + i * es, want, es) != 0)
            return FAIL("way %d %s n=%u in_place %d: element %llu differs", x->way,
                        dtype_name(x->t), net->n, x->in_place,
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
    size_t es = dtype_size(x->t);
    uint8_t *in[8], *out[8];
    struct piece p[8];
    struct err err = ERR_INIT;
    struct reduction r = {kernel_for(OP_SUM, x->t, kernel_has_wide()), x->pre,
                          FINISH_NONE};
    uint64_t at = base;
    bool has_out = x->way == ALLREDUCE || net->me == x->root;
    for (size_t k = 0; k < l->n; k++) {
        in[k] = malloc(l->count[k] * es + 1);
        out[k] = !has_out ? NULL : x->in_place ? in[k] : malloc(l->count[k] * es + 1);
        p[k] = (struct piece){in[k], out[k], l->count[k] * es};
        for (uint64_t i = 0; i < l->count[k]; i++)
            element_put(x->t, in[k], i, element_value(net->me, at++));
        if (has_out)
            out[k][l->count[k] * es] = 0x5a;
    }
    struct vec v = vec_of(p, l->n);
    int rc = x->way == ALLREDUCE ? net_allreduce(net, &v, &r, &err)
                                 : net_reduce(net, &v, x->root, &r, &err);
    if (rc < 0)
        rc = FAIL("%s", err.text);
    at = base;
    for (size_t k = 0; k < l->n; at += l->count[k++]) {
        if (rc == 0 && has_out)
            rc = trial_compare(x, net, out[k], at, l->count[k], said);
        if (rc == 0 && has_out && out[k][l->count[k] * es] != 0x5a)
            rc = FAIL("written past the end");
        for (uint64_t i = 0; rc == 0 && out[k] != in[k] && i < l->count[k]; i++) {
            uint8_t was[8];
            element_put(x->t, was, 0, element_value(net->me, at + i));
            if (memcmp(in[k] + i * es, was, es) != 0)
                rc = FAIL("the input has changed");
        }
        if (out[k] != in[k])
            free(out[k]);
        free(in[k]);
    }
    return rc;
}

static int scatter_once(
    struct net *net, const struct trial *x, uint64_t n, uint64_t base, char *said)
{
    size_t es = dtype_size(x->t);
    struct piece p[MAX_MEMBERS];
    struct vec v[MAX_MEMBERS];
    struct err err = ERR_INIT;
    struct reduction r = {kernel_for(OP_SUM, x->t, kernel_has_wide()), x->pre,
                          FINISH_NONE};
    uint64_t total = 0, mine = 0;
    for (uint32_t j = 0; j < net->n; j++)
        total += n * j;
    uint8_t *in = malloc(total * es + 1), *out = malloc(n * net->n * es + 1);
    for (uint64_t i = 0; i < total; i++)
        element_put(x->t, in, i, element_value(net->me, base + i));
    for (uint32_t j = 0; j < net->n; j++) { /* member j gets n * j elements */
        uint64_t off = n * (j * (j - 1ull) / 2);
        p[j] = (struct piece){in + off * es, NULL, n * j * es};
        if (j == net->me) {
            p[j].out = x->in_place ? in + off * es : out;
            mine = off;
        }
        v[j] = vec_of(&p[j], 1);
    }
    int rc = net_reduce_scatter(net, v, &r, &err);
    if (rc < 0)
        rc = FAIL("%s", err.text);
    else
        rc = trial_compare(x, net, p[net->me].out, base + mine, n * net->me, said);
    free(in);
    free(out);
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
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F64, DT_I64};
    const size_t n = m->n_layouts;
    int rc = 0;
    for (size_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < (k < MODEST ? 8 : 4) && rc == 0; i++) {
            struct trial x = {.t = types[(i + k) % 4],
                              .in_place = i / 2 % 2,
                              .pre = i % 3 == 2 ? 0.5 : 1.0,
                              .root = (uint32_t)(k + i) % net->n};
            x.way = i % 2 ? REDUCE : ALLREDUCE;
            if (x.t == DT_I64)
                x.pre = 2; /* exact */
            rc = reduce_once(net, &x, &layouts[k], 1000 * i, said);
            x.way = REDUCE_SCATTER;
            if (rc == 0)
                rc = scatter_once(net, &x, layouts[k].count[0] / 3, 77 * i, said);
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

/* --- moving without reducing --- */

static uint8_t byte_of(uint32_t from, uint32_t to, uint64_t i)
{
    return (uint8_t)(word_mix(from * 131 + to * 17 + 3) + i * 7);
}

/* Bytes from member a to member b; some pairs nothing. */
static uint64_t pair_amount(uint32_t a, uint32_t b, uint64_t n)
{
    return (a + b) % 4 == 3 ? 0 : n * (a + 2) / (b + 1) + a;
}

static int alltoall_once(struct net *net, uint64_t n, char *said)
{
    struct piece ps[MAX_MEMBERS][2], pr[MAX_MEMBERS][2];
    struct vec send[MAX_MEMBERS], recv[MAX_MEMBERS];
    struct err err = ERR_INIT;
    int rc = 0;
    for (uint32_t j = 0; j < net->n; j++) {
        uint64_t s = pair_amount(net->me, j, n), r = pair_amount(j, net->me, n);
        uint8_t *a = malloc(s + 1), *b = malloc(r + 1);
        for (uint64_t i = 0; i < s; i++)
            a[i] = byte_of(net->me, j, i);
        b[r] = 0x5a;
        ps[j][0] = (struct piece){.in = a, .out = a, .n = s / 3};
        ps[j][1] = (struct piece){.in = a + s / 3, .out = a + s / 3, .n = s - s / 3};
        pr[j][0] = (struct piece){.out = b, .n = r / 2};
        pr[j][1] = (struct piece){.out = b + r / 2, .n = r - r / 2};
        send[j] = vec_of(ps[j], 2);
        recv[j] = vec_of(pr[j], 2);
    }
    if (net_alltoallv(net, send, recv, &err) < 0)
        rc = FAIL("alltoallv: %s", err.text);
    for (uint32_t j = 0; j < net->n; j++) {
        uint64_t r = recv[j].n_bytes;
        uint8_t *b = pr[j][0].out;
        for (uint64_t i = 0; i < r && rc == 0; i++)
            if (b[i] != byte_of(j, net->me, i))
                rc = FAIL("alltoallv: byte %llu from %u", (unsigned long long)i, j);
        if (rc == 0 && b[r] != 0x5a)
            rc = FAIL("alltoallv: written past the end");
        free(b);
        free(ps[j][0].out);
    }
    return rc;
}

static int body_moves(struct net *net, struct mesh *m, char *said)
{
    static const uint64_t sizes[] = {0, 1, 1000, 50000, 900000};
    size_t n_sizes = m->n > 3 || FEWER > 1 ? 4 : 5;
    int rc = 0;
    for (size_t k = 0; k < n_sizes && rc == 0; k++) {
        rc = alltoall_once(net, sizes[k], said);
        struct err err = ERR_INIT;
        if (rc == 0 && net_barrier(net, &err) < 0)
            rc = FAIL("barrier: %s", err.text);
    }
    return rc;
}

UNIT_TEST(bytes_arrive_where_they_belong)
{
    for (uint32_t n = 2; n <= 5; n++) {
        struct mesh m = {.n = n, .body = body_moves};
        mesh_run(&m);
    }
    struct mesh many = {.n = MAX_MEMBERS, .body = body_moves};
    mesh_run(&many);
    struct mesh tight = {.n = 3, .body = body_moves, .buffer_bytes = 32768};
    mesh_run(&tight);
}

UNIT_MAIN(NULL, NULL)
