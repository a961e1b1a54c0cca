/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over one shared segment in which each member provides its own data:
 * allgather and gather, alltoall, reduce-scatter.
 *
 * Small (one shot): each member puts all its data into its small buffer, publishes,
 * waits for all, takes its own part. Two buffers alternate, as in shm_coll.c.
 *
 * Large: rounds through the two slots. put(k) fills our slot k % 2, get(k) reads the
 * other members' slots, in the order put0 put1 get0 put2 get1 ..., so that the next
 * round's data is present before it is needed. Positions after the operation's base:
 *
 *   put(0) = 1    put(k) = 2k    get(k) = 2k + 3
 *
 * A slot is written again when all have passed get of the round that it held (free_at).
 *
 *   gather         round k carries chunk k of each block, as long as a slot
 *   reduce-scatter, alltoall
 *                  a slot is cut into `cell`s, one per receiver; cells are at least
 *                  CELL_MIN bytes, so where there are many members, the receivers take
 *                  turns: round r carries chunk r / n_turns to those of turn r %
 *                  n_turns
 *
 * Sizes of a gather and of a reduce-scatter are known to all members, so all count the
 * same rounds. In an alltoall each member knows only its own: the small message starts
 * with the number of chunks that its sender needs, and all members run the largest of
 * these. A sender whose blocks fit its small buffer needs none.
 *
 * Called by coll.c and its siblings; tested with threads under TSan on plain memory. */
#include <string.h>

#include "runtime/backend/cpu/shm.h"

#define CELL_ALIGN 64u /* any element, and no false sharing */
#define CELL_MIN   256u
#define NOTE_BYTES 64u

/* --- rounds through the slots --- */

struct rounds {
    struct shm *s;
    uint64_t n;
    void (*put)(void *arg, uint64_t k, uint8_t *slot);
    int (*get)(void *arg, uint64_t k, unsigned turn, struct err *err);
    void *arg;
};

static uint32_t put_done(const struct shm *s, uint64_t k)
{
    return s->base + (uint32_t)(k == 0 ? 1 : 2 * k);
}

static int put_round(struct rounds *o, uint64_t k, struct err *err)
{
    struct shm *s = o->s;
    unsigned turn = s->turn + (unsigned)(k & 1);
    int rc = shm_wait_all(s, s->free_at[turn & 1], err);
    if (rc < 0)
        return rc;
    o->put(o->arg, k, shm_slot(s, s->me, turn));
    shm_publish(s, put_done(s, k));
    return 0;
}

static int get_round(struct rounds *o, uint64_t k, struct err *err)
{
    struct shm *s = o->s;
    unsigned turn = s->turn + (unsigned)(k & 1);
    uint32_t done = s->base + (uint32_t)(2 * k + 3);
    int rc = o->get(o->arg, k, turn, err);
    if (rc < 0)
        return rc;
    s->free_at[turn & 1] = done;
    shm_publish(s, done);
    return 0;
}

static int move_run_rounds(struct rounds *o, struct err *err)
{
    struct shm *s = o->s;
    if (o->n == 0)
        return 0;
    shm_begin(s);
    int rc = put_round(o, 0, err);
    for (uint64_t k = 0; k < o->n && rc == 0; k++) {
        if (k + 1 < o->n)
            rc = put_round(o, k + 1, err);
        if (rc == 0)
            rc = get_round(o, k, err);
    }
    if (rc < 0)
        return rc;
    s->turn += (unsigned)(o->n & 1);
    shm_end(s, s->base + (uint32_t)(2 * o->n + 1));
    return 0;
}

/* Bytes of chunk k of n bytes. */
static uint64_t nth_chunk(uint64_t n, uint64_t k, uint64_t chunk)
{
    uint64_t from = k * chunk;
    if (from >= n)
        return 0;
    return n - from < chunk ? n - from : chunk;
}

static uint64_t n_chunks(uint64_t n, uint64_t chunk)
{
    return (n + chunk - 1) / chunk;
}

static void start_at(const struct shm *s, struct cursor *at, const struct vec *v)
{
    for (uint32_t j = 0; j < s->n; j++)
        at[j] = cursor_at(&v[j]);
}

