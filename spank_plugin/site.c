/* SPDX-License-Identifier: Apache-2.0 */
/* What a node can trust: its own plugstack.conf and its own copy of this plugin. The
 * options and the environment come from the user, whose srun may be another program;
 * so each task checks them as srun does. A program can still change its own environment
 * before it calls hvd.init(): the rules are about how a step is started, and not a
 * sandbox.
 *
 * A variable in the environment is the same request as its key: a limit that
 * `export HOROVOD_...` avoids would be none. A key has priority over the variable. */
#include "spank_plugin/site.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/step_pages.h"

#define DEFAULT_RUN_DIR "/run/ringmaster" /* RUNTIME_DIR: from the Makefile */

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

static int config_dir(struct plugin_config *c, const char *value, struct err *err)
{
    c->dir_required = true;
    return set_path("dir", value, c->dir, sizeof(c->dir), err);
}

static int config_run_dir(struct plugin_config *c, const char *value, struct err *err)
{
    return set_path("run_dir", value, c->run_dir, sizeof(c->run_dir), err);
}

static int config_default(struct plugin_config *c, const char *value, struct err *err)
{
    return step_options_add(&c->defaults, "plugstack.conf: default", value, err);
}

static int config_force(struct plugin_config *c, const char *value, struct err *err)
{
    return step_options_add(&c->forced, "plugstack.conf: force", value, err);
}

static int config_limit(struct step_options *o,
                        const char *from,
                        const char *value,
                        struct err *err)
{
    uint64_t ignored;
    int rc = step_options_add(o, from, value, err);
    for (uint32_t i = 0; i < o->n && !rc; i++)
        if (!setting_number(o->v[i].setting, o->text + o->v[i].at, &ignored))
            rc = err_set(err, -EINVAL, "%s: %s is not a number", from,
                         setting_name(o->v[i].setting));
    return rc;
}

static int config_max(struct plugin_config *c, const char *value, struct err *err)
{
    return config_limit(&c->max, "plugstack.conf: max", value, err);
}

static int config_min(struct plugin_config *c, const char *value, struct err *err)
{
    return config_limit(&c->min, "plugstack.conf: min", value, err);
}

static int config_list(struct plugin_config *c,
                       const char *from,
                       const char *value,
                       struct err *err)
{
    for (;;) {
        char name[KEY_NAME_MAX];
        struct step_key k;
        size_t n = strcspn(value, ",");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, value); /* cut: no key */
        if (!step_key_find(name, &k))
            return step_key_refuse(name, from, err);
        c->is_listed[k.setting] = true;
        if (!value[n])
            break;
        value += n + 1;
    }
    if (c->has_allow && c->has_deny)
        return err_set(err, -EINVAL,
                       "plugstack.conf: allow= and deny= exclude each other");
    return 0;
}

static int config_allow(struct plugin_config *c, const char *value, struct err *err)
{
    c->has_allow = true;
    return config_list(c, "plugstack.conf: allow", value, err);
}

static int config_deny(struct plugin_config *c, const char *value, struct err *err)
{
    c->has_deny = true;
    return config_list(c, "plugstack.conf: deny", value, err);
}

static const struct {
    const char *name;
    int (*set)(struct plugin_config *c, const char *value, struct err *err);
} arguments[] = {
    {"dir=", config_dir},         {"run_dir=", config_run_dir},
    {"default=", config_default}, {"force=", config_force},
    {"max=", config_max},         {"min=", config_min},
    {"allow=", config_allow},     {"deny=", config_deny},
};

static int config_argument(struct plugin_config *c, const char *word, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(arguments); i++) {
        size_t n = strlen(arguments[i].name);
        if (strncmp(word, arguments[i].name, n) == 0)
            return arguments[i].set(c, word + n, err);
    }
    return err_set(err, -EINVAL,
                   "plugstack.conf: \"%s\" is not an argument of spank_hvd.so; allowed "
                   "are dir=PATH, run_dir=PATH, default=, force=, max=, min=, allow= "
                   "and deny=",
                   word);
}

int plugin_config_parse(int argc,
                        char *const *argv,
                        struct plugin_config *ret,
                        struct err *err)
{
    struct plugin_config c = {.dir = RUNTIME_DIR, .run_dir = DEFAULT_RUN_DIR};
    for (int i = 0; i < argc; i++) {
        int rc = config_argument(&c, argv[i], err);
        if (rc)
            return rc;
    }
    *ret = c;
    return 0;
}

/* --- the rules --- */

/* Equal as numbers, or as texts. */
static bool setting_equal(uint32_t setting, const char *a, const char *b)
{
    uint64_t x, y;
    if (setting_number(setting, a, &x) && setting_number(setting, b, &y))
        return x == y;
    return strcmp(a, b) == 0;
}

/* The bound that the value breaks, or NULL. */
static const char *bound_broken(const struct step_options *bounds,
                                uint32_t setting,
                                const char *value,
                                bool is_max)
{
    const char *bound = step_options_get(bounds, setting);
    uint64_t x, y;
    if (!bound || !setting_number(setting, value, &x)
        || !setting_number(setting, bound, &y))
        return NULL;
    return is_max ? (x > y ? bound : NULL) : (x < y ? bound : NULL);
}

