/* SPDX-License-Identifier: Apache-2.0 */
/* The seat's side of a communicator: the rows of a backend. Posting copies the batch
 * into a job and returns; the ticket's event is pending until the launcher has
 * recorded it. Tickets are in a ring by number; poll() removes from its front those
 * that the device has finished. Nothing here waits (rule R3). */
#include <errno.h>
#include <string.h>

#include "runtime/backend/nccl/comm.h"
#include "runtime/base/mem.h"

static struct comm_ticket *comm_ticket_slot(struct comm *c, uint64_t number)
{
    return &c->ring[number % COMM_TICKETS];
}

int comm_job(struct comm *c,
             enum job_kind kind,
             const struct batch *batch,
             const struct codec_plan *plans,
             size_t extra_bytes,
             struct gpu_job **ret,
             struct err *err)
{
    struct device *g = c->g;
    struct gpu_scope scope;
    int rc = gpu_check(g, err);

    if (rc)
        return rc;
    if (c->n_posted + 1 - c->n_done > COMM_TICKETS)
        return err_set(err, -EBUSY, "%d batches are in progress already", COMM_TICKETS);
    struct gpu_job *job = job_new(kind, batch, NULL, plans, extra_bytes);
    rc = job ? gpu_enter(g, &scope, err)
             : err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors",
                       batch->n_items);
    if (rc) {
        job_free(job);
        return rc;
    }
    rc = event_new(g->events, &job->done, err);
    gpu_leave(&scope);
    if (rc) {
        job_free(job);
        return rc;
    }
    job->comm = c;
    job->is_urgent = batch->is_awaited;
    job->stream_index = c->n_nc > 1 ? (uint32_t)(c->n_calls % c->n_nc) : 0;
    job->stream = g->streams[job->stream_index];
    *ret = job;
    return 0;
}

int comm_push(struct comm *c,
              struct gpu_job *job,
              uint64_t *ret_ticket,
              struct err *err)
{
    const uint64_t number = c->n_posted + 1;
    struct device_event *done = event_ref(job->done);

    job->ticket = number;
    int rc = launcher_push(&c->g->launcher, job, err);
    if (rc) {
        event_unref(done);
        job_free(job);
        return rc;
    }
    c->n_calls++;
    struct comm_ticket *t = comm_ticket_slot(c, number);
    *t = (struct comm_ticket){.number = number, .done = done, .check = c->check};
    c->check = NULL; /* it belongs to the ticket now */
    c->n_posted = number;
    *ret_ticket = number;
    return 0;
}

static int comm_post(struct backend *b,
                     const struct batch *batch,
                     uint64_t *ret_ticket,
                     struct err *err)
{
    struct comm *c = (struct comm *)b;
    struct gpu_job *job;
    int rc = comm_job(c, JOB_BATCH, batch, NULL, 0, &job, err);

    return rc ? rc : comm_push(c, job, ret_ticket, err);
}

static int comm_poll(struct backend *b, uint64_t *ret_done, struct err *err)
{
    struct comm *c = (struct comm *)b;
    const uint64_t first = c->n_done;
    struct gpu_scope scope;
    int rc = gpu_check(c->g, err);

    if (rc)
        return rc;
    if (c->n_done < c->n_posted) {
        rc = gpu_enter(c->g, &scope, err);
        if (rc)
            return rc;
        while (c->n_done < c->n_posted) {
            struct comm_ticket *t = comm_ticket_slot(c, c->n_done + 1);

            if (t->check && c->n_done > first) {
                rc = 0; /* report the finished ones before this one fails */
                break;
            }
            rc = event_is_done(t->done, err);
            if (rc <= 0)
                break;
            event_unref(t->done);
            t->done = NULL;
            c->n_done++;
            rc = check_finish(c, t, err);
            if (rc)
                break;
        }
        gpu_leave(&scope);
    }
    if (rc == -EDOM) /* the batch is done, and the device works */
        return rc;
    if (rc < 0) {
        int broken = gpu_check(c->g, err); /* the device broke: report its cause */

        if (broken)
            return broken;
        (void)gpu_name_rank(c->g, rc, err);
        gpu_broken(c->g, err ? err->text : "a batch failed");
        return rc;
    }
    *ret_done = c->n_done;
    return 0;
}

struct device_event *comm_ticket_event(struct backend *b, uint64_t ticket)
{
    struct comm *c = (struct comm *)b;
    struct comm_ticket *t = comm_ticket_slot(c, ticket);

    return t->number == ticket && t->done ? event_ref(t->done) : NULL;
}

static void comm_row_abort(struct backend *b)
{
    gpu_abort(((struct comm *)b)->g);
}

/* A job after all others of this communicator; the launcher frees the communicator. If
 * the device is broken, it is freed with the device. */
static void comm_close(struct backend *b)
{
    struct comm *c = (struct comm *)b;

    if (!c)
        return;
    struct gpu_job *job = job_new(JOB_CLOSE, NULL, NULL, NULL, 0);
    if (!job)
        return; /* likewise */
    job->comm = c;
    job->stream = c->g->streams[0];
    if (launcher_push(&c->g->launcher, job, NULL))
        job_free(job);
}

const struct backend_ops comm_backend_ops = {
    .name = "nccl",
    .post = comm_post,
    .poll = comm_poll,
    .abort = comm_row_abort,
    .close = comm_close,
};
