/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of a HorovodJob beside the trees of tests/golden/objects: TF_CONFIG, the
 * size of a pod, who wants a PodGroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "operator/core/hvd_objects.h"
#include "operator/core/hvd_tf_config.h"
#include "operator/core/pod_size.h"
#include "runtime/base/mem.h"
#include "tests/unit/hvd_job_fixture.h"

static void tf_config_names_the_cluster_and_the_task(void **state)
{
    static const struct object_config cfg = {.cluster_domain = "cluster.local"};
    struct strbuf text;
    struct fixture f;

    (void)state;
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
    strbuf_release(&text);
    fixture_release(&f);
}

static void a_pod_is_as_large_as_the_scheduler_counts(void **state)
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

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct arena a;
        struct build b = {.arena = &a};
        struct amounts size;

        arena_init(&a, 1u << 20);
        assert_int_equal(pod_size(read_yaml(&a, t[i].spec), &a, &size), 0);
        if (!node_equal(amounts_node(&b, &size), read_yaml(&a, t[i].size)))
            fail_msg("%s is not of size %s", t[i].spec, t[i].size);
        arena_release(&a);
    }
}

static void an_operator_without_gangs_serves_a_job_with_one(void **state)
{
    static const struct object_config none = {.gang_scheduler = ""};
    static const struct object_config volcano = {.gang = GANG_VOLCANO,
                                                 .gang_scheduler = "volcano"};
    static const struct object_config plugins = {.gang = GANG_SCHEDULER_PLUGINS,
                                                 .gang_scheduler = "mine"};
    struct fixture f;

    (void)state;
    open_good(&f, "runPolicy: {schedulingPolicy: {gang: volcano}}, " ROLES);
    assert_true(object_is_wanted(&f.job, &none, KUBE_VOLCANO_GROUP));
    assert_false(object_is_wanted(&f.job, &plugins, KUBE_SCHEDULER_GROUP));
    assert_string_equal(object_scheduler(&f.job, &none), "volcano");
    fixture_release(&f);
    open_good(&f, "runPolicy: {schedulingPolicy: {gang: scheduler-plugins}}, " ROLES);
    assert_string_equal(object_scheduler(&f.job, &volcano),
                        "scheduler-plugins-scheduler");
    assert_string_equal(object_scheduler(&f.job, &plugins), "mine");
    fixture_release(&f);
    open_good(&f, "runPolicy: {schedulingPolicy: {gang: none}}, " ROLES);
    assert_false(object_is_wanted(&f.job, &volcano, KUBE_VOLCANO_GROUP));
    fixture_release(&f);
    open_good(&f, ROLES);
    assert_true(object_is_wanted(&f.job, &volcano, KUBE_VOLCANO_GROUP));
    assert_false(object_is_wanted(&f.job, &none, KUBE_CONFIGMAP));
    assert_true(object_is_wanted(&f.job, &none, KUBE_SECRET));
    fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tf_config_names_the_cluster_and_the_task),
        cmocka_unit_test(a_pod_is_as_large_as_the_scheduler_counts),
        cmocka_unit_test(an_operator_without_gangs_serves_a_job_with_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
