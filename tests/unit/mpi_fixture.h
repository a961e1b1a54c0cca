/* SPDX-License-Identifier: Apache-2.0 */
/* MPIJobs of tests: read from YAML, opened as the operator opens them; golden files. */
#ifndef TESTS_UNIT_MPI_FIXTURE_H
#define TESTS_UNIT_MPI_FIXTURE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/mpi_job.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define MPI_ARENA_BYTES (64u << 20)

struct mpi_fixture {
    struct arena arena;
    char dir[512];
    struct node *object;
    struct strbuf problems;
    struct mpi_job *job;
};

static inline void fixture_init(struct mpi_fixture *f)
{
    *f = (struct mpi_fixture){.dir = ""};
    arena_init(&f->arena, MPI_ARENA_BYTES);
    strbuf_init(&f->problems, 65536);
}

static inline void fixture_release(struct mpi_fixture *f)
{
    strbuf_release(&f->problems);
    arena_release(&f->arena);
}

/* The object as it is now. */
static inline void fixture_open(struct mpi_fixture *f)
{
    struct job_meta meta;
    struct err err = ERR_INIT;

    strbuf_clear(&f->problems);
    if (meta_decode(KUBE_MPIJOB, f->object, &meta, &err) < 0)
        fail_msg("%s: %s", f->dir, err.text);
    f->job = (struct mpi_job *)mpi_job_open(f->object, &meta, &f->arena, &f->problems);
    assert_non_null(f->job);
}

static inline void fixture_read(struct mpi_fixture *f, const char *yaml)
{
    struct err err = ERR_INIT;

    if (yaml_read(&f->arena, yaml, strlen(yaml), &f->object, &err) < 0)
        fail_msg("%s: %s\n%s", f->dir, err.text, yaml);
    fixture_open(f);
}

static inline char *fixture_text(const struct mpi_fixture *f, const char *name)
{
    char path[800];
    char *text = NULL;
    size_t n;

    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    return fd_read_file(path, 1u << 20, &text, &n, NULL) < 0 ? NULL : text;
}

static inline void fixture_load(struct mpi_fixture *f, const char *name)
{
    char *text = fixture_text(f, name);

    if (!text)
        fail_msg("%s/%s: cannot be read", f->dir, name);
    fixture_read(f, text);
    mem_free(text);
}

/* Compares with the file, or writes it when GOLDEN_UPDATE is set. */
static inline void
fixture_compare(const struct mpi_fixture *f, const char *name, const struct strbuf *got)
{
    char path[800];
    char *want;

    assert_int_equal(strbuf_status(got), 0);
    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    if (getenv("GOLDEN_UPDATE")) {
        assert_int_equal(fd_write_file(path, strbuf_str(got), got->n, 0644, NULL), 0);
        return;
    }
    want = fixture_text(f, name);
    if (!want)
        fail_msg("%s is missing: run with GOLDEN_UPDATE=1", path);
    if (strcmp(want, strbuf_str(got)) != 0)
        fail_msg("%s differs; got:\n%s\nwanted:\n%s", path, strbuf_str(got), want);
    mem_free(want);
}

/* Runs each folder below root. */
static inline void fixture_each(const char *root, void (*run)(struct mpi_fixture *))
{
    struct dirent **entry;
    int n = scandir(root, &entry, NULL, alphasort), n_run = 0;

    for (int i = 0; i < n; i++) {
        struct mpi_fixture f;

        if (entry[i]->d_name[0] != '.') {
            fixture_init(&f);
            (void)snprintf(f.dir, sizeof(f.dir), "%s/%.200s", root, entry[i]->d_name);
            run(&f);
            fixture_release(&f);
            n_run++;
        }
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    assert_true(n_run > 0);
}

#endif
