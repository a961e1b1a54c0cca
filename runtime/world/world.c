/* SPDX-License-Identifier: Apache-2.0 */
/* How a world forms:
 *
 *   find.c: environment -> settings, contract (the nearest launcher) -> token
 *   rendezvous, round 1: host, pid, local size, address
 *   round 2: how each rank is reached for control, and the backend's own description
 *   control_join (tree), backend connect (more rounds if it asks for them), READY
 *
 * There are two rounds because an address that a rank can use itself (loopback, with
 * the rendezvous on the same host) may not be reachable from other hosts: round 1 shows
 * that, round 2 has the corrected one. A world of one rank contacts no rank and opens
 * no socket, unless it is part of a larger job for which it serves the rendezvous.
 * Called by runtime.c under its life lock. */
#include "runtime/world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/world/description.h"
#include "runtime/world/membership.h"
#include "runtime/world/find.h"
#include "runtime/base/addr.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/contract/waiting.h"
#include "runtime/wire/bytes.h"

/* A program with a backend of its own defines it (backend/README.md). */
extern const struct backend_ops *const hvd_backend_linked
    __attribute__((weak, visibility("hidden")));

struct forming { /* needed only while the world forms */
    struct world *w;
    const struct world_config *config;
    struct rdv_client *rdv;
    uint64_t deadline_ns;
};

/* In an elastic job the server of a world that is over has gone, and this rank may not
 * have found it yet: it asks whether the world is over this often. */
static const uint64_t REACH_SLICE_NS = 2 * NS_PER_S;
/* In an elastic job: worlds in a row that do not form. The launcher ends a job whose
 * processes end by one cause three times; this bound is for what ends no process, such as
 * a firewall between two hosts, and leaves room for hosts that are lost one by one. */
enum { FORM_TRIES = 5 };

/* scancel of a step sends SIGKILL to all ranks, and some see the end of others first. */
#define CLOSED_UNDER_SLURM ": it was killed, or Slurm has ended the step"

/* --- rendezvous --- */

static bool kept_is_at(const struct kept_state *m, const struct world *w)
{
    const struct contract *c = &w->contract;

    return m->port == c->rdv_port && strcmp(m->host, c->rdv_host) == 0
           && m->size == w->job.size && m->generation == c->generation;
}

/* Another rendezvous server than last time counts rounds from 0, and our own old server
 * is stopped. */
static void kept_choose_server(struct kept_state *m, const struct world *w)
{
    const struct contract *c = &w->contract;

    if (kept_is_at(m, w))
        return;
    part_forget_rounds(m);
    rdv_server_stop(m->server);
    m->server = NULL;
    m->port = c->rdv_port;
    m->size = w->job.size;
    m->generation = c->generation;
    m->n_rounds = 0;
    (void)snprintf(m->host, sizeof(m->host), "%s", c->rdv_host);
}

static int
world_serve_rendezvous(const struct world *w, struct kept_state *m, struct err *err)
{
    const struct contract *c = &w->contract;
    struct auth_id id = {&w->token, c->job_id, c->generation};
    uint16_t port;
    int fd = -1, rc;

    if (!c->rank0_serves || w->job.rank != 0 || m->server)
        return 0;
    if (m->has_listener) { /* the launcher's channel has already announced its port */
        fd = m->listen_fd;
        m->has_listener = false;
    } else {
        rc = find_listen(c->rdv_port, &fd, &port, err);
        if (rc < 0)
            return rc;
    }
    rc = rdv_server_start(fd, &id, w->job.size, rdv_log_waiting, &m->server, err);
    if (rc < 0)
        fd_close(&fd);
    return rc;
}

/* backend_env's exchange; arg is the world. */
static int world_exchange(void *arg,
                          const void *blob,
                          uint32_t n,
                          uint8_t ***ret_blobs,
                          uint32_t **ret_sizes,
                          struct err *err)
{
    const struct forming *f = ((struct world *)arg)->forming;
    uint8_t **blobs;
    uint32_t *sizes;

    if (!f)
        return err_set(err, -EINVAL, "exchange after the world has formed");
    if (f->rdv)
        return rdv_client_exchange(f->rdv, blob, n, f->deadline_ns, ret_blobs,
                                   ret_sizes, err);
    /* A world of one: the only blob is our own, in one allocation as above. */
    blobs = mem_alloc(sizeof(*blobs) + sizeof(*sizes) + n);
    if (!blobs)
        return err_set(err, -ENOMEM, "out of memory");
    sizes = (uint32_t *)(void *)(blobs + 1);
    blobs[0] = (uint8_t *)(sizes + 1);
    sizes[0] = n;
    if (n > 0)
        memcpy(blobs[0], blob, n);
    *ret_blobs = blobs;
    *ret_sizes = sizes;
    return 0;
}

