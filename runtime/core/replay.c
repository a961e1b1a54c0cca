/* SPDX-License-Identifier: Apache-2.0 */
/* Two questions about a sum that was carried out twice with the same inputs:
 *
 *   did it change?         a member's two results differ: memory, processor or network
 *                          of some rank have changed data on the way
 *   is it the same on all? the members' first results differ although none of them
 *                          changed: the same cause if it persists, or an error of ours
 *
 * The first is answered for each member by itself, the second by digests. Called by
 * engine/replay.c. */
#include "runtime/core/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/digest.h"
#include "runtime/core/half.h"
#include "runtime/core/nametab.h"

enum { FIRST_CAP = 256, RANKS_SHOWN = 8 };

void replay_init(struct replay *r, uint32_t first, uint32_t last)
{
    *r = (struct replay){.first = first, .last = last};
}

void replay_release(struct replay *r)
{
    mem_free(r->v);
    r->v = NULL;
    r->cap = r->n = 0;
}

static uint64_t name_key(uint32_t set, const char *name)
{
    uint64_t both[2] = {set, digest_of(name, strlen(name))};
    uint64_t key = digest_of(both, sizeof(both));

    return key ? key : 1;
}

static struct replay_name *name_place(struct replay_name *v, size_t cap, uint64_t key)
{
    size_t i = (size_t)key & (cap - 1);

    while (v[i].key && v[i].key != key)
        i = (i + 1) & (cap - 1);
    return &v[i];
}

static int replay_grow(struct replay *r, struct err *err)
{
    size_t cap = r->cap ? 2 * r->cap : FIRST_CAP;
    struct replay_name *v;

    if (2 * (r->n + 1) <= r->cap)
        return 0;
    if (r->n >= REPLAY_MAX_NAMES)
        return err_set(err, -E2BIG,
                       "HVD_REPLAY: the sums have more than %u names; give those that "
                       "repeat a name of their own",
                       REPLAY_MAX_NAMES);
    v = mem_calloc(cap, sizeof(*v));
    if (!v)
        return err_set(err, -ENOMEM, "out of memory for the names of HVD_REPLAY");
    for (size_t i = 0; i < r->cap; i++)
        if (r->v[i].key)
            *name_place(v, cap, r->v[i].key) = r->v[i];
    mem_free(r->v);
    r->v = v;
    r->cap = cap;
    return 0;
}

int replay_count(struct replay *r,
                 uint32_t set,
                 const char *name,
                 uint32_t *ret_step,
                 struct err *err)
{
    const uint64_t key = name_key(set, name);
    struct replay_name *at = r->cap ? name_place(r->v, r->cap, key) : NULL;
    int rc;

    if (!at || !at->key) {
        rc = replay_grow(r, err);
        if (rc < 0)
            return rc;
        at = name_place(r->v, r->cap, key);
        at->key = key;
        r->n++;
    }
    at->n += at->n < UINT32_MAX;
    r->is_past = r->is_past || at->n > r->last;
    *ret_step = at->n >= r->first && at->n <= r->last ? at->n : 0;
    return 0;
}

/* --- one member --- */

static uint64_t element_load(const void *p, uint64_t at, size_t size)
{
    uint64_t v = 0;

    memcpy(&v, (const char *)p + at * size, size); /* little endian */
    return v;
}

void replayed_add(struct replayed *f,
                  size_t item,
                  const void *first,
                  const void *second,
                  uint64_t n,
                  enum dtype t)
{
    const size_t size = dtype_size(t);
    const uint64_t both[2] = {f->digest, digest_of(first, (size_t)n * size)};
    struct difference d;

    f->digest = digest_of(both, sizeof(both));
    if (f->n > 0 || !difference_find(first, second, n, size, &d))
        return;
    f->item = item;
    f->n = d.n;
    f->at = d.at;
    f->numbers[0] = element_load(first, d.at, size);
    f->numbers[1] = element_load(second, d.at, size);
}

/* --- all members --- */

