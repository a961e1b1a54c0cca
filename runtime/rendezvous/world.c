/* SPDX-License-Identifier: Apache-2.0 */
/* The all-gather: each member puts a blob; when all have, the round becomes one message
 * for all members and the next round starts.
 *
 * Invariants: n_put is the number of members with has_put; n_bytes is the sum of their
 * blobs; a member with has_put has an owner (when its connection closes, its blob is
 * withdrawn, because its restarted process may put another). Round numbers only
 * increase. A member that returns after its round is complete is refused, because the
 * other members already use what its earlier process had put. */
#include "runtime/rendezvous/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/contract/waiting.h"
#include "runtime/rendezvous/ranks.h"
#include "runtime/wire/bytes.h"

#define MISSING_NAMED                                                                  \
    16 /* at most so many ranges are printed, the remaining ranks are counted */

struct rdv_msg *rdv_msg_new(uint32_t n)
{
    struct rdv_msg *m = mem_alloc(sizeof(*m) + n);

    if (!m)
        return NULL;
    m->n_refs = 1;
    m->n = n;
    return m;
}

void rdv_msg_seal(struct rdv_msg *m)
{
    sha256_digest(m->data, m->n, m->digest);
}

void rdv_msg_unref(struct rdv_msg *m)
{
    if (m && --m->n_refs == 0)
        mem_free(m);
}

int rdv_world_init(struct rdv_world *w, uint32_t size, struct err *err)
{
    memset(w, 0, sizeof(*w));
    if (size == 0 || size > WORLD_MAX_RANKS)
        return err_set(err, -EINVAL, "rendezvous for %u ranks, allowed are 1 to %u",
                       size, WORLD_MAX_RANKS);
    w->v = mem_calloc(size, sizeof(*w->v));
    if (w->v && route_init(&w->route, size) < 0) {
        mem_free(w->v);
        w->v = NULL;
    }
    if (!w->v)
        return err_set(err, -ENOMEM, "out of memory for %u members", size);
    w->size = size;
    return 0;
}

void rdv_world_release(struct rdv_world *w)
{
    for (uint32_t i = 0; w->v && i < w->size; i++)
        mem_free(w->v[i].blob);
    mem_free(w->v);
    mem_free(w->ranks);
    route_release(&w->route);
    w->v = NULL;
    w->ranks = NULL;
    w->size = 0;
}

uint32_t rdv_world_rank(const struct rdv_world *w, uint32_t i)
{
    return w->ranks ? w->ranks[i] : i;
}

uint32_t rdv_world_admit(struct rdv_world *w, uint32_t rank, void **ret_old)
{
    struct rdv_member *m = &w->v[rank];

    rdv_world_withdraw(w, rank);
    *ret_old = m->owner;
    m->owner = NULL;
    m->pass = ++w->n_passes;
    return m->pass;
}

void rdv_world_join(struct rdv_world *w, uint32_t rank, void *owner)
{
    struct rdv_member *m = &w->v[rank];

    m->owner = owner;
    if (!m->was_seen) {
        m->was_seen = true;
        w->n_seen++;
    }
}

void rdv_world_leave(struct rdv_world *w, uint32_t rank, const void *owner)
{
    if (w->v[rank].owner != owner)
        return;
    rdv_world_withdraw(w, rank);
    w->v[rank].owner = NULL;
    route_leave(&w->route, rank);
}

void rdv_world_withdraw(struct rdv_world *w, uint32_t rank)
{
    struct rdv_member *m = &w->v[rank];

    if (!m->has_put)
        return;
    w->n_put--;
    w->n_bytes -= m->n;
    mem_free(m->blob);
    m->blob = NULL;
    m->n = 0;
    m->has_put = false;
}

int rdv_world_put(struct rdv_world *w,
                  uint32_t rank,
                  const struct rdv_put *put,
                  uint64_t now_ns,
                  struct err *err)
{
    struct rdv_member *m = &w->v[rank];

    if (m->has_put || put->round > w->round)
        return err_set(err, -EPROTO, "rank %u puts into round %u, but round %u is open",
                       rank, put->round, w->round);
    if (put->round < w->round)
        return err_set(err, -ESTALE,
                       "rank %u puts into round %u, which is complete (round %u is "
                       "open): it was restarted after the other ranks had met",
                       rank, put->round, w->round);
    if (w->n_bytes + put->n > RDV_MAX_ROUND_BYTES)
        return err_set(err, -E2BIG,
                       "round %u would exceed %u bytes with the %u of rank %u",
                       w->round, RDV_MAX_ROUND_BYTES, put->n, rank);
    m->blob = mem_alloc(put->n);
    if (!m->blob)
        return err_set(err, -ENOMEM, "out of memory for the blob of rank %u", rank);
    if (put->n)
        memcpy(m->blob, put->blob, put->n);
    m->n = put->n;
    m->has_put = true;
    if (m->is_blamed)
        w->blame[0] = '\0';
    m->wait_ms = put->wait_ms;
    m->deadline_ns = put->wait_ms == RDV_WAIT_FOREVER
                         ? UINT64_MAX
                         : now_ns + put->wait_ms * NS_PER_MS;
    if (w->n_put++ == 0) {
        w->since_ns = now_ns;
        w->line_ns = waiting_next_ns(now_ns, now_ns);
    }
    w->n_bytes += put->n;
    return 0;
}

bool rdv_world_needs_line(struct rdv_world *w, uint64_t now_ns)
{
    if (w->n_put == 0 || now_ns < w->line_ns)
        return false;
    w->line_ns = waiting_next_ns(w->since_ns, now_ns);
    return true;
}

