/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors keep between steps, by process set and name.
 *
 * The bound is on bytes. Names may be invented without end (a script that lets the
 * framework number its tensors), so what was used least recently makes room; what is
 * being run never does. A tensor whose plan changes (shape, type, codec, members)
 * starts again from zeros: its old residual would be added to other elements.
 *
 * The list runs from `oldest` by `newer` to `newest`. Used by codec.c; one thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/compress/layout.h"

struct codec_state {
    struct nametab names;
    struct codec_tensor *oldest, *newest;
    uint64_t bytes, max_bytes, n_evicted;
    const struct codec_kernels *kernels;
};

int codec_state_new(uint64_t max_bytes, bool is_wide, struct codec_state **ret)
{
    struct codec_state *s = mem_zalloc(sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->max_bytes = max_bytes;
    s->kernels = codec_kernels_of(is_wide);
    *ret = s;
    return 0;
}

static void tensor_free(struct codec_tensor *t)
{
    mem_free(t->residual);
    mem_free(t->shard);
    mem_free(t->q);
    mem_free(t);
}

static void unlink_tensor(struct codec_state *s, struct codec_tensor *t)
{
    *(t->older ? &t->older->newer : &s->oldest) = t->newer;
    *(t->newer ? &t->newer->older : &s->newest) = t->older;
    t->newer = t->older = NULL;
}

static void link_newest(struct codec_state *s, struct codec_tensor *t)
{
    t->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = t;
    s->newest = t;
}

void codec_state_drop(struct codec_state *s, struct codec_tensor *t)
{
    unlink_tensor(s, t);
    nametab_remove(&s->names, &t->node);
    s->bytes -= t->bytes;
    tensor_free(t);
}

void codec_state_clear(struct codec_state *s)
{
    while (s->oldest)
        codec_state_drop(s, s->oldest);
}

void codec_state_free(struct codec_state *s)
{
    if (!s)
        return;
    codec_state_clear(s);
    nametab_release(&s->names);
    mem_free(s);
}

const struct codec_kernels *codec_state_kernels(const struct codec_state *s)
{
    return s->kernels;
}

uint64_t codec_state_bytes(const struct codec_state *s)
{
    return s->bytes;
}

uint64_t codec_state_evicted(const struct codec_state *s)
{
    return s->n_evicted;
}

static struct codec_tensor *
find(const struct codec_state *s, uint32_t set, const char *name)
{
    struct nametab_node *n = nametab_find(&s->names, set, name);

    return n ? (struct codec_tensor *)((char *)n - offsetof(struct codec_tensor, node))
             : NULL;
}

void codec_state_forget(struct codec_state *s, uint32_t set, const char *name)
{
    struct codec_tensor *t = find(s, set, name);

    if (t && !t->is_running)
        codec_state_drop(s, t);
}

void codec_state_forget_set(struct codec_state *s, uint32_t set)
{
    struct codec_tensor *t = s->oldest, *next;

    for (; t; t = next) {
        next = t->newer;
        if (t->node.set == set && !t->is_running)
            codec_state_drop(s, t);
    }
}

static bool fits(const struct codec_tensor *t, const struct codec_plan *p, uint32_t me)
{
    const struct codec_plan *q = &t->plan;

    return codec_equal(&q->codec, &p->codec) && q->dtype == p->dtype
           && q->count == p->count && q->rows == p->rows && q->n_members == p->n_members
           && t->me == me;
}

struct codec_tensor *codec_state_find(struct codec_state *s,
                                      uint32_t set,
                                      const char *name,
                                      const struct codec_plan *plan,
                                      uint32_t me)
{
    struct codec_tensor *t = find(s, set, name);

    if (!t || !fits(t, plan, me))
        return NULL;
    unlink_tensor(s, t);
    link_newest(s, t);
    return t;
}

static bool has_room(struct codec_state *s, uint64_t bytes)
{
    struct codec_tensor *t = s->oldest;

    while (t && bytes > s->max_bytes - s->bytes) {
        struct codec_tensor *next = t->newer;

        if (!t->is_running) {
            codec_state_drop(s, t);
            s->n_evicted++;
        }
        t = next;
    }
    return bytes <= s->max_bytes - s->bytes;
}

static int alloc_floats(float **ret, uint64_t n)
{
    if (n == 0)
        return 0;
    *ret = mem_calloc(n, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

static int make(const char *name,
                uint32_t set,
                const struct codec_plan *p,
                uint32_t me,
                struct codec_tensor **ret)
{
    size_t n = strlen(name) + 1;
    struct codec_tensor *t = mem_zalloc(sizeof(*t) + n);
    struct codec_kept k = codec_kept_of(p);

    if (!t)
        return -ENOMEM;
    memcpy(t->name, name, n);
    t->node = (struct nametab_node){.name = t->name, .set = set};
    t->plan = *p;
    t->me = me;
    t->bytes = p->state_bytes;
    if (alloc_floats(&t->residual, k.residual) < 0
        || alloc_floats(&t->shard, k.shard) < 0 || alloc_floats(&t->q, k.q) < 0) {
        tensor_free(t);
        return -ENOMEM;
    }
    *ret = t;
    return 0;
}

int codec_reserve(struct codec_state *s,
                  uint32_t set,
                  const char *name,
                  const struct codec_plan *plan,
                  uint32_t me,
                  struct err *err)
{
    char shown[NAME_SHOWN_MAX];
    struct codec_tensor *t = find(s, set, name);
    int r;

    if (plan->state_bytes == 0 || (t && fits(t, plan, me)))
        return 0;
    if (t && t->is_running)
        return err_set(err, -EBUSY, "compression of %s: it is under way already",
                       name_shown(name, shown));
    if (t)
        codec_state_drop(s, t);
    if (plan->state_bytes > s->max_bytes || !has_room(s, plan->state_bytes))
        return err_set(err, -ENOSPC,
                       "compression of %s: keeps %" PRIu64
                       " bytes between steps, %" PRIu64 " of %" PRIu64
                       " are left (HVD_COMPRESSION_MEMORY)",
                       name_shown(name, shown), plan->state_bytes,
                       s->max_bytes - s->bytes, s->max_bytes);
    r = make(name, set, plan, me, &t);
    if (r == 0 && (r = nametab_add(&s->names, &t->node)) < 0)
        tensor_free(t);
    if (r < 0)
        return err_set(err, r,
                       "compression of %s: out of memory for %" PRIu64
                       " bytes between steps",
                       name_shown(name, shown), plan->state_bytes);
    s->bytes += t->bytes;
    link_newest(s, t);
    return 0;
}
