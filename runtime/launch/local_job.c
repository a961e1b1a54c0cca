/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun -np N command, on one host:
 *
 *   host list -> places -> contracts
 *   rendezvous server on 127.0.0.1; token and hostfile in a scratch folder
 *   loop of local_ranks.c
 *
 * After the first failure the reports of a short window are compared (verdict.c), the
 * other ranks are stopped, and the first failure and its rank's last lines are printed.
 * Called by horovodrun.c. */
#include "runtime/launch/local_job.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/elastic_env.h"
#include "runtime/contract/port.h"
#include "runtime/launch/command.h"
#include "runtime/launch/gpu_info.h"
#include "runtime/launch/live_door.h"
#include "runtime/launch/live_host.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/outcome.h"
#include "runtime/launch/placement.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/rendezvous/rendezvous.h"

#define ASK_GRACE_S 30 /* after Ctrl-C or SIGTERM, to save a checkpoint */

struct local_job {
    const struct local_job_config *c;
    char path[PATH_MAX], job_id[JOB_ID_MAX];
    const char *address;
    struct token token;
    struct rdv_server *server;
    uint16_t port;
    int master_fd; /* holds MASTER_PORT */
    struct contract *ranks;
    struct hostlist tf_hosts; /* all with our address */
    struct tf_world tf;
    struct placement placement;
    struct live_host live;
    struct live_lead lead;
    struct live_door door;
    struct local_ranks *local;
    struct launch_verdict verdict;
};

/* Sets the first interface; NCCL gets all of them in a variable. */
static void local_job_set_iface(const struct launch_options *o, struct contract *c)
{
    const char *names = o->text[OPT_NETWORK_INTERFACES];
    if (names)
        (void)snprintf(c->iface, sizeof(c->iface), "%.*s", (int)strcspn(names, ","),
                       names);
}

static int local_job_make_contracts(struct local_job *l, struct err *err)
{
    l->ranks = mem_calloc(l->c->hosts->np, sizeof(*l->ranks));
    if (!l->ranks)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", l->c->hosts->np);
    for (uint32_t i = 0; i < l->c->hosts->np; i++) {
        struct contract *c = &l->ranks[i];
        contract_init(c);
        c->launcher = LAUNCHER_RINGMASTER;
        c->place = l->c->hosts->places[i];
        c->rdv_port = l->port;
        c->token_source = TOKEN_FILE;
        (void)snprintf(c->hostname, sizeof(c->hostname), "%s",
                       l->c->hosts->v[c->place.host].name);
        (void)snprintf(c->rdv_host, sizeof(c->rdv_host), "%s", l->address);
        (void)snprintf(c->job_id, sizeof(c->job_id), "%s", l->job_id);
        (void)snprintf(c->token_file, sizeof(c->token_file), "%s",
                       l->c->scratch->token_file);
        (void)snprintf(c->hostfile, sizeof(c->hostfile), "%s", l->c->scratch->hostfile);
        local_job_set_iface(l->c->o, c);
    }
    return 0;
}

/* Holds a port for scripts that also use torch.distributed or jax.distributed. */
static int local_job_set_master(struct local_job *l, struct err *err)
{
    uint16_t port = 0;
    int rc = tcp_hold(&l->master_fd, &port, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < l->c->hosts->np; i++) {
        (void)snprintf(l->ranks[i].master_addr, sizeof(l->ranks[i].master_addr), "%s",
                       l->address);
        l->ranks[i].master_port = port;
    }
    return 0;
}

static int local_job_make_tf(struct local_job *l, struct err *err)
{
    const struct hostlist *hosts = &l->c->hosts->list;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < hosts->n; i++)
        rc = hostlist_append(&l->tf_hosts, l->address, hosts->v[i].slots, err);
    l->tf = (struct tf_world){.roles = options_tf_roles(l->c->o),
                              .hosts = &l->tf_hosts,
                              .np = l->c->hosts->np,
                              .ports = port_derive(&l->token, "TF_CONFIG")};
    return rc;
}

static int local_job_start_server(struct local_job *l, struct err *err)
{
    int fd = -1;
    uint8_t bytes[8];
    char hex[2 * sizeof(bytes) + 1];
    int rc = random_bytes(bytes, sizeof(bytes));
    if (rc < 0)
        return err_errno(err, -rc, "no random bytes from the system");
    hex_encode(bytes, sizeof(bytes), hex);
    (void)snprintf(l->job_id, sizeof(l->job_id), HOROVODRUN_JOB_ID, hex);
    if ((rc = token_random(&l->token, err)) < 0
        || (rc = tcp_listen(l->address, 0, &fd, &l->port, err)) < 0)
        return rc;
    struct auth_id id = {.token = &l->token, .job_id = l->job_id, .generation = 0};
    rc = rdv_server_start(fd, &id, l->c->hosts->np, rdv_log_waiting, &l->server, err);
    if (rc < 0)
        fd_close(&fd);
    return rc;
}

