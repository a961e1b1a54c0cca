/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of --hvd and of plugstack.conf. Called by plugin.c: in srun, sbatch and
 * salloc (where the user sees an error at once) and again in slurmstepd, up to twice,
 * so each parse sets all members. */
#include "spank_plugin/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define DEFAULT_DIR     "/opt/ringmaster"
#define DEFAULT_RUN_DIR "/run/ringmaster"
#define MAX_TIMEOUT_MS  (7ull * 24 * 3600 * 1000)

/* --- keys of --hvd --- */

static int set_timeout(struct step_options *o, const char *value, struct err *err)
{
    if (!value)
        return err_set(err, -EINVAL,
                       "--hvd: timeout requires a value, like timeout=10m");
    return parse_duration_ms("--hvd: timeout", value, 1000, MAX_TIMEOUT_MS,
                             &o->start_timeout_ms, err);
}

static int set_iface(struct step_options *o, const char *value, struct err *err)
{
    size_t n = value ? strlen(value) : 0;
    if (n == 0 || n > 15 || strpbrk(value, "/ \t\n"))
        return err_set(err, -EINVAL,
                       "--hvd: iface: \"%s\" is not the name of a network interface "
                       "(1 to 15 characters, like eth0 or ib0)",
                       value ? value : "");
    memcpy(o->iface, value, n + 1);
    return 0;
}

static int set_verbose(struct step_options *o, const char *value, struct err *err)
{
    o->is_verbose = true;
    return value ? parse_bool("--hvd: verbose", value, &o->is_verbose, err) : 0;
}

static int set_framework(struct step_options *o, const char *value, struct err *err)
{
    int rc = framework_parse(value ? value : "", &o->roles.framework, err);
    return rc ? err_prefix(err, "--hvd") : 0;
}

static int set_ps(struct step_options *o, const char *value, struct err *err)
{
    return parse_u32("--hvd: ps", value ? value : "", 1, HOST_MAX_SLOTS, &o->roles.n_ps,
                     err);
}

static int set_evaluator(struct step_options *o, const char *value, struct err *err)
{
    o->roles.has_evaluator = true;
    return value ? parse_bool("--hvd: evaluator", value, &o->roles.has_evaluator, err)
                 : 0;
}

static const struct {
    const char *name;
    int (*set)(struct step_options *o, const char *value, struct err *err);
} step_keys[] = {
    {"timeout", set_timeout},     {"iface", set_iface}, {"verbose", set_verbose},
    {"framework", set_framework}, {"ps", set_ps},       {"evaluator", set_evaluator},
};

static int set_step_key(struct step_options *o, char *item, struct err *err)
{
    char *value = strchr(item, '=');
    if (value)
        *value++ = '\0';
    for (size_t i = 0; i < ARRAY_LEN(step_keys); i++)
        if (strcmp(item, step_keys[i].name) == 0)
            return step_keys[i].set(o, value, err);
    return err_set(err, -EINVAL,
                   "--hvd: \"%s\" is not a key; allowed are timeout=DURATION, "
                   "iface=NAME, verbose, framework=NAME, ps=N and evaluator, separated "
                   "by commas",
                   item);
}

int step_options_parse(const char *arg, struct step_options *ret, struct err *err)
{
    struct step_options o = {0};
    char text[1024];
    if (arg && strcmp(arg, "(null)") != 0 && arg[0] != '\0') {
        int n = snprintf(text, sizeof(text), "%s", arg);
        if (n < 0 || (size_t)n >= sizeof(text))
            return err_set(err, -EINVAL, "--hvd: the value is longer than %zu bytes",
                           sizeof(text) - 1);
        char *rest = text, *item;
        while ((item = strsep(&rest, ",")) != NULL) {
            int rc = set_step_key(&o, item, err);
            if (rc)
                return rc;
        }
    }
    /* here whether the keys belong together; in a task whether it has enough tasks */
    uint32_t counts[TF_ROLE_COUNT];
    if (tf_roles_count(&o.roles, UINT32_MAX, counts, err))
        return err_prefix(err, "--hvd");
    *ret = o;
    return 0;
}

/* --- plugstack.conf --- */

static int set_path(
    const char *key, const char *value, char *ret, size_t size_bytes, struct err *err)
{
    size_t n = strlen(value);
    if (value[0] != '/' || n >= size_bytes || strpbrk(value, ":\n"))
        return err_set(err, -EINVAL,
                       "plugstack.conf: %s: \"%s\" is not an absolute path of at most "
                       "%zu bytes without colon",
                       key, value, size_bytes - 1);
    memcpy(ret, value, n + 1);
    return 0;
}

int plugin_config_parse(int argc,
                        char *const *argv,
                        struct plugin_config *ret,
                        struct err *err)
{
    struct plugin_config c = {.dir = DEFAULT_DIR, .run_dir = DEFAULT_RUN_DIR};
    for (int i = 0; i < argc; i++) {
        int rc;
        if (strncmp(argv[i], "dir=", 4) == 0) {
            rc = set_path("dir", argv[i] + 4, c.dir, sizeof(c.dir), err);
            c.dir_required = true;
        } else if (strncmp(argv[i], "run_dir=", 8) == 0) {
            rc = set_path("run_dir", argv[i] + 8, c.run_dir, sizeof(c.run_dir), err);
        } else {
            rc = err_set(err, -EINVAL,
                         "plugstack.conf: \"%s\" is not an argument of spank_hvd.so; "
                         "allowed are dir=PATH and run_dir=PATH",
                         argv[i]);
        }
        if (rc)
            return rc;
    }
    *ret = c;
    return 0;
}
