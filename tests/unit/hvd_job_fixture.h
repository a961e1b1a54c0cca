/* SPDX-License-Identifier: Apache-2.0 */
/* A HorovodJob from a line of YAML, for the tests of what it says and what is made of
 * it. Include after cmocka.h. */
#ifndef TESTS_UNIT_HVD_JOB_FIXTURE_H
#define TESTS_UNIT_HVD_JOB_FIXTURE_H

#include <string.h>

#include "operator/core/hvd/hvd_job.h"
#include "operator/doc/yaml.h"

#define C        "{name: c, image: i, command: [x]}"
#define TEMPLATE "template: {spec: {containers: [" C "]}}"
#define ROLES    "replicaSpecs: {Worker: {" TEMPLATE "}}"
#define TF       "framework: tensorflow"

struct fixture {
    struct arena arena;
    struct hvd_job job;
    struct strbuf problems;
};

static inline struct node *read_yaml(struct arena *a, const char *text)
{
    struct err err = ERR_INIT;
    struct node *o;

    if (yaml_read(a, text, strlen(text), &o, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return o;
}

/* spec: members of a flow mapping. status: an object or NULL. */
static inline void
open_job(struct fixture *f, const char *name, const char *spec, const char *status)
{
    struct job_meta meta = {.kind = KUBE_JOB, .ns = "ns", .name = name, .uid = "u"};
    char *text;

    arena_init(&f->arena, 16u << 20);
    strbuf_init(&f->problems, 65536);
    text = arena_printf(&f->arena, "spec: {%s}\n", spec);
    if (status)
        meta.status = read_yaml(&f->arena, status);
    hvd_job_init(&f->job, &meta);
    assert_int_equal(
        hvd_decode_spec(read_yaml(&f->arena, text), &f->arena, &f->job, &f->problems),
        0);
    hvd_validate(&f->job, &f->problems);
}

static inline void open_good(struct fixture *f, const char *spec)
{
    open_job(f, "d", spec, NULL);
    if (f->problems.n)
        fail_msg("%s: %s", spec, strbuf_str(&f->problems));
}

static inline void fixture_release(struct fixture *f)
{
    strbuf_release(&f->problems);
    arena_release(&f->arena);
}

#endif
