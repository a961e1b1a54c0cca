/* SPDX-License-Identifier: Apache-2.0 */
/* Roles and ports of a launcher's processes, numbered host by host:
 *
 *   tf-multiworker   worker 0 .. n-1                         [evaluator]
 *   tf-ps            chief, worker 0 .. , ps 0 .. n_ps-1     [evaluator]
 *
 * tf-multiworker has no chief, because TensorFlow then takes worker 0 for it, and every
 * script knows that form. Process k listens on the port `ports` + k, modulo the range of
 * port_derive: several processes of a host never share one, and no host has to ask
 * another. */
#include "runtime/contract/tf_world.h"

#include <errno.h>
#include <string.h>

#include "runtime/contract/port.h"

const char *framework_name(enum framework f)
{
    switch (f) {
    case FRAMEWORK_HVD:
        return "horovod";
    case FRAMEWORK_TF_MULTIWORKER:
        return "tf-multiworker";
    case FRAMEWORK_TF_PS:
        return "tf-ps";
    }
    return "unknown";
}

int framework_parse(const char *text, enum framework *ret, struct err *err)
{
    for (uint32_t f = 0; f < FRAMEWORK_COUNT; f++)
        if (strcmp(text, framework_name((enum framework)f)) == 0) {
            *ret = (enum framework)f;
            return 0;
        }
    return err_set(err, -EINVAL,
                   "framework \"%.40s\" is not horovod, tf-multiworker or tf-ps", text);
}

int tf_roles_count(const struct tf_roles *roles,
                   uint32_t np,
                   uint32_t ret[TF_ROLE_COUNT],
                   struct err *err)
{
    const char *name = framework_name(roles->framework);
    bool is_ps = roles->framework == FRAMEWORK_TF_PS;
    uint32_t n[TF_ROLE_COUNT] = {[TF_CHIEF] = is_ps,
                                 [TF_PS] = is_ps ? roles->n_ps : 0,
                                 [TF_EVALUATOR] = roles->has_evaluator};

    if (roles->framework == FRAMEWORK_HVD && roles->has_evaluator)
        return err_set(err, -EINVAL, "framework %s has no evaluator", name);
    if (!is_ps && roles->n_ps)
        return err_set(err, -EINVAL, "framework %s has no parameter servers, not %u",
                       name, roles->n_ps);
    if (is_ps && n[TF_PS] == 0)
        n[TF_PS] = 1;
    uint64_t others = (uint64_t)n[TF_CHIEF] + n[TF_PS] + n[TF_EVALUATOR];
    if (roles->framework != FRAMEWORK_HVD && np <= others)
        return err_set(err, -EINVAL,
                       "framework %s needs at least %llu processes (%sone worker%s, %u "
                       "ps), not %u",
                       name, (unsigned long long)others + 1, is_ps ? "one chief, " : "",
                       n[TF_EVALUATOR] ? ", one evaluator" : "", n[TF_PS], np);
    n[TF_WORKER] = roles->framework == FRAMEWORK_HVD ? 0 : (uint32_t)(np - others);
    memcpy(ret, n, sizeof(n));
    return 0;
}

/* --- addresses, in the order of the processes --- */

struct tf_cursor {
    const struct tf_world *world;
    uint32_t k;    /* the next process .. */
    size_t host;   /* .. is on this host or a later one */
    uint32_t used; /* slots of this host before it */
};

static void cursor_put(void *arg, enum tf_role role, uint32_t index, struct strbuf *out)
{
    struct tf_cursor *c = arg;

    (void)role; /* the order of the calls is that of the processes */
    (void)index;
    while (c->used == c->world->hosts->v[c->host].slots) {
        c->host++;
        c->used = 0;
    }
    const char *name = c->world->hosts->v[c->host].name;
    strbuf_printf(out, strchr(name, ':') ? "[%s]:%u" : "%s:%u", name,
                  port_after(c->world->ports, c->k));
    c->used++;
    c->k++;
}

static uint32_t process_number(const struct tf_world *world, const struct place *place)
{
    uint32_t k = place->local_rank;

    for (uint32_t h = 0; h < place->host; h++)
        k += world->hosts->v[h].slots;
    return k;
}

int tf_world_config(const struct tf_world *world,
                    const struct place *place,
                    struct strbuf *out,
                    struct err *err)
{
    struct tf_cursor cursor = {.world = world};
    struct tf_cluster c = {.put_address = cursor_put, .arg = &cursor};
    uint64_t slots = hostlist_slots(world->hosts);
    uint32_t role = 0, index = 0;
    int rc = tf_roles_count(&world->roles, world->np, c.n, err);

    if (rc < 0)
        return rc;
    if (place->host < world->hosts->n)
        index = process_number(world, place);
    if (place->host >= world->hosts->n || slots < world->np || index >= world->np)
        return err_set(err, -EINVAL,
                       "process %u of host %u is not one of the %u of the job",
                       place->local_rank, place->host, world->np);
    while (index >= c.n[role])
        index -= c.n[role++];
    tf_config_write(&c, (enum tf_role)role, index, out);
    return strbuf_status(out)
               ? err_set(err, strbuf_status(out),
                         "TF_CONFIG of %u processes is longer than %zu bytes, which "
                         "Linux allows for a variable",
                         world->np, TF_CONFIG_MAX_BYTES)
               : 0;
}

bool tf_world_ends_with(const struct tf_world *world, const struct place *place)
{
    return world->roles.framework == FRAMEWORK_TF_PS && place->host == 0
           && place->local_rank == 0;
}
