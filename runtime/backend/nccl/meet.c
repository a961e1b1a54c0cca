/* SPDX-License-Identifier: Apache-2.0 */
/* How members get a communicator: the seat's part. They meet over the set's backend
 * for host memory, at the same place in the common order, so no member waits inside
 * NCCL for one that does not come. First the cards, which all members judge alike;
 * then member 0's unique id or its error message; then a job starts the communicator.
 * Each failure is one error message on all members. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/park.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define SHARES_GPU  23000 /* first NCCL of NCCL_MULTI_RANK_GPU_ENABLE */
#define MEET_NS     (60 * NS_PER_S)
#define FUSION_MOST (256ull << 20) /* of a fusion buffer that is taken at the start */

/* --- host collectives --- */

static int run_host(struct backend *b, struct batch *batch, struct err *err)
{
    const uint64_t deadline_ns = clock_now_ns() + MEET_NS;
    uint64_t ticket, done = 0;

    batch->dtype = DT_U8;
    batch->prescale = batch->postscale = 1.0;
    batch->n_items = 1;
    int rc = b->ops->post(b, batch, &ticket, err);
    while (!rc && (rc = b->ops->poll(b, &done, err)) == 0 && done < ticket) {
        if (clock_now_ns() > deadline_ns)
            return err_set(err, -ETIMEDOUT,
                           "the members of a process set did not meet for NCCL "
                           "within %llu s: one of them is stopped, or waits elsewhere",
                           (unsigned long long)(MEET_NS / NS_PER_S));
        (void)nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return rc;
}

static int gather_cards(struct backend *b,
                        const struct backend_env *env,
                        const struct gpu_card *mine,
                        struct gpu_card *ret,
                        struct err *err)
{
    uint8_t wire[GPU_CARD_BYTES];
    AUTOFREE uint8_t *all = mem_calloc(env->size, GPU_CARD_BYTES);
    AUTOFREE uint64_t *counts = mem_calloc(env->size, sizeof(*counts));

    if (!all || !counts)
        return err_set(err, -ENOMEM, "out of memory for %u members", env->size);
    for (uint32_t i = 0; i < env->size; i++)
        counts[i] = GPU_CARD_BYTES;
    gpu_card_write(mine, wire);
    struct batch_item item = {
        .in = wire, .out = all, .count = GPU_CARD_BYTES, .counts = counts};
    struct batch batch = {.coll = COLL_ALLGATHER, .items = &item};
    int rc = run_host(b, &batch, err);
    for (uint32_t i = 0; i < env->size && !rc; i++)
        rc = gpu_card_read(all + (size_t)i * GPU_CARD_BYTES, &ret[i], err);
    return rc;
}

/* --- our card --- */

/* As NCCL identifies hosts: NCCL_HOSTID, else name and boot ID. */
static uint64_t card_hash_host(void)
{
    const char *id = getenv("NCCL_HOSTID");
    AUTOFREE char *boot = NULL;
    uint8_t sum[SHA256_BYTES];
    char name[256] = "";
    struct sha256 s;
    uint64_t ret;
    size_t n = 0;

    sha256_init(&s);
    if (id && *id) {
        sha256_add(&s, id, strlen(id));
    } else {
        (void)gethostname(name, sizeof(name) - 1); /* else the boot ID alone */
        sha256_add(&s, name, strlen(name));
        if (fd_read_file("/proc/sys/kernel/random/boot_id", 256, &boot, &n, NULL) == 0)
            sha256_add(&s, boot, n);
    }
    sha256_end(&s, sum);
    memcpy(&ret, sum, sizeof(ret));
    return ret;
}

/* At the first meeting: the fusion buffers, before a framework has taken all memory. One
 * granule more than the threshold, for the padding of tensors. Graphs and registered
 * buffers pack into memory of their own, which grows. */
static void take_fusion(struct device *g)
{
    const struct device_config *c = &g->config;
    const uint64_t wish = c->fusion_bytes < FUSION_MOST ? c->fusion_bytes : FUSION_MOST;
    struct err err = ERR_INIT;
    struct gpu_scope scope;

    if (g->has_met)
        return;
    g->has_met = true;
    if ((c->uses_graphs && g->cu->graph_make)
        || (c->registers && g->nccl->has_register))
        g->fusion_bytes = UINT64_MAX;
    if (g->fusion_bytes > 0 || c->size == 1 || wish == 0)
        return;
    const uint64_t bytes = wish + FUSION_GRANULE;
    int rc = gpu_enter(g, &scope, &err);
    if (rc == 0) {
        rc = scratch_take_fusion(&g->scratch, g->streams, g->n_streams, bytes, &err);
        gpu_leave(&scope);
    }
    g->fusion_bytes = rc == 0 ? bytes : 0;
    if (rc < 0)
        log_warn("no memory for the fusion buffer, the ranks do not pack tensors",
                 "rank=%u bytes=%llu streams=%u cause=\"%s\"", c->rank,
                 (unsigned long long)bytes, g->n_streams, err.text);
}

static void fill_card(const struct device *g, struct gpu_card *c)
{
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    *c = (struct gpu_card){
        .version = GPU_CARD_VERSION,
        .nccl = g->nccl->version,
        .driver = g->cu->version,
        .host_hash = card_hash_host(),
        .direct_bytes = g->config.direct_bytes,
        .uses_graphs = g->config.uses_graphs,
        .registers = g->config.registers,
        .is_deterministic = g->config.is_deterministic,
        .n_streams = (uint8_t)g->n_streams,
        .fusion_bytes = g->fusion_bytes,
        .may_share_gpu =
            g->nccl->version >= SHARES_GPU && shares && strcmp(shares, "1") == 0,
        .has_graphs = g->cu->graph_make != NULL,
    };
    memcpy(c->uuid, g->uuid.bytes, sizeof(c->uuid));
    memcpy(c->gpu, g->name, strnlen(g->name, sizeof(c->gpu) - 1));
}

static int cards_exchange(struct backend *meeting,
                          const struct backend_env *env,
                          const uint32_t *ranks,
                          const char *const *host_names,
                          const struct gpu_card *mine,
                          struct comm_terms *ret,
                          struct err *err)
{
    AUTOFREE struct gpu_card *v = mem_calloc(env->size, sizeof(*v));
    AUTOFREE const char **hosts = mem_calloc(env->size, sizeof(*hosts));

    if (!v || !hosts)
        return err_set(err, -ENOMEM, "out of memory for %u members", env->size);
    for (uint32_t i = 0; i < env->size; i++)
        hosts[i] = host_names ? host_names[ranks[i]] : NULL;
    int rc = gather_cards(meeting, env, mine, v, err);
    return rc ? rc : gpu_cards_judge(v, ranks, hosts, env->size, ret, err);
}

int comm_refuse(struct backend *meeting,
                const struct backend_env *env,
                const uint32_t *ranks,
                const char *const *hosts,
                const char *problem,
                struct err *err)
{
    struct gpu_card mine = {.version = GPU_CARD_VERSION};
    struct comm_terms terms = {0};

    for (size_t i = 0; i < sizeof(mine.problem) - 1 && problem[i]; i++) /* a line */
        mine.problem[i] =
            (unsigned char)problem[i] < ' ' || problem[i] == 0x7f ? ' ' : problem[i];
    if (!problem[0])
        mine.problem[0] = '?';
    int rc = cards_exchange(meeting, env, ranks, hosts, &mine, &terms, err);
    comm_terms_release(&terms);
    return rc ? rc : err_set(err, -ENODEV, "%s", problem);
}

/* --- the unique id --- */

struct id_wire {
    uint8_t is_good;
    char why[255];
    struct nccl_id id;
};

static int
share_id(struct comm *c, struct backend *b, struct comm_start *s, struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    struct id_wire w = {.is_good = 1};
    struct err why = ERR_INIT;

    /* Each id is a thread and a socket of NCCL, until all members have used it. */
    int result = c->me == 0 ? nccl->unique_id(&w.id) : NCCL_OK;
    if (result != NCCL_OK) {
        (void)nccl_fail(nccl, NULL, "ncclGetUniqueId", result, &why);
        (void)gpu_name_rank(c->g, why.code, &why);
        memcpy(w.why, why.text, strnlen(why.text, sizeof(w.why) - 1));
        w.is_good = 0;
    }
    struct batch_item item = {.in = &w, .out = &w, .count = sizeof(w)};
    struct batch batch = {.coll = COLL_BROADCAST, .items = &item};
    int rc = run_host(b, &batch, err);
    if (rc)
        return rc;
    w.why[sizeof(w.why) - 1] = '\0';
    if (!w.is_good)
        return err_set(err, -EIO, "%s", w.why);
    s->id = w.id;
    uint8_t sum[SHA256_BYTES];
    sha256_digest(&w.id, sizeof(w.id), sum);
    memcpy(c->id, sum, sizeof(c->id));
    return 0;
}

/* --- rows --- */

static int push_start(struct comm *c, struct backend *meeting, struct err *err)
{
    struct gpu_job *job =
        job_new(JOB_START, NULL, NULL, NULL, sizeof(struct comm_start));
    int rc = job ? 0 : err_set(err, -ENOMEM, "out of memory for a communicator");

    if (!rc && c->terms.how == COMM_SHRINK)
        park_id(c->parked->id, &c->terms, c->id);
    else if (!rc && c->n > 1)
        rc = share_id(c, meeting, job->extra, err);
    if (!rc) {
        job->comm = c;
        job->stream = c->g->streams[0];
        rc = launcher_push(&c->g->launcher, job, err);
    }
    if (rc)
        job_free(job);
    return rc;
}

/* Once per world: member 0, whose setting counts. */
static void warn_unregistered(const struct comm *c)
{
    char text[24];

    if (c->me == 0 && c->n > 1 && c->terms.registers && !c->g->nccl->has_register)
        log_warn("the fusion buffer is not registered, continuing",
                 "cause=\"NCCL %s has no ncclCommRegister, which came with 2.19\"",
                 nccl_version_text(c->g->nccl->version, text));
}

/* Likewise: member 0, of a member that has no memory or a lower threshold. */
static void warn_unpacked(const struct comm *c)
{
    const struct device_config *config = &c->g->config;
    const uint32_t rank = c->ranks[c->terms.fusion_member];

    if (c->me == 0 && c->terms.fusion_bytes < c->g->fusion_bytes)
        log_warn("the ranks pack no more than the smallest fusion buffer holds",
                 "rank=%u host=%s bytes=%llu", rank,
                 config->hosts ? config->hosts[rank] : "",
                 (unsigned long long)c->terms.fusion_bytes);
}

int comm_open(struct device *g,
              struct backend *meeting,
              const struct backend_env *env,
              const uint32_t *ranks,
              struct backend **ret,
              struct err *err)
{
    struct comm_terms terms = {0};
    struct gpu_card mine;
    struct comm *c;
    int rc = gpu_check(g, err);

    if (rc)
        return rc;
    take_fusion(g);
    fill_card(g, &mine);
    const bool is_world = env->size == g->config.size;
    if (is_world)
        park_fill(g->parked, &mine);
    rc = cards_exchange(meeting, env, ranks, g->config.hosts, &mine, &terms, err);
    if (!rc)
        rc = comm_new(g, env, ranks, &terms, &c, err);
    comm_terms_release(&terms);
    if (rc)
        return rc;
    if (is_world) { /* used: shrunk, or aborted with c's start */
        if (c->terms.how == COMM_SHRINK)
            c->parked = TAKE(g->parked);
        park_free(TAKE(g->parked));
        warn_unregistered(c);
        warn_unpacked(c);
    }
    rc = push_start(c, meeting, err);
    if (rc) {
        comm_free(c);
        return rc;
    }
    *ret = &c->base;
    return 0;
}

/* Ours among v[n], or n. */
static uint32_t ranks_find(const uint32_t *v, uint32_t n, uint32_t me)
{
    uint32_t i = 0;

    while (i < n && v[i] != me)
        i++;
    return i;
}

static int child_new(struct comm *parent,
                     const uint32_t *ranks,
                     uint32_t n,
                     uint32_t me,
                     struct comm **ret,
                     struct err *err)
{
    AUTOFREE uint32_t *global = mem_calloc(n, sizeof(*global));
    struct backend_env env = parent->env;
    struct comm_terms terms = parent->terms;

    if (!global)
        return err_set(err, -ENOMEM, "out of memory for %u members", n);
    for (uint32_t i = 0; i < n; i++)
        global[i] = parent->ranks[ranks[i]];
    env.rank = me;
    env.size = n;
    env.global = NULL; /* set below to the copy */
    terms.excluded = NULL;
    terms.n_excluded = 0;
    int rc = comm_new(parent->g, &env, global, &terms, ret, err);
    if (!rc)
        (*ret)->env.global = (*ret)->ranks;
    return rc;
}

int comm_split(struct backend *parent,
               const uint32_t *ranks,
               uint32_t n,
               struct backend **ret,
               struct err *err)
{
    struct comm *c = (struct comm *)parent, *child = NULL;
    const uint32_t me = ranks_find(ranks, n, c->me);
    int rc = gpu_check(c->g, err);

    if (rc)
        return rc;
    if (c->n_nc == 0 || !c->g->nccl->has_split)
        return err_set(err, -ENOTSUP, "no communicator of NCCL that can be split");
    if (me < n)
        rc = child_new(c, ranks, n, me, &child, err);
    if (rc)
        return rc;
    struct gpu_job *job =
        job_new(JOB_SPLIT, NULL, NULL, NULL, sizeof(struct comm_child));
    rc = job ? 0 : err_set(err, -ENOMEM, "out of memory for a communicator");
    if (!rc) {
        *(struct comm_child *)job->extra = (struct comm_child){child};
        job->comm = c;
        job->stream = c->g->streams[0];
        rc = launcher_push(&c->g->launcher, job, err);
    }
    if (rc) {
        job_free(job);
        if (child)
            comm_free(child);
        return rc;
    }
    *ret = child ? &child->base : NULL;
    return 0;
}