/* Before the coordinator starts nobody reads the control channel. A member that was killed
 * then never connects: the launcher says so. */
static int world_interrupted(void *arg, struct err *err)
{
    struct world *w = arg;

    if (w->is_connected)
        return coordinator_interrupted(w->co, err);
    return w->membership ? membership_check(w->membership, err) : 0;
}

static void member_pack(const struct world *w, bool is_new, struct strbuf *out)
{
    bytes_put_name(out, w->contract.hostname, HOST_NAME_MAX_BYTES);
    bytes_put(out, (uint64_t)getpid(), 4);
    bytes_put(out, w->contract.place.local_size, 4);
    bytes_put(out, w->settings.control_fanout, 2);
    bytes_put_name(out, w->local_addr, sizeof(w->local_addr));
    bytes_put(out, w->settings.reports, 1);
    bytes_put(out, w->settings.is_dry_run, 1);
    bytes_put(out, w->settings.guard.check_steps, 4);
    bytes_put(out, w->settings.guard.is_warning, 1);
    bytes_put(out, w->settings.guard.first, 4);
    bytes_put(out, w->settings.guard.last, 4);
    bytes_put(out, is_new, 1);
}

static bool member_unpack(
    const uint8_t *p, size_t n, struct control_member *m, char *addr, size_t addr_size)
{
    struct bytes_reader in = {.p = p, .left = n};
    uint64_t pid, local, fanout, reports, is_dry_run, check_steps, is_warning, first,
        last, is_new;

    if (!bytes_get_name(&in, m->host, sizeof(m->host)) || !bytes_get(&in, 4, &pid)
        || !bytes_get(&in, 4, &local) || !bytes_get(&in, 2, &fanout)
        || !bytes_get_name(&in, addr, addr_size) || !bytes_get(&in, 1, &reports)
        || !bytes_get(&in, 1, &is_dry_run) || !bytes_get(&in, 4, &check_steps)
        || !bytes_get(&in, 1, &is_warning) || !bytes_get(&in, 4, &first)
        || !bytes_get(&in, 4, &last) || !bytes_get(&in, 1, &is_new))
        return false;
    m->pid = (uint32_t)pid;
    m->local_size = (uint32_t)local;
    m->fanout = (uint32_t)fanout;
    m->is_dry_run = is_dry_run != 0;
    m->reports = reports != 0;
    m->is_new = is_new != 0;
    m->guard = (struct replica_guard){.check_steps = (uint32_t)check_steps,
                                      .is_warning = is_warning != 0,
                                      .first = (uint32_t)first,
                                      .last = (uint32_t)last};
    return true;
}

/* Round 1. */
static int world_exchange_members(struct forming *f, bool is_new, struct err *err)
{
    struct world *w = f->w;
    CLEANUP(strbuf_release) struct strbuf mine = {0};
    AUTOFREE uint8_t **blobs = NULL;
    char addr[64], other[64] = "";
    uint32_t *sizes;
    int rc;

    strbuf_init(&mine, 4096);
    member_pack(w, is_new, &mine);
    rc = strbuf_status(&mine) < 0
             ? err_set(err, -ENOMEM, "out of memory")
             : world_exchange(w, mine.p, (uint32_t)mine.n, &blobs, &sizes, err);
    if (rc < 0)
        return rc;
    w->is_homogeneous = true;
    for (uint32_t i = 0; i < w->contract.place.size; i++) {
        if (!member_unpack(blobs[i], sizes[i], &w->members[i], addr, sizeof(addr)))
            return err_set(err, -EPROTO, "rank %u sent a malformed greeting", i);
        if (w->members[i].local_size != w->members[0].local_size)
            w->is_homogeneous = false;
        w->has_new = w->has_new || w->members[i].is_new;
        if (!other[0] && !addr_is_loopback(addr))
            (void)snprintf(other, sizeof(other), "%s", addr);
    }
    w->settings.guard = w->members[0].guard;
    settings_set_report(&w->settings, w->members[0].reports, w->members[0].is_dry_run);
    rc = part_find_place(w, err);
    if (rc == 0 && other[0] && addr_is_loopback(w->local_addr))
        rc = addr_towards(other, w->local_addr, sizeof(w->local_addr), err);
    return rc;
}

