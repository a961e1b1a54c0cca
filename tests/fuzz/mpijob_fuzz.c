/* SPDX-License-Identifier: Apache-2.0 */
/* An MPIJob as JSON: parsed, planned as a new job, and each object of the plan built; a
 * second decision with the resulting status emits no event again. */
#include "operator/core/front.h"
#include "operator/core/mpi/mpi_job.h"
#include "operator/doc/object.h"
#include "tests/fuzz/fuzz.h"

#define ARENA_BYTES (128u << 20)

static const struct object_config cfg = {.runtime_image = "r",
                                         .cluster_domain = "",
                                         .gang = GANG_VOLCANO,
                                         .gang_scheduler = "volcano"};

static void
mpijob_decide(const struct job_meta *job, struct arena *a, struct decision *ret)
{
    static const struct sync_outcome none = {.reason = "", .message = ""};
    struct observed seen = {.batch_state = WORKER_ABSENT};
    struct job_shape shape;
    struct question q = {.job = job,
                         .seen = &seen,
                         .outcome = &none,
                         .cfg = &cfg,
                         .now_wall_s = 100,
                         .arena = a};
    struct worker *w;

    front_mpijob.shape(job, &shape);
    MUST(shape.n[ROLE_WORKER] <= MPI_MAX_WORKERS);
    w = arena_calloc(a, shape.n[ROLE_WORKER] + 1u, sizeof(*w));
    MUST(w);
    seen.crew[ROLE_WORKER] = (struct crew){.w = w, .n = shape.n[ROLE_WORKER]};
    MUST(front_mpijob.decide(&q, ret) == 0);
}

/* Of many workers only the last one is built. */
static void
build_all(const struct job_meta *job, const struct job_plan *plan, struct arena *a)
{
    const struct secrets secrets = {.ssh_private = "p", .ssh_public = "q"};
    struct build b = {.arena = a};
    struct err err = ERR_INIT;

    for (size_t i = 0; i < plan->n; i++) {
        const struct action *x = &plan->v[i];
        struct node *o;

        if (x->verb != VERB_CREATE || x->body
            || (x->kind == KUBE_POD && plan->n > 64 && i + 2 < plan->n))
            continue;
        o = front_mpijob.build(&b, job, &cfg, x, &secrets, &err);
        MUST(o && strcmp(node_str(o, "metadata.name"), x->name) == 0);
    }
}

static void look_twice(struct node *object, struct job_meta *meta, struct arena *a)
{
    struct build b = {.arena = a};
    struct strbuf problems;
    struct job_meta *job;
    struct decision d;

    strbuf_init(&problems, 65536);
    job = front_mpijob.open(object, meta, a, &problems);
    MUST(job);
    MUST(!(problems.n > 0) == !((struct mpi_job *)job)->flaws);
    MUST(problems.n || !node_str(object, OBJECT_UNREADABLE));
    mpijob_decide(job, a, &d);
    if (problems.n == 0)
        build_all(job, &d.plan, a);
    if (d.status) {
        struct node *status = node_copy(&b, d.status);

        job->status = status;
        mpijob_decide(job, a, &d);
        MUST(node_equal(d.status, status));
        MUST(d.n_notes == 0);
    }
    strbuf_release(&problems);
}

FUZZ_TARGET(mpijob)
{
    struct err err = ERR_INIT;
    struct arena a, work;
    struct job_meta meta;
    struct node *o;

    arena_init(&a, OBJECT_MAX_BYTES);
    arena_init(&work, ARENA_BYTES);
    if (object_read(&a, (struct json_span){(const char *)data, n}, job_rules, &o, &err)
            == 0
        && meta_decode(KUBE_MPIJOB, o, &meta, &err) == 0)
        look_twice(o, &meta, &work);
    else
        MUST(*err.text);
    arena_release(&work);
    arena_release(&a);
    return 0;
}
