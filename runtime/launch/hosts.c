/* SPDX-License-Identifier: Apache-2.0 */
/* Options -> host list -> places. The list keeps the user's order and slots; the first
 * np slots are used. Two names of this host are two hosts for the ranks ("-H
 * localhost:2,127.0.0.1:2" simulates two hosts). Names are not resolved here, which
 * would be a DNS query for every host of a large list. Called by horovodrun.c, await.c
 * and errand_make.c. */
#include "runtime/launch/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define HOSTFILE_MAX_BYTES (16u << 20)

static bool host_is_own_name(const char *name)
{
    char own[HOST_NAME_MAX_BYTES] = "";
    (void)gethostname(own, sizeof(own) - 1);
    size_t n = strcspn(name, "."), n_own = strcspn(own, ".");
    if (!strcmp(name, own))
        return *own != '\0';
    return n && n == n_own && !strncmp(name, own, n) && (!name[n] || !own[n_own]);
}

static bool host_is_own_address(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    struct ifaddrs *all = NULL;
    bool is_own = false;
    int family = inet_pton(AF_INET, name, &v4) == 1    ? AF_INET
                 : inet_pton(AF_INET6, name, &v6) == 1 ? AF_INET6
                                                       : AF_UNSPEC;
    if (family == AF_INET && ntohl(v4.s_addr) >> 24 == 127)
        return true;
    if (family == AF_UNSPEC || getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *i = all; i && !is_own; i = i->ifa_next) {
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        if (!i->ifa_addr || i->ifa_addr->sa_family != family)
            continue;
        memcpy(&in, i->ifa_addr, sizeof(in));
        if (family == AF_INET) {
            is_own = in.sin_addr.s_addr == v4.s_addr;
            continue;
        }
        memcpy(&in6, i->ifa_addr, sizeof(in6));
        is_own = !memcmp(&in6.sin6_addr, &v6, sizeof(v6));
    }
    freeifaddrs(all);
    return is_own;
}

bool host_is_local(const char *name)
{
    return !strcmp(name, "localhost") || !strcmp(name, "ip6-localhost")
           || host_is_own_name(name) || host_is_own_address(name);
}

int hostfile_read(const char *path, struct hostlist *ret, struct err *err)
{
    AUTOFREE char *text = NULL;
    int rc = fd_read_file(path, HOSTFILE_MAX_BYTES, &text, NULL, err);
    if (rc < 0)
        return rc;
    rc = hostlist_parse_hostfile(text, ret, err);
    if (rc == 0 && !ret->n)
        rc = err_set(err, -EINVAL, "it contains no host");
    return rc < 0 ? (err_prefix(err, "%s", path), rc) : 0;
}

/* The nodes of the Slurm job in which this program runs: their tasks, or
 * --slots-per-host. */
static int run_hosts_read_slurm(const struct launch_options *o,
                                struct hostlist *ret,
                                struct err *err)
{
    const char *nodes = getenv("SLURM_JOB_NODELIST");
    const char *tasks = getenv("SLURM_TASKS_PER_NODE");
    const uint32_t slots = options_u32(o, OPT_SLOTS_PER_HOST, 0);
    AUTOFREE uint32_t *counts = NULL;
    size_t n = 0;
    int rc;
    if (!nodes || !*nodes || !getenv("SLURM_JOB_ID"))
        return err_set(
            err, -EINVAL,
            "--slurm: SLURM_JOB_ID or SLURM_JOB_NODELIST is not set: this is not "
            "in a Slurm job (salloc, sbatch)");
    rc = hostlist_parse_slurm(nodes, ret, err);
    if (rc == 0 && !slots && tasks)
        rc = slurm_counts_parse(tasks, ret->n, &counts, &n, err);
    if (rc < 0)
        return err_prefix(err, "--slurm"), rc;
    for (size_t i = 0; i < ret->n; i++)
        ret->v[i].slots = slots ? slots : i < n && counts[i] ? counts[i] : 1;
    return 0;
}

