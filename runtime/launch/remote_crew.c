/* SPDX-License-Identifier: Apache-2.0 */
/* Called by remote_agent.c. */
#include "runtime/launch/remote_crew.h"

#include <stdio.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/message.h"

static void remote_crew_pass_message(
    void *arg, uint32_t slot, uint32_t incarnation, const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, MEMBER_MESSAGE_MAX_BYTES + 8);
    errand_process_write(&(struct errand_process){slot, incarnation}, &b);
    strbuf_add(&b, p, n);
    uplink_send(arg, ERRAND_MEMBER, &b);
}

static void remote_crew_report_exit(void *arg,
                                    uint32_t slot,
                                    uint32_t incarnation,
                                    struct report *report)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, ERRAND_TO_LAUNCHER_MAX_BYTES);
    errand_process_write(&(struct errand_process){slot, incarnation}, &b);
    report_write(report, &b);
    uplink_send(arg, ERRAND_EXITED, &b);
}

int remote_crew_open(const struct remote_crew *r,
                     struct member_crew **ret,
                     struct err *err)
{
    const uint32_t n = r->e->elastic_slots;
    const struct crew_config c = {.first = r->host * n,
                                  .n = n,
                                  .host = r->host,
                                  .common = r->common,
                                  .run = r->run,
                                  .signals = r->signals,
                                  .guard = r->guard,
                                  .on_message = remote_crew_pass_message,
                                  .on_exit = remote_crew_report_exit,
                                  .arg = r->up};

    (void)snprintf(r->common->hostname, sizeof(r->common->hostname), "%s",
                   r->e->hosts.v[r->host].name);
    return crew_open(&c, ret, err);
}

void remote_crew_take(struct member_crew *c,
                      enum errand_type type,
                      struct bytes_reader *r)
{
    struct errand_process p = errand_process_read(r);
    struct place place = {0};

    if (type == ERRAND_SPAWN)
        place = errand_place_read(r);
    if (r->is_bad)
        return;
    if (type == ERRAND_SPAWN)
        crew_spawn(c, p.slot, p.incarnation, &place);
    else if (type == ERRAND_KILL)
        crew_kill(c, p.slot, p.incarnation);
    else if (type == ERRAND_MEMBER)
        crew_send(c, p.slot, p.incarnation, r->p, r->left);
}

static void
remote_crew_put_process(void *arg, uint32_t slot, const struct elastic_process *p)
{
    const struct errand_process s = {slot, p->incarnation};
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, 64);
    errand_has_write(&s, p, &b);
    uplink_send(arg, ERRAND_HAS, &b);
}

void remote_crew_send_processes(const struct member_crew *c, struct uplink *up)
{
    crew_describe(c, remote_crew_put_process, up);
}
