/* SPDX-License-Identifier: Apache-2.0 */
/* TF_CONFIG as TFConfigClusterResolver reads it:
 *
 *   {"cluster": {"chief": ["HOST:2222"], "worker": [..], "ps": [..]},
 *    "task": {"type": "worker", "index": 0}}
 *
 * Roles that the job does not have are left out. The evaluator is a task but no member
 * of the cluster: no task connects to it. A single worker gets TF_CONFIG, too, because
 * programs read the number of workers from it. Called by tf_world.c and the operator. */
#include "runtime/contract/tf_config.h"

const char *tf_role_name(enum tf_role role)
{
    switch (role) {
    case TF_CHIEF:
        return "chief";
    case TF_WORKER:
        return "worker";
    case TF_PS:
        return "ps";
    case TF_EVALUATOR:
        return "evaluator";
    }
    return "unknown";
}

static void
put_members(const struct tf_cluster *c, enum tf_role role, struct strbuf *out)
{
    for (uint32_t i = 0; i < c->n[role]; i++) {
        strbuf_puts(out, i ? ", \"" : "\"");
        c->put_address(c->arg, role, i, out);
        strbuf_putc(out, '"');
    }
}

void tf_config_write(const struct tf_cluster *c,
                     enum tf_role role,
                     uint32_t index,
                     struct strbuf *out)
{
    const char *comma = "";

    strbuf_puts(out, "{\"cluster\": {");
    for (uint32_t r = 0; r < TF_EVALUATOR; r++) {
        if (c->n[r] == 0)
            continue;
        strbuf_printf(out, "%s\"%s\": [", comma, tf_role_name((enum tf_role)r));
        put_members(c, (enum tf_role)r, out);
        strbuf_putc(out, ']');
        comma = ", ";
    }
    strbuf_printf(out, "}, \"task\": {\"type\": \"%s\", \"index\": %u}}",
                  tf_role_name(role), index);
}
