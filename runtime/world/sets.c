/* SPDX-License-Identifier: Apache-2.0 */
/* An array of sets, ascending by number, so that finding is a binary search. The id of
 * a removed set finds nothing, even if another set has its number.
 *
 * Only the seat writes, under the lock. So the seat may read and keep pointers without
 * it, and API threads read under it. Backends are used in the seat only and closed
 * outside the lock.
 *
 * Called by step.c (sets change at the same answer on every rank), api*.c (queries,
 * early refusals) and world.c (life). */
#include "runtime/world/sets.h"

#include <errno.h>

#include "hvd.h"

#include "runtime/base/mem.h"
#include "runtime/core/set_id.h"

_Static_assert(SET_NUMBERS == HVD_PROCESS_SET_NUMBERS, "numbers of sets");

/* --- pure --- */

uint32_t set_place_of(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
    uint32_t low = 0, high = n;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (ranks[mid] < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && ranks[low] == rank ? low : SET_NOT_IN;
}

/* Is it the set that these callers may have of these ranks? The world is that of all. */
static bool set_is_of(const struct process_set *p,
                      const uint32_t *ranks,
                      uint32_t n,
                      enum set_callers callers)
{
    if (p->n != n || (p->id != 0 && p->callers != callers))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (p->ranks[i] != ranks[i])
            return false;
    return true;
}

/* Under the lock, or in the seat. */
static int sets_check_ranks(const struct sets *s,
                            const uint32_t *ranks,
                            uint32_t n,
                            enum set_callers callers,
                            struct err *err)
{
    if (n == 0)
        return err_set(err, -EINVAL, "a process set needs at least one rank");
    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] >= s->size)
            return err_set(err, -EINVAL,
                           "process set: rank %u is not in the world of %u ranks",
                           ranks[i], s->size);
        if (i > 0 && ranks[i] == ranks[i - 1])
            return err_set(err, -EINVAL, "process set: rank %u is listed twice",
                           ranks[i]);
        if (i > 0 && ranks[i] < ranks[i - 1])
            return err_set(err, -EINVAL, "process set: ranks must be ascending");
    }
    for (size_t i = 0; i < s->n; i++)
        if (set_is_of(s->v[i], ranks, n, callers))
            return err_set(err, -EEXIST,
                           "a process set containing the same ranks already exists: "
                           "process set %u",
                           set_number(s->v[i]->id));
    if (s->n >= SETS_MAX)
        return err_set(err, -E2BIG, "more than %u process sets", SETS_MAX);
    return 0;
}

/* --- life --- */

static void set_free(struct process_set *p)
{
    if (!p)
        return;
    if (p->device_backend)
        p->device_backend->ops->close(p->device_backend);
    if (p->id > 0 && p->backend)
        p->backend->ops->close(p->backend);
    mem_free(p->ranks);
    mem_free(p);
}

