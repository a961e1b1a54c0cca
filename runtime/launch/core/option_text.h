/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings of options: exact, by prefix, the nearest one, with typographic dashes; and
 * placeholders of documents. */
#ifndef RUNTIME_LAUNCH_CORE_OPTION_TEXT_H
#define RUNTIME_LAUNCH_CORE_OPTION_TEXT_H

#include "runtime/launch/core/options.h"

struct option_match {
    enum option_id id; /* OPT_COUNT: none */
    const char *name;  /* the complete spelling */
    bool is_off;       /* name is the opposite option */
};

/* Finds an option by its exact spelling. */
bool option_find(const char *name, size_t len, struct option_match *ret);
/* Finds an option by the prefix of a "--" spelling. Returns the number of matching
 * options; out lists them. */
size_t option_find_prefix(const char *name,
                          size_t len,
                          struct option_match *ret,
                          struct strbuf *out);
const char *option_nearest(const char *name, size_t len);
/* Returns text with hyphens instead of typographic dashes (U+2010 to U+2015, U+2212)
 * before "=", in the arena; text itself if it has none or does not start with a dash;
 * NULL: out of memory. */
const char *option_plain_dashes(const char *text, struct arena *arena);
/* True if text begins with a name in braces, "{NP}" or "{HOST1}:4": documents print such
 * placeholders, and no value or command begins so. */
bool option_is_placeholder(const char *text);

#endif