/* One small message: ours is in its buffer; when it returns 0, those of all members
 * are. */
static int small_exchange(struct shm *s, struct err *err)
{
    uint32_t last = s->base + 1;
    shm_store_seq(s, last);
    int rc = shm_wait_all(s, last, err);
    if (rc < 0)
        return rc;
    shm_end(s, last);
    return 0;
}

/* --- allgather and gather --- */

struct slot_gather {
    struct shm *s;
    const struct vec *v;
    struct cursor own;
    bool reads;
};

static void gather_put(void *arg, uint64_t k, uint8_t *slot)
{
    struct slot_gather *g = arg;
    struct shm *s = g->s;
    uint64_t m = nth_chunk(g->v[s->me].n_bytes, k, s->h->slot_bytes);
    struct cursor copy = g->own;
    shm_pack(s, &g->own, slot, m);
    cursor_copy(&copy, m);
}

static int gather_get(void *arg, uint64_t k, unsigned turn, struct err *err)
{
    struct slot_gather *g = arg;
    struct shm *s = g->s;
    for (uint32_t i = 1; i < s->n && g->reads; i++) {
        uint32_t j = (s->me + i) % s->n; /* members read the slots in different order */
        int rc = shm_wait(s, j, put_done(s, k), err);
        if (rc < 0)
            return rc;
        cursor_unpack(&s->at[j], shm_slot(s, j, turn),
                      nth_chunk(g->v[j].n_bytes, k, s->h->slot_bytes));
    }
    return 0;
}

static int gather_small(struct slot_gather *g, struct err *err)
{
    struct shm *s = g->s;
    unsigned turn = s->small_turn++;
    uint64_t own = g->v[s->me].n_bytes;
    struct cursor copy = g->own;
    s->put.streams = put_found(&s->put, PUT_SMALL, own).streams;
    shm_pack(s, &g->own, shm_small(s, s->me, turn), own);
    cursor_copy(&copy, own);
    int rc = small_exchange(s, err);
    for (uint32_t j = 0; j < s->n && g->reads && rc == 0; j++)
        if (j != s->me)
            cursor_unpack(&s->at[j], shm_small(s, j, turn), g->v[j].n_bytes);
    return rc;
}

int shm_gather(struct shm *s, const struct vec *v, uint32_t only, struct err *err)
{
    struct slot_gather g = {.s = s,
                            .v = v,
                            .own = cursor_at(&v[s->me]),
                            .reads = only == SHM_ALL || only == s->me};
    struct rounds o = {.s = s, .put = gather_put, .get = gather_get, .arg = &g};
    uint64_t max = 0;
    for (uint32_t j = 0; j < s->n; j++)
        max = v[j].n_bytes > max ? v[j].n_bytes : max;
    start_at(s, s->at, v);
    if (max > 0 && max <= s->h->small_bytes)
        return gather_small(&g, err);
    o.n = n_chunks(max, s->h->slot_bytes);
    return move_run_rounds(&o, err);
}

/* --- cells: a slot cut among its receivers --- */

struct cells {
    uint32_t bytes, n_served, n_turns; /* receivers served in one turn */
};

static struct cells cut_slot(const struct shm *s)
{
    struct cells c = {.bytes = s->h->slot_bytes / s->n & ~(CELL_ALIGN - 1)};
    if (c.bytes < CELL_MIN)
        c.bytes = CELL_MIN;
    c.n_served = s->h->slot_bytes / c.bytes;
    if (c.n_served > s->n)
        c.n_served = s->n;
    c.n_turns = (s->n + c.n_served - 1) / c.n_served;
    return c;
}

/* The cell of receiver j in a slot of round r; NULL when it is not its turn. */
static uint8_t *cells_at(const struct cells *c, uint8_t *slot, uint64_t r, uint32_t j)
{
    uint32_t first = (uint32_t)(r % c->n_turns) * c->n_served;
    if (j < first || j - first >= c->n_served)
        return NULL;
    return slot + (size_t)(j - first) * c->bytes;
}

/* --- reduce-scatter --- */

struct scatter {
    struct shm *s;
    const struct vec *v;
    const struct reduction *r;
    struct cells cells;
    struct cursor own;
};