static void number_put(struct strbuf *out, enum dtype t, uint64_t bits)
{
    double d;

    switch (t) {
    case DT_F16:
        strbuf_printf(out, "%.5g", (double)f32_of_f16((uint16_t)bits));
        return;
    case DT_BF16:
        strbuf_printf(out, "%.4g", (double)f32_of_bf16((uint16_t)bits));
        return;
    case DT_F32:
        strbuf_printf(out, "%.9g", (double)f32_of_bits((uint32_t)bits));
        return;
    case DT_F64:
        memcpy(&d, &bits, sizeof(d));
        strbuf_printf(out, "%.17g", d);
        return;
    case DT_I8:
        strbuf_printf(out, "%d", (int8_t)bits);
        return;
    case DT_I16:
        strbuf_printf(out, "%d", (int16_t)bits);
        return;
    case DT_I32:
        strbuf_printf(out, "%" PRId32, (int32_t)bits);
        return;
    case DT_I64:
        strbuf_printf(out, "%" PRId64, (int64_t)bits);
        return;
    case DT_U8:
    case DT_U16:
    case DT_BOOL:
    case DT_COUNT:
        break;
    }
    strbuf_printf(out, "%" PRIu64, bits);
}

/* "rank 2 (host b)", "3 ranks (0, 1, 3)", of those members for which in[] is true. */
static void
members_put(struct strbuf *out, const struct replay_batch *b, const bool *in)
{
    uint32_t n = 0, shown = 0, last = 0;

    for (uint32_t i = 0; i < b->n_members; i++)
        if (in[i]) {
            n++;
            last = i;
        }
    if (n == 1) {
        strbuf_printf(out, "rank %u (host %s)", b->ranks[last], b->hosts[last]);
        return;
    }
    strbuf_printf(out, "%u ranks (", n);
    for (uint32_t i = 0; i < b->n_members && shown < RANKS_SHOWN; i++)
        if (in[i])
            strbuf_printf(out, "%s%u", shown++ ? ", " : "", b->ranks[i]);
    strbuf_puts(out, n > shown ? ", ...)" : ")");
}

static int report_change(const struct replayed *all,
                         const struct replay_batch *b,
                         const bool *in,
                         uint32_t first,
                         struct err *err)
{
    const struct replayed *f = &all[first];
    CLEANUP(strbuf_release) struct strbuf text = {0};
    char name[NAME_SHOWN_MAX];

    strbuf_init(&text, 1024);
    strbuf_printf(
        &text,
        "the sum of tensor %s in step %u was repeated with the same inputs, and "
        "its results differ on ",
        name_shown(b->names[f->item], name), b->step);
    members_put(&text, b, in);
    strbuf_printf(&text, ": element %" PRIu64 " of %" PRIu64 " on rank %u: ", f->at,
                  b->counts[f->item], b->ranks[first]);
    number_put(&text, b->dtype, f->numbers[0]);
    strbuf_puts(&text, ", then ");
    number_put(&text, b->dtype, f->numbers[1]);
    strbuf_printf(&text, "; %" PRIu64 " such elements (HVD_REPLAY)", f->n);
    return err_set(err, -EDOM, "%s", strbuf_str(&text));
}

static int report_unlike(const struct replay_batch *b, const bool *in, struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    char name[NAME_SHOWN_MAX];

    strbuf_init(&text, 1024);
    strbuf_puts(&text, "the results of one sum differ between ranks: ");
    members_put(&text, b, in);
    strbuf_printf(&text, " other than most, in step %u of tensor %s", b->step,
                  name_shown(b->names[0], name));
    return err_set(err, -EDOM, "%s, twice alike (HVD_REPLAY)", strbuf_str(&text));
}

int replay_judge(const struct replayed *all,
                 const struct replay_batch *b,
                 struct err *err)
{
    AUTOFREE bool *in = mem_calloc(b->n_members, sizeof(*in));
    uint32_t first = b->n_members, most = 0, n_most = 0;
    bool is_unlike = false;

    if (!in)
        return err_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = b->n_members; i-- > 0;) {
        in[i] = all[i].n > 0;
        first = in[i] ? i : first;
        is_unlike = is_unlike || all[i].digest != all[0].digest;
    }
    if (first < b->n_members)
        return report_change(all, b, in, first, err);
    if (!is_unlike)
        return 0;
    for (uint32_t i = 0; i < b->n_members; i++) {
        uint32_t n = 0;

        for (uint32_t k = 0; k < b->n_members; k++)
            n += all[k].digest == all[i].digest;
        if (n > n_most) {
            n_most = n;
            most = i;
        }
    }
    for (uint32_t i = 0; i < b->n_members; i++)
        in[i] = all[i].digest != all[most].digest;
    return report_unlike(b, in, err);
}