/* The rule that the value breaks, as text, or nothing. */
static void site_put_broken(const struct plugin_config *c,
                            uint32_t setting,
                            const char *value,
                            struct strbuf *out)
{
    const char *forced = step_options_get(&c->forced, setting);
    const char *standard = step_options_get(&c->defaults, setting);
    const char *max = bound_broken(&c->max, setting, value, true);
    const char *min = bound_broken(&c->min, setting, value, false);
    const char *use = forced ? forced : standard;
    if (use && setting_equal(setting, use, value))
        return; /* the site's own value */
    if (forced)
        strbuf_printf(out, "requires %s (plugstack.conf: force)", forced);
    else if ((c->has_allow || c->has_deny) && c->is_listed[setting] == c->has_deny)
        strbuf_printf(out, "does not allow it (plugstack.conf: %s)",
                      c->has_deny ? "deny" : "allow");
    else if (max)
        strbuf_printf(out, "allows at most %s (plugstack.conf: max)", max);
    else if (min)
        strbuf_printf(out, "allows at least %s (plugstack.conf: min)", min);
}

/* from: "--hvd" or "the environment". */
static int site_check(const struct plugin_config *c,
                      const char *from,
                      uint32_t setting,
                      const char *value,
                      struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf rule;
    strbuf_init(&rule, STEP_MAX_BYTES + 64);
    site_put_broken(c, setting, value, &rule);
    if (strbuf_status(&rule))
        return err_set(err, -ENOMEM, "out of memory");
    if (rule.n == 0)
        return 0;
    return err_set(err, -EPERM, "%s: %s=%.64s: this site %s", from,
                   setting_name(setting), value, strbuf_str(&rule));
}

/* Of a variable; NULL: none that the user has set. Tasks do not get the variables of outer
 * launchers, nor the folder for pages of the step that this one is started in (pages.c). */
static const char *site_variable(getenv_fn get, void *arg, uint32_t setting)
{
    const char *name = setting_name(setting), *value = get(arg, name);
    if (!value || !*value || contract_is_inherited(name)
        || (setting == KNOB_HVD_STATS_DIR
            && strncmp(value, STEP_PAGES_PATH, strlen(STEP_PAGES_PATH)) == 0))
        return NULL;
    return value;
}

/* A value that is malformed is the runtime's to report. */
static int site_check_environment(const struct plugin_config *c,
                                  getenv_fn get,
                                  void *arg,
                                  const struct step_options *o,
                                  struct err *err)
{
    for (uint32_t i = 0; i < KNOB_COUNT; i++) {
        const char *value = site_variable(get, arg, i);
        if (!value || step_options_get(o, i))
            continue;
        int rc = site_check(c, "the environment", i, value, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int site_add(const struct step_options *from,
                    getenv_fn get,
                    void *arg,
                    struct step_options *o,
                    struct err *err)
{
    for (uint32_t i = 0; i < from->n; i++) {
        uint32_t setting = from->v[i].setting;
        if (step_options_get(o, setting)
            || (get && setting < KNOB_COUNT && site_variable(get, arg, setting)))
            continue;
        int rc = step_options_set(o, setting, from->text + from->v[i].at, err);
        if (rc)
            return rc;
    }
    return 0;
}

int site_apply(const struct plugin_config *c,
               getenv_fn get,
               void *arg,
               struct step_options *o,
               struct err *err)
{
    struct step_options next = *o;
    int rc = 0;
    for (uint32_t i = 0; i < o->n && !rc; i++)
        rc = site_check(c, "--hvd", o->v[i].setting, o->text + o->v[i].at, err);
    if (!rc)
        rc = site_check_environment(c, get, arg, o, err);
    if (!rc) /* the environment has the same value, or none */
        rc = site_add(&c->forced, NULL, NULL, &next, err);
    if (!rc)
        rc = site_add(&c->defaults, get, arg, &next, err);
    if (!rc)
        *o = next;
    return rc;
}

static void
help_put_items(const char *name, const struct step_options *o, struct strbuf *out)
{
    if (o->n == 0)
        return;
    strbuf_printf(out, "  %s ", name);
    step_options_render(o, out);
    strbuf_putc(out, '\n');
}

void site_help(const struct plugin_config *c, struct strbuf *out)
{
    size_t n_before = out->n;
    help_put_items("default", &c->defaults, out);
    help_put_items("always ", &c->forced, out);
    help_put_items("at most", &c->max, out);
    help_put_items("at least", &c->min, out);
    if (c->has_allow || c->has_deny) {
        strbuf_puts(out, c->has_allow ? "  allowed are only" : "  not allowed are");
        for (uint32_t i = 0; i < SETTING_COUNT; i++)
            if (c->is_listed[i])
                strbuf_printf(out, " %s", setting_name(i));
        strbuf_putc(out, '\n');
    }
    if (out->n == n_before)
        strbuf_puts(out, "  no rules\n");
}
