/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a HorovodJob: tests/golden/objects.txt (tests/unit/golden.h) has whole
 * jobs and all that is created for them, of each role the last pod. Here are TF_CONFIG,
 * the size of a pod and which jobs require a PodGroup. */
#include "tests/unit/unit.h"

#include "operator/core/hvd/hvd_objects.h"
#include "operator/core/hvd/hvd_tf_config.h"
#include "operator/core/pod_size.h"
#include "runtime/base/mem.h"
#include "tests/unit/golden.h"
#include "tests/unit/hvd_job_fixture.h"

static struct job_meta *objects_open_job(struct arena *a, const char *input)
{
    struct err err = ERR_INIT;
    struct job_meta meta, *job;
    struct strbuf problems;
    const struct node *o = golden_yaml(a, input);

    assert_int_equal(meta_decode(KUBE_JOB, o, &meta, &err), 0);
    strbuf_init(&problems, 65536);
    job = front_horovodjob.open(o, &meta, a, &problems);
    assert_string_equal(strbuf_str(&problems), "");
    strbuf_release(&problems);
    assert_non_null(job);
    return job;
}

static void
objects_run_case(void *arg, const char *name, const char *input, struct strbuf *out)
{
    static const struct object_config cfg = {.runtime_image = "runtime:1",
                                             .cluster_domain = ""};
    static const enum kube_kind kinds[] = {KUBE_SECRET, KUBE_SERVICE, KUBE_CONFIGMAP,
                                           KUBE_VOLCANO_GROUP, KUBE_SCHEDULER_GROUP};
    struct secrets secrets = {.ssh_private = "", .ssh_public = ""};
    struct action x = {.verb = VERB_CREATE};
    struct err err = ERR_INIT;
    CLEANUP(arena_release) struct arena arena;
    struct build b = {.arena = &arena};
    struct job_meta *meta;
    const struct hvd_job *job;
    struct node *all;

    arena_init(&arena, GOLDEN_MAX_BYTES);
    meta = objects_open_job(&arena, input);
    job = (const struct hvd_job *)(const void *)meta;
    all = node_array(&b);
    memset(secrets.token, 0xab, sizeof(secrets.token));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        x.kind = kinds[i];
        if (object_is_required(job, &cfg, x.kind))
            node_add(&b, all,
                     front_horovodjob.build(&b, meta, &cfg, &x, &secrets, &err));
    }
    x.kind = KUBE_POD;
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (job->role[r].n == 0)
            continue;
        x.role = (enum role)r;
        x.index = job->role[r].n - 1;
        node_add(&b, all, front_horovodjob.build(&b, meta, &cfg, &x, &secrets, &err));
    }
    if (b.status || err.code)
        fail_msg("%s: %s", name, err.text);
    golden_objects(arg, name, all, out);
}

UNIT_TEST(objects_are_as_in_the_golden_file)
{
    golden_objects_file("tests/golden/objects.txt", objects_run_case);
}

UNIT_TEST(tf_config_names_the_cluster_and_the_task)
{
    static const struct object_config cfg = {.cluster_domain = "cluster.local"};
    CLEANUP(strbuf_release) struct strbuf text;
    CLEANUP(fixture_release) struct fixture f;

    open_good(&f, TF ", replicaSpecs: {Worker: {replicas: 2, " TEMPLATE "}, PS: "
                     "{" TEMPLATE "}, Evaluator: {" TEMPLATE "}}");
    strbuf_init(&text, 65536);
    tf_config(&f.job, &cfg, ROLE_EVALUATOR, 0, &text);
    assert_string_equal(strbuf_str(&text),
                        "{\"cluster\": {\"worker\": "
                        "[\"d-worker-0.d.ns.svc.cluster.local:2222\", "
                        "\"d-worker-1.d.ns.svc.cluster.local:2222\"], \"ps\": "
                        "[\"d-ps-0.d.ns.svc.cluster.local:2222\"]}, \"task\": "
                        "{\"type\": \"evaluator\", \"index\": 0}}");
}

