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
#define HOST_END     512 /* two names of 63 characters and a domain of 253 */
#define LINE_END     (HOST_END + 32)

/* What follows the pod's name in every host of a job. */
static void host_end(const struct mpi_job *job, const char *domain, char ret[HOST_END])
{
    (void)snprintf(ret, HOST_END, ".%s.%s.svc%s%s", job->meta.name, job->meta.ns,
                   *domain ? "." : "", domain);
}

/* What follows the pod's name in every line of the hostfile. */
static void line_end(const struct mpi_job *job, const char *domain, char ret[LINE_END])
{
    char host[HOST_END];

    host_end(job, domain, host);
    (void)snprintf(ret, LINE_END,
                   job->implementation == MPI_OPENMPI ? "%s slots=%u\n" : "%s:%u\n",
                   host, job->slots);
}

void mpi_hostfile(struct strbuf *out, const struct mpi_job *job, const char *domain)
{
    char name[MPI_NAME_SIZE], end[LINE_END];

    line_end(job, domain, end);
    if (job->launcher_is_worker) {
        mpi_object_name(job, "launcher", name);
        strbuf_puts(out, name);
        strbuf_puts(out, end);
    }
    for (uint32_t i = 0; i < job->worker.n; i++) {
        mpi_worker_name(job, i, name);
        strbuf_puts(out, name);
        strbuf_puts(out, end);
    }
}

void mpi_config_digest(const struct mpi_job *job,
                       const char *domain,
                       const char *const *names,
                       size_t n,
                       uint8_t ret[SHA256_BYTES])
{
    char end[LINE_END], count[32];
    struct sha256 sum;

    line_end(job, domain, end);
    (void)snprintf(count, sizeof(count), "%u %u", job->worker.n,
                   job->launcher_is_worker);
    sha256_init(&sum);
    sha256_add(&sum, end, strlen(end) + 1);
    sha256_add(&sum, count, strlen(count) + 1);
    for (size_t i = 0; i < n; i++)
        sha256_add(&sum, names[i], strlen(names[i]) + 1);
    sha256_end(&sum, ret);
}

/* Bytes of both files when all workers run: each host is in both. */
static size_t config_size(const struct mpi_job *job, const char *domain)
{
    char name[MPI_NAME_SIZE], host[HOST_END], line[LINE_END];
    size_t n = strlen(SCRIPT_START), each, ends;

    host_end(job, domain, host);
    line_end(job, domain, line);
    ends = strlen(line) + strlen(ECHO) + strlen(host) + strlen("\n");
    if (job->launcher_is_worker) {
        mpi_object_name(job, "launcher", name);
        n += 2 * strlen(name) + ends;
    }
    /* all names with the same number of digits have the same length */
    for (uint32_t from = 0, to = 10; from < job->worker.n; from = to, to *= 10) {
        mpi_worker_name(job, from, name);
        each = 2 * strlen(name) + ends;
        n += each * ((to < job->worker.n ? to : job->worker.n) - from);
    }
    return n;
}

const char *mpi_config_flaw(const struct mpi_job *job,
                            const char *domain,
                            struct arena *a,
                            int *ret_status)
{
    size_t n = config_size(job, domain);
    const char *flaw;

    if (n <= MPI_CONFIG_MAX)
        return NULL;
    flaw = arena_printf(a,
                        "Found validation errors: "
                        "spec.mpiReplicaSpecs.Worker.replicas: hostfile and "
                        "discover_hosts.sh of %u workers take %zu bytes, and a "
                        "ConfigMap holds %u: use fewer workers with more slots, "
                        "or a shorter metadata.name",
                        job->worker.n, n, MPI_CONFIG_MAX);
    if (!flaw)
        *ret_status = -ENOMEM;
    return flaw;
}

static int pod_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_echo(struct strbuf *out, const char *pod, const char *end)
{
    strbuf_puts(out, ECHO);
    strbuf_puts(out, pod);
    strbuf_puts(out, end);
    strbuf_putc(out, '\n');
}

void mpi_discover_hosts(struct strbuf *out,
                        const struct mpi_job *job,
                        const char *domain,
                        const char **names,
                        size_t n)
{
    char launcher[MPI_NAME_SIZE], end[HOST_END];

    host_end(job, domain, end);
    strbuf_puts(out, SCRIPT_START);
    if (job->launcher_is_worker) {
        mpi_object_name(job, "launcher", launcher);
        put_echo(out, launcher, end);
    }
    if (n > 1)
        qsort(names, n, sizeof(*names), pod_compare_names);
    for (size_t i = 0; i < n; i++)
        put_echo(out, names[i], end);
}
