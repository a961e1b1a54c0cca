/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings of options: finding one, the nearest to a wrong one, typographic dashes. */
#ifndef RUNTIME_LAUNCH_CORE_OPTION_TEXT_H
#define RUNTIME_LAUNCH_CORE_OPTION_TEXT_H

#include "runtime/launch/core/options.h"

struct option_match {
    enum option_id id; /* OPT_COUNT: none */
    const char *name;  /* the spelling in full */
    bool is_off;       /* the opposite was asked for */
};

/* By its exact spelling. */
bool option_find(const char *name, size_t len, struct option_match *ret);
/* By the beginning of a "--" spelling that fits one option only; else how many fit and,
 * in out, which. */
size_t option_find_prefix(const char *name,
                          size_t len,
                          struct option_match *ret,
                          struct strbuf *out);
const char *option_nearest(const char *name, size_t len);
/* text without typographic dashes (U+2010 to U+2015, U+2212) in the part before "=", in
 * the arena; text itself when it has none or does not begin with a dash; NULL: out of
 * memory. */
const char *option_plain_dashes(const char *text, struct arena *arena);

#endif
