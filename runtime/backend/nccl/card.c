/* SPDX-License-Identifier: Apache-2.0 */
/* Cards have a fixed size: little-endian, version first, zeros at the end. They come
 * from other processes and are read strictly: a card that is read and written again
 * has the same bytes.
 *
 * Everything that could make ncclCommInitRank hang or fail on some members only, and
 * that can be known beforehand, is judged here. Every member has the same cards and so
 * gets the same result: the first error that applies, of the lowest member. Numbers
 * that later NCCL calls depend on (rule R2: calls are functions of batch and cards)
 * are member 0's; abilities are those that all members have.
 *
 * A communicator that survived a failure is shrunk only if all members were in it, in
 * the same order, and some are missing: NCCL refuses an empty list.
 *
 * Called by meet.c. */
#include "runtime/backend/nccl/card.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

/* --- wire form --- */

struct card_cursor { /* over GPU_CARD_BYTES, which holds all fields */
    uint8_t *p;
};

static void cursor_put(struct card_cursor *c, uint64_t v, size_t n_bytes)
{
    bytes_store(c->p, v, n_bytes);
    c->p += n_bytes;
}

static void cursor_put_bytes(struct card_cursor *c, const void *p, size_t n)
{
    memcpy(c->p, p, n);
    c->p += n;
}

/* The text and zeros: bytes after its NUL are not sent. */
static void cursor_put_text(struct card_cursor *c, const char *s, size_t n)
{
    size_t len = strnlen(s, n - 1);

    memcpy(c->p, s, len);
    c->p += n;
}

void gpu_card_write(const struct gpu_card *c, uint8_t ret[GPU_CARD_BYTES])
{
    struct card_cursor at = {ret};

    memset(ret, 0, GPU_CARD_BYTES);
    cursor_put(&at, c->version, 4);
    cursor_put(&at, (uint32_t)c->nccl, 4);
    cursor_put(&at, (uint32_t)c->driver, 4);
    cursor_put_bytes(&at, c->uuid, sizeof(c->uuid));
    cursor_put(&at, c->host_hash, 8);
    cursor_put(&at, c->direct_bytes, 8);
    cursor_put(&at, c->uses_graphs, 1);
    cursor_put(&at, c->registers, 1);
    cursor_put(&at, c->is_deterministic, 1);
    cursor_put(&at, c->n_streams, 1);
    cursor_put(&at, c->fusion_bytes, 8);
    cursor_put(&at, c->may_share_gpu, 1);
    cursor_put(&at, c->has_graphs, 1);
    cursor_put_bytes(&at, c->parked_id, sizeof(c->parked_id));
    cursor_put(&at, c->parked_rank, 4);
    cursor_put(&at, c->parked_size, 4);
    cursor_put_text(&at, c->gpu, sizeof(c->gpu));
    cursor_put_text(&at, c->problem, sizeof(c->problem));
}

struct card_reader {
    const uint8_t *p;
    bool is_bad;
};

static uint64_t reader_get(struct card_reader *r, size_t n_bytes)
{
    uint64_t v = bytes_load(r->p, n_bytes);

    r->p += n_bytes;
    return v;
}

static bool reader_get_bool(struct card_reader *r)
{
    uint64_t v = reader_get(r, 1);

    r->is_bad |= v > 1;
    return v == 1;
}

static void reader_get_bytes(struct card_reader *r, void *ret, size_t n)
{
    memcpy(ret, r->p, n);
    r->p += n;
}

/* Must end in NUL followed by zeros, and be printable: it is used in messages and logs.
 */
static void reader_get_text(struct card_reader *r, char *ret, size_t n)
{
    size_t len = strnlen((const char *)r->p, n);

    for (size_t i = 0; i < n; i++)
        r->is_bad |= i < len ? r->p[i] < ' ' || r->p[i] == 0x7f : r->p[i] != 0;
    r->is_bad |= len == n;
    reader_get_bytes(r, ret, n);
}

static bool bytes_are_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

int gpu_card_read(const uint8_t p[GPU_CARD_BYTES],
                  struct gpu_card *ret,
                  struct err *err)
{
    struct card_reader r = {p, false};
    struct gpu_card c = {.version = (uint32_t)reader_get(&r, 4)};

