/* SPDX-License-Identifier: Apache-2.0 */
/* Alltoall with uneven blocks.
 *
 * Rows of pieces, one piece per item: what is sent to, and received from, each member.
 * One host, or one member per host: rows are passed to the transport as they are.
 * Mixed:
 *
 *   1. every member sends its leader the sizes of what it sends to and receives from
 *      each member of the world (shm gather)
 *   2. local blocks are delivered, and the leader receives, after its own, all blocks
 *      that leave the host, ordered by receiver (cpu.order), in scratch (shm alltoall)
 *   3. leaders: each sends each other host what its members send there, sender by
 *      sender, and stores what it receives in order of receiver, then sender
 *   4. each member takes its run of that (shm alltoall)
 *
 * The table of rows starts with those of the own host, then all others in cpu.order, so
 * that what leaves the host is one run. A leader's scratch is what its host's members
 * send to and receive from other hosts. Called by coll.c. */
#include <errno.h>

#include "runtime/backend/cpu/coll.h"
#include "runtime/base/mem.h"

struct alltoall_exchange {
    struct cpu *c;
    const struct batch *b;
    size_t n, size;      /* items, bytes of an element */
    uint32_t start, end; /* our host in cpu.order */
    struct piece *send;  /* [size of the world][n] by place() */
    struct piece *recv;  /* likewise; rows of our host have n + 1, the last is spare */
    struct piece *rest;  /* room for the leader's exchange with other leaders */
    /* Of a leader, NULL of others: [n_local][2][world + 1], how many bytes a local
     * member sends to (0) and receives from (1) all members before a position of
     * cpu.order. */
    uint64_t *table;
};

/* Row of the member at position k of cpu.order: our host's first, its leader's last of
 * these in the table of what we send, so that the leader's run is one. */
static size_t send_row(const struct alltoall_exchange *x, uint32_t k)
{
    uint32_t n_local = x->c->n_local;
    if (k == x->start)
        return n_local - 1;
    if (k > x->start && k < x->end)
        return k - x->start - 1;
    return k < x->start ? n_local + k : k;
}

static struct piece *recv_row(const struct alltoall_exchange *x, uint32_t k)
{
    size_t n_local = x->c->n_local, n = x->n;
    if (k >= x->start && k < x->end)
        return x->recv + (k - x->start) * (n + 1);
    return x->recv + n_local * (n + 1) + (k < x->start ? k : k - n_local) * n;
}

static int alltoall_lay_out(struct alltoall_exchange *x, struct err *err)
{
    struct cpu *c = x->c;
    size_t world = c->env.size, n = x->n, n_send = world * n,
           n_recv = n_send + c->n_local;
    bool trades = c->n_hosts > 1 && c->n_local > 1 && coll_is_leader(c);
    size_t n_rest = trades ? (c->n_hosts + world) * c->n_local : 0;
    int rc = coll_room(c, n_send + n_recv + n_rest, err);
    if (rc < 0)
        return rc;
    x->send = c->pieces;
    x->recv = c->pieces + n_send;
    x->rest = x->recv + n_recv;
    for (size_t i = 0; i < n; i++) {
        const struct batch_item *it = &x->b->items[i];
        const uint8_t *in = it->in;
        uint8_t *out = it->out;
        for (uint32_t r = 0; r < world; r++) {
            uint64_t out_n = it->counts[r] * x->size;
            uint64_t in_n = it->send_counts[r] * x->size;
            uint32_t k = coll_place(c, r);
            x->send[send_row(x, k) * n + i] = (struct piece){.in = in, .n = in_n};
            recv_row(x, k)[i] = (struct piece){.out = out, .n = out_n};
            in = !in ? NULL : in + in_n;
            out = !out ? NULL : out + out_n;
        }
    }
    for (uint32_t k = x->start; k < x->end; k++)
        recv_row(x, k)[n] = (struct piece){.n = 0};
    return 0;
}

/* --- one host, or one member a host --- */

static int alltoall_one_host(struct alltoall_exchange *x, struct err *err)
{
    struct cpu *c = x->c;
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    for (uint32_t k = x->start; k < x->end; k++) {
        send[k - x->start] = vec_of(x->send + send_row(x, k) * x->n, x->n);
        recv[k - x->start] = vec_of(recv_row(x, k), x->n);
    }
    if (c->n_local > 1)
        return shm_alltoall(&c->shm, send, recv, err);
    vec_copy(&send[0], &recv[0]);
    return 0;
}

