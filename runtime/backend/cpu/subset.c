/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators for process sets.
 *
 * A child is a whole struct cpu with its own segment and mesh, created as the world's
 * is (describe, exchange, connect), through the parent's ops table. The parent
 * replaces the rendezvous: each round of the exchange is an allgather on the parent, to
 * which the set's members contribute a frame of a size that all know, and all others
 * nothing:
 *
 *   1. the members' descriptions
 *   2. which members share memory (group.c), for sets of two and more
 *   3. the result: a code and an error message each
 *
 * All members of the parent take part in all rounds, even after an error of their own;
 * so all of them end with the same outcome. A member that failed early sends an empty
 * frame, which the checks of the other members refuse. Frames: u32 length, data.
 *
 * A child's segment is a quarter of the world's (SHM_SET_BYTES). A child opens TCP
 * connections, as the world does, only where the set spans hosts. Called by cpu.c, as a
 * row of the ops table. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/cpu/cpu.h"
#include "runtime/base/mem.h"

struct subset_rounds {
    struct cpu *parent;
    const uint32_t *ranks; /* [n] members of the parent */
    uint32_t n, index;     /* our index in ranks; n: we are not in it */
    uint64_t *counts;      /* [size of the parent] */
    bool has_exchanged;    /* round 2 is done */
    int rc;                /* of the parent: < 0: it is broken */
};

struct subset_outcome {
    int32_t code;
    char text[sizeof((struct err *)0)->text];
};

/* One round. data: n_data bytes of ours, at most max. ret_blobs as env.exchange returns
 * them: one block, pointers into itself. */
static int subset_run_round(struct subset_rounds *m,
                            const void *data,
                            uint32_t n_data,
                            uint32_t max,
                            uint8_t ***ret_blobs,
                            uint32_t **ret_sizes,
                            struct err *err)
{
    size_t frame = sizeof(uint32_t) + max, n = m->n;
    AUTOFREE uint8_t *own = mem_zalloc(frame);
    AUTOFREE uint8_t **all =
        mem_zalloc(n * (sizeof(*all) + sizeof(uint32_t) + frame) + sizeof(*all));
    if (!own || !all)
        return m->rc = err_set(err, -ENOMEM, "no memory for a process set of %u ranks",
                               m->n);
    uint32_t *sizes = (uint32_t *)(all + n);
    uint8_t *frames = (uint8_t *)(sizes + n);
    memcpy(own, &n_data, sizeof(n_data));
    if (n_data > 0)
        memcpy(own + sizeof(n_data), data, n_data);
    memset(m->counts, 0, m->parent->env.size * sizeof(*m->counts));
    for (uint32_t i = 0; i < m->n; i++)
        m->counts[m->ranks[i]] = frame;
    struct batch_item item = {.in = own,
                              .out = frames,
                              .count = m->index < m->n ? frame : 0,
                              .counts = m->counts};
    struct batch b = {.coll = COLL_ALLGATHER,
                      .dtype = DT_U8,
                      .prescale = 1,
                      .postscale = 1,
                      .items = &item,
                      .n_items = 1};
    m->rc = coll_run(m->parent, &b, err);
    if (m->rc < 0)
        return m->rc;
    for (size_t i = 0; i < n; i++) {
        memcpy(&sizes[i], frames + i * frame, sizeof(sizes[i]));
        if (sizes[i] > max)
            sizes[i] = 0;
        all[i] = frames + i * frame + sizeof(sizes[i]);
    }
    *ret_sizes = sizes;
    *ret_blobs = TAKE(all);
    return 0;
}

static uint32_t n_bits(const struct subset_rounds *m)
{
    return (m->n + 7) / 8;
}

/* The child's env.exchange: round 2. */
static int subset_exchange(void *arg,
                           const void *blob,
                           uint32_t n,
                           uint8_t ***ret_blobs,
                           uint32_t **ret_sizes,
                           struct err *err)
{
    struct subset_rounds *m = arg;
    if (m->has_exchanged || n > n_bits(m))
        return err_set(err, -EPROTO, "process set: unexpected exchange of %u bytes", n);
    m->has_exchanged = true;
    return subset_run_round(m, blob, n, n_bits(m), ret_blobs, ret_sizes, err);
}

/* A member's own part of round 1. */
static int subset_describe(struct subset_rounds *m,
                           uint64_t deadline_ns,
                           struct cpu **ret,
                           void **ret_blob,
                           uint32_t *ret_n,
                           struct err *err)
{
    struct cpu *parent = m->parent;
    AUTOFREE uint32_t *global = mem_calloc(m->n, sizeof(*global));
    if (!global)
        return err_set(err, -ENOMEM, "no memory for a process set of %u ranks", m->n);
    for (uint32_t i = 0; i < m->n; i++)
        global[i] = cpu_global(parent, m->ranks[i]);
    struct backend_env env = {.rank = m->index,
                              .size = m->n,
                              .global = global,
                              .id = parent->env.id,
                              .local_addr = parent->env.local_addr,
                              .data_check = parent->env.data_check,
                              .deadline_ns = deadline_ns,
                              .peer_timeout_ns = parent->env.peer_timeout_ns,
                              .exchange = subset_exchange,
                              .arg = m};
    struct backend *b;
    int rc = parent->b.ops->describe(&env, &b, ret_blob, ret_n, err);
    if (rc < 0)
        return rc;
    *ret = (struct cpu *)b; /* b is the first member */
    (*ret)->parent = parent;
    (*ret)->own_global = TAKE(global);
    return 0;
}