int run_hosts_read_list(const struct launch_options *o,
                        run_hosts_discover_fn discover,
                        void *arg,
                        struct hostlist *ret,
                        struct err *err)
{
    int rc;
    if (o->text[OPT_HOSTS]) {
        rc = hostlist_parse_hosts(o->text[OPT_HOSTS], ret, err);
        return rc < 0 ? (err_prefix(err, "-H"), rc) : 0;
    }
    if (o->text[OPT_HOSTFILE])
        return hostfile_read(o->text[OPT_HOSTFILE], ret, err);
    if (o->text[OPT_SLURM])
        return run_hosts_read_slurm(o, ret, err);
    if (o->text[OPT_HOST_DISCOVERY_SCRIPT])
        return discover(arg, o->text[OPT_HOST_DISCOVERY_SCRIPT], ret, err);
    if (!o->text[OPT_NP])
        return err_set(err, -EINVAL,
                       "-np is missing: how many processes? (see --help)");
    return hostlist_append(ret, "localhost", options_u32(o, OPT_NP, 1), err);
}

/* Fills the hosts from the places. */
static int run_hosts_fill(struct run_hosts *h, struct err *err)
{
    h->v = mem_calloc(h->list.n, sizeof(*h->v));
    if (!h->v)
        return err_set(err, -ENOMEM, "out of memory for %zu hosts", h->list.n);
    for (uint32_t r = 0; r < h->np; r++) {
        struct run_host *host = &h->v[h->places[r].host];
        if (!host->n_ranks++)
            host->first_rank = r;
        h->n = h->places[r].host + 1;
    }
    for (size_t i = 0; i < h->list.n; i++)
        h->v[i].name = h->list.v[i].name;
    for (size_t i = 0; i < h->n; i++) {
        h->v[i].is_local = host_is_local(h->v[i].name);
        if (h->v[i].n_ranks > HOST_MAX_RANKS)
            return err_set(err, -EINVAL, "host %s: %u ranks exceed %d on one host",
                           h->v[i].name, h->v[i].n_ranks, HOST_MAX_RANKS);
    }
    return 0;
}

int run_hosts_read(const struct launch_options *o,
                   run_hosts_discover_fn discover,
                   void *arg,
                   struct run_hosts *ret,
                   struct err *err)
{
    memset(ret, 0, sizeof(*ret));
    int rc = run_hosts_read_list(o, discover, arg, &ret->list, err);
    if (rc < 0)
        return rc;
    if (!ret->list.n) /* -H and hostfiles have at least one */
        return err_set(err, -EINVAL, "--host-discovery-script: %s printed no host",
                       o->text[OPT_HOST_DISCOVERY_SCRIPT]);
    uint64_t slots = hostlist_slots(&ret->list);
    uint32_t np = options_u32(o, OPT_NP, 0);
    if (np > slots)
        return err_set(err, -EINVAL, "-np %u exceeds the %llu slots of the host list",
                       np, (unsigned long long)slots);
    if (!np && slots > WORLD_MAX_RANKS)
        return err_set(err, -EINVAL, "%llu slots exceed %d ranks",
                       (unsigned long long)slots, WORLD_MAX_RANKS);
    ret->np = np ? np : (uint32_t)slots;
    ret->places = mem_calloc(ret->np ? ret->np : 1, sizeof(*ret->places));
    if (!ret->places)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", ret->np);
    rc = places_assign(&ret->list, ret->np, ret->places, err);
    return rc < 0 ? rc : run_hosts_fill(ret, err);
}

void run_hosts_release(struct run_hosts *h)
{
    hostlist_release(&h->list);
    mem_free(h->places);
    mem_free(h->v);
    memset(h, 0, sizeof(*h));
}

bool run_hosts_all_local(const struct run_hosts *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (!h->v[i].is_local)
            return false;
    return true;
}

bool run_hosts_any_local(const struct run_hosts *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->v[i].is_local)
            return true;
    return false;
}
