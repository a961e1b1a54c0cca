/* SPDX-License-Identifier: Apache-2.0 */
/* A sum over TCP whose peer reads late. The other sums: cpu_order_test.c, the other
 * collectives: cpu_coll_test.c. */
#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "tests/unit/cpu_party.h"

#define FAIL(...) (snprintf(said, SAID_BYTES, __VA_ARGS__), 1)

static atomic_uint n_checks; /* how often member 0 found nothing to do */

static int count_check(void *arg, uint32_t rank, struct err *err)
{
    const struct party *p = arg;
    atomic_fetch_add(&n_checks, 1);
    if (clock_now_ns() > p->deadline_ns)
        return err_set(err, -ECANCELED, "gave up waiting for %u", rank);
    return 0;
}

/* In place, member 0 has all summands before its own values are sent: they must be sent
 * unchanged. Member 1's side is written out here. */
static int body_late_reader(struct backend *b, uint32_t me, struct party *p, char *said)
{
    enum { N = 30000 };
    struct cpu *c = (struct cpu *)b;
    struct err err = ERR_INIT;
    float *x = malloc(N * sizeof(*x));
    uint8_t lead[NET_LEAD_BYTES] = {0};
    int rc = 0;
    party_narrow(b, 8192);
    for (uint32_t i = 0; i < N; i++)
        x[i] = me == 0 ? (float)i : 1.0f;
    if (me == 0) {
        c->w.n_spins = 4;
        c->w.check = count_check;
        c->w.arg = p;
        rc = sum_run(b, DT_F32, x, N, &err) < 0 ? FAIL("%s", err.text) : 0;
        for (uint32_t i = 0; i < N && rc == 0; i++)
            if (x[i] != (float)i + 1.0f)
                rc = FAIL("sum %u", i);
        free(x);
        return rc;
    }
    int fd = c->net.peers[0].fd;
    const struct piece piece = {.in = (const uint8_t *)x, .n = N * sizeof(*x)};
    const struct vec all = {&piece, 1, piece.n};
    const struct cursor start = cursor_at(&all);
    struct block_stream *out = &c->net.peers[0].out;
    block_write_header(out, (struct block_subject){1, COLL_ALLREDUCE}, &start, false,
                       (uint32_t)piece.n);
    if (fd_write_full(fd, lead, sizeof(lead), p->deadline_ns) < 0
        || fd_write_full(fd, out->header, sizeof(out->header), p->deadline_ns) < 0
        || fd_write_full(fd, x, N * sizeof(*x), p->deadline_ns) < 0)
        rc = FAIL("write");
    unsigned seen = atomic_load(&n_checks); /* 0 has received all, and sleeps */
    while (atomic_load(&n_checks) < seen + 3 && clock_now_ns() < p->deadline_ns)
        sched_yield();
    if (rc == 0
        && (fd_read_full(fd, lead, sizeof(lead), p->deadline_ns) < 0
            || fd_read_full(fd, lead, BLOCK_HEADER_BYTES, p->deadline_ns) < 0
            || fd_read_full(fd, x, N * sizeof(*x), p->deadline_ns) < 0))
        rc = FAIL("read");
    for (uint32_t i = 0; i < N && rc == 0; i++)
        if (x[i] != (float)i)
            rc = FAIL("value %u left as %g", i, (double)x[i]);
    free(x);
    return rc;
}

UNIT_TEST(values_leave_before_the_sum_covers_them)
{
    party_run("ab", body_late_reader, 0);
}

static uint32_t count_connected(const struct cpu *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->net.n; i++)
        n += c->net.peers[i].fd >= 0;
    return n;
}

static int sum_of_ones(struct backend *b, struct party *p, uint64_t n, char *said)
{
    struct err err = ERR_INIT;
    int32_t *x = calloc(n, sizeof(*x));
    int rc = 0;
    for (uint64_t i = 0; i < n; i++)
        x[i] = 1;
    if (sum_run(b, DT_I32, x, n, &err) < 0)
        rc = FAIL("%s", err.text);
    for (uint64_t i = 0; i < n && rc == 0; i++)
        if (x[i] != (int32_t)p->size)
            rc = FAIL("sum %llu: %d", (unsigned long long)i, x[i]);
    free(x);
    return rc;
}

/* Eighteen members around a ring: the neighbours at the distances 1, 2, 4, 8 and 16 in
 * both directions are eight different ones. */
static int body_large_mesh(struct backend *b, uint32_t me, struct party *p, char *said)
{
    const struct cpu *c = (struct cpu *)b;
    struct err err = ERR_INIT;
    (void)me;
    if (count_connected(c) != 8)
        return FAIL("%u connections at first", count_connected(c));
    if (barrier_run(b, &err) < 0)
        return FAIL("%s", err.text);
    if (sum_of_ones(b, p, 100, said) != 0)
        return 1;
    if (count_connected(c) != 8 || !c->net.rest)
        return FAIL("%u connections after a small sum", count_connected(c));
    if (sum_of_ones(b, p, 100000, said) != 0)
        return 1;
    if (count_connected(c) != p->size - 1 || c->net.rest)
        return FAIL("%u connections after a large sum", count_connected(c));
    return 0;
}

UNIT_TEST(a_large_mesh_is_completed_when_all_must_send_to_all)
{
    party_run("abcdefghijklmnopqr", body_large_mesh, 0);
}

UNIT_MAIN(NULL, NULL)
