/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of horovodrun and perseusrun, by the table of option_table.h. Pure:
 * the config file is read by the caller's function. */
#ifndef RUNTIME_LAUNCH_CORE_OPTIONS_H
#define RUNTIME_LAUNCH_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/arena.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/core/option_table.h"

enum option_id {
#define ID(id, ...) OPT_##id,
    OPTIONS(ID)
#undef ID
        OPT_COUNT
};

enum option_kind {
    OPTION_FLAG,   /* on when given */
    OPTION_SWITCH, /* on, off or not given */
    OPTION_TEXT,
    OPTION_FILE,    /* a path: text, but completed by file names */
    OPTION_NUMBER,  /* a whole number from min to max */
    OPTION_MIB,     /* the same, in MiB; bytes in the variable */
    OPTION_DECIMAL, /* a number from min to max */
    OPTION_SECONDS, /* 30, 0.5, 200ms, 5m; min and max in seconds */
    OPTION_RANGE,   /* two words: whole numbers, the first not above the second */
    OPTION_LIST,    /* words between commas; given again: appended */
    OPTION_CPUS,    /* whole numbers between commas */
    OPTION_CHOICE   /* one of the words of `value`, in any case */
};

enum option_group {
#define GROUP(id, title) OPTION_GROUP_##id,
    OPTION_GROUPS(GROUP)
#undef GROUP
        OPTION_GROUP_COUNT
};

struct launch_option_row { /* columns: option_table.h */
    const char *name, *alias, *off, *off_alias, *value;
    enum option_kind kind;
    double min, max;
    const char *var, *key;
    enum option_id needs;
    enum option_group group;
    const char *help;
};
const struct launch_option_row *option_row(enum option_id id);

struct option_var {
    const char *name, *value;
};
#define OPTIONS_MAX_VARS     64
#define OPTIONS_MAX_WARNINGS 32

struct launch_options { /* release with options_release */
    /* What was given, checked and in one form: "1" and "0" for flags and switches, a
     * CHOICE as the table spells it. NULL: not given. */
    const char *text[OPT_COUNT];
    bool on_given[OPT_COUNT], off_given[OPT_COUNT]; /* on the command line */
    char *const *command; /* points into argv; [0] is NULL without a command */
    struct option_var vars[OPTIONS_MAX_VARS]; /* for the ranks' environment */
    size_t n_vars;
    const char *warnings[OPTIONS_MAX_WARNINGS]; /* one sentence each */
    size_t n_warnings;
    struct arena arena; /* owns the texts that are not in argv */
};

/* Reads the config file path and calls options_set_key for each of its keys. */
typedef int (*options_read_fn)(void *arg,
                               const char *path,
                               struct launch_options *o,
                               struct err *err);

/* Options end at the first word that is none, or after "--". -EINVAL with a sentence;
 * an unknown option's sentence gives the nearest right one. An unambiguous beginning of
 * a long option will do, as with Horovod's argparse. Release ret in every case. */
int options_parse(int argc,
                  char *const *argv,
                  options_read_fn read,
                  void *arg,
                  struct launch_options *ret,
                  struct err *err);
void options_release(struct launch_options *o); /* accepts a zeroed struct */
/* key as "params.cycle_time_ms"; value is a scalar's text, copied; NULL: the key is
 * checked and nothing is set. */
int options_set_key(struct launch_options *o,
                    const char *key,
                    const char *value,
                    struct err *err);
/* True when some key is in this section ("params"). */
bool options_has_section(const char *section);
/* A key, or a section where key has no dot: the first *ret_len bytes. */
const char *options_nearest_key(const char *key, size_t *ret_len);

bool options_is_on(const struct launch_options *o,
                   enum option_id id); /* false: not given */
uint32_t
options_u32(const struct launch_options *o, enum option_id id, uint32_t fallback);
uint64_t
options_ms(const struct launch_options *o, enum option_id id, uint64_t fallback);

void options_help(const char *program, struct strbuf *out);

#endif
