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

/* Stores a HorovodJob from YAML; its stored text. */
static struct job_text put(struct store *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static struct job_text put(struct store *s, const char *fmt, ...)
{
    char yaml[4096], key[STORE_KEY_SIZE];
    CLEANUP(arena_release) struct arena a;
    struct job_text text;
    struct node *o;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(yaml, sizeof(yaml), fmt, ap);
    va_end(ap);
    arena_init(&a, 1u << 20);
    assert_int_equal(yaml_read(&a, yaml, strlen(yaml), &o, NULL), 0);
    assert_int_equal(store_put_job(s, KUBE_JOB, o, key, NULL), 0);
    assert_int_equal(store_job_text(s, key, &text), 0); /* the latest is kept */
    return text;
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
        {SPEC(MPI, "suspend: true") STATUS("Suspended", ""), true},
        {SPEC(HVD, "") STATUS("Suspended", ", observedGeneration: 4"), false},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(store_close) struct store *s = store_new();
        struct job_text text =
            put(s, "metadata: {namespace: ns, name: demo, uid: u, generation: 4}\n%s",
                t[i].spec_and_status);

        assert_int_equal(text.is_at_rest, t[i].is_at_rest);
        assert_int_equal(!strstr(text.p, "template"), t[i].is_at_rest);
        assert_non_null(strstr(text.p, "\"replicas\":2"));
        assert_int_equal(store_text_bytes(s), t[i].is_at_rest ? 0 : text.n);
    }
}

static void put_kilobyte(struct store *s, const char *ns, int i, bool is_done)
{
    (void)put(s, "metadata: {namespace: %s, name: j%d, uid: u}\nspec: {a: %01000d}\n%s",
              ns, i, 0, is_done ? STATUS("Succeeded", "") : "");
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
        put_kilobyte(s, "large", i, false);
        assert_in_range(store_text_bytes(s), 1, 8000);
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

UNIT_MAIN(NULL, NULL)
