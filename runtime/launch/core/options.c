/* SPDX-License-Identifier: Apache-2.0 */
/* argv -> texts by option -> variables of the ranks.
 *
 * Later words override earlier ones, and a config file takes effect where it stands,
 * so parsing is one pass that stores checked texts. Checks of the whole command line
 * (options that exclude each other, options without effect) follow. A switch
 * together with its opposite is an error, as in Horovod. Called by horovodrun.c. */
#include "runtime/launch/core/options.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/launch/core/mpi_words.h"
#include "runtime/launch/core/option_text.h"
#include "runtime/launch/core/option_value.h"

#define ARENA_BYTES (4u << 20)

struct option_words {
    int argc, i; /* the current word */
    char *const *argv;
    options_read_fn read;
    void *arg;
};

/* sentence: of the arena, NULL: it is full. */
static int options_warn(struct launch_options *o, const char *sentence, struct err *err)
{
    if (!sentence)
        return err_set(err, -ENOMEM, "out of memory for the command line");
    if (o->n_warnings < OPTIONS_MAX_WARNINGS)
        o->warnings[o->n_warnings++] = sentence;
    return 0;
}

/* Finds "-H" in "-Hlocalhost:2", like argparse. But -prefix-x and -identity are errors,
 * not a port and a file. */
static bool
options_find_glued(const char *word, struct option_match *ret, const char **value)
{
    if (strlen(word) < 3 || word[1] == '-' || !option_find(word, 2, ret))
        return false;
    enum option_kind kind = option_row(ret->id)->kind;
    if (kind == OPTION_FLAG || (kind == OPTION_NUMBER && !strchr("0123456789", word[2]))
        || (kind == OPTION_FILE && !strchr("/.~", word[2])))
        return false;
    *value = word + 2;
    return true;
}

static int option_refuse_unknown(const char *word,
                                 size_t len,
                                 const char *candidates,
                                 struct err *err)
{
    if (*candidates)
        return err_set(err, -EINVAL, "option %.*s is ambiguous: %s", (int)len, word,
                       candidates);
    return err_set(err, -EINVAL, "unknown option %.*s; the nearest is %s (see --help)",
                   (int)len, word, option_nearest(word, len));
}

/* word: without typographic dashes; *value: the text after "=", or NULL. */
static int option_find_word(struct launch_options *o,
                            const char *word,
                            bool had_dashes,
                            struct option_match *ret,
                            const char **value,
                            struct err *err)
{
    struct strbuf candidates;
    size_t len = strcspn(word, "=");
    *value = word[len] ? word + len + 1 : NULL;
    if (option_find(word, len, ret))
        return 0;
    if (had_dashes) { /* one long dash instead of two hyphens */
        const char *longer = arena_printf(&o->arena, "-%s", word);
        if (!longer)
            return err_set(err, -ENOMEM, "out of memory for the command line");
        if (option_find(longer, len + 1, ret))
            return 0;
    }
    if (options_find_glued(word, ret, value))
        return 0;
    strbuf_init(&candidates, 400);
    size_t n = option_find_prefix(word, len, ret, &candidates);
    int rc =
        n == 1 ? 0 : option_refuse_unknown(word, len, strbuf_str(&candidates), err);
    strbuf_release(&candidates);
    return rc;
}

/* Takes the value of an option: after "=", or the next word unless that is an
 * option. */
static int options_take_value(struct option_words *w,
                              const struct option_match *m,
                              const char **value,
                              struct err *err)
{
    struct option_match other;
    const struct launch_option_row *row = option_row(m->id);
    const char *next = w->i + 1 < w->argc ? w->argv[w->i + 1] : NULL;
    if (!*value) {
        if (!next || option_find(next, strcspn(next, "="), &other))
            return err_set(err, -EINVAL, "%s needs a value: %s", m->name, row->value);
        *value = next;
        w->i++;
    }
    return 0;
}

static int options_take_second(struct launch_options *o,
                               struct option_words *w,
                               const struct option_match *m,
                               const char **value,
                               struct err *err)
{
    if (w->i + 1 >= w->argc)
        return err_set(err, -EINVAL, "%s needs two values: %s", m->name,
                       option_row(m->id)->value);
    *value = arena_printf(&o->arena, "%s %s", *value, w->argv[++w->i]);
    return *value ? 0 : err_set(err, -ENOMEM, "out of memory for the command line");
}

