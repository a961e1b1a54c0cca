/* SPDX-License-Identifier: Apache-2.0 */
/* Why: with `optional` in plugstack.conf Slurm ignores a failed callback, and even with
 * `required` it ends the tasks of that node only, after the tasks of other nodes have
 * started.
 *
 *   task 0 .. n-1  task_init  --address or nothing--->  rendezvous server in srun
 *   srun, rank n   a thread   --nothing-------------->  (job "<job>/gate", size n + 1)
 *                             <--all blobs------------
 *   all                       --sentence or nothing-->
 *                             <--all blobs------------
 *
 * Between the rounds the first task of each node connects to a few other nodes
 * (probe.c). Every member receives all blobs and decides alike: run only if all are
 * empty. srun is a member to print the sentences, once each: its line does not depend on
 * a task that Slurm may kill first (KillOnBadExit).
 *
 * A node that cannot report (no token, no plugin, no slurmd) ends its tasks with an
 * error, so Slurm kills the tasks that wait here; they still run no user code. Where
 * Slurm does not (--kill-on-bad-exit=0, a node whose slurmstepd could not start), they
 * wait for the step's timeout=. */
#include "spank_plugin/gate.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/rendezvous/rendezvous.h"
#include "spank_plugin/probe.h"

#define CONNECT_MS 60000u  /* srun listens before it starts the step */
#define WAIT_MS    600000u /* as long as hvd.init() waits by default */

struct gate {
    struct rdv_server *server;
    struct rdv_client *self;
    sentence_fn report;
    void *arg; /* of report */
    uint32_t size;
    pthread_t thread;
};

static uint64_t after_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

static void gate_name(const char *job_id, char ret[JOB_ID_MAX])
{
    (void)snprintf(ret, JOB_ID_MAX, "%.*s/gate", JOB_ID_MAX - 6, job_id);
}

/* --- srun --- */

static void *gate_main(void *arg)
{
    struct gate *g = arg;
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    /* an error means that the step ended first: srun prints why */
    int rc = rdv_client_exchange(g->self, NULL, 0, UINT64_MAX, &blobs, &sizes, NULL);
    if (rc)
        return NULL;
    mem_free(blobs); /* addresses, of which srun needs none */
    blobs = NULL;
    rc = rdv_client_exchange(g->self, NULL, 0, UINT64_MAX, &blobs, &sizes, NULL);
    if (!rc)
        sentences_print(blobs, sizes, g->size, g->report, g->arg);
    mem_free(blobs);
    return NULL;
}

static int gate_start_thread(struct gate *g, struct err *err)
{
    int rc = thread_start(&g->thread, gate_main, g);
    return rc ? err_errno(err, rc, "cannot start the thread of the gate") : 0;
}

int gate_open(int *listen_fd,
              const struct ticket *t,
              const char *job_id,
              uint32_t n_tasks,
              sentence_fn report,
              void *arg,
              struct gate **ret,
              struct err *err)
{
    char name[JOB_ID_MAX];
    gate_name(job_id, name);
    struct auth_id id = {.token = &t->token, .job_id = name, .generation = 0};
    AUTOFREE struct gate *g = mem_zalloc(sizeof(*g));
    if (!g)
        return err_set(err, -ENOMEM, "out of memory");
    g->report = report;
    g->arg = arg;
    g->size = n_tasks + 1;
    int rc = rdv_server_start(*listen_fd, &id, g->size, NULL, &g->server, err);
    if (rc)
        return rc;
    *listen_fd = -1;
    const struct rdv_seek seek = {.host = "127.0.0.1",
                                  .port = t->gate_port,
                                  .id = &id,
                                  .rank = n_tasks,
                                  .size = g->size,
                                  .is_leaf = true};
    /* here, not in the thread: a connection that fails would be repeated there */
    rc = rdv_client_open(&seek, after_ms(CONNECT_MS), &g->self, err);
    if (!rc)
        rc = gate_start_thread(g, err);
    if (rc) {
        rdv_client_close(g->self);
        rdv_server_stop(g->server);
        return rc;
    }
    *ret = TAKE(g);
    return 0;
}

uint32_t gate_ready(const struct gate *g)
{
    uint32_t n = rdv_server_joined(g->server);
    return n > 0 ? n - 1 : 0; /* without srun itself */
}

void gate_close(struct gate *g)
{
    if (!g)
        return;
    rdv_server_stop(g->server); /* the thread receives a refusal if it still waits */
    (void)pthread_join(g->thread, NULL);
    rdv_client_close(g->self);
    mem_free(g);
}

/* --- a task --- */

static int gate_exchange(struct rdv_client *client,
                         const char *text,
                         uint64_t wait_ms,
                         uint8_t ***ret_blobs,
                         uint32_t **ret_sizes,
                         struct err *err)
{
    uint32_t n = text ? (uint32_t)strlen(text) : 0;
    return rdv_client_exchange(client, text, n, after_ms(wait_ms), ret_blobs, ret_sizes,
                               err);
}

static int gate_meet(struct rdv_client *client,
                     const struct contract *c,
                     const char *sentence,
                     uint64_t wait_ms,
                     bool *ret_is_open,
                     struct err *err)
{
    const uint32_t size = c->place.size + 1;
    CLEANUP(probe_close) struct probe probe = PROBE_INIT; /* until all have met again */
    char hello[PROBE_HELLO_MAX] = "";
    struct err unreached = ERR_INIT;
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    if (!sentence)
        probe_open(&probe, c, rdv_client_local_addr(client), hello);
    int rc = gate_exchange(client, hello, wait_ms, &blobs, &sizes, err);
    if (rc)
        return rc;
    if (probe_check(&probe, blobs, sizes, size, &unreached))
        sentence = unreached.text;
    mem_free(blobs);
    rc = gate_exchange(client, sentence, wait_ms, &blobs, &sizes, err);
    if (rc)
        return rc;
    *ret_is_open = true;
    for (uint32_t i = 0; i < size; i++)
        *ret_is_open = *ret_is_open && sizes[i] == 0;
    mem_free(blobs);
    return 0;
}

int gate_pass(const struct ticket *t,
              const struct contract *c,
              const char *sentence,
              uint64_t wait_ms,
              bool *ret_is_open,
              struct err *err)
{
    char name[JOB_ID_MAX];
    gate_name(c->job_id, name);
    struct auth_id id = {.token = &t->token, .job_id = name, .generation = 0};
    uint32_t size = c->place.size + 1;
    struct rdv_client *client = NULL;
    int rc = rdv_client_connect(c->rdv_host, t->gate_port, &id, c->place.rank, size,
                                after_ms(CONNECT_MS), &client, err);
    if (rc)
        return rc;
    rc = gate_meet(client, c, sentence, wait_ms ? wait_ms : WAIT_MS, ret_is_open, err);
    rdv_client_close(client);
    if (rc)
        (void)err_prefix(err, "the tasks of the step did not all start"); /* rc */
    return rc;
}
