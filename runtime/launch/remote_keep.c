/* SPDX-License-Identifier: Apache-2.0 */
/* A job with a name (HVD_ELASTIC_JOB) outlives its horovodrun: the agent of a host keeps
 * the processes, which train on, and waits for another horovodrun of the same name.
 *
 *   horovodrun 1 -- agent 1: the keeper, with the processes
 *        x             |
 *                      '-- waits for at most the elastic timeout
 *   horovodrun 2 -- agent 2 -- handover.c --> the keeper: HAS for each process, READY
 *
 * Called by remote_agent.c. */
#include <errno.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/handover.h"
#include "runtime/launch/remote_agent_state.h"
#include "runtime/launch/remote_crew.h"

int remote_keep_take_successor(struct remote_agent *a,
                               uint32_t host,
                               struct bytes_reader *r,
                               struct err *err)
{
    struct errand e;
    (void)bytes_u32(r);
    int rc = errand_read(r->p, r->left, HVD_VERSION_STRING, &e, err);
    if (rc < 0)
        return rc;
    if (strcmp(e.job_id, a->e.job_id) != 0 || e.elastic_slots != a->e.elastic_slots
        || memcmp(e.seed, a->e.seed, sizeof(e.seed)) != 0)
        rc = err_set(err, -EPROTO,
                     "its agent keeps processes of a job of another shape");
    errand_release(&e);
    if (rc < 0)
        return rc;
    a->host = host;
    a->n_leaders++;
    a->deadline_ns = UINT64_MAX;
    crew_renumber(a->crew, host * a->e.elastic_slots);
    uplink_set_host(&a->up, host);
    uplink_begin_job(&a->up, a->up.name);
    remote_crew_send_processes(a->crew, &a->up);
    remote_agent_send_ready(a);
    return 0;
}

int remote_keep_join(struct remote_agent *a,
                     const struct bytes_reader *job,
                     struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct channel keeper;
    int rc = handover_connect(&a->root, a->e.job_id, &keeper, err);
    if (rc == -ECONNREFUSED)
        return handover_listen(&a->root, a->e.job_id, &a->keep_fd, err) < 0
                   ? -EADDRINUSE
                   : rc;
    if (rc < 0)
        return rc;
    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    bytes_put_u32(&b, a->host);
    bytes_put_u32(&b, a->end);
    strbuf_add(&b, job->p, job->left);
    handover_relay(&a->up.channel, &keeper, ERRAND_JOB, &b,
                   a->e.peer_timeout_ms * NS_PER_MS, a->signals);
    a->up.is_open = false;
    return 0;
}

void remote_keep_accept(struct remote_agent *a)
{
    struct channel channel;
    if (a->keep_fd < 0 || !handover_accept(a->keep_fd, &a->root, &channel))
        return;
    uplink_close(&a->up); /* of one that may not know yet that it is lost */
    uplink_replace(&a->up, &channel);
}

bool remote_keep_wait(struct remote_agent *a)
{
    if (a->keep_fd < 0 || a->is_ending)
        return false;
    a->deadline_ns = clock_now_ns() + a->e.keep_ms * NS_PER_MS;
    log_warn("horovodrun is lost, its processes are kept for another one", "seconds=%u",
             a->e.keep_ms / 1000);
    return true;
}
