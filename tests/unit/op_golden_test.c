/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of HorovodJobs: tests/golden/objects/CASE/job.yaml -> objects.json.
 * GOLDEN_UPDATE=1 writes what comes out; read the diff before you commit it. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operator/core/hvd_objects.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define ARENA_BYTES (16u << 20)

struct fixture {
    struct arena arena;
    char dir[512];
    struct job_meta *job;
    struct strbuf problems;
};

static char *read_text(const struct fixture *f, const char *name, size_t *ret_n)
{
    char path[800];
    char *text = NULL;
    struct err err = ERR_INIT;

    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    if (fd_read_file(path, 1u << 20, &text, ret_n, &err) < 0)
        return NULL;
    return text;
}

static void load_job(struct fixture *f)
{
    struct err err = ERR_INIT;
    struct job_meta meta;
    struct node *o;
    size_t n;
    char *text = read_text(f, "job.yaml", &n);

    assert_non_null(text);
    if (yaml_read(&f->arena, text, n, &o, &err) < 0)
        fail_msg("%s: %s", f->dir, err.text);
    mem_free(text);
    assert_int_equal(meta_decode(KUBE_JOB, o, &meta, &err), 0);
    strbuf_init(&f->problems, 65536);
    f->job = front_horovodjob.open(o, &meta, &f->arena, &f->problems);
    assert_non_null(f->job);
}

/* Compares with the file, or writes it. */
static void compare(const struct fixture *f, const char *name, const struct strbuf *got)
{
    char path[800];
    size_t n;
    char *want;

    assert_int_equal(strbuf_status(got), 0);
    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    if (getenv("GOLDEN_UPDATE")) {
        assert_int_equal(fd_write_file(path, strbuf_str(got), got->n, 0644, NULL), 0);
        return;
    }
    want = read_text(f, name, &n);
    if (!want)
        fail_msg("%s is missing: run with GOLDEN_UPDATE=1", path);
    else if (strcmp(want, strbuf_str(got)) != 0)
        fail_msg("%s differs; got:\n%s\nwanted:\n%s", path, strbuf_str(got), want);
    mem_free(want);
}

static void add(const struct fixture *f,
                struct build *b,
                struct node *all,
                struct node *object,
                const struct err *err)
{
    if (!object)
        fail_msg("%s: %s", f->dir, err->text);
    node_add(b, all, object);
}

/* Everything that the job has, of each role the last pod. */
static void run_objects(struct fixture *f)
{
    static const struct object_config cfg = {.runtime_image = "runtime:1",
                                             .cluster_domain = ""};
    static const enum kube_kind kinds[] = {KUBE_SECRET, KUBE_SERVICE, KUBE_CONFIGMAP,
                                           KUBE_VOLCANO_GROUP, KUBE_SCHEDULER_GROUP};
    struct build b = {.arena = &f->arena};
    struct secrets secrets = {.ssh_private = "", .ssh_public = ""};
    struct action x = {.verb = VERB_CREATE};
    struct err err = ERR_INIT;
    struct strbuf out;
    const struct hvd_job *job;
    struct node *all = node_array(&b);

    load_job(f);
    job = (const struct hvd_job *)(const void *)f->job;
    assert_string_equal(strbuf_str(&f->problems), "");
    memset(secrets.token, 0xab, sizeof(secrets.token));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        x.kind = kinds[i];
        if (object_is_wanted(job, &cfg, x.kind))
            add(f, &b, all,
                front_horovodjob.build(&b, f->job, &cfg, &x, &secrets, &err), &err);
    }
    x.kind = KUBE_POD;
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (job->role[r].n == 0)
            continue;
        x.role = (enum role)r;
        x.index = job->role[r].n - 1;
        add(f, &b, all, front_horovodjob.build(&b, f->job, &cfg, &x, &secrets, &err),
            &err);
    }
    assert_int_equal(b.status, 0);
    strbuf_init(&out, 1u << 20);
    json_write_pretty(all, &out);
    compare(f, "objects.json", &out);
    strbuf_release(&out);
}

static void each_case(const char *root, void (*run)(struct fixture *))
{
    struct dirent **entry;
    int n = scandir(root, &entry, NULL, alphasort), n_run = 0;

    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        struct fixture f = {0};

        if (entry[i]->d_name[0] != '.') {
            (void)snprintf(f.dir, sizeof(f.dir), "%s/%.200s", root, entry[i]->d_name);
            arena_init(&f.arena, ARENA_BYTES);
            run(&f);
            strbuf_release(&f.problems);
            arena_release(&f.arena);
            n_run++;
        }
        free(entry[i]);
    }
    free(entry);
    assert_true(n_run > 0);
}

static void objects(void **state)
{
    (void)state;
    each_case("tests/golden/objects", run_objects);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(objects)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
