/* SPDX-License-Identifier: Apache-2.0 */
/* Placement. With s(h) the slots of host h that are in use (np may cut the last one
 * used):
 *
 *   rank(h, l)        = s(0) + ... + s(h-1) + l
 *   cross_rank(h, l)  = the number of hosts before h with s > l
 *   cross_size(l)     = the number of all hosts with s > l
 *
 * Hosts without a rank are not counted. Cost: hosts + ranks. */
#include "runtime/contract/places.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

/* The number of ranks, from np and what the hosts have. */
static int
world_size(const struct hostlist *hosts, uint32_t np, uint32_t *ret, struct err *err)
{
    uint64_t slots = hostlist_slots(hosts);

    if (slots == 0)
        return err_set(err, -EINVAL, "the %zu hosts have no slots", hosts->n);
    if (np > slots)
        return err_set(err, -EINVAL,
                       "%u processes are requested, but the %zu hosts have %llu slots",
                       np, hosts->n, (unsigned long long)slots);
    if (np == 0 && slots > WORLD_MAX_RANKS)
        return err_set(err, -EINVAL, "%llu slots exceed %d ranks",
                       (unsigned long long)slots, WORLD_MAX_RANKS);
    if (np > WORLD_MAX_RANKS)
        return err_set(err, -EINVAL, "%u ranks exceed %d", np, WORLD_MAX_RANKS);
    *ret = np ? np : (uint32_t)slots;
    return 0;
}

static uint32_t slots_used(uint32_t slots, uint32_t left)
{
    return slots < left ? slots : left;
}

int places_assign(const struct hostlist *hosts,
                  uint32_t np,
                  struct place *ret,
                  struct err *err)
{
    uint32_t size, widest = 0, rank = 0;
    int rc = world_size(hosts, np, &size, err);

    if (rc)
        return rc;
    for (size_t h = 0; h < hosts->n; h++)
        widest = hosts->v[h].slots > widest ? hosts->v[h].slots : widest;
    AUTOFREE uint32_t *n_with = mem_calloc(widest, sizeof(*n_with)); /* by local rank */
    if (!n_with)
        return err_set(err, -ENOMEM, "out of memory for %u local ranks", widest);
    for (size_t h = 0; h < hosts->n && rank < size; h++) {
        uint32_t local_size = slots_used(hosts->v[h].slots, size - rank);

        for (uint32_t l = 0; l < local_size; l++, rank++)
            ret[rank] = (struct place){.rank = rank,
                                       .size = size,
                                       .local_rank = l,
                                       .local_size = local_size,
                                       .cross_rank = n_with[l]++,
                                       .host = (uint32_t)h};
    }
    for (uint32_t i = 0; i < size; i++)
        ret[i].cross_size = n_with[ret[i].local_rank];
    return 0;
}

int places_at(const struct hostlist *hosts,
              uint32_t np,
              size_t h,
              uint32_t local_rank,
              struct place *ret,
              struct err *err)
{
    struct place p = {.local_rank = local_rank, .host = (uint32_t)h};
    uint32_t rank = 0;
    int rc = world_size(hosts, np, &p.size, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < hosts->n; i++) {
        uint32_t local_size = slots_used(hosts->v[i].slots, p.size - rank);

        if (i == h) {
            p.rank = rank + local_rank;
            p.local_size = local_size;
            p.cross_rank = p.cross_size;
        }
        if (local_size > local_rank)
            p.cross_size++;
        rank += local_size;
    }
    if (local_rank >= p.local_size)
        return err_set(err, -EINVAL,
                       "host %zu of %zu has %u of the %u ranks, so no local rank %u", h,
                       hosts->n, p.local_size, p.size, local_rank);
    *ret = p;
    return 0;
}

static int places_check_below(
    const char *a_name, uint32_t a, const char *b_name, uint32_t b, struct err *err)
{
    if (a < b)
        return 0;
    return err_set(err, -EINVAL, "%s=%u is not below %s=%u", a_name, a, b_name, b);
}

static int places_check_within(
    const char *a_name, uint32_t a, const char *b_name, uint32_t b, struct err *err)
{
    if (a <= b)
        return 0;
    return err_set(err, -EINVAL, "%s=%u exceeds %s=%u", a_name, a, b_name, b);
}

int place_check_named(const struct place *p,
                      const struct place_names *n,
                      struct err *err)
{
    int rc = places_check_within(n->size, p->size, "the limit", WORLD_MAX_RANKS, err);

    if (rc == 0)
        rc = places_check_below(n->rank, p->rank, n->size, p->size, err);
    if (rc == 0)
        rc = places_check_below(n->local_rank, p->local_rank, n->local_size,
                                p->local_size, err);
    if (rc == 0)
        rc = places_check_below(n->cross_rank, p->cross_rank, n->cross_size,
                                p->cross_size, err);
    if (rc == 0)
        rc = places_check_within(n->local_size, p->local_size, n->size, p->size, err);
    if (rc == 0)
        rc = places_check_within(n->cross_size, p->cross_size, n->size, p->size, err);
    return rc;
}

int place_check(const struct place *p, struct err *err)
{
    static const struct place_names names = {"rank",       "size",       "local_rank",
                                             "local_size", "cross_rank", "cross_size"};

    return place_check_named(p, &names, err);
}
