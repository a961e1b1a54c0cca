/* SPDX-License-Identifier: Apache-2.0 */
/* The index of what tensors keep between steps.
 *
 * The bound is on bytes. New names may appear without end (a script that lets the
 * framework number its tensors), so the least recently used entry is evicted; a running
 * one never is. A tensor whose plan changes (shape, type, codec, members) starts again
 * from zeros: its old residual would be added to other elements.
 *
 * The list runs from `oldest` by `newer` to `newest`. Used by codec_state.c and by the
 * device's codecs. */
#include "runtime/core/compress/codec_index.h"

#include <errno.h>
#include <inttypes.h>

void codec_index_init(struct codec_index *ix,
                      uint64_t max_bytes,
                      void (*release)(void *arg, struct codec_entry *e),
                      void *arg)
{
    *ix = (struct codec_index){.max_bytes = max_bytes, .release = release, .arg = arg};
}

static void unlink_entry(struct codec_index *ix, struct codec_entry *e)
{
    *(e->older ? &e->older->newer : &ix->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &ix->newest) = e->older;
    e->newer = e->older = NULL;
}

static void link_newest(struct codec_index *ix, struct codec_entry *e)
{
    e->older = ix->newest;
    *(ix->newest ? &ix->newest->newer : &ix->oldest) = e;
    ix->newest = e;
}

void codec_index_drop(struct codec_index *ix, struct codec_entry *e)
{
    unlink_entry(ix, e);
    nametab_remove(&ix->names, &e->node);
    ix->bytes -= e->plan.state_bytes;
    ix->release(ix->arg, e);
}

void codec_index_clear(struct codec_index *ix)
{
    while (ix->oldest)
        codec_index_drop(ix, ix->oldest);
}

void codec_index_release(struct codec_index *ix)
{
    codec_index_clear(ix);
    nametab_release(&ix->names);
}

static struct codec_entry *
index_find(const struct codec_index *ix, uint32_t set, const char *name)
{
    struct nametab_node *n = nametab_find(&ix->names, set, name);

    return n ? (struct codec_entry *)((char *)n - offsetof(struct codec_entry, node))
             : NULL;
}

void codec_index_forget(struct codec_index *ix, uint32_t set, const char *name)
{
    struct codec_entry *e = index_find(ix, set, name);

    if (e && !e->is_running)
        codec_index_drop(ix, e);
}

void codec_index_forget_set(struct codec_index *ix, uint32_t set)
{
    struct codec_entry *e = ix->oldest, *next;

    for (; e; e = next) {
        next = e->newer;
        if (e->node.set == set && !e->is_running)
            codec_index_drop(ix, e);
    }
}

static bool
entry_fits(const struct codec_entry *e, const struct codec_plan *p, uint32_t me)
{
    const struct codec_plan *q = &e->plan;

    return codec_equal(&q->codec, &p->codec) && q->dtype == p->dtype
           && q->count == p->count && q->rows == p->rows && q->n_members == p->n_members
           && e->me == me;
}

struct codec_entry *codec_index_find(struct codec_index *ix,
                                     uint32_t set,
                                     const char *name,
                                     const struct codec_plan *plan,
                                     uint32_t me)
{
    struct codec_entry *e = index_find(ix, set, name);

    if (!e || !entry_fits(e, plan, me))
        return NULL;
    unlink_entry(ix, e);
    link_newest(ix, e);
    return e;
}

static bool has_room(struct codec_index *ix, uint64_t bytes)
{
    struct codec_entry *e = ix->oldest;

    while (e && bytes > ix->max_bytes - ix->bytes) {
        struct codec_entry *next = e->newer;

        if (!e->is_running) {
            codec_index_drop(ix, e);
            ix->n_evicted++;
        }
        e = next;
    }
    return bytes <= ix->max_bytes - ix->bytes;
}

int codec_index_room(struct codec_index *ix,
                     uint32_t set,
                     const char *name,
                     const struct codec_plan *plan,
                     uint32_t me,
                     struct err *err)
{
    char shown[NAME_SHOWN_MAX];
    struct codec_entry *e = index_find(ix, set, name);

    if (plan->state_bytes == 0 || (e && entry_fits(e, plan, me)))
        return 1;
    if (e && e->is_running)
        return err_set(err, -EBUSY, "compression of %s: it is in progress already",
                       name_shown(name, shown));
    if (e)
        codec_index_drop(ix, e);
    if (plan->state_bytes > ix->max_bytes || !has_room(ix, plan->state_bytes))
        return err_set(err, -ENOSPC,
                       "compression of %s: keeps %" PRIu64
                       " bytes between steps, %" PRIu64 " of %" PRIu64
                       " are left (HVD_COMPRESSION_MEMORY)",
                       name_shown(name, shown), plan->state_bytes,
                       ix->max_bytes - ix->bytes, ix->max_bytes);
    return 0;
}

int codec_index_add(struct codec_index *ix,
                    struct codec_entry *e,
                    uint32_t set,
                    const char *name,
                    const struct codec_plan *plan,
                    uint32_t me)
{
    *e = (struct codec_entry){
        .node = {.name = name, .set = set}, .plan = *plan, .me = me};
    int rc = nametab_add(&ix->names, &e->node);

    if (rc < 0)
        return rc;
    ix->bytes += plan->state_bytes;
    link_newest(ix, e);
    return 0;
}
