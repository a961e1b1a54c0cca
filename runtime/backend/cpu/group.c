/* SPDX-License-Identifier: Apache-2.0 */
/* From all ranks' blobs to hosts: all ranks agree on which of them share memory.
 *
 *   1. candidates: ranks whose blobs have the same host key; the lowest of them leads
 *   2. the leader creates a segment and passes it to the other candidates (shm_join.c),
 *      within JOIN_NS and half of the remaining start timeout
 *   3. one exchange: every rank sends its result, the leader its followers, a follower
 *      its leader. A rank belongs to its leader's host if both list each other;
 *      otherwise it is a host of its own, uses TCP and logs that. All ranks compute the
 *      same outcome from the same blobs.
 *   4. the leaders connect the TCP mesh (net_join.c)
 *
 * Called by cpu.c. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "runtime/backend/cpu/cpu.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define JOIN_NS  (10 * NS_PER_S)
#define MAX_SPIN 64 /* about 3 us: a peer on our own CPU needs us to yield */

static bool has_bit(const uint8_t *bits, uint32_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static void set_bit(uint8_t *bits, uint32_t i)
{
    bits[i / 8] |= (uint8_t)(1u << (i % 8));
}

/* Candidate leader of a rank: the lowest it may share memory with; itself if none. */
static uint32_t leader_of(const struct cpu *c, uint32_t rank)
{
    for (uint32_t s = 0; s < rank; s++)
        if (peer_may_share(&c->peers[s], &c->peers[rank]))
            return s;
    return rank;
}

static uint32_t group_candidates(const struct cpu *c,
                                 uint32_t leader,
                                 uint32_t *ret_members,
                                 uint32_t *ret_line)
{
    uint32_t n = 0;
    for (uint32_t r = leader; r < c->env.size; r++) {
        if (r != leader && !peer_may_share(&c->peers[leader], &c->peers[r]))
            continue;
        if (r == c->env.rank)
            *ret_line = n;
        ret_members[n++] = r;
    }
    return n;
}

/* Step 2. bits: the ranks that share our segment. A failure is no error: it means
 * TCP. */
static void try_segment(struct cpu *c,
                        const struct shm_join *j,
                        const uint32_t *members,
                        const struct waiter *w,
                        uint8_t *bits)
{
    struct err why = ERR_INIT;
    AUTOFREE bool *has = mem_calloc(j->n, sizeof(*has));
    struct shm_join k = *j;
    int rc;
    k.w = w;
    if (!has) {
        rc = err_set(&why, -ENOMEM, "no memory");
    } else if (j->line == 0) {
        rc = shm_join_lead(&k, c->unix_fd, &c->map, has, &why);
        for (uint32_t i = 0; rc == 0 && i < j->n; i++)
            if (has[i])
                set_bit(bits, members[i]);
    } else {
        rc = shm_join_follow(&k, c->peers[members[0]].sock, &c->map, &why);
        if (rc == 0)
            set_bit(bits, members[0]);
    }
    if (rc < 0)
        log_warn("no shared memory with this host's ranks, using TCP",
                 "rank=%u leader=%u cause=\"%s\"", j->rank, j->ranks[0], why.text);
}

/* Step 3: fills host_of with the leader's rank for now. */
static int
group_agree(struct cpu *c, const uint8_t *bits, uint32_t n_bits, struct err *err)
{
    AUTOFREE uint8_t **all = NULL;
    uint32_t *sizes;
    int rc = c->env.exchange(c->env.arg, bits, n_bits, &all, &sizes, err);
    if (rc < 0)
        return rc;
    for (uint32_t r = 0; r < c->env.size; r++)
        if (sizes[r] != n_bits)
            return err_set(err, -EPROTO,
                           "rank %u: %u bytes about its neighbours, expected %u",
                           cpu_global(c, r), sizes[r], n_bits);
    for (uint32_t r = 0; r < c->env.size; r++) {
        uint32_t l = leader_of(c, r);
        bool is_ok = l == r || (has_bit(all[l], r) && has_bit(all[r], l));
        c->host_of[r] = is_ok ? l : r;
        /* otherwise it is already logged */
        if (!is_ok && r == c->env.rank && has_bit(bits, l))
            log_warn("this host's leader has excluded this rank, using TCP",
                     "rank=%u leader=%u host=%s", cpu_global(c, r), cpu_global(c, l),
                     c->peers[r].host);
    }
    return 0;
}

/* Numbers the hosts by leader and lists the ranks host by host. */
static void number_hosts(struct cpu *c)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < c->env.size; l++) {
        if (c->host_of[l] != l)
            continue;
        c->host_start[c->n_hosts] = n;
        for (uint32_t r = l; r < c->env.size; r++)
            if (c->host_of[r] == l) {
                c->local_of[r] = n - c->host_start[c->n_hosts];
                c->order[n++] = r;
            }
        c->n_hosts++;
    }
    c->host_start[c->n_hosts] = n;
    for (uint32_t h = 0; h < c->n_hosts; h++)
        for (uint32_t i = c->host_start[h]; i < c->host_start[h + 1]; i++)
            c->host_of[c->order[i]] = h;
    c->host = c->host_of[c->env.rank];
    c->local = c->local_of[c->env.rank];
    c->n_local = c->host_start[c->host + 1] - c->host_start[c->host];
}

