/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over one shared segment.
 *
 * Small allreduce (one shot): each member copies its whole message into its small
 * buffer, publishes, waits for all and sums all n. Two buffers alternate: a member that
 * publishes message i + 1 has read message i of all, and message i + 2 is written only
 * after all have published i + 1.
 *
 * Large allreduce (pipelined reduce-scatter + allgather): chunk k of K is cut into n
 * parts.
 *
 *   A(k)  copy the parts that others reduce into our slot k % 2
 *   B(k)  wait for A(k) of all; sum our part from our input and n - 1 slots, into our
 *         output and our slot
 *   C(k)  wait for B(k) of all; copy the other parts from their slots into our output
 *
 * in the order A0 A1 B0 C0 A2 B1 C1 A3 ..., so that a peer's next chunk is present
 * before it is needed. Positions after the operation's base:
 *
 *   A(0) = 1    A(k) = 3k - 1    B(k) = 3k + 3    C(k) = 3k + 4
 *
 * A slot is written again when all have passed C of the chunk that it held (free_at).
 * The data of a chunk crosses the cache twice, memory once: slots stay in the
 * last-level cache.
 *
 * A reduction to one member is the same; B leaves its results in the slots only, and
 * only that member copies anything in C.
 *
 * Broadcast: root copies chunk k into slot k % 2 and publishes k + 1; a receiver
 * publishes k + 1 when it has read it.
 *
 * Every operation ends with all members having published the same position, the next
 * base. Called by coll.c and its siblings; tested with threads under TSan on plain
 * memory. Other collectives are in shm_move.c. */
#include "runtime/backend/cpu/shm.h"

#include <string.h>

#define PART_ALIGN 64u
#define FOLD_BYTES 4096u

/* A slot that was used long ago must not appear to be freed in the future when counters
 * wrap. */
void shm_begin(struct shm *s)
{
    const uint32_t far = 1u << 20;
    for (int i = 0; i < 2; i++)
        if (s->base - s->free_at[i] > far)
            s->free_at[i] = s->base - far;
    s->put.streams = put_found(&s->put, PUT_SLOT, PUT_TRIED_MIN).streams;
}

void shm_end(struct shm *s, uint32_t last)
{
    s->base = last;
    shm_wake_waiters(s);
}

int shm_barrier(struct shm *s, struct err *err)
{
    uint32_t last = s->base + 1;
    shm_store_seq(s, last);
    int rc = shm_wait_all(s, last, err);
    if (rc < 0)
        return rc;
    shm_end(s, last);
    return 0;
}

void shm_pack(struct shm *s, struct cursor *c, uint8_t *dst, uint64_t n)
{
    const uint8_t *in;
    uint8_t *out;
    while (n > 0) {
        uint64_t m = cursor_next(c, n, &in, &out);
        if (m == 0)
            return;
        put_copy(&s->put, dst, in, m);
        dst += m;
        n -= m;
    }
}

void shm_pack_scaled(struct shm *s,
                     struct cursor *c,
                     uint8_t *dst,
                     uint64_t n,
                     const struct reduction *r)
{
    if (r->prescale == 1.0) {
        shm_pack(s, c, dst, n);
        return;
    }
    struct finish f = {r->prescale, 1};
    const uint8_t *in;
    uint8_t *out;
    while (n > 0) {
        uint64_t m = cursor_next(c, n, &in, &out);
        const void *src = in;
        if (m == 0)
            return;
        r->k->fold(dst, NULL, &src, 1, m / r->k->elem_bytes, &f);
        dst += m;
        n -= m;
    }
}

static int allreduce_small(struct shm *s,
                           const struct vec *v,
                           const struct reduction *r,
                           uint32_t only,
                           struct err *err)
{
    uint32_t last = s->base + 1;
    unsigned turn = s->small_turn++;
    struct cursor in = cursor_at(v);
    struct put_trial t = {0};
    if (only == SHM_ALL)
        t = put_begin(&s->put, PUT_SMALL, v->n_bytes);
    put_work(&s->put, &t);
    shm_pack_scaled(s, &in, shm_small(s, s->me, turn), v->n_bytes, r);
    shm_store_seq(s, last);
    put_rest(&t);
    int rc = shm_wait_all(s, last, err);
    if (rc < 0)
        return rc;
    put_work(&s->put, &t);
    if (only == SHM_ALL || only == s->me) {
        struct cursor c = cursor_at(v);
        const uint8_t *own;
        uint8_t *out;
        uint64_t off = 0, m;
        while ((m = cursor_next(&c, UINT64_MAX, &own, &out)) > 0) {
            for (uint32_t j = 0; j < s->n; j++)
                s->src[j] = shm_small(s, j, turn) + off;
            if (r->prescale == 1.0)
                s->src[s->me] = own; /* still in our cache */
            r->k->fold(out, NULL, s->src, s->n, m / r->k->elem_bytes, &r->finish);
            off += m;
        }
    }
    put_rest(&t);
    put_end(&t);
    shm_end(s, last);
    return 0;
}

