/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers registered with a communicator: users' buffers one by one, and the fusion
 * buffer where the members' terms say so. NCCL moves from and to such memory without a
 * copy of its own where the machine supports it (NVLS, InfiniBand SHARP, peers of one
 * node).
 *
 * ncclCommRegister is local to this member, but an NCCL call must not find memory that
 * is registered on some members only. So a job registers a buffer, at its place in the
 * common order, on all members, or on none if one could not: the seat sends the
 * request, waits for the answer, compares it with those of the other members and may
 * request to deregister the buffer again (engine/carry_register.c). This is the only place
 * where the seat waits for the launcher; it keeps serving the control channel
 * meanwhile, and it is not the hot path.
 *
 * The answer is counted: the last of seat and launcher frees it, because either may go
 * first. Registrations belong to the launcher, and to the watcher after it. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/nccl/comm.h"
#include "runtime/backend/nccl/futex.h"
#include "runtime/base/mem.h"

#define SLICE_NS (5 * NS_PER_MS) /* between two checks of the control channel */

struct register_answer {
    _Atomic uint32_t refs;
    _Atomic uint32_t is_there; /* a futex word; released after rc and why */
    int rc;
    char why[256];
};
struct register_request { /* JOB_REGISTER's extra */
    void *p;
    uint64_t bytes; /* 0: forget it */
    struct register_answer *answer;
};

static void answer_unref(struct register_answer *a)
{
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
        mem_free(a);
}

/* --- the launcher --- */

/* Deregisters it from NCCL. Failures are ignored: the communicator is going to be
 * destroyed. */
static void region_deregister(struct comm *c, struct comm_region *r)
{
    for (uint32_t i = 0; i < c->n_nc; i++)
        if (r->handles[i] && c->nc[i])
            (void)c->g->nccl->deregister(c->nc[i], r->handles[i]);
    memset(r->handles, 0, sizeof(r->handles));
}

static int region_register(struct comm *c, struct comm_region *r, struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;

    for (uint32_t i = 0; i < c->n_nc; i++) {
        int result = nccl->register_(c->nc[i], r->p, r->bytes, &r->handles[i]);

        if (result == NCCL_OK)
            continue;
        r->handles[i] = NULL;
        (void)nccl_fail(nccl, c->nc[i], "ncclCommRegister", result, err);
        region_deregister(c, r);
        return -EIO;
    }
    return 0;
}

static int run_add(struct comm *c, const struct register_request *k, struct err *err)
{
    struct comm_region *r = mem_zalloc(sizeof(*r));

    if (!r)
        return err_set(err, -ENOMEM, "out of memory for a registered buffer");
    r->p = k->p;
    r->bytes = k->bytes;
    int rc = region_register(c, r, err);
    if (rc) {
        mem_free(r);
        return rc;
    }
    r->next = c->regions;
    c->regions = r;
    return 0;
}

static void run_forget(struct comm *c, const void *p)
{
    for (struct comm_region **at = &c->regions; *at; at = &(*at)->next) {
        struct comm_region *r = *at;

        if (r->p != p)
            continue;
        *at = r->next;
        region_deregister(c, r);
        mem_free(r);
        return;
    }
}

static void answer_give(struct register_answer *a, int rc, const char *why)
{
    a->rc = rc;
    (void)memcpy(a->why, why, strnlen(why, sizeof(a->why) - 1));
    atomic_store_explicit(&a->is_there, 1, memory_order_release);
    futex_wake(&a->is_there);
    answer_unref(a);
}

int register_run(struct gpu_job *job)
{
    const struct register_request *k = job->extra;
    struct err why = ERR_INIT;
    int rc = 0;

    if (k->bytes > 0)
        rc = run_add(job->comm, k, &why);
    else
        run_forget(job->comm, k->p);
    answer_give(k->answer, rc, why.text);
    return 0; /* the device works in any case */
}

void register_drop(struct gpu_job *job)
{
    const struct register_request *k = job->extra;

    answer_give(k->answer, -ECONNABORTED, "the device was given up");
}

bool comm_regions_any(const struct comm *c)
{
    bool any = c->regions != NULL;

    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++)
        any |= c->fusion[i].handles[i] != NULL;
    return any;
}

void comm_regions_close(struct comm *c)
{
    for (struct comm_region *r = c->regions; r; r = r->next)
        region_deregister(c, r);
    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++)
        region_deregister(c, &c->fusion[i]);
    comm_regions_free(c);
}

