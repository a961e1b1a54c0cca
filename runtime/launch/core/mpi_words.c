/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts for Horovod over MPI pass arguments for mpirun, most of which have no effect
 * here. Words are separated by blanks, with one hyphen or two, as in mpirun. Called by
 * options.c. */
#include "runtime/launch/core/mpi_words.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

struct mpi_word {
    const char *name;
    unsigned n_values;
    enum { MPI_IDLE, MPI_SILENT, MPI_VARIABLE, MPI_BIND } kind;
};

static const struct mpi_word table[] = {
    {"x", 1, MPI_VARIABLE},
    {"bind-to", 1, MPI_BIND},
    {"allow-run-as-root", 0, MPI_SILENT},
    {"oversubscribe", 0, MPI_SILENT},
    {"tag-output", 0, MPI_SILENT},
    {"mca", 2, MPI_IDLE},
    {"map-by", 1, MPI_IDLE},
    {"rank-by", 1, MPI_IDLE},
    {"rankfile", 1, MPI_IDLE},
    {"rf", 1, MPI_IDLE},
};

static const struct mpi_word *mpi_word_find(const char *word)
{
    static const struct mpi_word other = {"", 0, MPI_IDLE};
    word += word[0] == '-';
    word += word[0] == '-';
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!strcmp(word, table[i].name))
            return &table[i];
    return &other;
}

static void mpi_take_binding(struct launch_options *o, const char *to)
{
    static const struct {
        const char *to, *binding;
    } same[] = {{"none", "none"},   {"core", "cores"},   {"hwthread", "cores"},
                {"socket", "numa"}, {"package", "numa"}, {"numa", "numa"}};
    for (size_t i = 0; i < ARRAY_LEN(same) && !o->on_given[OPT_BINDING]; i++)
        if (!strcmp(to, same[i].to))
            o->text[OPT_BINDING] = same[i].binding;
}

/* Takes NAME=VALUE. The ranks inherit NAME without a value anyway. */
static int mpi_take_variable(struct launch_options *o, char *pair, struct err *err)
{
    char *equals = strchr(pair, '=');
    if (!equals)
        return 0;
    if (o->n_vars == OPTIONS_MAX_VARS || equals == pair)
        return err_set(err, -EINVAL, "--mpi-args: -x %.64s: %s", pair,
                       equals == pair ? "the name is empty" : "too many variables");
    *equals = '\0';
    o->vars[o->n_vars++] = (struct option_var){pair, equals + 1};
    return 0;
}

static char *mpi_next_word(char **at)
{
    char *word = *at + strspn(*at, " ");
    size_t len = strcspn(word, " ");
    if (!len)
        return NULL;
    *at = word + len;
    if (**at)
        *(*at)++ = '\0';
    return word;
}

static int mpi_option_take(struct launch_options *o,
                           enum option_id id,
                           struct strbuf *idle,
                           struct err *err)
{
    char *at = arena_strdup(&o->arena, o->text[id]), *word;
    const char *option = option_row(id)->name;
    if (!at)
        return err_set(err, -ENOMEM, "out of memory for %s", option);
    while ((word = mpi_next_word(&at)) != NULL) {
        const struct mpi_word *w = mpi_word_find(word);
        char *value = word; /* the last value of the word */
        if (w->kind == MPI_IDLE)
            strbuf_printf(idle, " %s", word);
        for (unsigned i = 0; i < w->n_values; i++) {
            value = mpi_next_word(&at);
            if (!value)
                return err_set(err, -EINVAL, "%s: %s needs a value", option, word);
            if (w->kind == MPI_IDLE)
                strbuf_printf(idle, " %s", value);
        }
        int rc = w->kind == MPI_VARIABLE ? mpi_take_variable(o, value, err) : 0;
        if (rc < 0)
            return rc;
        if (w->kind == MPI_BIND)
            mpi_take_binding(o, value);
    }
    return 0;
}

int options_mpi_words(struct launch_options *o, struct err *err)
{
    static const enum option_id ids[] = {OPT_MPI_ARGS, OPT_BINDING_ARGS};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(ids) && rc == 0; i++) {
        struct strbuf idle;
        if (!o->text[ids[i]])
            continue;
        strbuf_init(&idle, 1u << 20);
        rc = mpi_option_take(o, ids[i], &idle, err);
        if (rc == 0 && idle.n) {
            const char *sentence = arena_printf(
                &o->arena, "%s: mpirun is not used, so these have no effect:%s",
                option_row(ids[i])->name, strbuf_str(&idle));
            if (!sentence)
                rc = err_set(err, -ENOMEM, "out of memory for %s",
                             option_row(ids[i])->name);
            else if (o->n_warnings < OPTIONS_MAX_WARNINGS)
                o->warnings[o->n_warnings++] = sentence;
        }
        strbuf_release(&idle);
    }
    return rc;
}