/* out (of c, m bytes) = our part of everyone's src; in replaces our own packed copy if
 * we have none. */
static void reduce_own(struct scatter *g, struct cursor *c, uint64_t m)
{
    struct shm *s = g->s;
    const uint8_t *in;
    uint8_t *out;
    for (uint64_t done = 0, n; done < m; done += n) {
        n = cursor_next(c, m - done, &in, &out);
        if (n == 0)
            return;
        const void *packed = s->src[s->me];
        if (g->r->prescale == 1.0)
            s->src[s->me] = in;
        g->r->k->fold(out, NULL, s->src, s->n, n / g->r->k->elem_bytes, &g->r->finish);
        s->src[s->me] = packed;
        for (uint32_t j = 0; j < s->n; j++)
            s->src[j] = (const uint8_t *)s->src[j] + n;
    }
}

static void scatter_put(void *arg, uint64_t r, uint8_t *slot)
{
    struct scatter *g = arg;
    struct shm *s = g->s;
    uint64_t k = r / g->cells.n_turns;
    for (uint32_t j = 0; j < s->n; j++) {
        uint8_t *to = cells_at(&g->cells, slot, r, j);
        uint64_t m = nth_chunk(g->v[j].n_bytes, k, g->cells.bytes);
        if (to && (j != s->me || g->r->prescale != 1.0))
            shm_pack_scaled(s, &s->at[j], to, m, g->r);
    }
}

static int scatter_get(void *arg, uint64_t r, unsigned turn, struct err *err)
{
    struct scatter *g = arg;
    struct shm *s = g->s;
    uint64_t k = r / g->cells.n_turns;
    uint64_t m = nth_chunk(g->v[s->me].n_bytes, k, g->cells.bytes);
    for (uint32_t j = 0; j < s->n; j++)
        s->src[j] = cells_at(&g->cells, shm_slot(s, j, turn), r, s->me);
    if (m == 0 || !s->src[s->me])
        return 0;
    int rc = shm_wait_all(s, put_done(s, r), err);
    if (rc < 0)
        return rc;
    reduce_own(g, &g->own, m);
    return 0;
}

static int scatter_small(struct scatter *g, struct err *err)
{
    struct shm *s = g->s;
    unsigned turn = s->small_turn++;
    uint8_t *to = shm_small(s, s->me, turn);
    uint64_t own_off = 0;
    s->put.streams = put_found(&s->put, PUT_SMALL, g->v[s->me].n_bytes).streams;
    for (uint32_t j = 0; j < s->n; j++) {
        if (j < s->me)
            own_off += g->v[j].n_bytes;
        if (j != s->me || g->r->prescale != 1.0)
            shm_pack_scaled(s, &s->at[j], to, g->v[j].n_bytes, g->r);
        to += g->v[j].n_bytes;
    }
    int rc = small_exchange(s, err);
    if (rc < 0)
        return rc;
    for (uint32_t j = 0; j < s->n; j++)
        s->src[j] = shm_small(s, j, turn) + own_off;
    reduce_own(g, &g->own, g->v[s->me].n_bytes);
    return 0;
}

int shm_reduce_scatter(struct shm *s,
                       const struct vec *parts,
                       const struct reduction *r,
                       struct err *err)
{
    struct scatter g = {.s = s,
                        .v = parts,
                        .r = r,
                        .cells = cut_slot(s),
                        .own = cursor_at(&parts[s->me])};
    struct rounds o = {.s = s, .put = scatter_put, .get = scatter_get, .arg = &g};
    uint64_t max = 0, sum = 0;
    for (uint32_t j = 0; j < s->n; j++) {
        max = parts[j].n_bytes > max ? parts[j].n_bytes : max;
        sum += parts[j].n_bytes;
    }
    start_at(s, s->at, parts);
    if (sum > 0 && sum <= s->h->small_bytes)
        return scatter_small(&g, err);
    o.n = n_chunks(max, g.cells.bytes) * g.cells.n_turns;
    return move_run_rounds(&o, err);
}

/* --- alltoall --- */

struct length_note {   /* the start of a small message */
    uint64_t n_chunks; /* through the slots; 0: its blocks follow here */
};

struct alltoall {
    struct shm *s;
    const struct vec *send, *recv;
    struct cells cells;
    unsigned note_turn;
    bool is_inline; /* ours */
};

