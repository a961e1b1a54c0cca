/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of horovodrun and perseusrun, from the table in option_table.h.
 * Pure: a function of the caller reads the config file. */
#ifndef RUNTIME_LAUNCH_CORE_OPTIONS_H
#define RUNTIME_LAUNCH_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/arena.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/tf_world.h"
#include "runtime/launch/core/option_table.h"

enum option_id {
#define ID(id, ...) OPT_##id,
    OPTIONS(ID)
#undef ID
        OPT_COUNT
};

enum option_kind {
    OPTION_FLAG,   /* on if given */
    OPTION_SWITCH, /* on, off or not given */
    OPTION_TEXT,
    OPTION_FILE,    /* a path: text that is completed with file names */
    OPTION_NUMBER,  /* a whole number from min to max */
    OPTION_MIB,     /* the same in MiB; the variable is in bytes */
    OPTION_DECIMAL, /* a number from min to max */
    OPTION_SECONDS, /* 30, 0.5, 200ms, 5m; min and max in seconds */
    OPTION_RANGE, /* two words: whole numbers, the first not greater than the second */
    OPTION_LIST,  /* words separated by commas; appended if repeated */
    OPTION_CPUS,  /* whole numbers separated by commas */
    OPTION_CHOICE /* one of the words in `value`, case-insensitive */
};

enum option_group {
#define GROUP(id, title) OPTION_GROUP_##id,
    OPTION_GROUPS(GROUP)
#undef GROUP
        OPTION_GROUP_COUNT
};

struct launch_option_row { /* for the columns see option_table.h */
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
    /* The given values, checked and converted: "1" and "0" for flags and switches, a
     * CHOICE as in the table. NULL: not given. */
    const char *text[OPT_COUNT];
    bool on_given[OPT_COUNT], off_given[OPT_COUNT]; /* given on the command line */
    char *const *command; /* points into argv; [0] is NULL without a command */
    struct option_var vars[OPTIONS_MAX_VARS]; /* for the environment of the ranks */
    size_t n_vars;
    const char *warnings[OPTIONS_MAX_WARNINGS]; /* one message each */
    size_t n_warnings;
    struct arena arena; /* owns texts that are not in argv */
};

/* Reads the config file path and calls options_set_key for each of its keys. */
typedef int (*options_read_fn)(void *arg,
                               const char *path,
                               struct launch_options *o,
                               struct err *err);

/* Options end at the first word that is not an option, or after "--". -EINVAL with err;
 * the message for an unknown option contains the nearest one. An unambiguous prefix of
 * a long option is accepted, as in Horovod's argparse. Release ret in every case. */
int options_parse(int argc,
                  char *const *argv,
                  options_read_fn read,
                  void *arg,
                  struct launch_options *ret,
                  struct err *err);
void options_release(struct launch_options *o); /* accepts a zeroed struct */
/* key: as in "params.cycle_time_ms". value: text of a scalar, which is copied; NULL:
 * only checks the key. */
int options_set_key(struct launch_options *o,
                    const char *key,
                    const char *value,
                    struct err *err);
/* True if a key has this section ("params"). */
bool options_has_section(const char *section);
/* The nearest key, or a section if key has no dot: the first *ret_len bytes of the
 * result. */
const char *options_nearest_key(const char *key, size_t *ret_len);

bool options_is_on(const struct launch_options *o,
                   enum option_id id); /* false: off or not given */
uint32_t
options_u32(const struct launch_options *o, enum option_id id, uint32_t fallback);
uint64_t
options_ms(const struct launch_options *o, enum option_id id, uint64_t fallback);

/* --framework with --tf-ps and --tf-evaluator. */
struct tf_roles options_tf_roles(const struct launch_options *o);

/* The job may change its size, or replaces ranks that fail: with --min-np, with a --max-np
 * that is not -np, and with -np and a discovery script (not for TensorFlow's strategies,
 * which need a fixed size). */
bool options_are_elastic(const struct launch_options *o);
struct elastic_options {
    uint32_t start, min, max; /* ranks; max 0: as many as the hosts have slots */
    uint32_t spares;          /* processes beyond the ranks */
    uint32_t reset_limit;     /* ELASTIC_NO_LIMIT: none */
    uint64_t timeout_ms;      /* for which the job waits for a world */
    uint64_t exclude_ns, exclude_max_ns; /* of a slot; see elastic.h */
};
/* Of a job that is elastic. -EINVAL: the numbers contradict each other or are missing, or
 * the strategy needs a fixed size; options_parse has checked this. */
int options_elastic(const struct launch_options *o,
                    struct elastic_options *ret,
                    struct err *err);

void options_help(const char *program, struct strbuf *out);

#endif
