/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of torchrun, Open MPI, Slurm and mpiexec: numbers by name,
 * detection of PMIx and PMI, and the rendezvous address. None of these launchers gives
 * its processes a secret or a port for the runtime. If the launcher has a channel
 * (PMIx, PMI), rank 0 publishes both there. Otherwise both are derived from values that
 * the launcher sets equally for every rank: rank 0 listens on a port that is a hash of
 * the job, and the token separates jobs but does not stop attackers (TOKEN_WEAK). */
#include "runtime/contract/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define PORT_FIRST 20000u
#define PORT_COUNT 10000u /* below what kernels give to outgoing connections */

int foreign_need(const struct env_reader *r,
                 const char *name,
                 uint32_t min,
                 uint32_t max,
                 uint32_t *ret)
{
    return env_need_u32(r, name, min, max, ret,
                        "although its launcher sets it for every process");
}

bool foreign_has_pmix(const struct env_reader *r)
{
    static const char *const servers[] = {"PMIX_SERVER_URI51", "PMIX_SERVER_URI5",
                                          "PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
                                          "PMIX_SERVER_URI3",  "PMIX_SERVER_URI21",
                                          "PMIX_SERVER_URI2",  "PMIX_SERVER_URI"};

    const char *ess = env_look(r, "OMPI_MCA_ess");
    const char *name = env_look(r, "PMIX_NAMESPACE");

    if (!name || !env_look(r, "PMIX_RANK") || strncmp(name, "singleton.", 10) == 0
        || (ess && strcmp(ess, "singleton") == 0))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(servers); i++)
        if (env_look(r, servers[i]))
            return true;
    return false;
}

int foreign_check_pmix(const struct env_reader *r, const char *name, uint32_t rank)
{
    uint32_t v = rank;
    int rc = env_u32(r, "PMIX_RANK", 0, UINT32_MAX, &v);

    if (rc || v == rank)
        return rc;
    return err_set(r->err, -EINVAL, "PMIX_RANK=%u, but %s=%u", v, name, rank);
}

bool foreign_is_slurms_pmix(const struct env_reader *r)
{
    const char *name = env_look(r, "PMIX_NAMESPACE");

    return name && strncmp(name, "slurm.pmix.", 11) == 0;
}

int foreign_set_rendezvous(const struct env_reader *r,
                           struct contract *c,
                           const char *host,
                           const char *job,
                           const char *secret,
                           uint32_t not_port)
{
    uint8_t h[SHA256_BYTES];

    if (c->place.size == 1)
        return 0;
    if (strlen(host) >= sizeof(c->rdv_host) || strlen(job) >= sizeof(c->job_id)
        || strlen(job) + strlen(secret) + 1 >= sizeof(c->weak_seed))
        return err_set(r->err, -EINVAL,
                       "rank 0's host \"%.80s\" or the job \"%.80s\" is too long", host,
                       job);
    for (const char *p = job; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(r->err, -EINVAL, "the job \"%.80s\" has a control character",
                           job);
    /* All lengths are measured above. */
    (void)snprintf(c->rdv_host, sizeof(c->rdv_host), "%s", host);
    (void)snprintf(c->job_id, sizeof(c->job_id), "%s", job);
    (void)snprintf(c->weak_seed, sizeof(c->weak_seed), "%s/%s", job, secret);
    sha256_digest(job, strlen(job), h);
    uint32_t v =
        (uint32_t)h[0] << 24 | (uint32_t)h[1] << 16 | (uint32_t)h[2] << 8 | h[3];
    uint32_t port = PORT_FIRST + v % PORT_COUNT;
    if (port == not_port)
        port = PORT_FIRST + (port - PORT_FIRST + 1) % PORT_COUNT;
    c->rdv_port = (uint16_t)port;
    c->rank0_serves = true;
    c->token_source = TOKEN_WEAK;
    return 0;
}