static int options_store(struct launch_options *o,
                         struct option_words *w,
                         const struct option_match *m,
                         const char *value,
                         struct err *err)
{
    const struct launch_option_row *row = option_row(m->id);
    bool is_switch = row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH;
    int rc;
    if (is_switch && value)
        return err_set(err, -EINVAL, "%s takes no value", m->name);
    if (is_switch)
        value = m->is_off ? "0" : "1";
    else if ((rc = options_take_value(w, m, &value, err)) < 0
             || (row->kind == OPTION_RANGE
                 && (rc = options_take_second(o, w, m, &value, err)) < 0))
        return rc;
    const char *before = o->on_given[m->id] ? o->text[m->id] : NULL;
    rc = option_value(row, m->name, value, before, &o->arena, &o->text[m->id], err);
    if (rc < 0)
        return rc;
    *(m->is_off ? &o->off_given[m->id] : &o->on_given[m->id]) = true;
    if (o->on_given[m->id] && o->off_given[m->id])
        return err_set(err, -EINVAL, "%s and %s contradict each other", row->name,
                       row->off);
    return m->id == OPT_CONFIG_FILE ? w->read(w->arg, o->text[m->id], o, err) : 0;
}

/* Takes one word. 1: it is not an option; the command starts here. */
static int
options_take_word(struct launch_options *o, struct option_words *w, struct err *err)
{
    struct option_match m = {.id = OPT_COUNT};
    const char *value = NULL, *typed = w->argv[w->i];
    const char *word = option_plain_dashes(typed, &o->arena);
    if (!word)
        return err_set(err, -ENOMEM, "out of memory for the command line");
    bool had_dashes = word != typed;
    bool is_end = !strcmp(word, "--") || (had_dashes && !strcmp(word, "-"));
    if (!is_end && (word[0] != '-' || !word[1]))
        return 1;
    int rc = is_end ? 0 : option_find_word(o, word, had_dashes, &m, &value, err);
    if (rc < 0)
        return rc;
    if (had_dashes)
        rc = options_warn(o,
                          arena_printf(&o->arena,
                                       "%s has a typographic dash and is read as %s",
                                       typed, is_end ? "--" : m.name),
                          err);
    if (rc < 0)
        return rc;
    if (is_end) {
        w->i++;
        return 1;
    }
    rc = options_store(o, w, &m, value, err);
    w->i++;
    return rc;
}

static int options_check_exclusive(const struct launch_options *o, struct err *err)
{
    enum { N = 4 };
    static const enum option_id sets[][N] = {
        {OPT_HOSTS, OPT_HOSTFILE, OPT_HOST_DISCOVERY_SCRIPT, OPT_SLURM},
        {OPT_GLOO, OPT_MPI, OPT_JSRUN, OPT_JSRUN},
        {OPT_SLURM, OPT_TOKEN_FILE, OPT_TOKEN_FILE, OPT_TOKEN_FILE}};
    for (size_t s = 0; s < ARRAY_LEN(sets); s++)
        for (size_t i = 0; i < N; i++)
            for (size_t k = i + 1; k < N; k++)
                if (sets[s][i] != sets[s][k] && o->on_given[sets[s][i]]
                    && o->on_given[sets[s][k]])
                    return err_set(err, -EINVAL, "%s and %s exclude each other",
                                   option_row(sets[s][i])->name,
                                   option_row(sets[s][k])->name);
    return 0;
}

static int options_check_elastic(struct launch_options *o, struct err *err)
{
    static const enum option_id idle[] = {OPT_ELASTIC_TIMEOUT, OPT_RESET_LIMIT,
                                          OPT_SPARES, OPT_BLACKLIST_COOLDOWN};
    struct elastic_options e;
    int rc = 0;

    if (options_are_elastic(o))
        return options_elastic(o, &e, err);
    if (o->text[OPT_MAX_NP])
        rc = options_warn(o,
                          arena_printf(&o->arena,
                                       "--max-np %s equals -np: the job has a fixed "
                                       "size, and a rank that fails ends it",
                                       o->text[OPT_MAX_NP]),
                          err);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(idle); i++)
        if (o->text[idle[i]])
            rc = options_warn(
                o,
                arena_printf(&o->arena,
                             "%s has no effect on a job of fixed size; see --min-np",
                             option_row(idle[i])->name),
                err);
    return rc;
}

