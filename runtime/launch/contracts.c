/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks are the slots of all hosts in order, up to np. Called by agent.c and
 * remote_agent.c. */
#include "runtime/launch/contracts.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/mem.h"

int contracts_make(const struct hostlist *hosts,
                   uint32_t np,
                   uint32_t h,
                   const struct contract *common,
                   struct contract **ret,
                   uint32_t *ret_n,
                   struct err *err)
{
    uint64_t all = np ? np : hostlist_slots(hosts), before = 0;
    if (h >= hosts->n)
        return err_set(err, -EPROTO, "the job has %zu hosts, this is number %u",
                       hosts->n, h);
    for (uint32_t i = 0; i < h; i++)
        before += hosts->v[i].slots;
    uint64_t left = before < all ? all - before : 0;
    uint32_t n = left < hosts->v[h].slots ? (uint32_t)left : hosts->v[h].slots;
    AUTOFREE struct contract *v = mem_calloc((size_t)n + 1, sizeof(*v));
    if (!v)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", n);
    for (uint32_t i = 0; i < n; i++) {
        v[i] = *common;
        int rc = places_at(hosts, np, h, i, &v[i].place, err);
        if (rc < 0)
            return rc;
        (void)snprintf(v[i].hostname, sizeof(v[i].hostname), "%s", hosts->v[h].name);
    }
    *ret = TAKE(v);
    *ret_n = n;
    return 0;
}