/* --- connecting --- */

/* membership_watch's. */
static void world_break(void *arg, const char *why)
{
    coordinator_break(((struct world *)arg)->co, why);
}

static int world_open_parts(struct forming *f, struct kept_state *kept, struct err *err)
{
    struct world *w = f->w;
    const struct place *p = &w->contract.place;
    struct control_config cfg = {
        .rank = p->rank,
        .size = p->size,
        .fanout = w->members[0].fanout,
        .id = w->env.id,
        .peer_timeout_ns = w->settings.peer_timeout_ns,
        .members = w->members,
        .closed_means = contract_is_task(&w->contract) ? CLOSED_UNDER_SLURM : NULL,
    };
    struct coordinator_config engine = {
        .rank = p->rank,
        .size = p->size,
        .local_size = w->job.local_size,
        .settings = &w->settings,
        .members = w->members,
        .env = &w->env,
        .sets = &w->sets,
        .park = &kept->park,
        .nccl_hint = f->config->nccl_hint,
        .report_late = f->config->report_late,
    };
    int rc = sets_init(&w->sets, p->rank, p->size);

    if (rc < 0)
        return err_set(err, rc, "out of memory");
    rc = coordinator_new(&engine, &w->co, err);
    if (rc < 0)
        return rc;
    cfg.handlers = coordinator_handlers(w->co);
    rc = control_open(&cfg, w->local_addr, &w->control, err);
    if (rc < 0)
        return rc;
    coordinator_set_control(w->co, w->control);
    if (w->membership)
        membership_watch(w->membership, world_break, w);
    return control_listen(w->control, err);
}

/* The backend's blobs within all descriptions, and the hello of one rank. */
static int blobs_split_hello(uint8_t *const *blobs,
                             const uint32_t *sizes,
                             uint32_t size,
                             uint32_t parent,
                             const uint8_t **ret_hello,
                             size_t *ret_n_hello,
                             uint8_t ***ret_blobs,
                             uint32_t **ret_sizes,
                             struct err *err)
{
    AUTOFREE uint8_t **b = mem_calloc(size, sizeof(*b));
    AUTOFREE uint32_t *s = mem_calloc(size, sizeof(*s));

    if (!b || !s)
        return err_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < size; i++) {
        struct description d;
        int rc = description_read(blobs[i], sizes[i], i, &d, err);

        if (rc < 0)
            return rc;
        if (i == parent) {
            *ret_hello = d.hello;
            *ret_n_hello = d.n_hello;
        }
        b[i] = blobs[i] + (d.blob - blobs[i]);
        s[i] = (uint32_t)d.n_blob;
    }
    *ret_blobs = TAKE(b);
    *ret_sizes = TAKE(s);
    return 0;
}