/* --- large allreduce --- */

struct pipe { /* one large allreduce */
    struct shm *s;
    const struct reduction *r;
    const struct vec *v;
    uint64_t n_chunks, chunk_bytes;
    struct cursor a, b, c;     /* position of each phase in the vector */
    unsigned turn;             /* slot of chunk 0 */
    struct put_trial trial[2]; /* of chunk k % 2 */
    uint32_t only;
    bool reads; /* false: nothing is copied to our output, C does nothing */
};

static uint64_t chunk_len(const struct pipe *p, uint64_t k)
{
    uint64_t left = p->v->n_bytes - k * p->chunk_bytes;
    return left < p->chunk_bytes ? left : p->chunk_bytes;
}

/* Part j of a chunk of len bytes: [*ret_off, *ret_off + return). */
static uint64_t
pipe_part(const struct pipe *p, uint64_t len, uint32_t j, uint64_t *ret_off)
{
    uint64_t each = (len + p->s->n - 1) / p->s->n;
    each = (each + PART_ALIGN - 1) & ~(uint64_t)(PART_ALIGN - 1);
    uint64_t from = (uint64_t)j * each < len ? (uint64_t)j * each : len;
    uint64_t to = from + each < len ? from + each : len;
    *ret_off = from;
    return to - from;
}

static int phase_a(struct pipe *p, uint64_t k, struct err *err)
{
    struct shm *s = p->s;
    unsigned turn = p->turn + (unsigned)(k & 1);
    int rc = shm_wait_all(s, s->free_at[turn & 1], err);
    if (rc < 0)
        return rc;
    uint64_t len = chunk_len(p, k), off;
    uint8_t *dst = shm_slot(s, s->me, turn);
    struct put_trial *t = &p->trial[k & 1];
    *t = p->only == SHM_ALL ? put_begin(&s->put, PUT_SLOT, len)
                            : put_found(&s->put, PUT_SLOT, len);
    put_work(&s->put, t);
    for (uint32_t j = 0; j < s->n; j++) {
        uint64_t m = pipe_part(p, len, j, &off);
        s->put.streams = t->streams && !shm_is_near(s, j);
        if (j == s->me && p->r->prescale == 1.0)
            cursor_skip(&p->a, m);
        else /* ours, too, if scaled: B reads the scaled values */
            shm_pack_scaled(s, &p->a, dst + off, m, p->r);
    }
    shm_publish(s, s->base + (uint32_t)(k == 0 ? 1 : 3 * k - 1));
    put_rest(t);
    return 0;
}

/* Sums our part of m bytes from s->src, which advance, to our slot and, where we read
 * at all, to out. */
static void fold_into_slot(struct pipe *p, uint8_t *slot, uint8_t *out, uint64_t m)
{
    struct shm *s = p->s;
    const struct reduce_kernel *k = p->r->k;
    if (!p->reads || !s->put.streams) {
        k->fold(slot, p->reads ? out : NULL, s->src, s->n, m / k->elem_bytes,
                &p->r->finish);
        return;
    }
    for (uint64_t done = 0, n; done < m;
         done += n) { /* out is read from the L1 cache */
        n = m - done < FOLD_BYTES ? m - done : FOLD_BYTES;
        k->fold(out + done, NULL, s->src, s->n, n / k->elem_bytes, &p->r->finish);
        put_copy(&s->put, slot + done, out + done, n);
        for (uint32_t j = 0; j < s->n; j++)
            s->src[j] = (const uint8_t *)s->src[j] + n;
    }
}

static int phase_b(struct pipe *p, uint64_t k, struct err *err)
{
    struct shm *s = p->s;
    unsigned turn = p->turn + (unsigned)(k & 1);
    int rc = shm_wait_all(s, s->base + (uint32_t)(k == 0 ? 1 : 3 * k - 1), err);
    if (rc < 0)
        return rc;
    uint64_t len = chunk_len(p, k), off;
    uint64_t own = pipe_part(p, len, s->me, &off), done = 0;
    put_work(&s->put, &p->trial[k & 1]);
    cursor_skip(&p->b, off);
    while (done < own) {
        const uint8_t *in;
        uint8_t *out;
        uint64_t m = cursor_next(&p->b, own - done, &in, &out);
        for (uint32_t j = 0; j < s->n; j++)
            s->src[j] = shm_slot(s, j, turn) + off + done;
        if (p->r->prescale == 1.0)
            s->src[s->me] = in;
        fold_into_slot(p, shm_slot(s, s->me, turn) + off + done, out, m);
        done += m;
    }
    cursor_skip(&p->b, len - off - own);
    shm_publish(s, s->base + (uint32_t)(3 * k + 3));
    put_rest(&p->trial[k & 1]);
    return 0;
}

