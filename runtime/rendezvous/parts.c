/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of a part of the ranks. Each has its own rounds, so that two halves of a job
 * can form worlds at the same time, and one half repeatedly while the other half
 * trains. A world exists as long as the server: its round number is what detects a
 * member that is too late.
 *
 * Lists are equal when they have the same ranks in the same order: the order defines
 * the places, as MPI_Group_incl does for Horovod. Ranks of one world that pass
 * different lists would wait until their deadlines. Where two such ranks wait for each
 * other, the conflict is certain and reported at once. Otherwise it is not an error
 * yet: the other rank may still be in its last world and join later. */
#include "runtime/rendezvous/parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/rendezvous/ranks.h"
#include "runtime/wire/bytes.h"

static bool parts_find_place(const struct rdv_world *w, uint32_t rank, uint32_t *ret)
{
    if (!w->ranks) {
        *ret = rank;
        return rank < w->size;
    }
    for (uint32_t i = 0; i < w->size; i++)
        if (w->ranks[i] == rank) {
            *ret = i;
            return true;
        }
    return false;
}

static bool has_ranks(const struct rdv_world *w, const uint32_t *ranks, uint32_t n)
{
    return w->size == n && memcmp(w->ranks, ranks, (size_t)n * sizeof(*ranks)) == 0;
}

/* Takes ownership of ranks on success. */
static int world_add_part(struct rdv_world *all,
                          uint32_t *ranks,
                          uint32_t n,
                          struct rdv_world **ret,
                          struct err *err)
{
    struct rdv_world *w = mem_zalloc(sizeof(*w));
    int rc = w ? rdv_world_init(w, n, err)
               : err_set(err, -ENOMEM, "out of memory for a world of %u ranks", n);

    if (rc) {
        mem_free(w);
        return rc;
    }
    w->ranks = ranks;
    w->next = all->next;
    all->next = w;
    *ret = w;
    return 0;
}

static int find_part(struct rdv_world *all,
                     const struct rdv_join *join,
                     struct rdv_world **ret,
                     struct err *err)
{
    const uint32_t n = join->n_part;
    AUTOFREE uint32_t *ranks = mem_calloc(n, sizeof(*ranks));
    uint32_t n_parts = 0;

    if (!ranks)
        return err_set(err, -ENOMEM, "out of memory for a list of %u ranks", n);
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = bytes_load_u32(join->part + (size_t)i * 4);
    int rc = rdv_ranks_check(ranks, n, join->rank, join->size, err);
    if (rc)
        return rc;
    for (struct rdv_world *w = all->next; w; w = w->next, n_parts++)
        if (has_ranks(w, ranks, n)) {
            *ret = w;
            return 0;
        }
    if (n_parts >= RDV_PARTS_MAX)
        return err_set(err, -E2BIG,
                       "this job has had worlds of %u different lists of ranks, more "
                       "are not allowed",
                       RDV_PARTS_MAX);
    rc = world_add_part(all, ranks, n, ret, err);
    if (rc == 0)
        ranks = NULL; /* owned by the world now */
    return rc;
}

int rdv_parts_find(struct rdv_world *all,
                   const struct rdv_join *join,
                   struct rdv_world **ret,
                   uint32_t *ret_place,
                   struct err *err)
{
    struct rdv_world *w = all;

    if (join->size != all->size)
        return err_set(err, -EINVAL, "rank %u has size %u, but this world has size %u",
                       join->rank, join->size, all->size);
    if (join->rank >= join->size)
        return err_set(err, -EINVAL, "rank %u is not below size %u", join->rank,
                       join->size);
    int rc = join->n_part > 0 ? find_part(all, join, &w, err) : 0;
    if (rc)
        return rc;
    (void)parts_find_place(w, join->rank, ret_place); /* find_part has checked it */
    *ret = w;
    return 0;
}

static void
parts_describe_request(const struct rdv_world *w, char *ret, size_t size_bytes)
{
    if (w->ranks)
        rdv_ranks_text(w->ranks, w->size, ret, size_bytes);
    else
        (void)snprintf(ret, size_bytes, "no list, all %u ranks", w->size); /* fits */
}

struct rdv_world *rdv_parts_clash(struct rdv_world *all,
                                  const struct rdv_world *w,
                                  uint32_t place,
                                  char *text,
                                  size_t size_bytes)
{
    const uint32_t rank = rdv_world_rank(w, place);
    char ours[100], theirs[100];
    uint32_t at;

    for (struct rdv_world *o = all; o; o = o->next) {
        if (o == w || o->n_put == 0 || !parts_find_place(o, rank, &at))
            continue;
        for (uint32_t i = 0; i < o->size; i++) {
            uint32_t other = rdv_world_rank(o, i);

            if (!o->v[i].has_put || other == rank || !parts_find_place(w, other, &at))
                continue;
            parts_describe_request(w, ours, sizeof(ours));
            parts_describe_request(o, theirs, sizeof(theirs));
            (void)snprintf(
                text, size_bytes,
                "hvd.init(comm=...) differs: rank %u passes %s, rank %u passes %s; all "
                "ranks of one world must pass the same list in the same order",
                rank, ours, other, theirs); /* fits */
            return o;
        }
    }
    return NULL;
}

void rdv_parts_release(struct rdv_world *all)
{
    while (all->next) {
        struct rdv_world *w = all->next;

        all->next = w->next;
        rdv_world_release(w);
        mem_free(w);
    }
}
