/* SPDX-License-Identifier: Apache-2.0 */
/* The roles and hosts of a HorovodJob for contract/tf_config.c, which writes the text
 * for every launcher. The names are those of the job and of Kubernetes and contain
 * nothing that JSON has to escape. Pure; called by hvd_pod.c and hvd_validate.c. */
#include "operator/core/hvd/hvd_tf_config.h"

#include "runtime/contract/tf_config.h"

static const enum role roles[TF_ROLE_COUNT] = {[TF_CHIEF] = ROLE_CHIEF,
                                               [TF_WORKER] = ROLE_WORKER,
                                               [TF_PS] = ROLE_PS,
                                               [TF_EVALUATOR] = ROLE_EVALUATOR};

struct tf_hosts {
    const struct hvd_job *job;
    const struct object_config *cfg;
};

static void put_host(void *arg, enum tf_role role, uint32_t index, struct strbuf *out)
{
    const struct tf_hosts *h = arg;
    char host[HOST_SIZE];

    object_host(h->job, h->cfg, roles[role], index, host);
    strbuf_printf(out, "%s:%d", host, TF_PORT);
}

void tf_config(const struct hvd_job *job,
               const struct object_config *cfg,
               enum role role,
               uint32_t index,
               struct strbuf *out)
{
    struct tf_hosts hosts = {job, cfg};
    struct tf_cluster c = {.put_address = put_host, .arg = &hosts};
    enum tf_role task = TF_WORKER;

    for (uint32_t r = 0; r < TF_ROLE_COUNT; r++) {
        c.n[r] = job->role[roles[r]].n;
        if (roles[r] == role)
            task = (enum tf_role)r;
    }
    tf_config_write(&c, task, index, out);
}