/* members: the candidates, in the order of the segment's lines. */
static int enter_segment(struct cpu *c, const uint32_t *members, struct err *err)
{
    const uint32_t *here = c->order + c->host_start[c->host];
    AUTOFREE uint32_t *lines = mem_calloc(c->n_local, sizeof(*lines));
    AUTOFREE uint32_t *ranks = mem_calloc(c->n_local, sizeof(*ranks));
    if (!lines || !ranks)
        return err_set(err, -ENOMEM, "no memory");
    for (uint32_t i = 0, k = 0; i < c->n_local; i++) {
        /* both ascend; members of this host are candidates */
        while (members[k] != here[i])
            k++;
        lines[i] = k;
        ranks[i] = cpu_global(c, here[i]);
    }
    int rc = shm_attach(&c->shm, c->map.mem, c->map.n_bytes, c->n_local, c->local,
                        lines, ranks, &c->w);
    if (rc < 0)
        return err_set(err, rc, "shared segment of %zu bytes is garbled",
                       c->map.n_bytes);
    return 0;
}

static int connect_leaders(struct cpu *c, const struct waiter *w, struct err *err)
{
    uint32_t last = cpu_global(c, c->env.size - 1);
    AUTOFREE uint32_t *leaders = mem_calloc(c->n_hosts, sizeof(*leaders));
    AUTOFREE struct peer *by_rank = mem_calloc((size_t)last + 1, sizeof(*by_rank));
    if (!leaders || !by_rank)
        return err_set(err, -ENOMEM, "no memory for the addresses of %u hosts",
                       c->n_hosts);
    for (uint32_t h = 0; h < c->n_hosts; h++) {
        uint32_t member = c->order[c->host_start[h]];
        leaders[h] = cpu_global(c, member);
        by_rank[leaders[h]] = c->peers[member];
    }
    struct net_join j = {.id = &c->env.id,
                         .w = w,
                         .check = c->env.data_check,
                         .deadline_ns = c->env.deadline_ns,
                         .peer_timeout_ns = c->env.peer_timeout_ns,
                         .n = c->n_hosts,
                         .me = c->host,
                         .ranks = leaders,
                         .by_rank = by_rank};
    int rc = net_connect(&c->net, &j, &c->tcp_fd, err);
    c->net.w = &c->w;
    return rc;
}

/* Spinning helps only where every rank of the machine has a CPU. */
static void count_cpus(struct cpu *c)
{
    cpu_set_t set;
    uint32_t n_here = 0;
    if (c->parent) {
        c->w.n_spins = c->parent->w.n_spins;
        c->w.n_cpus = c->parent->w.n_cpus;
        return;
    }
    for (uint32_t r = 0; r < c->env.size; r++)
        n_here += memcmp(c->peers[r].host_key, c->peers[c->env.rank].host_key,
                         sizeof(c->peers[r].host_key))
                  == 0;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return;
    c->w.n_cpus = (uint32_t)CPU_COUNT(&set);
    c->w.n_spins = n_here <= c->w.n_cpus ? MAX_SPIN : 0;
}

/* At most half of the remaining start timeout: TCP needs some, too. */
static uint64_t join_deadline(const struct cpu *c)
{
    uint64_t now = clock_now_ns();
    uint64_t left = c->env.deadline_ns > now ? (c->env.deadline_ns - now) / 2 : 0;
    return now + (left < JOIN_NS ? left : JOIN_NS);
}

int group_connect(struct cpu *c, struct err *err)
{
    uint32_t size = c->env.size, n_bits = (size + 7) / 8;
    struct waiter w = {.check = cpu_check_connecting, .arg = c};
    AUTOFREE uint32_t *members = mem_calloc(size, sizeof(*members));
    AUTOFREE uint32_t *ranks = mem_calloc(size, sizeof(*ranks));
    AUTOFREE uint8_t *bits = mem_zalloc(n_bits);
    if (!members || !ranks || !bits)
        return err_set(err, -ENOMEM, "no memory for %u ranks", size);
    struct shm_join j = {.id = &c->env.id,
                         .max_bytes = c->parent ? SHM_SET_BYTES : SHM_WORLD_BYTES,
                         .rank = cpu_global(c, c->env.rank),
                         .ranks = ranks};
    j.n = group_candidates(c, leader_of(c, c->env.rank), members, &j.line);
    for (uint32_t i = 0; i < j.n; i++)
        ranks[i] = cpu_global(c, members[i]);
    j.deadline_ns = join_deadline(c);
    if (j.n > 1 && j.n <= SHM_MAX_RANKS)
        try_segment(c, &j, members, &w, bits);
    int rc = size > 1 ? group_agree(c, bits, n_bits, err) : 0;
    if (rc < 0)
        return rc;
    number_hosts(c);
    count_cpus(c);
    if (c->n_local > 1)
        rc = enter_segment(c, members, err);
    else
        shm_map_release(&c->map);
    if (rc == 0 && c->n_hosts > 1 && c->local == 0)
        rc = connect_leaders(c, &w, err);
    return rc;
}
