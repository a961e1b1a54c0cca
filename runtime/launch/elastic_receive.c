/* SPDX-License-Identifier: Apache-2.0 */
/* What the agents of an elastic job send. link.c has checked that a frame has the four
 * bytes of the host. Called by elastic_job.c. */
#include <errno.h>
#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/elastic_run.h"
#include "runtime/launch/remote_address.h"
#include "runtime/launch/remote_receive.h"

/* After the first host that comes back: the time of the longest wait between two tries to
 * connect to another one (core/elastic_hosts.c), and some more. */
#define RETURN_NS (15 * NS_PER_S)

static int run_take_ready(struct elastic_run *r,
                          const struct link *l,
                          const struct frame *f,
                          struct err *err)
{
    struct errand_ready ready;
    const uint32_t host = l->first;
    int rc = remote_receive_ready(l, f, &ready, err);

    if (rc == 0 && l->kind == LINK_LOCAL)
        (void)snprintf(r->addresses[host], sizeof(r->addresses[host]), "127.0.0.1");
    else if (rc == 0)
        rc = remote_address_launcher(r->c->job->iface, l->host, &ready,
                                     r->addresses[host], err);
    if (rc < 0)
        return rc;
    log_info("host is ready", "host=%s", l->host);
    elastic_know_leaders(&r->lead.e, ready.n_leaders, ready.generation);
    elastic_end_take_over(&r->lead.e, clock_now_ns() + RETURN_NS);
    elastic_hosts_set_ready(&r->hosts, host);
    r->is_done[host] = false;
    run_offer_slots(r, host);
    return 0;
}

/* The agent itself cannot continue. What another host would not do better ends the
 * job. */
static int
run_take_failed(struct elastic_run *r, const struct frame *f, struct err *err)
{
    AUTOFREE struct report *report = NULL;
    int rc = report_read_new(f->p + 4, f->n - 4, &report, err);

    if (rc < 0)
        return rc;
    if (report->f.exit_code == 126 || report->f.exit_code == 127)
        run_fail(r, report);
    else if (!r->is_over && !r->forwarded_signal)
        return err_set(err, -EIO, "%s", report->f.why);
    return 0;
}

static int
run_take_process(struct elastic_run *r, const struct frame *f, struct err *err)
{
    struct bytes_reader b = {.p = f->p + 4, .left = f->n - 4};
    struct errand_process p = errand_process_read(&b);
    AUTOFREE struct report *report = NULL;
    int rc;

    if (b.is_bad || p.slot / r->hosts.slots != bytes_load_u32(f->p))
        return err_set(err, -EPROTO, "its agent sent a message of another host");
    if (f->type == ERRAND_MEMBER) {
        elastic_lead_take_message(&r->lead, p.slot, p.incarnation, b.p, b.left);
        return 0;
    }
    if (r->is_over || r->forwarded_signal)
        return 0; /* it was stopped: that is not why the job ends */
    rc = report_read_new(b.p, b.left, &report, err);
    if (rc == 0)
        elastic_lead_take_exit(&r->lead, p.slot, p.incarnation, report);
    return rc;
}

static int run_take_has(struct elastic_run *r, const struct frame *f, struct err *err)
{
    struct errand_process s;
    struct elastic_process p;
    int rc = errand_has_read(f->p + 4, f->n - 4, &s, &p, err);

    if (rc == 0 && s.slot / r->hosts.slots != bytes_load_u32(f->p))
        rc = err_set(err, -EPROTO, "its agent sent a message of another host");
    if (rc == 0)
        elastic_lead_adopt(&r->lead, s.slot, &p);
    return rc;
}

int run_on_frame(void *arg, struct link *l, const struct frame *f, struct err *err)
{
    struct elastic_run *r = arg;
    const uint32_t host = l->first;
    const struct remote_host range = run_slots_of(r, host);

    struct bytes_reader live = {.p = f->p + 4, .left = f->n - 4};

    if (f->type == ERRAND_PING)
        return 0;
    if (bytes_load_u32(f->p) != host)
        return err_set(err, -EPROTO, "its agent sent a message for another host");
    if (f->type == ERRAND_LIVE)
        remote_receive_live(&r->live, &live);
    if (f->type == ERRAND_LIVE)
        return 0;
    if (f->type == ERRAND_READY)
        return run_take_ready(r, l, f, err);
    if (f->type == ERRAND_OUTPUT)
        return remote_output_take(&r->output, host, &range, f->p + 4, f->n - 4, err);
    if (f->type == ERRAND_FAILED)
        return run_take_failed(r, f, err);
    if (f->type == ERRAND_MEMBER || f->type == ERRAND_EXITED)
        return run_take_process(r, f, err);
    if (f->type == ERRAND_HAS)
        return run_take_has(r, f, err);
    if (f->type == ERRAND_LEAVING) {
        log_info("a host leaves at the next commit", "host=%s", l->host);
        r->hosts.v[host].is_leaving = true;
        run_offer_slots(r, host);
        return 0;
    }
    if (f->type == ERRAND_NOTE) {
        remote_output_note(&r->output, l->host, f->p + 4, f->n - 4);
        return 0;
    }
    if (f->type != ERRAND_DONE)
        return err_set(err, -EPROTO, "message %u is not for horovodrun", f->type);
    r->is_done[host] = true;
    remote_output_end(&r->output, &range);
    return 0;
}