    if (c.version != GPU_CARD_VERSION) {
        *ret = c;
        return 0;
    }
    c.nccl = (int32_t)(uint32_t)reader_get(&r, 4);
    c.driver = (int32_t)(uint32_t)reader_get(&r, 4);
    reader_get_bytes(&r, c.uuid, sizeof(c.uuid));
    c.host_hash = reader_get(&r, 8);
    c.direct_bytes = reader_get(&r, 8);
    c.uses_graphs = reader_get_bool(&r);
    c.registers = reader_get_bool(&r);
    c.is_deterministic = reader_get_bool(&r);
    c.n_streams = (uint8_t)reader_get(&r, 1);
    c.fusion_bytes = reader_get(&r, 8);
    c.may_share_gpu = reader_get_bool(&r);
    c.has_graphs = reader_get_bool(&r);
    reader_get_bytes(&r, c.parked_id, sizeof(c.parked_id));
    c.parked_rank = (uint32_t)reader_get(&r, 4);
    c.parked_size = (uint32_t)reader_get(&r, 4);
    reader_get_text(&r, c.gpu, sizeof(c.gpu));
    reader_get_text(&r, c.problem, sizeof(c.problem));
    if (c.parked_size
            ? c.parked_rank >= c.parked_size
            : c.parked_rank || !bytes_are_zero(c.parked_id, sizeof(c.parked_id)))
        r.is_bad = true;
    if (r.is_bad || c.parked_size > GPU_CARD_MAX_PARKED
        || !bytes_are_zero(r.p, (size_t)(p + GPU_CARD_BYTES - r.p)))
        return err_set(err, -EPROTO, "a member sent an invalid card of its GPU");
    *ret = c;
    return 0;
}

/* --- the verdict --- */

