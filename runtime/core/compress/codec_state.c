/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors keep between steps, by process set and name, in host memory: the memory
 * for the entries of an index (codec_index.c), which decides what is kept and what is
 * evicted. Used by codec.c; one thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/compress/layout.h"

struct codec_state {
    struct codec_index index;
    const struct codec_kernels *kernels;
};

static struct codec_tensor *codec_tensor_of(struct codec_entry *e)
{
    return e ? (struct codec_tensor *)((char *)e - offsetof(struct codec_tensor, entry))
             : NULL;
}

static void tensor_free(struct codec_tensor *t)
{
    mem_free(t->residual);
    mem_free(t->shard);
    mem_free(t->q);
    mem_free(t);
}

static void entry_release(void *arg, struct codec_entry *e)
{
    (void)arg;
    tensor_free(codec_tensor_of(e));
}

int codec_state_new(uint64_t max_bytes, bool is_wide, struct codec_state **ret)
{
    struct codec_state *s = mem_zalloc(sizeof(*s));

    if (!s)
        return -ENOMEM;
    codec_index_init(&s->index, max_bytes, entry_release, NULL);
    s->kernels = codec_kernels_of(is_wide);
    *ret = s;
    return 0;
}

void codec_state_drop(struct codec_state *s, struct codec_tensor *t)
{
    codec_index_drop(&s->index, &t->entry);
}

void codec_state_clear(struct codec_state *s)
{
    codec_index_clear(&s->index);
}

void codec_state_free(struct codec_state *s)
{
    if (!s)
        return;
    codec_index_release(&s->index);
    mem_free(s);
}

const struct codec_kernels *codec_state_kernels(const struct codec_state *s)
{
    return s->kernels;
}

uint64_t codec_state_bytes(const struct codec_state *s)
{
    return s->index.bytes;
}

uint64_t codec_state_evicted(const struct codec_state *s)
{
    return s->index.n_evicted;
}

void codec_state_forget(struct codec_state *s, uint32_t set, const char *name)
{
    codec_index_forget(&s->index, set, name);
}

void codec_state_forget_set(struct codec_state *s, uint32_t set)
{
    codec_index_forget_set(&s->index, set);
}

struct codec_tensor *codec_state_find(struct codec_state *s,
                                      uint32_t set,
                                      const char *name,
                                      const struct codec_plan *plan,
                                      uint32_t me)
{
    return codec_tensor_of(codec_index_find(&s->index, set, name, plan, me));
}

static int alloc_floats(float **ret, uint64_t n)
{
    if (n == 0)
        return 0;
    *ret = mem_calloc(n, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

static int state_create_entry(struct codec_state *s,
                              uint32_t set,
                              const char *name,
                              const struct codec_plan *p,
                              uint32_t me)
{
    size_t n = strlen(name) + 1;
    struct codec_tensor *t = mem_zalloc(sizeof(*t) + n);
    struct codec_kept k = codec_kept_of(p);
    int rc = 0;

    if (!t)
        return -ENOMEM;
    memcpy(t->name, name, n);
    if (alloc_floats(&t->residual, k.residual) < 0
        || alloc_floats(&t->shard, k.shard) < 0 || alloc_floats(&t->q, k.q) < 0)
        rc = -ENOMEM;
    rc = rc < 0 ? rc : codec_index_add(&s->index, &t->entry, set, t->name, p, me);
    if (rc < 0)
        tensor_free(t);
    return rc;
}

int codec_reserve(struct codec_state *s,
                  uint32_t set,
                  const char *name,
                  const struct codec_plan *plan,
                  uint32_t me,
                  struct err *err)
{
    char shown[NAME_SHOWN_MAX];
    int rc = codec_index_room(&s->index, set, name, plan, me, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = state_create_entry(s, set, name, plan, me);
    if (rc < 0)
        return err_set(err, rc,
                       "compression of %s: out of memory for %" PRIu64
                       " bytes between steps",
                       name_shown(name, shown), plan->state_bytes);
    return 0;
}
