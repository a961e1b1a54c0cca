/* SPDX-License-Identifier: Apache-2.0 */
/* Which JSON of jobs the store keeps, and how much. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "operator/core/store/store.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"

#define SPEC(sets, run)                                                                \
    "spec: {" sets                                                                     \
    ": {Worker: {replicas: 2, template: {spec: {x: y}}}}, runPolicy: {" run "}}\n"
#define HVD "replicaSpecs"
#define MPI "mpiReplicaSpecs"
#define STATUS(type, fields)                                                           \
    "status: {conditions: [{type: " type ", status: 'True'}]" fields "}\n"

static void store_close(struct store **s)
{
    store_free(*s);
}

typedef int (*store_fn)(struct store *s,
                        enum kube_kind kind,
                        struct node *object,
                        char ret_key[STORE_KEY_SIZE],
                        struct err *err);

/* fn with a job from YAML. */
static int job_give(struct store *s, store_fn fn, enum kube_kind kind, const char *yaml)
{
    char key[STORE_KEY_SIZE];
    CLEANUP(arena_release) struct arena a;
    struct node *o;

    arena_init(&a, 1u << 20);
    assert_int_equal(yaml_read(&a, yaml, strlen(yaml), &o, NULL), 0);
    return fn(s, kind, o, key, NULL);
}

UNIT_TEST(jobs_at_rest_are_stored_without_pod_templates)
{
    static const struct {
        const char *spec_and_status;
        bool is_at_rest;
    } t[] = {
        {SPEC(HVD, ""), false},
        {SPEC(HVD, "") STATUS("Running", ""), false},
        {SPEC(HVD, "") STATUS("Restarting", ", observedGeneration: 4"), false},
        {SPEC(HVD, "") STATUS("Succeeded", ""), true},
        {SPEC(MPI, "") STATUS("Failed", ""), true},
        {SPEC(HVD, "suspend: true"), false}, /* not checked yet */
        {SPEC(HVD, "suspend: true") STATUS("Suspended", ", observedGeneration: 4"),
         true},
        {SPEC(HVD, "suspend: true") STATUS("Suspended", ", observedGeneration: 3"),
         false},
        /* its launcher's Job is created, suspended */
        {SPEC(MPI, "suspend: true") STATUS("Suspended", ""), false},
        {SPEC(HVD, "") STATUS("Suspended", ", observedGeneration: 4"), false},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(store_close) struct store *s = store_new();
        bool is_mpi = strstr(t[i].spec_and_status, MPI) != NULL;
        struct job_text text;
        char yaml[1024];

        (void)snprintf(yaml, sizeof(yaml),
                       "metadata: {namespace: ns, name: demo, uid: u, generation: "
                       "4}\n%s",
                       t[i].spec_and_status);
        assert_int_equal(
            job_give(s, store_put_job, is_mpi ? KUBE_MPIJOB : KUBE_JOB, yaml), 1);
        assert_int_equal(
            store_job_text(s, is_mpi ? "mpijob:ns/demo" : "ns/demo", &text), 0);
        assert_int_equal(text.is_at_rest, t[i].is_at_rest);
        assert_int_equal(!strstr(text.p, "template"), t[i].is_at_rest);
        assert_non_null(strstr(text.p, "\"replicas\":2"));
        assert_int_equal(store_text_bytes(s), t[i].is_at_rest ? 0 : text.n);
    }
}

/* A job of a kilobyte, in version 5. */
static int job_give_kilobyte(
    struct store *s, store_fn fn, const char *ns, int i, const char *uid, bool is_done)
{
    char yaml[2048];

    (void)snprintf(yaml, sizeof(yaml),
                   "metadata: {namespace: %s, name: j%d, uid: %s, resourceVersion: "
                   "'5'}\nspec: {a: %01000d}\n%s",
                   ns, i, uid, 0, is_done ? STATUS("Succeeded", "") : "");
    return job_give(s, fn, KUBE_JOB, yaml);
}

static void put_kilobyte(struct store *s, const char *ns, int i, bool is_done)
{
    assert_int_equal(job_give_kilobyte(s, store_put_job, ns, i, "u", is_done), 1);
}

static int state_of_text(const struct store *s, const char *key)
{
    struct job_text text;

    return store_job_text(s, key, &text);
}

UNIT_TEST(the_namespace_that_takes_most_loses_its_text)
{
    CLEANUP(store_close) struct store *s = store_new();

    store_limit_text(s, 8000);
    put_kilobyte(s, "small", 0, false);
    for (int i = 0; i < 50; i++)
        put_kilobyte(s, "done", i, true);
    for (int i = 0; i < 50; i++) {
        char key[32];

        put_kilobyte(s, "large", i, false);
        assert_in_range(store_text_bytes(s), 1, 8000);
        (void)snprintf(key, sizeof(key), "large/j%d", i);
        assert_int_equal(state_of_text(s, key), 0); /* the latest */
    }
    assert_int_equal(state_of_text(s, "small/j0"), 0);
    assert_int_equal(state_of_text(s, "done/j49"), 0);
    assert_int_equal(state_of_text(s, "large/j0"), -ENODATA);
    assert_int_equal(state_of_text(s, "large/j99"), -ENOENT);
    put_kilobyte(s, "large", 0, false); /* the answer to a request */
    store_limit_text(s, 10);            /* smaller than any */
    put_kilobyte(s, "small", 0, false);
    assert_int_equal(state_of_text(s, "large/j0"), -ENODATA);
    store_drop_job(s, "small/j0");
    assert_int_equal(store_text_bytes(s), 0);
}

/* Also if the latest job is that of the namespace that takes most. */
UNIT_TEST(one_job_in_each_namespace_is_limited_too)
{
    CLEANUP(store_close) struct store *s = store_new();

    store_limit_text(s, 8000);
    for (int i = 20; i > 0; i--) { /* each is the first of equals */
        char ns[16];

        (void)snprintf(ns, sizeof(ns), "n%02d", i);
        put_kilobyte(s, ns, 0, false);
        assert_in_range(store_text_bytes(s), 1, 8000);
    }
}

UNIT_TEST(an_answer_brings_back_the_text_of_that_job_only)
{
    CLEANUP(store_close) struct store *s = store_new();
    struct job_text text;

    assert_int_equal(job_give_kilobyte(s, store_take_answer, "a", 0, "u", false), 0);
    assert_int_equal(state_of_text(s, "a/j0"), -ENOENT); /* it was deleted */
    put_kilobyte(s, "a", 0, false);
    assert_int_equal(job_give_kilobyte(s, store_take_answer, "a", 0, "u", false), 0);
    store_limit_text(s, 10);
    assert_int_equal(store_job_text(s, "a/j0", &text), -ENODATA);
    assert_string_equal(text.uid, "u");
    assert_int_equal(job_give_kilobyte(s, store_take_answer, "a", 0, "older", false),
                     0);
    assert_int_equal(state_of_text(s, "a/j0"), -ENODATA);
    assert_int_equal(job_give_kilobyte(s, store_take_answer, "a", 0, "u", false), 1);
    assert_int_equal(state_of_text(s, "a/j0"), 0);
}

UNIT_MAIN(NULL, NULL)
