/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the place of this process:
 *
 *   environment -> settings
 *               -> discover: the nearest launcher, or an error
 *   HVD_ELASTIC -> membership: the place in the next world, and where that meets
 *   a launcher with a channel -> bootstrap: the rest of the place, rank 0's address, a
 *               random token; kept for later worlds of the process
 *   a channel that cannot be used -> what the environment has, with the weak token, if
 *               that is enough (one host, Slurm)
 *   the token from its source
 *
 * Called by world.c. */
#include "runtime/world/find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/addr.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/contract/discover.h"
#include "runtime/world/claim.h"
#include "runtime/world/membership.h"

static const char *env_get(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

int find_listen(uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *err)
{
    int rc = tcp_listen("::", port, ret_fd, ret_port, err);

    if (rc < 0)
        (void)err_prefix(err, "rank 0 serves the rendezvous"); /* rc is returned */
    return rc;
}

/* --- by the launcher's channel --- */

/* Sets what rank 0 announces. A rank that does not know its rank may be rank 0. */
static int channel_offer_addr(const struct contract *c,
                              struct kept_state *m,
                              uint16_t *ret_port,
                              char *ret_addrs,
                              size_t size,
                              struct err *err)
{
    int rc;

    if (c->known != KNOWN_NOTHING && c->place.rank != 0)
        return 0;
    rc = addr_list(c->iface, ret_addrs, size, err);
    if (rc == 0)
        rc = find_listen(0, &m->listen_fd, ret_port, err);
    if (rc == 0)
        m->has_listener = true;
    return rc;
}

static void kept_drop_listener(struct kept_state *m)
{
    if (m->has_listener)
        fd_close(&m->listen_fd);
    m->has_listener = false;
}

/* -ENOENT: the channel cannot be used; continue with the environment. */
static int channel_exchange(struct world *w, struct kept_state *m, struct err *err)
{
    struct contract *c = &w->contract;
    char addrs[HOST_NAME_MAX_BYTES] = "";
    uint16_t port = 0;
    int rc = channel_offer_addr(c, m, &port, addrs, sizeof(addrs), err);

    if (rc == 0)
        rc = bootstrap_meet(c, port, addrs, w->start_deadline_ns, &m->boot, &m->token,
                            err);
    if (rc < 0 || c->place.rank != 0 || c->place.size == 1)
        kept_drop_listener(m);
    if (rc < 0)
        return rc;
    m->has_token = true;
    m->has_found = true;
    m->found = *c;
    log_info("ranks meet through their launcher",
             "channel=%s rank=%u size=%u at=%s port=%u",
             launcher_channel_name(c->channel), c->place.rank, c->place.size,
             c->rdv_host, c->rdv_port);
    return 0;
}

static int channel_get_address(struct world *w, struct kept_state *m, struct err *err)
{
    struct contract *c = &w->contract;
    int rc;

    if (c->channel == CHANNEL_NONE || (c->known == KNOWN_ALL && c->place.size == 1))
        return 0;
    if (m->has_found) {
        *c = m->found;
        return 0;
    }
    if (m->has_tried)
        return err_set(err, -EINVAL,
                       "the ranks of %s can connect only once, and the last hvd.init() "
                       "of this rank failed: restart the job",
                       launcher_name(c->launcher));
    rc = channel_exchange(w, m, err);
    m->has_tried = rc != -ENOENT;
    if (m->has_tried)
        return rc;
    if (!c->rdv_host[0])
        return err_prefix(err, "ranks of %s require its %s on this host",
                          launcher_name(c->launcher),
                          launcher_channel_name(c->channel));
    if (c->place.rank == 0)
        log_warn(
            "the launcher's channel cannot be used, ranks use their environment only",
            "channel=%s cause=\"%s\"", launcher_channel_name(c->channel), err->text);
    c->channel = CHANNEL_NONE;
    return 0;
}

/* --- token --- */

static const char *launcher_safer_command(enum launcher l)
{
    switch (l) {
    case LAUNCHER_SLURM:
        return "srun --hvd or srun --mpi=pmix";
    case LAUNCHER_OPENMPI:
        return "libpmix.so.2 where ranks run";
    case LAUNCHER_NONE:
    case LAUNCHER_RINGMASTER:
    case LAUNCHER_TORCHRUN:
    case LAUNCHER_MPIEXEC:
        break;
    }
    return "horovodrun";
}

static void token_warn_weak(const struct contract *c, struct kept_state *m)
{
    if (c->token_source != TOKEN_WEAK || c->place.rank != 0 || m->has_warned)
        return;
    m->has_warned = true;
    log_warn(
        "the launcher gives no secret: anyone on this network who guesses the job's "
        "parameters could join it, change its data, and run code on all ranks by what "
        "broadcast_object and allgather_object unpickle",
        "launcher=%s stronger=\"%s\"", launcher_name(c->launcher),
        launcher_safer_command(c->launcher));
}

static void find_warn_alone(const struct contract *c, struct kept_state *m)
{
    uint32_t n_tasks = contract_missed_tasks(c, env_get, NULL);

    if (n_tasks == 0 || m->has_warned)
        return;
    m->has_warned = true;
    log_warn("the Slurm job has several tasks, but this process is not one of them "
             "and runs alone: start it with srun --hvd",
             "tasks=%u", n_tasks);
}

static int token_find(struct world *w, struct kept_state *m, struct err *err)
{
    const struct contract *c = &w->contract;

    if (c->place.size == 1)
        return 0;
    token_warn_weak(c, m);
    if (c->token_source == TOKEN_FD && !m->has_token) {
        int rc = token_from_contract(c, &m->token, err);
        if (rc < 0)
            return rc;
        m->has_token = true;
    }
    if (c->token_source != TOKEN_FD && c->token_source != TOKEN_CHANNEL)
        return token_from_contract(c, &w->token, err);
    w->token = m->token;
    return 0;
}

/* --- all of it --- */

static void log_set_rank(const struct contract *c)
{
    char tag[32];

    (void)snprintf(tag, sizeof(tag), "rank %u", c->place.rank); /* fits */
    log_set_tag("ringmaster", tag);
}

/* The time of an elastic job begins when it has a world for this process. */
static void find_start_clock(struct world *w, const struct world_config *config)
{
    uint64_t ns = config->start_timeout_ns;

    w->start_deadline_ns =
        clock_now_ns() + (ns > 0 ? ns : w->settings.start_timeout_ns);
}

/* --- an elastic job --- */

static int find_check_elastic(const struct contract *c,
                              const struct world_config *config,
                              struct err *err)
{
    if (c->launcher != LAUNCHER_RINGMASTER)
        return err_set(err, -EINVAL,
                       "%s has started this process inside an elastic job: its ranks "
                       "cannot be replaced; start the program itself with horovodrun",
                       launcher_name(c->launcher));
    if (config->ranks->n > 0)
        return err_set(
            err, -EINVAL,
            "hvd.init() was given %d ranks, but in an elastic job the launcher "
            "chooses those of each world: call it without them",
            config->ranks->n);
    return 0;
}

static int find_elastic(struct world *w,
                        struct kept_state *m,
                        const struct world_config *config,
                        const char *address,
                        struct err *err)
{
    struct contract *c = &w->contract;
    int rc = find_check_elastic(c, config, err);

    if (rc == 0 && !m->membership)
        rc = membership_open(address, c->job_id, &m->membership, err);
    if (rc < 0)
        return rc;
    w->membership = m->membership;
    log_info("waiting for a world of the elastic job", "last=%u",
             membership_generation(m->membership));
    rc = membership_join(m->membership, c, err);
    if (rc < 0)
        return rc;
    find_start_clock(w, config);
    log_set_rank(c);
    log_info("the launcher has a world for this process",
             "generation=%u rank=%u size=%u at=%s port=%u", c->generation,
             c->place.rank, c->place.size, c->rdv_host, c->rdv_port);
    return 0;
}

/* The place that the environment has, or the launcher's channel. */
static int find_fixed(struct world *w, struct kept_state *m, struct err *err)
{
    int rc;

    log_set_rank(&w->contract);
    find_warn_alone(&w->contract, m);
    rc = claim_rank(&w->contract, &m->claim_fd, err);
    rc = rc < 0 ? rc : channel_get_address(w, m, err);
    log_set_rank(&w->contract);
    return rc;
}

int world_find_place(struct world *w,
                     struct kept_state *m,
                     const struct world_config *config,
                     struct err *err)
{
    const struct contract *c = &w->contract;
    const char *elastic = getenv("HVD_ELASTIC");
    char why[512] = "";
    int rc = settings_read(env_get, NULL, &w->settings, err);

    if (rc < 0)
        return rc;
    log_set_level(w->settings.log_level);
    log_set_time(w->settings.has_log_time);
    find_start_clock(w, config);
    rc = contract_discover(env_get, NULL, &w->contract, why, sizeof(why), err);
    if (rc < 0)
        return rc;
    log_info("found this process' place", "%s", why);
    rc = elastic && *elastic ? find_elastic(w, m, config, elastic, err)
                             : find_fixed(w, m, err);
    if (rc < 0)
        return rc;
    rc = settings_set_core(&w->settings, c->place.local_rank, c->place.local_size, err);
    if (rc < 0)
        return rc;
    if (c->place.rank == 0 && !m->has_logged_unused)
        settings_log_unused(env_get, NULL, environ);
    m->has_logged_unused = true;
    if (!c->hostname[0]) /* foreign launchers do not set it */
        (void)gethostname(w->contract.hostname, sizeof(w->contract.hostname) - 1);
    w->settings.generation = c->generation;
    w->settings.job_rank = c->place.rank;
    w->settings.local_rank = c->place.local_rank;
    w->settings.job_size = c->place.size;
    memcpy(w->settings.host, c->hostname, sizeof(w->settings.host));
    return token_find(w, m, err);
}