static int options_check_all(struct launch_options *o, struct err *err)
{
    int rc = options_check_exclusive(o, err);
    if (rc < 0 || (rc = options_check_elastic(o, err)) < 0)
        return rc;
    if (o->command[0] && option_is_placeholder(o->command[0]))
        return err_set(err, -EINVAL,
                       "%.64s is a placeholder; replace the braces with a command or "
                       "an option",
                       o->command[0]);
    if (o->text[OPT_JSRUN])
        return err_set(err, -EINVAL,
                       "--jsrun: LSF's jsrun is not supported; remove it and give the "
                       "hosts with -H");
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct launch_option_row *row = option_row((enum option_id)i);
        bool is_idle =
            o->on_given[i] && row->needs != OPT_COUNT && !options_is_on(o, row->needs);
        if (is_idle)
            rc = options_warn(o,
                              arena_printf(&o->arena, "%s has no effect without %s",
                                           row->name, option_row(row->needs)->name),
                              err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int options_make_vars(struct launch_options *o, struct err *err)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct launch_option_row *row = option_row((enum option_id)i);
        if (!o->text[i] || !*row->var
            || (row->needs != OPT_COUNT && !options_is_on(o, row->needs)))
            continue;
        if (o->n_vars == OPTIONS_MAX_VARS)
            return err_set(err, -ENOMEM, "out of memory for the ranks' variables");
        int rc = option_variable(row, o->text[i], &o->arena, &o->vars[o->n_vars], err);
        if (rc < 0)
            return rc;
        o->n_vars++;
    }
    return 0;
}

int options_parse(int argc,
                  char *const *argv,
                  options_read_fn read,
                  void *arg,
                  struct launch_options *ret,
                  struct err *err)
{
    struct option_words w = {
        .argc = argc, .i = 1, .argv = argv, .read = read, .arg = arg};
    int rc = 0;
    memset(ret, 0, sizeof(*ret));
    arena_init(&ret->arena, ARENA_BYTES);
    while (rc == 0 && w.i < argc)
        rc = options_take_word(ret, &w, err);
    ret->command = argv + (w.i < argc ? w.i : argc);
    if (rc < 0 || (rc = options_check_all(ret, err)) < 0)
        return rc;
    rc = options_make_vars(ret, err);
    return rc < 0 ? rc : options_mpi_words(ret, err);
}

void options_release(struct launch_options *o)
{
    arena_release(&o->arena);
    memset(o, 0, sizeof(*o));
}

static int
options_set_controller(struct launch_options *o, const char *value, struct err *err)
{
    bool is_gloo = value && !strcasecmp(value, "gloo");
    if (!value)
        return 0;
    if (!is_gloo && strcasecmp(value, "mpi") != 0)
        return err_set(err, -EINVAL, "controller=%.64s is neither gloo nor mpi", value);
    o->text[OPT_GLOO] = is_gloo ? "1" : NULL;
    o->text[OPT_MPI] = is_gloo ? NULL : "1";
    return 0;
}

int options_set_key(struct launch_options *o,
                    const char *key,
                    const char *value,
                    struct err *err)
{
    if (!strcmp(key, "controller"))
        return options_set_controller(o, value, err);
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct launch_option_row *row = option_row((enum option_id)i);
        if (!*row->key || strcmp(row->key, key) != 0)
            continue;
        if (!value)
            return 0;
        const char *copy = arena_strdup(&o->arena, value);
        if (!copy)
            return err_set(err, -ENOMEM, "out of memory for %s", key);
        return option_value(row, key, copy, NULL, &o->arena, &o->text[i], err);
    }
    size_t len = 0;
    const char *nearest = options_nearest_key(key, &len);
    return err_set(err, -EINVAL, "unknown key %.64s; the nearest is %.*s", key,
                   (int)len, nearest);
}

bool options_is_on(const struct launch_options *o, enum option_id id)
{
    return o->text[id] && strcmp(o->text[id], "0") != 0;
}

uint32_t
options_u32(const struct launch_options *o, enum option_id id, uint32_t fallback)
{
    uint32_t v = fallback;
    if (o->text[id])
        (void)parse_u32("", o->text[id], 0, UINT32_MAX, &v, NULL); /* checked before */
    return v;
}

uint64_t
options_ms(const struct launch_options *o, enum option_id id, uint64_t fallback)
{
    uint64_t v = fallback;
    if (o->text[id])
        (void)parse_duration_ms("", o->text[id], 0, UINT64_MAX, &v,
                                NULL); /* was checked */
    return v;
}

struct tf_roles options_tf_roles(const struct launch_options *o)
{
    struct tf_roles roles = {.n_ps = options_u32(o, OPT_TF_PS, 0),
                             .has_evaluator = options_is_on(o, OPT_TF_EVALUATOR)};
    if (o->text[OPT_FRAMEWORK]) /* checked: as in the table */
        (void)framework_parse(o->text[OPT_FRAMEWORK], &roles.framework, NULL);
    return roles;
}