static int world_pack_round2(struct world *w, struct strbuf *out, struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf hello = {0};
    AUTOFREE void *blob = NULL;
    uint32_t n;
    const struct backend_ops *ops =
        &hvd_backend_linked ? hvd_backend_linked : &backend_cpu;
    int rc = ops->describe(&w->env, &w->backend, &blob, &n, err);

    if (rc < 0)
        return err_prefix(err, "backend %s", ops->name);
    if (coordinator_set_backend(w->co, w->backend) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    sets_set_world_backend(&w->sets, w->backend);
    strbuf_init(&hello, 1024);
    control_hello(w->control, &hello);
    strbuf_init(out, RDV_MAX_BLOB_BYTES);
    description_write(
        &(struct description){.hello = (const uint8_t *)strbuf_str(&hello),
                              .n_hello = hello.n,
                              .blob = blob,
                              .n_blob = n},
        out);
    if (strbuf_status(out) < 0 || strbuf_status(&hello) < 0)
        return err_set(err, -E2BIG, "this rank's description does not fit %u bytes",
                       RDV_MAX_BLOB_BYTES);
    return 0;
}

/* Round 2, and connecting. */
static int world_connect_all(struct forming *f, struct err *err)
{
    struct world *w = f->w;
    CLEANUP(strbuf_release) struct strbuf mine = {0};
    AUTOFREE uint8_t **all = NULL;
    AUTOFREE uint8_t **blobs = NULL;
    AUTOFREE uint32_t *blob_sizes = NULL;
    const uint8_t *hello = NULL; /* of the parent in the tree */
    uint32_t *sizes;
    size_t n_hello = 0;
    int rc = world_pack_round2(w, &mine, err);

    rc = rc < 0 ? rc : world_exchange(w, mine.p, (uint32_t)mine.n, &all, &sizes, err);
    rc = rc < 0 ? rc
                : blobs_split_hello(all, sizes, w->contract.place.size,
                                    control_parent(w->control), &hello, &n_hello,
                                    &blobs, &blob_sizes, err);
    rc = rc < 0 ? rc : control_join(w->control, hello, n_hello, f->deadline_ns, err);
    if (rc < 0)
        return rc;
    rc = w->backend->ops->connect(w->backend, blobs, blob_sizes, err);
    if (rc < 0)
        control_abort(w->control,
                      /* other ranks are connecting to this one: send them the reason */
                      err->text);
    return rc;
}

/* Rank 0's server names the ranks that are missing. While rank 0 itself is missing, its
 * peers log that. */
static int
world_reach_rendezvous(struct forming *f, const struct rdv_seek *seek, struct err *err)
{
    const struct world *w = f->w;
    const struct contract *c = &w->contract;
    const uint64_t since_ns = clock_now_ns();
    const bool is_writer =
        c->rank0_serves && waiting_is_writer(w->job.rank, w->job.size, 0);

    for (;;) {
        uint64_t until_ns = f->deadline_ns, now_ns;
        char text[80];
        int rc;

        if (is_writer)
            until_ns = earlier_ns(until_ns, waiting_next_ns(since_ns, clock_now_ns()));
        if (w->membership)
            until_ns = earlier_ns(until_ns, clock_now_ns() + REACH_SLICE_NS);
        rc = rdv_client_open(seek, until_ns, &f->rdv, err);
        now_ns = clock_now_ns();
        if ((rc != -ETIMEDOUT && rc != -EPIPE) || now_ns < until_ns
            || now_ns >= f->deadline_ns)
            return rc;
        rc = w->membership ? membership_check(w->membership, err) : 0;
        if (rc < 0)
            return rc;
        if (!is_writer)
            continue;
        waiting_text(w->job.size, 0, text, sizeof(text));
        rdv_log_waiting(text, (now_ns - since_ns) / NS_PER_S);
    }
}

static int
world_join_rendezvous(struct forming *f, struct kept_state *kept, struct err *err)
{
    struct world *w = f->w;
    const struct contract *c = &w->contract;
    const struct auth_id id = {&w->token, c->job_id, c->generation};
    const uint32_t *n_rounds = part_rounds(kept, w);
    struct rdv_seek seek = {
        .host = c->rdv_host,
        .port = c->rdv_port,
        .id = &id,
        .rank = w->job.rank,
        .size = w->job.size,
        .part = w->part.ranks,
        .n_part = w->part.n,
        .is_leaf = kept->server != NULL,
    };
    int rc;

    if (!n_rounds)
        return err_set(err, -ENOMEM, "out of memory");
    seek.round = *n_rounds;
    rc = world_reach_rendezvous(f, &seek, err);
    if (rc == -ETIMEDOUT && w->part.ranks && c->rank0_serves)
        return err_prefix(err,
                          "rank 0 of the job, which serves the rendezvous for ranks of "
                          "%s, must also call hvd.init(), with its own list",
                          launcher_name(c->launcher));
    if (rc < 0)
        return rc;
    if (c->iface[0])
        return addr_of_iface(c->iface, w->local_addr, sizeof(w->local_addr), err);
    (void)snprintf(w->local_addr, sizeof(w->local_addr), "%s",
                   rdv_client_local_addr(f->rdv));
    return 0;
}

static int world_form_ranks(struct forming *f, struct kept_state *kept, struct err *err)
{
    struct world *w = f->w;
    const struct place *p = &w->contract.place;
    int rc = 0;

    w->members = mem_calloc(p->size, sizeof(*w->members));
    if (!w->members)
        return err_set(err, -ENOMEM, "out of memory");
    w->env = (struct backend_env){
        .rank = p->rank,
        .size = p->size,
        .id = {&w->token, w->part.ranks ? w->part.job_id : w->contract.job_id,
               w->contract.generation},
        .local_addr = w->local_addr,
        .data_check = w->settings.data_check,
        .deadline_ns = f->deadline_ns,
        /* The control channel detects silence first and names the rank; this is the
         * fallback below it. */
        .peer_timeout_ns = 2 * w->settings.peer_timeout_ns + 5 * NS_PER_S,
        .exchange = world_exchange,
        .interrupted = world_interrupted,
        .arg = w,
    };
    (void)snprintf(w->local_addr, sizeof(w->local_addr), "127.0.0.1");
    if (w->job.size > 1) {
        kept_choose_server(kept, w);
        rc = world_serve_rendezvous(w, kept, err);
    }
    if (rc == 0 && p->size > 1)
        rc = world_join_rendezvous(f, kept, err);
    rc = rc < 0 ? rc : world_exchange_members(f, !kept->has_formed, err);
    rc = rc < 0 ? rc : world_open_parts(f, kept, err);
    rc = rc < 0 ? rc : world_connect_all(f, err);
    w->is_connected = rc == 0;
    return rc < 0 ? rc : coordinator_start(w->co, err);
}

/* Adds to the error of a start that took too long what its limit was. */
static void world_explain_limit(const struct world *w,
                                const struct world_config *config,
                                int rc,
                                struct err *err)
{
    const uint64_t ns = config->start_timeout_ns;
    const size_t n = strlen(err->text), left = sizeof(err->text) - n;

    if (rc != -ETIMEDOUT || w->start_deadline_ns == 0
        || clock_now_ns() < w->start_deadline_ns)
        return;
    if (ns > 0)
        (void)snprintf(err->text + n, left,
                       " (the start timeout that the program has set is %g s: raise it "
                       "to wait longer)",
                       (double)ns / 1e9);
    else
        (void)snprintf(err->text + n, left,
                       " (HOROVOD_START_TIMEOUT is %g s: raise it to wait longer)",
                       (double)w->settings.start_timeout_ns / 1e9);
}

static int world_form_once(const struct world_config *config,
                           struct kept_state *kept,
                           struct world **ret,
                           struct err *err)
{
    struct world *w = mem_zalloc(sizeof(*w));
    struct forming f = {.w = w, .config = config};
    int rc;

    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->refs = 1;
    w->forming = &f;
    contract_init(&w->contract);
    rc = world_find_place(w, kept, config, err);
    if (rc == 0) {
        w->job = w->contract.place;
        rc = part_choose(w, config->ranks, err);
    }
    if (rc == 0) {
        f.deadline_ns = w->start_deadline_ns;
        rc = world_form_ranks(&f, kept, err);
        if (f.rdv) /* world_join_rendezvous has created the counter */
            *part_rounds(kept, w) = rdv_client_round(f.rdv);
        rdv_client_close(f.rdv);
    }
    w->forming = NULL;
    if (rc < 0) {
        world_explain_limit(w, config, rc, err);
        membership_unwatch(w->membership);
        world_free(w);
        return rc;
    }
    log_info("the world has formed", "rank=%u size=%u host=%s job_rank=%u job_size=%u",
             w->contract.place.rank, w->contract.place.size, w->contract.hostname,
             w->job.rank, w->job.size);
    *ret = w;
    return 0;
}

/* Did others keep this world from forming, and not what this process was given? */
static bool world_may_follow(struct kept_state *kept, uint32_t before, int rc)
{
    bool is_ours = rc == -ENOMEM || rc == -EINVAL || rc == -ERANGE || rc == -ENOTSUP
                   || rc == -ENAMETOOLONG;

    if (!kept->membership || membership_generation(kept->membership) == before)
        return false; /* it had no world yet */
    return !is_ours || membership_check(kept->membership, NULL) < 0;
}

int world_form(const struct world_config *config,
               struct kept_state *kept,
               struct world **ret,
               struct err *err)
{
    int rc = 0;

    for (int n = 1; n <= FORM_TRIES; n++) {
        uint32_t before =
            kept->membership ? membership_generation(kept->membership) : 0;

        rc = world_form_once(config, kept, ret, err);
        if (rc == 0 || n == FORM_TRIES || !world_may_follow(kept, before, rc))
            break;
        log_info("the world has not formed, waiting for the next one",
                 "generation=%u try=%d of=%d cause=\"%s\"",
                 membership_generation(kept->membership), n, FORM_TRIES, err->text);
    }
    return rc;
}

void world_free(struct world *w)
{
    if (!w)
        return;
    if (w->is_leaked)
        return;
    sets_release(&w->sets); /* subsets close before their parent */
    coordinator_close_device(w->co);
    if (w->backend)
        w->backend->ops->close(w->backend);
    control_close(w->control);
    coordinator_unref(w->co);
    token_wipe(&w->token);
    part_release(&w->part);
    mem_free(w->members);
    mem_free(w);
}