/* Rounds 1 and 2. *ret_child stays NULL without an error when we are not in the set.
 * The result is our own; that of the parent is in m->rc. */
static int subset_create_child(struct subset_rounds *m,
                               uint64_t deadline_ns,
                               struct cpu **ret_child,
                               struct err *err)
{
    AUTOFREE void *blob = NULL;
    AUTOFREE uint8_t **blobs = NULL, **rest = NULL;
    uint32_t n = 0, *sizes = NULL;
    int rc = 0;
    if (m->index < m->n)
        rc = subset_describe(m, deadline_ns, ret_child, &blob, &n, err);
    int round_rc =
        subset_run_round(m, blob, n, sizeof(struct peer), &blobs, &sizes, err);
    if (round_rc < 0)
        return round_rc;
    if (rc == 0 && *ret_child)
        rc = m->parent->b.ops->connect(&(*ret_child)->b, blobs, sizes, err);
    if (m->rc == 0 && m->n > 1 && !m->has_exchanged) {
        struct err why = ERR_INIT;
        round_rc = subset_run_round(m, NULL, 0, n_bits(m), &rest, &sizes, &why);
        if (round_rc < 0)
            return err_set(err, round_rc, "%s", why.text);
    }
    return rc;
}

/* Round 3: rc and its message are ours; returns the result of all. */
static int subset_conclude(struct subset_rounds *m, int rc, struct err *err)
{
    struct subset_outcome own = {.code = rc};
    AUTOFREE uint8_t **all = NULL;
    uint32_t *sizes;
    struct err why = ERR_INIT;
    if (rc < 0)
        memcpy(own.text, err->text, sizeof(own.text));
    int round_rc =
        subset_run_round(m, &own, sizeof(own), sizeof(own), &all, &sizes, &why);
    if (round_rc < 0)
        return err_set(err, round_rc, "%s", why.text);
    struct subset_outcome worst = {0};
    uint32_t who = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        struct subset_outcome o;
        if (sizes[i] != sizeof(o))
            continue;
        memcpy(&o, all[i], sizeof(o));
        /* the consequence of another member's failure is -EPROTO here */
        if (o.code < 0 && (worst.code == 0 || worst.code == -EPROTO)) {
            worst = o;
            who = cpu_global(m->parent, m->ranks[i]);
        }
    }
    worst.text[sizeof(worst.text) - 1] = '\0';
    return worst.code == 0 ? 0
                           : err_set(err, worst.code, "process set: rank %u: %.400s",
                                     who, worst.text);
}

static int
check_ranks(const struct cpu *c, const uint32_t *ranks, uint32_t n, struct err *err)
{
    if (n == 0)
        return err_set(err, -EINVAL, "process set: no ranks");
    for (uint32_t i = 0; i < n; i++)
        if (ranks[i] >= c->env.size || (i > 0 && ranks[i] <= ranks[i - 1]))
            return err_set(err, -EINVAL,
                           "process set: ranks must ascend below %u, number %u is %u",
                           c->env.size, i, ranks[i]);
    return 0;
}

int cpu_subset(struct backend *b,
               const uint32_t *ranks,
               uint32_t n,
               uint64_t deadline_ns,
               struct backend **ret,
               struct err *err)
{
    struct cpu *parent = (struct cpu *)b, *child = NULL; /* b is the first member */
    struct err why = ERR_INIT;
    if (parent->broken.code != 0)
        return err_set(err, -EPIPE, "%s", parent->broken.text);
    AUTOFREE uint64_t *counts = mem_calloc(parent->env.size, sizeof(*counts));
    struct subset_rounds m = {
        .parent = parent, .ranks = ranks, .n = n, .counts = counts};
    int rc = !counts
                 ? err_set(&why, -ENOMEM, "no memory for %u ranks", parent->env.size)
                 : check_ranks(parent, ranks, n, &why);
    if (rc < 0)
        return cpu_break(parent, rc, &why, err);
    while (m.index < n && ranks[m.index] != parent->env.rank)
        m.index++;
    rc = subset_create_child(&m, deadline_ns, &child, &why);
    if (m.rc == 0)
        rc = subset_conclude(&m, rc, &why);
    if (rc < 0) {
        parent->b.ops->close(child ? &child->b : NULL);
        return parent->broken.code != 0 ? err_set(err, rc, "%s", why.text)
                                        : cpu_break(parent, rc, &why, err);
    }
    if (child) {
        child->env.exchange = NULL; /* all rounds are over */
        child->env.arg = NULL;
        /* the settings apply either way */
        (void)parent->b.ops->tune(&child->b, &parent->tuning);
    }
    *ret = !child ? NULL : &child->b;
    return 0;
}