/* No other member on this host: rows of a host are adjacent in both tables. */
static int alltoall_one_member_a_host(struct alltoall_exchange *x, struct err *err)
{
    struct cpu *c = x->c;
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    for (uint32_t h = 0; h < c->n_hosts; h++) {
        uint32_t from = c->host_start[h], n = c->host_start[h + 1] - from;
        send[h] = vec_of(x->send + send_row(x, from) * x->n, n * x->n);
        recv[h] = vec_of(recv_row(x, from), n * x->n);
    }
    return net_alltoallv(&c->net, send, recv, err);
}

/* --- mixed --- */

/* Step 1; the leader has x->table. */
static int alltoall_send_table(struct alltoall_exchange *x, struct err *err)
{
    struct cpu *c = x->c;
    size_t row = c->env.size + 1u, n_bytes = 2 * row * sizeof(uint64_t);
    AUTOFREE uint64_t *own = mem_calloc(2, row * sizeof(*own));
    AUTOFREE struct piece *p = mem_calloc(c->n_local, sizeof(*p));
    if (coll_is_leader(c))
        x->table = mem_calloc(c->n_local, n_bytes);
    if (!own || !p || (coll_is_leader(c) && !x->table))
        return err_set(err, -ENOMEM, "alltoall: no memory for the sizes of %u members",
                       c->env.size);
    for (size_t i = 0; i < x->n; i++)
        for (uint32_t r = 0; r < c->env.size; r++) {
            own[coll_place(c, r) + 1] += x->b->items[i].send_counts[r] * x->size;
            own[row + coll_place(c, r) + 1] += x->b->items[i].counts[r] * x->size;
        }
    for (size_t k = 1; k < row; k++) {
        own[k] += own[k - 1];
        own[row + k] += own[row + k - 1];
    }
    for (uint32_t j = 0; j < c->n_local; j++) {
        uint8_t *out = (uint8_t *)x->table;
        p[j] = (struct piece){.in = (const uint8_t *)own,
                              .out = !out ? NULL : out + j * n_bytes,
                              .n = n_bytes};
        c->vecs[j] = vec_of(&p[j], 1);
    }
    return shm_gather(&c->shm, c->vecs, 0, err);
}

/* Leader: bytes that local member i sends to (way 0) or receives from (way 1) the
 * members at positions [from, to) of cpu.order. */
static uint64_t alltoall_sum_of(
    const struct alltoall_exchange *x, uint32_t i, int way, uint32_t from, uint32_t to)
{
    const uint64_t *row =
        x->table + ((size_t)i * 2 + (size_t)way) * (x->c->env.size + 1u);
    return row[to] - row[from];
}

static uint64_t sum_other_hosts(const struct alltoall_exchange *x, uint32_t i, int way)
{
    return alltoall_sum_of(x, i, way, 0, x->start)
           + alltoall_sum_of(x, i, way, x->end, x->c->env.size);
}

/* All local members'. */
static uint64_t sum_host(const struct alltoall_exchange *x, int way)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < x->c->n_local; i++)
        sum += sum_other_hosts(x, i, way);
    return sum;
}

/* Step 2; away: the leader's scratch. */
static int alltoall_collect(struct alltoall_exchange *x, uint8_t *away, struct err *err)
{
    struct cpu *c = x->c;
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    size_t n = x->n, abroad = c->env.size - c->n_local;
    for (uint32_t j = 0; j < c->n_local; j++) {
        struct piece *row = recv_row(x, x->start + j);
        if (x->table) {
            row[n] = (struct piece){.out = away, .n = sum_other_hosts(x, j, 0)};
            away += row[n].n;
        }
        recv[j] = vec_of(row, n + 1);
        send[j] = vec_of(x->send + send_row(x, x->start + j) * n, n);
    }
    send[0] = vec_of(x->send + send_row(x, x->start) * n, (1 + abroad) * n);
    return shm_alltoall(&c->shm, send, recv, err);
}

/* Where in `home` the bytes from the member at position k to local member j are
 * stored. */