void comm_regions_free(struct comm *c)
{
    struct comm_region *r;

    while ((r = c->regions) != NULL) {
        c->regions = r->next;
        mem_free(r);
    }
}

/* --- the fusion buffer --- */

/* One buffer serves all communicators of the device and may have moved since c last
 * used it. Only the communicator on stream `index` uses that stream's buffer. */
static int know_fusion(struct comm *c, uint32_t index, struct err *err)
{
    const struct fusion_buffer *f = &c->g->scratch.registered[index];
    const struct nccl_api *nccl = c->g->nccl;
    struct comm_region *r = &c->fusion[index];
    void **handle = &r->handles[index];

    if (*handle && (cu_ptr)(uintptr_t)r->p == f->at)
        return 0;
    if (*handle) { /* replaced by a larger one; calls may still use it: deregistered at
                      the end */
        struct comm_region *old = mem_zalloc(sizeof(*old));

        if (!old)
            return err_set(err, -ENOMEM, "out of memory for the fusion buffer");
        *old = *r;
        old->next = c->regions;
        c->regions = old;
    }
    *handle = NULL;
    r->p = (void *)(uintptr_t)f->at;
    r->bytes = f->bytes;
    int result = nccl->register_(c->nc[index], r->p, r->bytes, handle);
    if (result == NCCL_OK)
        return 0;
    *handle = NULL;
    return nccl_fail(nccl, c->nc[index], "ncclCommRegister", result, err);
}

bool comm_registers(const struct comm *c)
{
    return c->terms.registers && c->n_nc > 0 && c->g->nccl->has_register;
}

int comm_fusion(struct comm *c,
                uint32_t index,
                uint64_t bytes,
                cu_stream s,
                cu_ptr *ret,
                uint32_t *ret_generation,
                struct err *err)
{
    struct gpu_scratch *sc = &c->g->scratch;
    const struct fusion_buffer *f = &sc->fusion[index];
    int rc;

    if (comm_registers(c)) {
        f = &sc->registered[index];
        rc = scratch_fusion_registered(sc, c->g->nccl, index, bytes, ret, err);
        rc = rc ? rc : know_fusion(c, index, err);
    } else {
        rc = scratch_fusion(sc, index, bytes, s, ret, err);
    }
    *ret_generation = f->generation;
    return rc;
}

/* --- the seat --- */

static int answer_wait(struct comm *c, struct register_answer *a, struct err *err)
{
    int rc = 0;

    while (atomic_load_explicit(&a->is_there, memory_order_acquire) == 0) {
        rc = c->env.interrupted ? c->env.interrupted(c->env.arg, err) : 0;
        if (rc)
            return rc;
        futex_wait(&a->is_there, 0, SLICE_NS);
    }
    if (a->rc == -ECONNABORTED && gpu_check(c->g, err)) /* with its cause */
        return a->rc;
    return a->rc ? err_set(err, a->rc, "%s", a->why) : 0;
}

static int region_request(struct comm *c, void *p, uint64_t bytes, struct err *err)
{
    struct gpu_job *job =
        job_new(JOB_REGISTER, NULL, NULL, NULL, sizeof(struct register_request));
    struct register_answer *a = mem_zalloc(sizeof(*a));
    int rc = job && a ? 0 : err_set(err, -ENOMEM, "out of memory for a buffer");

    if (!rc) {
        atomic_init(&a->refs, 2);
        *(struct register_request *)job->extra = (struct register_request){p, bytes, a};
        job->comm = c;
        job->stream = c->g->streams[0];
        rc = launcher_push(&c->g->launcher, job, err);
    }
    if (rc) {
        job_free(job);
        mem_free(a);
        return rc;
    }
    rc = answer_wait(c, a, err);
    answer_unref(a);
    return rc;
}

int comm_register(struct backend *b, void *p, uint64_t bytes, struct err *err)
{
    struct comm *c = (struct comm *)b;
    char text[24];
    int rc = gpu_check(c->g, err);

    if (rc || c->n_nc == 0) /* a set of one makes no NCCL calls */
        return rc;
    if (!c->g->nccl->has_register)
        return err_set(err, -ENOTSUP,
                       "NCCL %s has no ncclCommRegister, which came with 2.19",
                       nccl_version_text(c->g->nccl->version, text));
    return region_request(c, p, bytes, err);
}

void comm_forget(struct backend *b, void *p)
{
    struct comm *c = (struct comm *)b;

    if (c->n_nc > 0 && c->g->nccl->has_register)
        (void)region_request(c, p, 0, NULL); /* a broken device has dropped all */
}
