/* SPDX-License-Identifier: Apache-2.0 */
/* A HorovodJob as JSON: read, decode, check, and build its objects when it passes. */
#include "operator/core/hvd/hvd_job.h"
#include "operator/core/hvd/hvd_objects.h"
#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "tests/fuzz/fuzz.h"

static void build_objects(struct arena *a, const struct hvd_job *job)
{
    static const struct object_config cfg = {.runtime_image = "r",
                                             .cluster_domain = ""};
    struct build b = {.arena = a};
    struct err err = ERR_INIT;

    /* a spec without problems can be built, or there is a sentence that says why not */
    for (int r = 0; r < ROLE_COUNT; r++) {
        struct node *pod = NULL;

        if (job->role[r].n == 0)
            continue;
        pod = object_pod(&b, job, &cfg, (enum role)r, job->role[r].n - 1, &err);
        MUST(pod || *err.text);
        MUST(!pod || node_str(pod, "metadata.name"));
        b.status = 0;
    }
    if (object_gang(job, &cfg) != GANG_NONE)
        MUST(object_pod_group(&b, job, &cfg, &err) || *err.text);
}

/* The store keeps text. */
static void must_come_back(const struct node *o)
{
    struct strbuf text;
    struct arena a;
    struct node *again;

    arena_init(&a, OBJECT_MAX_BYTES);
    strbuf_init(&text, 1u << 20);
    json_write(o, &text);
    MUST(strbuf_status(&text) == 0);
    MUST(json_read(&a, text.p, text.n, &again, NULL) == 0);
    strbuf_release(&text);
    arena_release(&a);
}

FUZZ_TARGET(job)
{
    struct strbuf problems;
    struct err err = ERR_INIT;
    struct arena a;
    struct node *o;
    struct job_meta meta;
    struct hvd_job job;

    arena_init(&a, OBJECT_MAX_BYTES);
    strbuf_init(&problems, 65536);
    if (object_read(&a, (struct json_span){(const char *)data, n}, job_rules, &o, &err)
        == 0) {
        must_come_back(o);
        if (meta_decode(KUBE_JOB, o, &meta, &err) == 0) {
            hvd_job_init(&job, &meta);
            MUST(hvd_decode_spec(o, &a, &job, &problems) == 0);
            hvd_validate(&job, &problems);
            MUST(job.slots >= 1 && job.slots <= JOB_MAX_SLOTS);
            MUST(job.role[ROLE_WORKER].n >= 1
                 && job.role[ROLE_WORKER].n <= JOB_MAX_REPLICAS);
            MUST(problems.n || !node_str(o, OBJECT_UNREADABLE));
            if (problems.n == 0 && strbuf_status(&problems) == 0)
                build_objects(&a, &job);
        } else {
            MUST(*err.text);
        }
    } else {
        MUST(*err.text);
    }
    strbuf_release(&problems);
    arena_release(&a);
    return 0;
}
