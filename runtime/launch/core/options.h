/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of horovodrun and perseusrun: one table, from which parsing, help
 * and the check of the man page come. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_OPTIONS_H
#define RUNTIME_LAUNCH_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define OPTIONS_MAX_NP 4096 /* processes on one host */

struct run_options { /* strings point into argv */
    uint32_t np;     /* 0: not given */
    const char *hosts, *hostfile, *output_dir, *log_level;
    uint64_t start_timeout_ms; /* 0: not given */
    bool with_timestamp, verbose, is_gloo, wants_help, wants_version;
    char *const *command; /* NULL-terminated; [0] is NULL without a command */
};

/* Options end at the first word that is none, or after "--". -EINVAL with a sentence;
 * an unknown option's sentence gives the nearest right one. */
int options_parse(int argc,
                  char *const *argv,
                  struct run_options *ret,
                  struct err *err);
void options_help(const char *program, struct strbuf *out);

#endif
