/* SPDX-License-Identifier: Apache-2.0 */
/* TF_CONFIG as TFConfigClusterResolver reads it:
 *
 *   {"cluster": {"chief": ["HOST:2222"], "worker": [..], "ps": [..]},
 *    "task": {"type": "worker", "index": 0}}
 *
 * Roles that the job does not have are left out. The evaluator is a task but no member
 * of the cluster: no task connects to it. A single worker gets TF_CONFIG, too, because
 * programs read the number of workers from it. The names are those of the job and of
 * Kubernetes and contain nothing that JSON has to escape. Pure; called by hvd_pod.c. */
#include "operator/core/hvd/hvd_tf_config.h"

static const enum role members[] = {ROLE_CHIEF, ROLE_WORKER, ROLE_PS};

static void put_hosts(const struct hvd_job *job,
                      const struct object_config *cfg,
                      enum role role,
                      struct strbuf *out)
{
    char host[HOST_SIZE];

    for (uint32_t i = 0; i < job->role[role].n; i++) {
        object_host(job, cfg, role, i, host);
        strbuf_printf(out, "%s\"%s:%d\"", i ? ", " : "", host, TF_PORT);
    }
}

void tf_config(const struct hvd_job *job,
               const struct object_config *cfg,
               enum role role,
               uint32_t index,
               struct strbuf *out)
{
    const char *comma = "";

    strbuf_puts(out, "{\"cluster\": {");
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (job->role[members[i]].n == 0)
            continue;
        strbuf_printf(out, "%s\"%s\": [", comma, role_name(members[i]));
        put_hosts(job, cfg, members[i], out);
        strbuf_putc(out, ']');
        comma = ", ";
    }
    strbuf_printf(out, "}, \"task\": {\"type\": \"%s\", \"index\": %u}}",
                  role_name(role), index);
}
