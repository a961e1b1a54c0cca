/* SPDX-License-Identifier: Apache-2.0 */
/* A world of some ranks of the job (Horovod's init(comm=[0, 2])). The place that the
 * launcher gave is kept in world.job. The world's own rank is the index in the list, as
 * in MPI_Group_incl, and its hosts are those of its members, compared by the names that
 * the members send in round 1.
 *
 * Several such worlds exist at once, so what a job has one of is separate for each: the
 * rounds at the rendezvous (rendezvous/parts.c), the name that connections prove, so
 * that no rank connects to another part, and the files that a world's rank 0 writes.
 * Called by world.c. */
#include "runtime/world/part.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/world/world.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/card.h"

/* --- which ranks --- */

static bool ranks_are_all(const struct part_ranks *ranks, uint32_t size)
{
    if ((uint32_t)ranks->n != size)
        return false;
    for (int i = 0; i < ranks->n; i++)
        if (ranks->v[i] != i)
            return false;
    return true;
}

static void part_set_name(struct world *w)
{
    struct part *p = &w->part;
    uint8_t digest[SHA256_BYTES], word[4];
    struct sha256 s;

    sha256_init(&s);
    for (uint32_t i = 0; i < p->n; i++) {
        for (int k = 0; k < 4; k++)
            word[k] = (uint8_t)(p->ranks[i] >> (8 * k));
        sha256_add(&s, word, sizeof(word));
    }
    sha256_end(&s, digest);
    hex_encode(digest, (PART_KEY_BYTES - 1) / 2, p->key);
    (void)snprintf(p->job_id, sizeof(p->job_id), "%s/%s", w->contract.job_id,
                   p->key); /* fits */
}

/* Rank 0 of each part writes its own files: the part with the job's rank 0 at the
 * configured path, every other part with the rank appended. */
static int path_add_rank(char *path, size_t size, uint32_t rank, struct err *err)
{
    size_t n = strlen(path);

    if (n == 0 || rank == 0)
        return 0;
    if (snprintf(path + n, size - n, ".rank%u", rank) >= (int)(size - n))
        return err_set(err, -ENAMETOOLONG, "the path %.100s... is too long", path);
    return 0;
}

static int part_rename_files(struct world *w, struct err *err)
{
    struct settings *s = &w->settings;
    const uint32_t rank = w->part.ranks[0];
    int rc = path_add_rank(s->timeline, sizeof(s->timeline), rank, err);

    return rc < 0 ? rc
                  : path_add_rank(s->autotune_log, sizeof(s->autotune_log), rank, err);
}

int part_choose(struct world *w, const struct part_ranks *ranks, struct err *err)
{
    struct place *place = &w->contract.place;
    uint32_t n = (uint32_t)ranks->n;
    int rc;

    if (n == 0 || ranks_are_all(ranks, w->job.size))
        return 0;
    AUTOFREE uint32_t *v = mem_calloc(n, sizeof(*v));
    if (!v)
        return err_set(err, -ENOMEM, "out of memory for a list of %u ranks", n);
    for (uint32_t i = 0; i < n; i++)
        v[i] = (uint32_t)ranks->v[i]; /* a negative number becomes too large */
    rc = rdv_ranks_check(v, n, w->job.rank, w->job.size, err);
    if (rc < 0)
        return rc;
    *place = (struct place){.size = n};
    while (v[place->rank] != w->job.rank) /* it is in the list: checked before */
        place->rank++;
    w->part.n = n;
    w->part.ranks = TAKE(v);
    part_set_name(w);
    return part_rename_files(w, err);
}

bool part_has_ranks(const struct world *w, const struct part_ranks *ranks)
{
    if (ranks->n == 0)
        return true;
    if (!w->part.ranks)
        return ranks_are_all(ranks, w->job.size);
    if (w->part.n != (uint32_t)ranks->n)
        return false;
    for (int i = 0; i < ranks->n; i++)
        if (w->part.ranks[i] != (uint32_t)ranks->v[i])
            return false;
    return true;
}

void part_release(struct part *p)
{
    mem_free(p->ranks);
    p->ranks = NULL;
}

/* --- the place in it --- */

static void host_make_key(const char *host, char ret[CARD_KEY_BYTES])
{
    uint8_t digest[SHA256_BYTES];

    sha256_digest(host, strlen(host), digest);
    hex_encode(digest, (CARD_KEY_BYTES - 1) / 2, ret);
}

static int place_compare_host(const void *a, const void *b)
{
    const struct card_place *x = a, *y = b;

    return strcmp(x->host, y->host);
}

/* Have all hosts as many members? Sorts v. */
static bool places_are_even(struct card_place *v, uint32_t n)
{
    uint32_t first = 0;

    qsort(v, n, sizeof(*v), place_compare_host);
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && place_compare_host(&v[end], &v[i]) == 0; end++)
            ;
        if (i == 0)
            first = end;
        if (end - i != first)
            return false;
    }
    return true;
}

int part_find_place(struct world *w, struct err *err)
{
    AUTOFREE struct card_place *v = NULL;
    int rc;

    if (!w->part.ranks)
        return 0;
    v = mem_calloc(w->part.n, sizeof(*v));
    if (!v)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", w->part.n);
    for (uint32_t i = 0; i < w->part.n; i++) {
        host_make_key(w->members[i].host, v[i].host);
        v[i].local_rank = CARD_NO_LOCAL;
    }
    rc = card_find_place(v, &w->contract.place, err);
    if (rc == 0)
        w->is_homogeneous = places_are_even(v, w->part.n);
    return rc;
}

/* --- rounds --- */

uint32_t *part_rounds(struct kept_state *m, const struct world *w)
{
    void *v = m->parts;

    if (!w->part.ranks)
        return &m->n_rounds;
    for (size_t i = 0; i < m->n_parts; i++)
        if (strcmp(m->parts[i].key, w->part.key) == 0)
            return &m->parts[i].n;
    if (mem_grow(&v, m->n_parts, &m->cap_parts, sizeof(*m->parts), UINT32_MAX) < 0)
        return NULL;
    m->parts = v;
    memcpy(m->parts[m->n_parts].key, w->part.key, PART_KEY_BYTES);
    m->parts[m->n_parts].n = 0;
    return &m->parts[m->n_parts++].n;
}

void part_forget_rounds(struct kept_state *m)
{
    mem_free(m->parts);
    m->parts = NULL;
    m->n_parts = m->cap_parts = 0;
}