bool rdv_world_is_full(const struct rdv_world *w)
{
    return w->n_put == w->size;
}

struct rdv_msg *rdv_world_finish(struct rdv_world *w)
{
    size_t at = 8 + (size_t)w->size * 4;
    struct rdv_msg *msg = rdv_msg_new((uint32_t)(at + w->n_bytes));

    if (!msg)
        return NULL;
    bytes_store_u32(msg->data, w->round);
    bytes_store_u32(msg->data + 4, w->size);
    for (uint32_t i = 0; i < w->size; i++) {
        struct rdv_member *m = &w->v[i];

        bytes_store_u32(msg->data + 8 + (size_t)i * 4, m->n);
        if (m->n)
            memcpy(msg->data + at, m->blob, m->n);
        at += m->n;
        rdv_world_withdraw(w, i);
    }
    rdv_msg_seal(msg);
    w->round++;
    return msg;
}

/* --- missing members as text --- */

enum missing { MISSING_ANY, MISSING_LOST, MISSING_LATE, MISSING_BEHIND };

static bool member_is_late(const struct rdv_member *m)
{
    return !m->has_put && m->owner;
}

/* A late relay keeps back what the members behind it send. */
static bool world_is_behind(const struct rdv_world *w, uint32_t i)
{
    for (uint32_t p = route_parent(&w->route, i); p < w->size;
         p = route_parent(&w->route, p))
        if (member_is_late(&w->v[p]))
            return true;
    return false;
}

static bool world_is_missing(const struct rdv_world *w, uint32_t i, enum missing kind)
{
    const struct rdv_member *m = &w->v[i];

    if (m->has_put)
        return false;
    switch (kind) {
    case MISSING_LOST:
        return m->was_seen && !m->owner && !world_is_behind(w, i);
    case MISSING_LATE:
        return member_is_late(m) && !world_is_behind(w, i);
    case MISSING_BEHIND:
        return world_is_behind(w, i);
    case MISSING_ANY:
        break;
    }
    return !world_is_behind(w, i);
}

static size_t text_add(char *ret, size_t n, size_t size_bytes, const char *s)
{
    int k = snprintf(ret + n, size_bytes - n, "%s", s);

    return k < 0 || (size_t)k >= size_bytes - n ? size_bytes - 1 : n + (size_t)k;
}

/* "1, 3-5, 9" of one kind; returns the number of ranks. */
static uint32_t world_list_missing(const struct rdv_world *w,
                                   enum missing kind,
                                   char *ret,
                                   size_t size_bytes)
{
    uint32_t n_ranks = 0, n_ranges = 0, rest = 0;
    size_t n = 0;

    ret[0] = '\0';
    for (uint32_t i = 0; i < w->size; i++) {
        if (!world_is_missing(w, i, kind))
            continue;

        uint32_t end = i, from = rdv_world_rank(w, i), to = from;
        while (end + 1 < w->size && world_is_missing(w, end + 1, kind)
               && rdv_world_rank(w, end + 1) == to + 1) {
            end++;
            to++;
        }
        n_ranks += end - i + 1;
        if (n_ranges++ < MISSING_NAMED) {
            char one[32];
            const char *comma = n ? ", " : "";

            if (end == i)
                (void)snprintf(one, sizeof(one), "%s%u", comma, from);
            else
                (void)snprintf(one, sizeof(one),
                               to == from + 1 ? "%s%u, %u" : "%s%u-%u", comma, from,
                               to);
            n = text_add(ret, n, size_bytes, one);
        } else {
            rest += end - i + 1;
        }
        i = end;
    }
    if (rest) {
        char more[32];

        (void)snprintf(more, sizeof(more), " and %u more", rest); /* always fits */
        (void)text_add(ret, n, size_bytes, more);
    }
    return n_ranks;
}

void rdv_world_missing(const struct rdv_world *w, char *ret, size_t size_bytes)
{
    char any[160], part[160];
    uint32_t n_any = world_list_missing(w, MISSING_ANY, any, sizeof(any));
    char of[80];
    size_t n;

    if (w->ranks)
        rdv_ranks_text(w->ranks, w->size, of, sizeof(of));
    else
        (void)snprintf(of, sizeof(of), "%u", w->size);
    int k =
        snprintf(ret, size_bytes, "rank%s %s of %s", n_any == 1 ? "" : "s", any, of);
    n = k < 0 || (size_t)k >= size_bytes ? size_bytes - 1 : (size_t)k;

    if (world_list_missing(w, MISSING_LOST, part, sizeof(part))) {
        n = text_add(ret, n, size_bytes, "; had connected and was lost: ");
        n = text_add(ret, n, size_bytes, part);
    }
    if (world_list_missing(w, MISSING_LATE, part, sizeof(part))) {
        n = text_add(ret, n, size_bytes, "; connected but late: ");
        n = text_add(ret, n, size_bytes, part);
    }
    uint32_t n_behind = world_list_missing(w, MISSING_BEHIND, part, sizeof(part));
    if (n_behind) {
        (void)snprintf(part, sizeof(part), "; %u more connect through these", n_behind);
        (void)text_add(ret, n, size_bytes, part);
    }
}

const char *rdv_world_blame(struct rdv_world *w)
{
    if (w->blame[0])
        return w->blame;
    rdv_world_missing(w, w->blame, sizeof(w->blame));
    for (uint32_t i = 0; i < w->size; i++)
        w->v[i].is_blamed = !w->v[i].has_put;
    return w->blame;
}
