/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of --hvd. Parser, --hvd=help, the list of the manual and the messages come
 * from this table; spank_options_test keeps spank_hvd.8 equal to it. Pure.
 *
 *   X(name, flag, setting, value, help)
 *
 * flag     the option of horovodrun (launch/core/option_table.h) that checks and
 *          converts the value; COUNT: none
 * setting  what the key sets: a variable of the runtime (core/knob_table.h) or one of
 *          the plugin's own, OWN_*
 * value    name of the value in the help; "": that of the flag
 * help     "": that of the flag, or the variable's meaning
 *
 * Besides these, each variable of the runtime's table is a key under its own name. */
#ifndef SPANK_PLUGIN_KEYS_H
#define SPANK_PLUGIN_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/knobs.h"
#include "runtime/launch/core/options.h"

/* clang-format off */

#define STEP_KEYS(X)                                                                          \
    X(timeout, START_TIMEOUT, KNOB_HOROVOD_START_TIMEOUT, "",                                 \
      "how long tasks wait for each other at the start: before their programs and in the "     \
      "runtime (default: 600)")                                                               \
    X(iface, COUNT, OWN_IFACE, "NAME",                                                        \
      "network interface of the job's own connections and NCCL's, like ib0 (default: the "    \
      "one on the route to srun)")                                                            \
    X(verbose, VERBOSE, OWN_VERBOSE, "", "print what srun and each node set up")              \
    X(report, REPORT, KNOB_HVD_REPORT, "", "")                                                \
    X(dry-run, COUNT, KNOB_HVD_DRY_RUN, "", "")                                               \
    X(log-level, LOG_LEVEL, KNOB_HOROVOD_LOG_LEVEL, "",                                       \
      "log level of the runtime (default: WARNING)")                                          \
    X(output, OUTPUT_FILENAME, OWN_OUTPUT, "",                                                \
      "write each rank's output to DIR/rank.N/stdout and stderr, not to srun")                \
    X(comment, COUNT, OWN_COMMENT, "off|failure|progress",                                    \
      "what one line in the job's comment says: the first failure, or also what the step "    \
      "does, twice a minute at most (default: failure)")                                      \
    X(timeline, TIMELINE, KNOB_HOROVOD_TIMELINE, "", "")                                      \
    X(autotune, AUTOTUNE, KNOB_HOROVOD_AUTOTUNE, "", "")                                      \
    X(fusion, FUSION_THRESHOLD, KNOB_HOROVOD_FUSION_THRESHOLD, "", "")                        \
    X(compression, COUNT, KNOB_HVD_COMPRESSION, "NAME", "")                                   \
    X(backend, COUNT, KNOB_HVD_TRANSPORT, "auto|tcp",                                         \
      "tcp: no shared memory between the tasks of a node (default: auto)")                    \
    X(nancheck, COUNT, KNOB_HVD_NANCHECK, "", "")                                             \
    X(elastic, COUNT, KNOB_HOROVOD_ELASTIC, "",                                               \
      "refused: the size of a job is fixed in this version")                                  \
    X(framework, FRAMEWORK, OWN_FRAMEWORK, "", "")                                            \
    X(ps, TF_PS, OWN_PS, "", "")                                                              \
    X(evaluator, TF_EVALUATOR, OWN_EVALUATOR, "", "")

/* clang-format on */

/* What a key sets: a knob_id, or one of these. */
enum own_setting {
    OWN_IFACE = KNOB_COUNT,
    OWN_VERBOSE,
    OWN_OUTPUT,
    OWN_COMMENT,
    OWN_FRAMEWORK,
    OWN_PS,
    OWN_EVALUATOR,
    SETTING_COUNT
};

#define KEY_NAME_MAX 64
struct step_key {
    const char *name, *value, *help; /* value "": a switch, or any text */
    enum option_id flag;             /* OPT_COUNT: none */
    uint32_t setting;
    bool is_switch; /* the name alone means 1 */
};
/* False: no such key; the variables of the runtime included. */
bool step_key_find(const char *name, struct step_key *ret);
/* The name under which a setting is printed and sent: the variable's or the key's. */
const char *setting_name(uint32_t setting);

/* Checks the value of a key and converts it to the form that the setting has: the text
 * of the variable, "1" and "0" for a switch. value NULL: the key stood alone. -EINVAL,
 * -ERANGE, -ENOTSUP: the message begins with `from` and names key, value and what is
 * allowed. */
int step_key_check(const struct step_key *k,
                   const char *from,
                   const char *value,
                   char *ret,
                   size_t size_bytes,
                   struct err *err);
/* Refuses a name that is no key, with the nearest one. */
int step_key_refuse(const char *name, const char *from, struct err *err);
/* True if the settings are numbers that can be compared: *ret, in the variable's
 * unit. */
bool setting_number(uint32_t setting, const char *text, uint64_t *ret);

void step_keys_help(struct strbuf *out); /* for a terminal */
void step_keys_man(struct strbuf *out);  /* the list of a man page (mdoc) */

#endif