static int phase_c(struct pipe *p, uint64_t k, struct err *err)
{
    struct shm *s = p->s;
    unsigned turn = p->turn + (unsigned)(k & 1);
    uint32_t b_done = s->base + (uint32_t)(3 * k + 3);
    uint64_t len = chunk_len(p, k), off;
    for (uint32_t j = 0; j < s->n && p->reads; j++) {
        uint64_t m = pipe_part(p, len, j, &off);
        if (j == s->me) {
            cursor_skip(&p->c, m);
            continue;
        }
        int rc = shm_wait(s, j, b_done, err);
        if (rc < 0)
            return rc;
        put_work(&s->put, &p->trial[k & 1]);
        cursor_unpack(&p->c, shm_slot(s, j, turn) + off, m);
        put_rest(&p->trial[k & 1]);
    }
    put_end(&p->trial[k & 1]);
    uint32_t c_done = s->base + (uint32_t)(3 * k + 4);
    s->free_at[turn & 1] = c_done;
    shm_publish(s, c_done);
    return 0;
}

static int allreduce_large(struct shm *s,
                           const struct vec *v,
                           const struct reduction *r,
                           uint32_t only,
                           struct err *err)
{
    struct pipe p = {.s = s,
                     .r = r,
                     .v = v,
                     .chunk_bytes = s->h->slot_bytes,
                     .a = cursor_at(v),
                     .b = cursor_at(v),
                     .c = cursor_at(v),
                     .turn = s->turn,
                     .only = only,
                     .reads = only == SHM_ALL || only == s->me};
    p.n_chunks = (v->n_bytes + p.chunk_bytes - 1) / p.chunk_bytes;
    shm_begin(s);
    int rc = phase_a(&p, 0, err);
    for (uint64_t k = 0; k < p.n_chunks && rc == 0; k++) {
        if (k + 1 < p.n_chunks)
            rc = phase_a(&p, k + 1, err);
        if (rc == 0)
            rc = phase_b(&p, k, err);
        if (rc == 0)
            rc = phase_c(&p, k, err);
    }
    if (rc < 0)
        return rc;
    s->turn += (unsigned)(p.n_chunks & 1);
    shm_end(s, s->base + (uint32_t)(3 * p.n_chunks + 1));
    return 0;
}

int shm_allreduce(struct shm *s,
                  const struct vec *v,
                  const struct reduction *r,
                  uint32_t only,
                  struct err *err)
{
    if (v->n_bytes == 0)
        return 0;
    if (v->n_bytes <= s->h->small_bytes)
        return allreduce_small(s, v, r, only, err);
    return allreduce_large(s, v, r, only, err);
}

/* --- broadcast --- */

static int broadcast_chunk(struct shm *s,
                           struct cursor *c,
                           uint64_t m,
                           uint32_t root,
                           uint32_t pos,
                           struct err *err)
{
    unsigned turn = s->turn & 1;
    uint8_t *slot = shm_slot(s, root, turn);
    int rc = s->me == root ? shm_wait_all(s, s->free_at[turn], err)
                           : shm_wait(s, root, pos, err);
    if (rc < 0)
        return rc;
    if (s->me == root) {
        struct cursor own = *c;
        shm_pack(s, c, slot, m);
        shm_publish(s, pos);
        cursor_copy(&own, m);
    } else {
        cursor_unpack(c, slot, m);
        shm_publish(s, pos);
    }
    s->free_at[turn] = pos;
    s->turn++;
    return 0;
}

int shm_broadcast(struct shm *s, const struct vec *v, uint32_t root, struct err *err)
{
    struct cursor c = cursor_at(v);
    uint32_t pos = s->base;
    shm_begin(s);
    for (uint64_t done = 0, m; done < v->n_bytes; done += m) {
        m = v->n_bytes - done;
        m = m < s->h->slot_bytes ? m : s->h->slot_bytes;
        int rc = broadcast_chunk(s, &c, m, root, ++pos, err);
        if (rc < 0)
            return rc;
    }
    shm_end(s, pos);
    return 0;
}
