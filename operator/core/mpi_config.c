/* SPDX-License-Identifier: Apache-2.0 */
/* hostfile and discover_hosts.sh.
 *
 *   HOST = <pod>.<job>.<namespace>.svc[.<domain>]
 *   hostfile            OpenMPI: HOST slots=<s>    Intel, MPICH: HOST:<s>
 *   discover_hosts.sh   #!/bin/sh, then: echo HOST
 *
 * The script names running pods sorted as text, so worker-10 comes before worker-2, and
 * has no slots: programs that read either file rely on it. Pure. */
#include "operator/core/mpi_config.h"

#include <stdlib.h>
#include <string.h>

static void put_host(struct strbuf *out,
                     const struct mpi_job *job,
                     const char *domain,
                     const char *pod)
{
    strbuf_printf(out, "%s.%s.%s.svc%s%s", pod, job->meta.name, job->meta.ns,
                  *domain ? "." : "", domain);
}

static void put_line(struct strbuf *out,
                     const struct mpi_job *job,
                     const char *domain,
                     const char *pod)
{
    put_host(out, job, domain, pod);
    switch (job->implementation) {
    case MPI_OPENMPI:
        strbuf_printf(out, " slots=%u\n", job->slots);
        return;
    case MPI_INTEL:
    case MPI_MPICH:
        strbuf_printf(out, ":%u\n", job->slots);
        return;
    }
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

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_echo(struct strbuf *out,
                     const struct mpi_job *job,
                     const char *domain,
                     const char *pod)
{
    strbuf_puts(out, "echo ");
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

    strbuf_puts(out, "#!/bin/sh\n");
    if (job->launcher_is_worker) {
        mpi_object_name(job, "launcher", launcher);
        put_echo(out, job, domain, launcher);
    }
    if (n > 1)
        qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++)
        put_echo(out, job, domain, names[i]);
}
