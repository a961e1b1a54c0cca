/* SPDX-License-Identifier: Apache-2.0 */
/* Called by plugin.c: in srun, sbatch and salloc, where the user sees an error at once,
 * and again in slurmstepd, with the value that srun has rendered; and by site.c for the
 * lists of plugstack.conf. */
#include "spank_plugin/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

static int setting_index(const struct step_options *o, uint32_t setting)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->v[i].setting == setting)
            return (int)i;
    return -1;
}

const char *step_options_get(const struct step_options *o, uint32_t setting)
{
    int i = setting_index(o, setting);
    return i < 0 ? NULL : o->text + o->v[i].at;
}

int step_options_set(struct step_options *o,
                     uint32_t setting,
                     const char *text,
                     struct err *err)
{
    size_t size = strlen(text) + 1;
    int i = setting_index(o, setting);
    if (i < 0 && o->n == STEP_MAX_SETTINGS)
        return err_set(err, -E2BIG, "--hvd: there are more than %d keys",
                       STEP_MAX_SETTINGS);
    if (size > sizeof(o->text) - o->n_text)
        return err_set(err, -E2BIG, "--hvd: the values are longer than %zu bytes",
                       sizeof(o->text));
    if (i < 0)
        i = (int)o->n++;
    memcpy(o->text + o->n_text, text, size);
    o->v[i].setting = (uint16_t)setting;
    o->v[i].at = (uint16_t)o->n_text; /* a replaced text stays before it */
    o->n_text += (uint32_t)size;
    return 0;
}

/* --- a value --- */

/* Cuts the next item off *rest, which becomes NULL at the end; *value: NULL without
 * "=". */
static int
item_cut(char **rest, const char *from, char **name, char **value, struct err *err)
{
    char *p = *rest, *end = p + strcspn(p, ",=");
    *name = p;
    *value = NULL;
    if (*end == '=') {
        *end++ = '\0';
        *value = end;
        if (*end == '"') {
            *value = ++end;
            end += strcspn(end, "\"");
            if (!*end || (end[1] && end[1] != ','))
                return err_set(err, -EINVAL,
                               "%s: %s: a value in double quotes ends with the second "
                               "quote and a comma",
                               from, *name);
            *end++ = '\0';
        } else {
            end += strcspn(end, ",");
        }
    }
    *rest = *end ? end + 1 : NULL;
    *end = '\0';
    return 0;
}

static int item_check_text(const char *from,
                           const struct step_key *k,
                           const char *value,
                           struct err *err)
{
    for (const char *p = value; p && *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '"')
            return err_set(err, -EINVAL,
                           "%s: %s: a value has no control character and no double "
                           "quote",
                           from, k->name);
    return 0;
}

static int item_set(struct step_options *o,
                    bool *has,
                    const char *from,
                    const char *name,
                    const char *value,
                    struct err *err)
{
    char text[STEP_MAX_BYTES];
    struct step_key k;
    if (!strcmp(name, "off") || !strcmp(name, "help"))
        return err_set(err, -EINVAL, "%s: \"%s\" stands alone: --hvd=%s", from, name,
                       name);
    if (!step_key_find(name, &k))
        return step_key_refuse(name, from, err);
    if (has[k.setting])
        return err_set(err, -EINVAL, "%s: %s is given twice", from, k.name);
    has[k.setting] = true;
    int rc = item_check_text(from, &k, value, err);
    if (!rc)
        rc = step_key_check(&k, from, value, text, sizeof(text), err);
    return rc ? rc : step_options_set(o, k.setting, text, err);
}

int step_options_add(struct step_options *o,
                     const char *from,
                     const char *arg,
                     struct err *err)
{
    struct step_options next = *o;
    bool has[SETTING_COUNT] = {false};
    char text[STEP_MAX_BYTES], *rest = text, *name, *value;
    if (!arg || strcmp(arg, "(null)") == 0)
        arg = "";
    if (strlen(arg) >= sizeof(text))
        return err_set(err, -EINVAL, "%s: the value is longer than %zu bytes", from,
                       sizeof(text) - 1);
    if (strcmp(arg, "off") == 0) {
        *o = (struct step_options){.is_on = false};
        return 0;
    }
    next.wants_help = strcmp(arg, "help") == 0;
    next.is_on = true;
    (void)snprintf(text, sizeof(text), "%s", next.wants_help ? "" : arg); /* fits */
    while (rest && text[0]) {
        int rc = item_cut(&rest, from, &name, &value, err);
        if (!rc)
            rc = item_set(&next, has, from, name, value, err);
        if (rc)
            return rc;
    }
    *o = next;
    return 0;
}

void step_options_render(const struct step_options *o, struct strbuf *out)
{
    for (uint32_t i = 0; i < o->n; i++)
        strbuf_printf(out, "%s%s=\"%s\"", i ? "," : "", setting_name(o->v[i].setting),
                      o->text + o->v[i].at);
}

/* --- of the plugin's own settings --- */

bool step_options_is_on(const struct step_options *o, uint32_t setting)
{
    const char *text = step_options_get(o, setting);
    return text && strcmp(text, "1") == 0;
}

uint64_t step_options_start_ms(const struct step_options *o)
{
    const char *text = step_options_get(o, KNOB_HOROVOD_START_TIMEOUT);
    uint64_t ns = 0;
    if (text)
        (void)knob_parse(KNOB_HOROVOD_START_TIMEOUT, text, &ns, NULL); /* checked */
    return ns / 1000000;
}

enum comment_mode step_options_comment(const struct step_options *o)
{
    const char *text = step_options_get(o, OWN_COMMENT);
    int mode = text ? comment_mode_parse(text) : COMMENT_FAILURE;
    return mode < 0 ? COMMENT_FAILURE : (enum comment_mode)mode; /* checked */
}

struct tf_roles step_options_roles(const struct step_options *o)
{
    const char *name = step_options_get(o, OWN_FRAMEWORK);
    const char *n_ps = step_options_get(o, OWN_PS);
    struct tf_roles roles = {.has_evaluator = step_options_is_on(o, OWN_EVALUATOR)};
    if (name)
        (void)framework_parse(name, &roles.framework, NULL); /* as in the table */
    if (n_ps)
        (void)parse_u32("ps", n_ps, 1, UINT32_MAX, &roles.n_ps, NULL); /* checked */
    return roles;
}

int step_options_check(const struct step_options *o, struct err *err)
{
    const struct tf_roles roles = step_options_roles(o);
    uint32_t counts[TF_ROLE_COUNT];
    /* whether there are enough tasks is checked in each task */
    int rc = tf_roles_count(&roles, UINT32_MAX, counts, err);
    return rc ? err_prefix(err, "--hvd") : 0;
}