const char *nccl_version_text(int code, char buf[24])
{
    (void)snprintf(buf, 24, "%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
    return buf;
}

const char *gpu_uuid_text(const uint8_t uuid[16], char buf[48])
{
    size_t at = (size_t)snprintf(buf, 48, "GPU-");

    for (size_t i = 0; i < 16; i++)
        at +=
            (size_t)snprintf(buf + at, 48 - at, "%s%02x",
                             i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    return buf;
}

struct card_judge {
    const struct gpu_card *v;
    const uint32_t *ranks;
    const char *const *hosts;
    uint32_t n;
};

static const char *judge_host_text(const struct card_judge *j, uint32_t i, char buf[96])
{
    buf[0] = '\0';
    if (j->hosts && j->hosts[i])
        (void)snprintf(buf, 96, " (host %.80s)", j->hosts[i]);
    return buf;
}

static int judge_problems(const struct card_judge *j, struct err *err)
{
    char host[96];

    for (uint32_t i = 1; i < j->n; i++)
        if (j->v[i].version != j->v[0].version)
            return err_set(err, -EPROTO,
                           "ranks %u and %u have cards of version %u and %u: all need "
                           "the same version of Ringmaster",
                           j->ranks[0], j->ranks[i], j->v[0].version, j->v[i].version);
    if (j->n && j->v[0].version != GPU_CARD_VERSION)
        return err_set(err, -EPROTO, "cards of version %u, not %d", j->v[0].version,
                       GPU_CARD_VERSION);
    for (uint32_t i = 0; i < j->n; i++)
        if (j->v[i].problem[0])
            return err_set(err, -ENODEV, "rank %u%s cannot move tensors on GPUs: %s",
                           j->ranks[i], judge_host_text(j, i, host), j->v[i].problem);
    return 0;
}

static int judge_versions(const struct card_judge *j, struct err *err)
{
    char a[24], b[24], host_a[96], host_b[96];

    for (uint32_t i = 1; i < j->n; i++)
        if (j->v[i].nccl != j->v[0].nccl)
            return err_set(err, -ENOTSUP,
                           "rank %u%s has NCCL %s and rank %u%s %s; all need the same: "
                           "install one, or name one by HVD_NCCL_LIB",
                           j->ranks[0], judge_host_text(j, 0, host_a),
                           nccl_version_text(j->v[0].nccl, a), j->ranks[i],
                           judge_host_text(j, i, host_b),
                           nccl_version_text(j->v[i].nccl, b));
    return 0;
}

static bool judge_all_may_share(const struct card_judge *j)
{
    for (uint32_t i = 0; i < j->n; i++)
        if (!j->v[i].may_share_gpu)
            return false;
    return true;
}

static int judge_gpus(const struct card_judge *j, struct err *err)
{
    char uuid[48], host[96];

    if (judge_all_may_share(j))
        return 0;
    for (uint32_t i = 0; i < j->n; i++) {
        const struct gpu_card *a = &j->v[i];

        if (bytes_are_zero(a->uuid, sizeof(a->uuid)))
            continue;
        for (uint32_t k = i + 1; k < j->n; k++) {
            const struct gpu_card *b = &j->v[k];

            if (a->host_hash == b->host_hash
                && memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0)
                return err_set(err, -EBUSY, "ranks %u and %u use the same GPU %s%s; %s",
                               j->ranks[i], j->ranks[k], gpu_uuid_text(a->uuid, uuid),
                               judge_host_text(j, i, host),
                               strstr(a->gpu, " MIG ")
                                   ? "of MIG instances a process sees the first of its "
                                     "CUDA_VISIBLE_DEVICES only: give each rank a list "
                                     "of one"
                                   : "each rank needs its own (hvd.local_rank() is the "
                                     "usual choice)");
        }
    }
    return 0;
}

/* Were all members in one larger parked communicator, in this order? */
static bool judge_is_remainder(const struct card_judge *j)
{
    const struct gpu_card *a = &j->v[0];

    if (!a->parked_size || a->parked_size <= j->n || a->nccl < NCCL_PARKS)
        return false;
    for (uint32_t i = 1; i < j->n; i++) {
        const struct gpu_card *b = &j->v[i];

        if (b->parked_size != a->parked_size
            || memcmp(b->parked_id, a->parked_id, sizeof(a->parked_id)) != 0
            || b->parked_rank <= j->v[i - 1].parked_rank)
            return false;
    }
    return true;
}

static int
judge_find_excluded(const struct card_judge *j, struct comm_terms *t, struct err *err)
{
    const uint32_t size = j->v[0].parked_size;
    uint32_t k = 0;

    t->excluded = mem_calloc(size - j->n, sizeof(*t->excluded));
    if (!t->excluded)
        return err_set(err, -ENOMEM, "out of memory for %u members", size);
    for (uint32_t i = 0; i < size; i++)
        if (k < j->n && j->v[k].parked_rank == i)
            k++;
        else
            t->excluded[t->n_excluded++] = i;
    return 0;
}

int gpu_cards_judge(const struct gpu_card *v,
                    const uint32_t *ranks,
                    const char *const *hosts,
                    uint32_t n,
                    struct comm_terms *ret,
                    struct err *err)
{
    const struct card_judge j = {v, ranks, hosts, n};
    int rc = judge_problems(&j, err);

    if (!rc)
        rc = judge_versions(&j, err);
    if (!rc)
        rc = judge_gpus(&j, err);
    if (rc)
        return rc;
    struct comm_terms t = {
        .how = judge_is_remainder(&j) ? COMM_SHRINK : COMM_FRESH,
        .direct_bytes = v[0].direct_bytes,
        .uses_graphs = v[0].uses_graphs,
        .registers = v[0].registers,
        .is_deterministic = v[0].is_deterministic,
        .n_streams = UINT8_MAX,
        .fusion_bytes = UINT64_MAX,
    };
    for (uint32_t i = 0; i < n; i++) {
        t.uses_graphs &= v[i].has_graphs;
        t.n_streams = v[i].n_streams < t.n_streams ? v[i].n_streams : t.n_streams;
        if (v[i].fusion_bytes < t.fusion_bytes) {
            t.fusion_bytes = v[i].fusion_bytes;
            t.fusion_member = i;
        }
    }
    t.n_streams = t.n_streams ? t.n_streams : 1;
    if (t.how == COMM_SHRINK)
        rc = judge_find_excluded(&j, &t, err);
    if (rc)
        return rc;
    *ret = t;
    return 0;
}

void comm_terms_release(struct comm_terms *t)
{
    if (!t)
        return;
    mem_free(t->excluded);
    *t = (struct comm_terms){0};
}
