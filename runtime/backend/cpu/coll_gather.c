/* SPDX-License-Identifier: Apache-2.0 */
/* Allgather and gather to one.
 *
 * The piece table has one row per member, ordered host by host (cpu.order), so that a
 * host's block is one run of rows; n pieces per row, one per item.
 *
 * Gather on several hosts: the blocks of a host are collected at its leader, in scratch
 * (on root's host: directly in root's output); the leaders send theirs to root's
 * leader; when that is not root, it receives into scratch and forwards. Called by
 * coll.c, and by adasum.c for its own rows. */
#include <errno.h>

#include "runtime/backend/cpu/coll.h"
#include "runtime/base/mem.h"

/* has_out: this member receives; else rows have no out and only our own has an in. */
static int
gather_lay_out(struct cpu *c, const struct batch *b, bool has_out, struct err *err)
{
    size_t n = b->n_items, size = dtype_size(b->dtype);
    int rc = coll_room(c, n * c->env.size, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const struct batch_item *it = &b->items[i];
        uint8_t *out = has_out ? it->out : NULL;
        for (uint32_t r = 0; r < c->env.size; r++) {
            uint64_t bytes = it->counts[r] * size;
            c->pieces[coll_place(c, r) * n + i] = (struct piece){
                .in = r == c->env.rank ? it->in : out, .out = out, .n = bytes};
            if (out)
                out += bytes;
        }
    }
    return 0;
}

static void copy_own(const struct vec *own)
{
    struct cursor k = cursor_at(own);
    cursor_copy(&k, own->n_bytes);
}

/* v[j]: the rows of this host's member j. */
static void local_rows(struct cpu *c, size_t n)
{
    uint32_t start = c->host_start[c->host];
    for (uint32_t j = 0; j < c->n_local; j++)
        c->vecs[j] = coll_rows(c, n, start + j, start + j + 1);
}

/* v[h]: the rows of host h. */
static void gather_host_rows(struct cpu *c, size_t n)
{
    for (uint32_t h = 0; h < c->n_hosts; h++)
        c->vecs[h] = coll_rows(c, n, c->host_start[h], c->host_start[h + 1]);
}

int coll_allgather_rows(struct cpu *c, size_t n, struct err *err)
{
    uint32_t start = c->host_start[c->host], end = c->host_start[c->host + 1];
    uint32_t mine = start + c->local;
    struct vec own = coll_rows(c, n, mine, mine + 1);
    int rc = 0;
    if (c->n_local > 1) {
        local_rows(c, n);
        rc = shm_gather(&c->shm, c->vecs, SHM_ALL, err);
    } else {
        copy_own(&own);
    }
    if (rc < 0 || c->n_hosts == 1)
        return rc;
    coll_in_is_out(c->pieces + mine * n, n);
    if (coll_is_leader(c)) {
        gather_host_rows(c, n);
        rc = net_allgather(&c->net, c->vecs, err);
    }
    struct vec before = coll_rows(c, n, 0, start);
    struct vec after = coll_rows(c, n, end, c->env.size);
    if (rc == 0 && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &before, 0, err);
    if (rc == 0 && c->n_local > 1)
        rc = shm_broadcast(&c->shm, &after, 0, err);
    return rc;
}

int coll_allgather(struct cpu *c, const struct batch *b, struct err *err)
{
    int rc = gather_lay_out(c, b, true, err);
    return rc < 0 ? rc : coll_allgather_rows(c, b->n_items, err);
}

/* --- gather --- */

/* Places the pieces of the rows from..to one after the other from p on. */
static void place_at(struct cpu *c, size_t n, uint32_t from, uint32_t to, uint8_t *p)
{
    for (size_t i = from * n; i < to * n; p += c->pieces[i++].n)
        c->pieces[i].out = p;
}

/* Not root's host: to the leader, and from there to root's leader. */
static int gather_send_to_root(struct cpu *c, size_t n, uint32_t home, struct err *err)
{
    uint32_t start = c->host_start[c->host], end = c->host_start[c->host + 1];
    struct vec block = coll_rows(c, n, start, end);
    AUTOFREE uint8_t *scratch = NULL;
    int rc = 0;
    if (c->n_local > 1) {
        if (coll_is_leader(c)) {
            scratch = coll_scratch(block.n_bytes, "gather", err);
            if (!scratch)
                return -ENOMEM;
            place_at(c, n, start, end, scratch);
        }
        local_rows(c, n);
        rc = shm_gather(&c->shm, c->vecs, 0, err);
        if (coll_is_leader(c))
            coll_in_is_out(c->pieces + start * n, (end - start) * n);
    }
    if (rc < 0 || !coll_is_leader(c))
        return rc;
    gather_host_rows(c, n);
    return net_gather(&c->net, c->vecs, home, err);
}

/* Root's leader: the blocks of all other hosts, to the outs of the rows. */
static int take_from_hosts(struct cpu *c, size_t n, struct err *err)
{
    gather_host_rows(c, n);
    c->vecs[c->host] = vec_of(NULL, 0); /* already present */
    return net_gather(&c->net, c->vecs, c->host, err);
}

/* Root's host. */
static int
gather_receive_for_root(struct cpu *c, size_t n, uint32_t to, struct err *err)
{
    uint32_t start = c->host_start[c->host], end = c->host_start[c->host + 1];
    struct vec own = coll_rows(c, n, start + c->local, start + c->local + 1);
    AUTOFREE uint8_t *scratch = NULL;
    int rc = 0;
    if (c->n_local > 1) {
        local_rows(c, n);
        rc = shm_gather(&c->shm, c->vecs, to, err);
    } else {
        copy_own(&own);
    }
    struct vec parts[2] = {coll_rows(c, n, 0, start),
                           coll_rows(c, n, end, c->env.size)};
    if (rc == 0 && coll_is_leader(c) && to != 0) {
        scratch = coll_scratch(parts[0].n_bytes + parts[1].n_bytes, "gather", err);
        if (!scratch)
            return -ENOMEM;
        place_at(c, n, 0, start, scratch);
        place_at(c, n, end, c->env.size, scratch + parts[0].n_bytes);
    }
    if (rc == 0 && coll_is_leader(c))
        rc = take_from_hosts(c, n, err);
    if (rc < 0 || to == 0)
        return rc;
    if (coll_is_leader(c))
        coll_in_is_out(c->pieces, n * c->env.size);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = coll_pass(c, 0, to, &parts[i], err);
    return rc;
}

int coll_gather(struct cpu *c, const struct batch *b, struct err *err)
{
    size_t n = b->n_items;
    int rc = gather_lay_out(c, b, b->root == c->env.rank, err);
    if (rc < 0)
        return rc;
    uint32_t home = c->host_of[b->root];
    if (c->n_hosts > 1 && c->host != home)
        return gather_send_to_root(c, n, home, err);
    if (c->n_hosts > 1)
        return gather_receive_for_root(c, n, c->local_of[b->root], err);
    local_rows(c, n);
    if (c->n_local > 1)
        return shm_gather(&c->shm, c->vecs, c->local_of[b->root], err);
    copy_own(&c->vecs[0]);
    return 0;
}