UNIT_TEST(a_pod_is_as_large_as_the_scheduler_counts)
{
    static const struct {
        const char *spec, *size;
    } t[] = {
        {"{}", "{}"},
        {"{containers: [{name: a}]}", "{}"},
        {"{containers: [{resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: "
         "1Gi}}}, {resources: {limits: {cpu: 500m}}}]}",
         "{cpu: 1500m, memory: 1Gi}"},
        {"{initContainers: [{resources: {requests: {cpu: 3}}}, {resources: {requests: "
         "{memory: 1Gi}}}], containers: [{resources: {requests: {cpu: 1, memory: "
         "2Gi}}}]}",
         "{cpu: '3', memory: 2Gi}"},
        {"{initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}, "
         "{resources: {requests: {cpu: 2}}}], containers: [{resources: {requests: "
         "{cpu: 1}}}]}",
         "{cpu: '3'}"}, /* the second beside the sidecar; at work 2 */
        {"{initContainers: [{resources: {requests: {cpu: 2}}}, {restartPolicy: Always, "
         "resources: {requests: {cpu: 1}}}], containers: [{resources: {requests: {cpu: "
         "1}}}]}",
         "{cpu: '2'}"},
        {"{overhead: {cpu: 250m}, containers: [{resources: {requests: {cpu: 1}}}]}",
         "{cpu: 1250m}"},
        {"{resources: {requests: {cpu: 8}}, containers: [{resources: {requests: {cpu: "
         "1, memory: 1Gi}}}]}",
         "{cpu: '8', memory: 1Gi}"},
        {"{containers: [{resources: {requests: {cpu: x, memory: 1Gi}}}]}",
         "{memory: 1Gi}"},
        {"{containers: [{resources: {requests: {cpu: 0.5, memory: 1e9}}}, {resources: "
         "{limits: {cpu: 0.1}}}]}",
         "{cpu: 600m, memory: 1G}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        struct build b = {.arena = &a};
        struct amounts size;

        arena_init(&a, 1u << 20);
        assert_int_equal(pod_size(read_yaml(&a, t[i].spec), &a, &size), 0);
        if (!node_equal(amounts_node(&b, &size), read_yaml(&a, t[i].size)))
            fail_msg("%s is not of size %s", t[i].spec, t[i].size);
    }
}

UNIT_TEST(an_operator_without_gangs_serves_a_job_with_one)
{
    static const struct object_config none = {.gang_scheduler = ""};
    static const struct object_config volcano = {.gang = GANG_VOLCANO,
                                                 .gang_scheduler = "volcano"};
    static const struct object_config plugins = {.gang = GANG_SCHEDULER_PLUGINS,
                                                 .gang_scheduler = "mine"};
    struct fixture f;

    open_good(&f, "runPolicy: {schedulingPolicy: {gang: volcano}}, " ROLES);
    assert_true(object_is_required(&f.job, &none, KUBE_VOLCANO_GROUP));
    assert_false(object_is_required(&f.job, &plugins, KUBE_SCHEDULER_GROUP));
    assert_string_equal(object_scheduler(&f.job, &none), "volcano");
    fixture_release(&f);
    open_good(&f, "runPolicy: {schedulingPolicy: {gang: scheduler-plugins}}, " ROLES);
    assert_string_equal(object_scheduler(&f.job, &volcano),
                        "scheduler-plugins-scheduler");
    assert_string_equal(object_scheduler(&f.job, &plugins), "mine");
    fixture_release(&f);
    open_good(&f, "runPolicy: {schedulingPolicy: {gang: none}}, " ROLES);
    assert_false(object_is_required(&f.job, &volcano, KUBE_VOLCANO_GROUP));
    fixture_release(&f);
    open_good(&f, ROLES);
    assert_true(object_is_required(&f.job, &volcano, KUBE_VOLCANO_GROUP));
    assert_false(object_is_required(&f.job, &none, KUBE_CONFIGMAP));
    assert_true(object_is_required(&f.job, &none, KUBE_SECRET));
    fixture_release(&f);
}

UNIT_MAIN(NULL, NULL)
