/* SPDX-License-Identifier: Apache-2.0 */
/* MPIJobs of tests: read from YAML, opened as the operator opens them. */
#ifndef TESTS_UNIT_MPI_FIXTURE_H
#define TESTS_UNIT_MPI_FIXTURE_H

#include <string.h>

#include "operator/core/mpi/mpi_job.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"

#define MPI_ARENA_BYTES (64u << 20)

struct mpi_fixture {
    struct arena arena;
    struct node *object;
    struct strbuf problems;
    struct mpi_job *job;
};

static inline void fixture_init(struct mpi_fixture *f)
{
    *f = (struct mpi_fixture){.object = NULL};
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
        fail_msg("%s", err.text);
    f->job = (struct mpi_job *)mpi_job_open(f->object, &meta, &f->arena, &f->problems);
    assert_non_null(f->job);
}

static inline void fixture_read(struct mpi_fixture *f, const char *yaml)
{
    struct err err = ERR_INIT;

    if (yaml_read(&f->arena, yaml, strlen(yaml), &f->object, &err) < 0)
        fail_msg("%s\n%s", err.text, yaml);
    fixture_open(f);
}

static inline void fixture_start(struct mpi_fixture *f, const char *yaml)
{
    fixture_init(f);
    fixture_read(f, yaml);
}

#endif