/* ranks NULL: all n of the world. */
static struct process_set *
set_new(const struct sets *s, uint32_t id, const uint32_t *ranks, uint32_t n)
{
    struct process_set *p = mem_zalloc(sizeof(*p));

    if (!p)
        return NULL;
    p->ranks = mem_calloc(n, sizeof(*p->ranks));
    if (!p->ranks) {
        set_free(p);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        p->ranks[i] = ranks ? ranks[i] : i;
    p->id = id;
    p->n = n;
    p->me = set_place_of(p->ranks, n, s->rank);
    return p;
}

/* The first of v[n] whose number, or pair, is not below that of id. */
static size_t sets_find_place(struct process_set *const *v, size_t n, uint32_t id)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (set_number(v[mid]->id) < set_number(id))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* There is room for it. */
static void sets_put_at_place(struct process_set **v, size_t *n, struct process_set *p)
{
    size_t at = sets_find_place(v, *n, p->id);

    for (size_t i = (*n)++; i > at; i--)
        v[i] = v[i - 1];
    v[at] = p;
}

static int sets_insert(struct sets *s, struct process_set *p)
{
    void *v = s->v;
    int rc;

    (void)pthread_mutex_lock(&s->lock);
    rc = mem_grow(&v, s->n, &s->cap, sizeof(void *), SETS_MAX);
    s->v = v;
    if (rc == 0)
        sets_put_at_place(s->v, &s->n, p);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

int sets_init(struct sets *s, uint32_t rank, uint32_t size)
{
    struct process_set *world;
    int rc;

    *s = (struct sets){.lock = PTHREAD_MUTEX_INITIALIZER, .rank = rank, .size = size};
    world = set_new(s, 0, NULL, size);
    if (!world)
        return -ENOMEM;
    rc = sets_insert(s, world);
    if (rc < 0)
        set_free(world);
    return rc;
}

void sets_release(struct sets *s)
{
    while (s->n_pairs > 0)
        set_free(s->pairs[--s->n_pairs]);
    mem_free(s->pairs);
    s->pairs = NULL;
    s->pairs_cap = 0;
    while (s->n > 0) /* the youngest first */
        set_free(s->v[--s->n]);
    mem_free(s->v);
    s->v = NULL;
    s->cap = 0;
}

void sets_set_world_backend(struct sets *s, struct backend *world)
{
    s->v[0]->backend = world;
}

/* --- the seat --- */

static struct process_set *
sets_search(struct process_set *const *v, size_t n, uint32_t id)
{
    size_t i = sets_find_place(v, n, id);

    return i < n && v[i]->id == id ? v[i] : NULL;
}

struct process_set *sets_find(const struct sets *s, uint32_t id)
{
    return pair_is(id) ? sets_search(s->pairs, s->n_pairs, id)
                       : sets_search(s->v, s->n, id);
}

int sets_add_pair(struct sets *s, uint32_t pair, struct backend *backend)
{
    void *v = s->pairs;
    int rc = mem_grow(&v, s->n_pairs, &s->pairs_cap, sizeof(void *), UINT32_MAX);
    struct process_set *p;
    uint32_t ranks[2];

    s->pairs = v;
    pair_ranks(pair, ranks);
    p = rc < 0 ? NULL : set_new(s, pair, ranks, 2);
    if (!p)
        return -ENOMEM;
    p->backend = backend;
    sets_put_at_place(s->pairs, &s->n_pairs, p);
    return 0;
}

/* Does a set have the number of id? Under the lock, or in the seat. */
static bool sets_has_number(const struct sets *s, uint32_t id)
{
    size_t i = sets_find_place(s->v, s->n, id);

    return i < s->n && set_number(s->v[i]->id) == set_number(id);
}

int sets_add(struct sets *s,
             uint32_t id,
             const uint32_t *ranks,
             uint32_t n,
             enum set_callers callers,
             struct backend *backend,
             struct err *err)
{
    struct process_set *p;
    int rc = sets_check_ranks(s, ranks, n, callers, err);

    if (rc < 0)
        return rc;
    if (pair_is(id) || sets_has_number(s, id))
        return err_set(err, -EPROTO, "process set %u exists already", set_number(id));
    p = set_new(s, id, ranks, n);
    if (p)
        p->callers = callers;
    if (!p || sets_insert(s, p) < 0) {
        set_free(p);
        return err_set(err, -ENOMEM, "out of memory for a process set");
    }
    p->backend = backend;
    return 0;
}

int sets_remove(struct sets *s, uint32_t id, struct err *err)
{
    struct process_set *p = sets_search(s->v, s->n, id);

    if (id == 0)
        return err_set(err, -EINVAL,
                       "process set 0 is the world and cannot be removed");
    if (!p)
        return err_set(err, -ENOENT, "process set %u does not exist", set_number(id));
    (void)pthread_mutex_lock(&s->lock);
    s->n--;
    for (size_t i = sets_find_place(s->v, s->n, id); i < s->n; i++)
        s->v[i] = s->v[i + 1];
    (void)pthread_mutex_unlock(&s->lock);
    set_free(p);
    return 0;
}

/* --- any thread --- */

int sets_check_new(struct sets *s,
                   const uint32_t *ranks,
                   uint32_t n,
                   enum set_callers callers,
                   struct err *err)
{
    int rc;

    (void)pthread_mutex_lock(&s->lock);
    rc = sets_check_ranks(s, ranks, n, callers, err);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

bool sets_find_ranks(struct sets *s, const uint32_t *ranks, uint32_t n, int *ret_id)
{
    bool is_there = false;

    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n && !is_there; i++) {
        is_there = set_is_of(s->v[i], ranks, n, SET_BY_MEMBERS);
        if (is_there)
            *ret_id = (int)s->v[i]->id;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return is_there;
}

int sets_place(struct sets *s, uint32_t id, uint32_t *ret_n, uint32_t *ret_me)
{
    const struct process_set *p;

    if (id == 0) { /* the world, which most tensors are of: constant */
        *ret_n = s->size;
        *ret_me = s->rank;
        return 0;
    }
    (void)pthread_mutex_lock(&s->lock);
    p = sets_search(s->v, s->n, id);
    if (p) {
        *ret_n = p->n;
        *ret_me = p->me;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return p ? 0 : -ENOENT;
}

int sets_report_unknown(struct sets *s, int id, struct err *err)
{
    bool is_again;

    (void)pthread_mutex_lock(&s->lock);
    is_again = id >= 0 && sets_has_number(s, (uint32_t)id);
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_again)
        return err_set(err, HVD_INVALID_ARGUMENT, "process set %d does not exist", id);
    return err_set(err, HVD_INVALID_ARGUMENT,
                   "process set %u has been removed, and another one has its number "
                   "now",
                   set_number((uint32_t)id));
}

uint32_t sets_member(struct sets *s, uint32_t id, uint32_t rank)
{
    const struct process_set *p;
    uint32_t place = SET_NOT_IN;

    (void)pthread_mutex_lock(&s->lock);
    p = sets_search(s->v, s->n, id);
    if (p)
        place = set_place_of(p->ranks, p->n, rank);
    (void)pthread_mutex_unlock(&s->lock);
    return place;
}

int sets_ranks(struct sets *s, uint32_t id, int *ret, int n)
{
    const struct process_set *p;
    int count = -ENOENT;

    (void)pthread_mutex_lock(&s->lock);
    p = sets_search(s->v, s->n, id);
    if (p) {
        count = (int)p->n;
        for (int i = 0; i < n && i < count; i++)
            ret[i] = (int)p->ranks[i];
    }
    (void)pthread_mutex_unlock(&s->lock);
    return count;
}

int sets_ids(struct sets *s, int *ret, int n)
{
    int count = 0;

    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i]->callers != SET_BY_ALL)
            continue;
        if (count < n)
            ret[count] = (int)s->v[i]->id;
        count++;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return count;
}