static uint8_t *alltoall_arrival_at(const struct alltoall_exchange *x,
                                    uint8_t *home,
                                    uint32_t j,
                                    uint32_t k)
{
    for (uint32_t i = 0; i < j; i++)
        home += sum_other_hosts(x, i, 1);
    home += alltoall_sum_of(x, j, 1, 0, k < x->start ? k : x->start);
    return k < x->end ? home : home + alltoall_sum_of(x, j, 1, x->end, k);
}

/* Step 3: leaders only. */
static int alltoall_exchange_leaders(struct alltoall_exchange *x,
                                     const uint8_t *away,
                                     uint8_t *home,
                                     struct err *err)
{
    struct cpu *c = x->c;
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    struct piece *p = x->rest;
    for (uint32_t h = 0; h < c->n_hosts; h++) {
        uint32_t from = c->host_start[h], to = c->host_start[h + 1];
        struct piece *first = p;
        const uint8_t *at = away;
        send[h] = recv[h] = vec_of(NULL, 0);
        if (h == c->host)
            continue;
        for (uint32_t i = 0; i < c->n_local; i++) {
            uint64_t before =
                alltoall_sum_of(x, i, 0, 0, from < x->start ? from : x->start);
            if (from >= x->end)
                before += alltoall_sum_of(x, i, 0, x->end, from);
            *p++ = (struct piece){.in = at + before,
                                  .n = alltoall_sum_of(x, i, 0, from, to)};
            at += sum_other_hosts(x, i, 0);
        }
        send[h] = vec_of(first, (size_t)(p - first));
        first = p;
        for (uint32_t k = from; k < to; k++)
            for (uint32_t j = 0; j < c->n_local; j++)
                *p++ = (struct piece){.out = alltoall_arrival_at(x, home, j, k),
                                      .n = alltoall_sum_of(x, j, 1, k, k + 1)};
        recv[h] = vec_of(first, (size_t)(p - first));
    }
    return net_alltoallv(&c->net, send, recv, err);
}

/* Step 4. */
static int
alltoall_deliver(struct alltoall_exchange *x, const uint8_t *home, struct err *err)
{
    struct cpu *c = x->c;
    struct vec *send = c->vecs, *recv = c->vecs + c->env.size;
    size_t n = x->n, abroad = c->env.size - c->n_local;
    for (uint32_t j = 0; j < c->n_local; j++) {
        send[j] = recv[j] = vec_of(NULL, 0);
        if (!x->table)
            continue;
        x->rest[j] = (struct piece){.in = home, .n = sum_other_hosts(x, j, 1)};
        home += x->rest[j].n;
        send[j] = vec_of(&x->rest[j], 1);
    }
    recv[0] = vec_of(x->recv + c->n_local * (n + 1), abroad * n);
    return shm_alltoall(&c->shm, send, recv, err);
}

static int alltoall_run_mixed(struct alltoall_exchange *x, struct err *err)
{
    AUTOFREE uint8_t *away = NULL, *home = NULL;
    int rc = alltoall_send_table(x, err);
    if (rc == 0 && x->table) {
        away = coll_scratch(sum_host(x, 0), "alltoall", err);
        home = !away ? NULL : coll_scratch(sum_host(x, 1), "alltoall", err);
        rc = !home ? -ENOMEM : 0;
    }
    if (rc == 0)
        rc = alltoall_collect(x, away, err);
    if (rc == 0 && x->table)
        rc = alltoall_exchange_leaders(x, away, home, err);
    if (rc == 0)
        rc = alltoall_deliver(x, home, err);
    mem_free(x->table);
    return rc;
}

int coll_alltoall(struct cpu *c, const struct batch *b, struct err *err)
{
    struct alltoall_exchange x = {.c = c,
                                  .b = b,
                                  .n = b->n_items,
                                  .size = dtype_size(b->dtype),
                                  .start = c->host_start[c->host],
                                  .end = c->host_start[c->host + 1]};
    int rc = alltoall_lay_out(&x, err);
    if (rc < 0)
        return rc;
    if (c->n_hosts == 1)
        return alltoall_one_host(&x, err);
    if (c->n_local == 1)
        return alltoall_one_member_a_host(&x, err);
    return alltoall_run_mixed(&x, err);
}
