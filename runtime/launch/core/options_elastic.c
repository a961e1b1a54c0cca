/* SPDX-License-Identifier: Apache-2.0 */
/* The options of elastic jobs, which options.c has checked one by one. As in Horovod,
 * --min-np or a discovery script makes a job elastic. What Horovod does not have: -np is
 * the minimum if only --max-np is given, and a script without -np is run once.
 * Called by options.c and horovodrun.c. */
#include <errno.h>
#include <stdlib.h>

#include "runtime/launch/core/elastic.h"
#include "runtime/launch/core/options.h"

#define SECOND_NS     1000000000ull
#define TIMEOUT_MS    600000
#define EXCLUDE_S     30
#define EXCLUDE_MAX_S 600

bool options_are_elastic(const struct launch_options *o)
{
    bool has_limit = o->text[OPT_MAX_NP]
                     && options_u32(o, OPT_MAX_NP, 0) != options_u32(o, OPT_NP, 0);
    bool has_script = o->text[OPT_HOST_DISCOVERY_SCRIPT] && o->text[OPT_NP]
                      && options_tf_roles(o).framework == FRAMEWORK_HVD;

    return o->text[OPT_MIN_NP] || has_limit || has_script;
}

static int options_check_sizes(const struct launch_options *o,
                               const struct elastic_options *e,
                               struct err *err)
{
    const struct tf_roles roles = options_tf_roles(o);

    if (e->start == 0)
        return err_set(err, -EINVAL,
                       "--max-np %u: the job has no size at the start; add -np N or "
                       "--min-np N",
                       e->max);
    if (e->min > e->start)
        return err_set(err, -EINVAL, "--min-np %u exceeds -np %u", e->min, e->start);
    if (e->max > 0 && e->max < e->start)
        return err_set(err, -EINVAL, "--max-np %u is below %s %u", e->max,
                       o->text[OPT_NP] ? "-np" : "--min-np", e->start);
    if (roles.framework != FRAMEWORK_HVD)
        return err_set(err, -EINVAL,
                       "--framework %s needs a job of fixed size; remove %s",
                       framework_name(roles.framework),
                       o->text[OPT_MIN_NP] ? "--min-np" : "--max-np");
    return 0;
}

/* The text of a RANGE, "MIN MAX", was checked. */
static void
options_seconds_range(const char *text, uint64_t *ret_min_ns, uint64_t *ret_max_ns)
{
    char *end;

    *ret_min_ns = strtoull(text, &end, 10) * SECOND_NS;
    *ret_max_ns = strtoull(end, NULL, 10) * SECOND_NS;
}

int options_elastic(const struct launch_options *o,
                    struct elastic_options *ret,
                    struct err *err)
{
    struct elastic_options e = {
        .start = options_u32(o, OPT_NP, options_u32(o, OPT_MIN_NP, 0)),
        .max = options_u32(o, OPT_MAX_NP, 0),
        .spares = options_u32(o, OPT_SPARES, 0),
        .reset_limit = options_u32(o, OPT_RESET_LIMIT, ELASTIC_NO_LIMIT),
        .timeout_ms = options_ms(o, OPT_ELASTIC_TIMEOUT, TIMEOUT_MS),
        .exclude_ns = EXCLUDE_S * SECOND_NS,
        .exclude_max_ns = EXCLUDE_MAX_S * SECOND_NS};
    int rc;

    e.min = options_u32(o, OPT_MIN_NP, e.start);
    if (o->text[OPT_BLACKLIST_COOLDOWN])
        options_seconds_range(o->text[OPT_BLACKLIST_COOLDOWN], &e.exclude_ns,
                              &e.exclude_max_ns);
    rc = options_check_sizes(o, &e, err);
    if (rc == 0)
        *ret = e;
    return rc;
}