static uint64_t move_count_chunks(const struct alltoall *g, uint32_t sender)
{
    struct length_note n;
    memcpy(&n, shm_small(g->s, sender, g->note_turn), sizeof(n));
    return n.n_chunks;
}

/* The distance of the blocks that follow a note. */
static uint64_t inline_bytes(const struct shm *s)
{
    return (s->h->small_bytes - NOTE_BYTES) / s->n & ~15u;
}

static void alltoall_put(void *arg, uint64_t r, uint8_t *slot)
{
    struct alltoall *g = arg;
    struct shm *s = g->s;
    uint64_t k = r / g->cells.n_turns;
    for (uint32_t j = 0; j < s->n && !g->is_inline; j++) {
        uint8_t *to = cells_at(&g->cells, slot, r, j);
        if (to && j != s->me)
            shm_pack(s, &s->at[j], to,
                     nth_chunk(g->send[j].n_bytes, k, g->cells.bytes));
    }
}

static int alltoall_get(void *arg, uint64_t r, unsigned turn, struct err *err)
{
    struct alltoall *g = arg;
    struct shm *s = g->s;
    uint64_t k = r / g->cells.n_turns;
    for (uint32_t i = 1; i < s->n; i++) {
        uint32_t j = (s->me + i) % s->n;
        const uint8_t *from = cells_at(&g->cells, shm_slot(s, j, turn), r, s->me);
        uint64_t m = nth_chunk(g->recv[j].n_bytes, k, g->cells.bytes);
        if (!from || m == 0 || move_count_chunks(g, j) == 0)
            continue;
        int rc = shm_wait(s, j, put_done(s, r), err);
        if (rc < 0)
            return rc;
        cursor_unpack(&s->at[s->n + j], from, m);
    }
    return 0;
}

/* Our note, and our blocks when they fit behind it. */
static void write_note(struct alltoall *g)
{
    struct shm *s = g->s;
    uint8_t *at = shm_small(s, s->me, g->note_turn);
    uint64_t max = 0, each = inline_bytes(s);
    for (uint32_t j = 0; j < s->n; j++)
        if (j != s->me && g->send[j].n_bytes > max)
            max = g->send[j].n_bytes;
    g->is_inline = max <= each;
    struct length_note n = {.n_chunks =
                                g->is_inline ? 0 : n_chunks(max, g->cells.bytes)};
    memcpy(at, &n, sizeof(n));
    s->put.streams = put_found(&s->put, PUT_SMALL, each).streams;
    for (uint32_t j = 0; j < s->n && g->is_inline; j++)
        if (j != s->me)
            shm_pack(s, &s->at[j], at + NOTE_BYTES + j * each, g->send[j].n_bytes);
}

/* Takes the blocks that followed notes; returns the largest number of chunks. */
static uint64_t read_notes(struct alltoall *g)
{
    struct shm *s = g->s;
    uint64_t max = 0, each = inline_bytes(s);
    for (uint32_t j = 0; j < s->n; j++) {
        uint64_t n = move_count_chunks(g, j), here = g->recv[j].n_bytes;
        const uint8_t *at = shm_small(s, j, g->note_turn) + NOTE_BYTES + s->me * each;
        max = n > max ? n : max;
        if (n == 0 && j != s->me)
            cursor_unpack(&s->at[s->n + j], at, here < each ? here : each);
    }
    return max;
}

int shm_alltoall(struct shm *s,
                 const struct vec *send,
                 const struct vec *recv,
                 struct err *err)
{
    struct alltoall g = {.s = s,
                         .send = send,
                         .recv = recv,
                         .cells = cut_slot(s),
                         .note_turn = s->small_turn++};
    struct rounds o = {.s = s, .put = alltoall_put, .get = alltoall_get, .arg = &g};
    start_at(s, s->at, send);
    start_at(s, s->at + s->n, recv);
    write_note(&g);
    vec_copy(&send[s->me], &recv[s->me]);
    int rc = small_exchange(s, err);
    if (rc < 0)
        return rc;
    o.n = read_notes(&g) * g.cells.n_turns;
    return move_run_rounds(&o, err);
}
