/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent hosts, the discovery script of an elastic HorovodJob:
 *
 *   HVD_WORLD_FILE "3 2", HVD_CHECKIN_ADDR demo-worker-0.demo.ns.svc
 *                                   -> demo-worker-0.demo.ns.svc:8
 *                                      demo-worker-1.demo.ns.svc:8
 *
 * The names of the other workers follow from that of worker 0, so the launcher pod needs
 * nothing but the variables of every pod and the file, which the operator keeps up to
 * date. Called by agent_main.c. */
#include "runtime/launch/world_hosts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/environment.h"

#define WORKER_0  "-worker-0."
#define MAX_BYTES 256
#define MAX_OUT   (4u << 20)

int world_hosts_write(const struct agent_env *a,
                      const struct job_world *w,
                      struct strbuf *out,
                      struct err *err)
{
    const char *at = strstr(a->checkin_addr, WORKER_0);

    if (!at)
        return err_set(err, -EINVAL,
                       "HVD_CHECKIN_ADDR: %s is not the name of worker 0, "
                       "JOB-worker-0.JOB.NAMESPACE.svc",
                       a->checkin_addr);
    for (uint32_t i = 0; i < w->workers; i++)
        strbuf_printf(out, "%.*s-worker-%u.%s:%u\n", (int)(at - a->checkin_addr),
                      a->checkin_addr, i, at + strlen(WORKER_0), a->slots);
    return strbuf_status(out) < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

static int hosts_read_world(const char *path, struct job_world *ret, struct err *err)
{
    AUTOFREE char *text = NULL;
    int rc;

    if (!*path)
        return err_set(err, -EINVAL,
                       "HVD_WORLD_FILE is not set: the operator sets it in the "
                       "launcher pod of a job with elasticPolicy");
    rc = fd_read_file(path, MAX_BYTES, &text, NULL, err);
    return rc < 0 ? rc : job_world_parse(text, ret, err);
}

int agent_hosts(char *const *argv)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct err err = ERR_INIT;
    struct agent_env a;
    struct job_world w;

    if (argv[0]) {
        fprintf(stderr, "hvd-agent: hosts takes no arguments: %s\n", argv[0]);
        return 2;
    }
    strbuf_init(&out, MAX_OUT);
    if (agent_env_parse(environment_own, NULL, &a, &err) < 0
        || hosts_read_world(a.world_file, &w, &err) < 0
        || world_hosts_write(&a, &w, &out, &err) < 0) {
        fprintf(stderr, "hvd-agent: hosts: %s\n", err.text);
        return 1;
    }
    return fputs(strbuf_str(&out), stdout) < 0 || fflush(stdout) != 0;
}
