/* SPDX-License-Identifier: Apache-2.0 */
/* A HorovodJob as JSON: decode, check, and build its objects when it passes. */
#include "operator/core/job.h"
#include "operator/core/objects.h"
#include "operator/doc/json.h"
#include "tests/fuzz/fuzz.h"

static void build_objects(struct arena *a, const struct job *job)
{
    static const struct object_config cfg = {.runtime_image = "r",
                                             .cluster_domain = ""};
    struct build b = {.arena = a};
    struct err err = ERR_INIT;
    struct node *pod = object_worker(&b, job, &cfg, job->replicas - 1, &err);

    /* a spec without problems can be built, or there is a sentence that says why not */
    MUST(pod || *err.text);
    MUST(!pod || node_str(pod, "metadata.name"));
}

FUZZ_TARGET(job)
{
    struct strbuf problems;
    struct err err = ERR_INIT;
    struct arena a;
    struct node *o;
    struct job job;

    arena_init(&a, 8u << 20);
    strbuf_init(&problems, 65536);
    if (json_read(&a, (const char *)data, n, &o, &err) == 0) {
        if (job_decode_meta(o, &job, &err) == 0) {
            job_decode_spec(o, &job, &problems);
            job_validate(&job, &problems);
            MUST(job.slots >= 1 && job.slots <= JOB_MAX_SLOTS);
            MUST(job.replicas >= 1 && job.replicas <= JOB_MAX_REPLICAS);
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
