/* SPDX-License-Identifier: Apache-2.0 */
/* Answers probes.
 *
 * I1  No probe waits for a send that is pending. Both are compared when either arrives;
 *     the oldest send that the probe asks for answers it.
 *
 * I2  The send itself does not change. The rank then submits its receive as any other,
 *     so all errors are those of receives. */
#include "runtime/core/pending_probes.h"

#include "runtime/core/pair.h"
#include "runtime/core/pending_groups.h"

/* Is p a send that this probe asks for, and not received yet? */
static bool probe_finds(const struct pending *probe, const struct pending *p)
{
    return p->first.coll == COLL_SENDRECV && p->first.root != probe->first_rank
           && pair_has(p->first.process_set, probe->first_rank)
           && pending_has_rank(p, p->first.root)
           && !pending_has_rank(p, probe->first_rank)
           && pair_is_probed(probe->first.name, p->first.name, p->first.root,
                             probe->first_rank);
}

static void probe_answer(struct pendings *t, struct pending *probe, uint32_t src)
{
    probe->first.root = src;
    probe->is_complete = true;
    nametab_remove(&t->names, &probe->node);
    t->n_probes--;
    pending_make_ready(t, probe);
}

void probes_match(struct pendings *t, struct pending *p)
{
    const bool is_probe = p->first.coll == COLL_PROBE;

    if (t->n_probes == 0 || (!is_probe && p->first.coll != COLL_SENDRECV))
        return;
    for (struct pending *q = t->waiting.head; q; q = q->next) {
        struct pending *probe = is_probe ? p : q, *send = is_probe ? q : p;

        if (probe->first.coll == COLL_PROBE && probe_finds(probe, send)) {
            probe_answer(t, probe, send->first.root);
            return;
        }
    }
}