static void local_job_show_placement(const struct local_job *l)
{
    struct strbuf table;
    if (!l->c->o->text[OPT_VERBOSE])
        return;
    strbuf_init(&table, 16u << 20);
    placement_table(&l->placement, l->ranks, l->c->hosts->np,
                    l->c->o->text[OPT_NETWORK_INTERFACES], &table);
    (void)fputs(strbuf_str(&table), stderr);
    strbuf_release(&table);
}

static const char *local_job_host_of(void *arg, uint32_t rank)
{
    const struct local_job *l = arg;
    return rank < l->c->hosts->np ? l->ranks[rank].hostname : "";
}

static void local_job_take_live(void *arg,
                                enum live_part part,
                                uint32_t number,
                                const struct strbuf *b)
{
    struct local_job *l = arg;
    live_lead_take_part(&l->lead, part, number, strbuf_str(b), b->n);
}

static void local_job_examine(void *arg, uint32_t number)
{
    struct local_job *l = arg;
    live_host_examine(&l->live, number);
}

static void local_job_begin_live(struct local_job *l, const char *stats_dir)
{
    const uint32_t np = l->c->hosts->np;
    struct live_lead_config lead = {
        .examine = local_job_examine, .host_of = local_job_host_of, .arg = l};
    struct live_host_config host = {.dir = stats_dir,
                                    .ranks = l->ranks,
                                    .n = np,
                                    .send = local_job_take_live,
                                    .arg = l};
    live_lead_init(&l->lead, &lead);
    live_lead_meet(&l->lead, 0, 1);
    live_lead_set_present(&l->lead, 1);
    live_lead_start(&l->lead, np, np);
    live_host_begin(&l->live, &host);
    live_door_open(&l->door, l->c->scratch->dir, &l->token, l->job_id, &l->lead);
}

static int local_job_prepare(struct local_job *l,
                             struct local_ranks_config *c,
                             int *ret_code,
                             struct err *err)
{
    char search[32768];
    *c = (struct local_ranks_config){.size = l->c->hosts->np,
                                     .n = l->c->hosts->np,
                                     .argv = l->c->o->command,
                                     .env = l->c->env,
                                     .path = l->path,
                                     .dir = l->c->dir,
                                     .output_dir = l->c->o->text[OPT_OUTPUT_FILENAME],
                                     .with_timestamp =
                                         options_is_on(l->c->o, OPT_PREFIX_TIMESTAMP),
                                     .out_fd = 1,
                                     .err_fd = 2,
                                     .signal_grace_ns = ASK_GRACE_S * NS_PER_S,
                                     .vars = l->c->o->vars,
                                     .n_vars = l->c->o->n_vars};
    (void)local_ranks_search_path(c, search, sizeof(search));
    int rc = command_find(l->c->o->command[0], *search ? search : NULL, l->path, err);
    if (rc > 0) {
        *ret_code = rc;
        return -ENOENT;
    }
    if ((rc = local_job_start_server(l, err)) < 0
        || (rc = scratch_write(l->c->scratch, &l->token, &l->c->hosts->list, err)) < 0
        || (rc = local_job_make_contracts(l, err)) < 0
        || (rc = local_job_set_master(l, err)) < 0
        || (rc = local_job_make_tf(l, err)) < 0
        || (rc = placement_make(l->c->o->text[OPT_BINDING], l->c->hosts->np,
                                &l->placement, err))
               < 0)
        return rc;
    local_job_show_placement(l);
    c->ranks = l->ranks;
    c->placement = &l->placement;
    c->tf = l->tf.roles.framework == FRAMEWORK_HVD ? NULL : &l->tf;
    c->stats_dir = stats_dir_choose(getenv("HVD_STATS_DIR"), l->c->scratch->stats_dir);
    if ((rc = local_ranks_new(c, l->c->signals, l->c->guard, &l->local, err)) < 0
        || (rc = local_ranks_start(l->local, ret_code, err)) < 0)
        return rc;
    local_job_begin_live(l, c->stats_dir);
    return 0;
}

