/* SPDX-License-Identifier: Apache-2.0 */
/* hostfile and discover_hosts.sh.
 *
 *   HOST = <pod>.<job>.<namespace>.svc[.<domain>]
 *   hostfile            OpenMPI: HOST slots=<s>    Intel, MPICH: HOST:<s>
 *   discover_hosts.sh   #!/bin/sh, then: echo HOST
 *
 * The script lists running pods sorted as text, so worker-10 precedes worker-2, and has
 * no slots: programs that read either file depend on it. Pure. */
#include "operator/core/mpi/mpi_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_START "#!/bin/sh\n"
#define ECHO         "echo "
#define END_SIZE     32u
#define MAX_HOSTS    (8u << 20)
/* Two lines for each worker, of three names of 63 characters and a domain of 253. */
#define ALWAYS_FIT   1024u

static void put_host(struct strbuf *out,
                     const struct mpi_job *job,
                     const char *domain,
                     const char *pod)
{
    strbuf_printf(out, "%s.%s.%s.svc%s%s", pod, job->meta.name, job->meta.ns,
                  *domain ? "." : "", domain);
}

/* Of a line in the hostfile, with its newline. */
static void line_end(const struct mpi_job *job, char ret[END_SIZE])
{
    switch (job->implementation) {
    case MPI_OPENMPI:
        (void)snprintf(ret, END_SIZE, " slots=%u\n", job->slots);
        return;
    case MPI_INTEL:
    case MPI_MPICH:
        (void)snprintf(ret, END_SIZE, ":%u\n", job->slots);
        return;
    }
}

static void put_line(struct strbuf *out,
                     const struct mpi_job *job,
                     const char *domain,
                     const char *pod)
{
    char end[END_SIZE];

    put_host(out, job, domain, pod);
    line_end(job, end);
    strbuf_puts(out, end);
}

void mpi_hostfile(struct strbuf *out, const struct mpi_job *job, const char *domain)
{
    char name[MPI_NAME_SIZE];

    if (job->launcher_is_worker) {
        mpi_object_name(job, "launcher", name);
        put_line(out, job, domain, name);
    }
    for (uint32_t i = 0; i < job->worker.n; i++) {
        mpi_worker_name(job, i, name);
        put_line(out, job, domain, name);
    }
}

/* Bytes of both files when all workers run: each host is in both. */
static size_t size_of(const struct mpi_job *job, size_t hostfile_n)
{
    size_t n_lines = job->worker.n + job->launcher_is_worker;
    char end[END_SIZE];

    line_end(job, end);
    return strlen(SCRIPT_START) + 2 * hostfile_n
           + n_lines * (strlen(ECHO "\n") - strlen(end));
}

const char *mpi_config_flaw(const struct mpi_job *job,
                            const char *domain,
                            struct arena *a,
                            int *ret_status)
{
    const char *flaw = NULL;
    struct strbuf hosts;
    size_t n;

    if (job->worker.n <= ALWAYS_FIT)
        return NULL;
    strbuf_init(&hosts, MAX_HOSTS);
    mpi_hostfile(&hosts, job, domain);
    n = size_of(job, hosts.n);
    if (strbuf_status(&hosts)) {
        *ret_status = -ENOMEM;
    } else if (n > MPI_CONFIG_MAX) {
        flaw = arena_printf(a,
                            "Found validation errors: "
                            "spec.mpiReplicaSpecs.Worker.replicas: hostfile and "
                            "discover_hosts.sh of %u workers take %zu bytes, and a "
                            "ConfigMap holds %u: use fewer workers with more slots, "
                            "or a shorter metadata.name",
                            job->worker.n, n, MPI_CONFIG_MAX);
        if (!flaw)
            *ret_status = -ENOMEM;
    }
    strbuf_release(&hosts);
    return flaw;
}

static int pod_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_echo(struct strbuf *out,
                     const struct mpi_job *job,
                     const char *domain,
                     const char *pod)
{
    strbuf_puts(out, ECHO);
    put_host(out, job, domain, pod);
    strbuf_putc(out, '\n');
}

void mpi_discover_hosts(struct strbuf *out,
                        const struct mpi_job *job,
                        const char *domain,
                        const char **names,
                        size_t n)
{
    char launcher[MPI_NAME_SIZE];

    strbuf_puts(out, SCRIPT_START);
    if (job->launcher_is_worker) {
        mpi_object_name(job, "launcher", launcher);
        put_echo(out, job, domain, launcher);
    }
    if (n > 1)
        qsort(names, n, sizeof(*names), pod_compare_names);
    for (size_t i = 0; i < n; i++)
        put_echo(out, job, domain, names[i]);
}