/* Reports the failed rank at once to ranks that wait in the rendezvous. */
static void local_job_fail_rendezvous(struct local_job *l)
{
    char sentence[480];
    report_sentence(verdict_pick(&l->verdict), sentence, sizeof(sentence));
    rdv_server_fail(l->server, sentence);
}

/* True: the end of this rank is the success of the job. */
static bool local_job_end_rank(struct local_job *l, const struct place *place)
{
    log_info("rank ended", "rank=%u code=0", place->rank);
    if (!tf_world_ends_with(&l->tf, place))
        return false;
    local_ranks_stop(l->local); /* servers that wait for ever */
    return true;
}

static void local_job_serve(struct local_job *l, struct local_ranks_event *ev)
{
    bool is_decided = false;
    while (!local_ranks_has_ended(l->local)) {
        uint64_t due = is_decided ? UINT64_MAX : verdict_deadline_ns(&l->verdict);
        struct pollfd fds[LIVE_DOOR_FDS];
        live_host_tick(&l->live, l->local, &due);
        live_door_fds(&l->door, fds);
        local_ranks_step(l->local, fds, LIVE_DOOR_FDS,
                         earlier_ns(due, live_door_next_ns(&l->door)));
        live_door_serve(&l->door);
        while (local_ranks_next(l->local, ev)) {
            if (ev->kind == LOCAL_SIGNAL)
                log_info("signal forwarded", "signal=%s", signal_name(ev->signal));
            if (ev->kind == LOCAL_RANK_OK
                && local_job_end_rank(l, &l->ranks[ev->index].place)
                && !verdict_pick(&l->verdict))
                is_decided = true;
            if (ev->kind == LOCAL_RANK_FAILED && !is_decided && !ev->is_expected
                && verdict_add(&l->verdict, &ev->report, clock_now_ns()) == 0)
                local_job_fail_rendezvous(l);
        }
        if (!is_decided && clock_now_ns() >= verdict_deadline_ns(&l->verdict)) {
            is_decided = true;
            if (local_ranks_running(l->local)) /* otherwise only output is left */
                local_ranks_stop(l->local);
        }
    }
}

static int local_job_exit_code(struct local_job *l)
{
    const struct report *first = verdict_pick(&l->verdict);
    uint32_t left = local_ranks_running(l->local);
    int code;
    if (!first && left)
        fprintf(stderr, "%s: %u ranks cannot be killed: they hang in the kernel\n",
                l->c->program, left);
    code = outcome_print(l->c->program, first, local_ranks_forwarded_signal(l->local));
    return code == 0 && left ? LOCAL_JOB_FAILED : code;
}

static void local_job_release(struct local_job *l)
{
    live_door_close(&l->door);
    live_host_end(&l->live);
    live_lead_release(&l->lead);
    local_ranks_free(l->local);
    rdv_server_stop(l->server);
    fd_close(&l->master_fd);
    verdict_release(&l->verdict);
    mem_free(l->ranks);
    hostlist_release(&l->tf_hosts);
    placement_release(&l->placement);
    token_wipe(&l->token);
    mem_free(l);
}

/* *ret_code is set in any case. */
static int local_job_start_all(struct local_job *l, int *ret_code, struct err *err)
{
    struct local_ranks_config c;
    char text[400];
    l->address = strchr(l->c->hosts->v[0].name, ':') ? "::1" : "127.0.0.1";
    command_python_warning(l->c->o->command, text, sizeof(text));
    if (*text && *l->c->dir)
        fprintf(stderr, "%s: warning: %s\n", l->c->program, text);
    if (l->c->o->text[OPT_VERBOSE]) { /* before any thread exists */
        (void)snprintf(text, sizeof(text), "%.60s: ", l->c->program);
        gpu_info_print(l->c->signals, l->c->env, text, 2);
    }
    int rc = local_job_prepare(l, &c, ret_code, err);
    if (rc == 0)
        log_info("started", "np=%u command=\"%s\" runtime=\"%s\"", l->c->hosts->np,
                 l->path, l->c->dir);
    return rc;
}

int local_job_run(const struct local_job_config *c, struct err *err)
{
    int code = LOCAL_JOB_FAILED;
    AUTOFREE struct local_ranks_event *ev = mem_zalloc(sizeof(*ev));
    struct local_job *l = mem_zalloc(sizeof(*l));
    if (!ev || !l) {
        mem_free(l);
        return err_set(err, -ENOMEM, "out of memory"), code;
    }
    l->c = c;
    l->master_fd = -1;
    if (local_job_start_all(l, &code, err) == 0) {
        local_job_serve(l, ev);
        code = local_job_exit_code(l);
    }
    local_job_release(l);
    return code;
}
