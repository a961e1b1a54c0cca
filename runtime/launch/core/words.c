/* SPDX-License-Identifier: Apache-2.0 */
/* See words.h. Option names must be complete; getopt_long would accept prefixes. Called
 * by serve.c and await.c. */
#include "runtime/launch/core/words.h"

#include <errno.h>
#include <string.h>

static size_t
word_find(const char *word, size_t len, const char *const *names, size_t n)
{
    size_t k = 0;
    while (k < n && (strlen(names[k]) != len || strncmp(names[k], word, len) != 0))
        k++;
    return k;
}

ssize_t words_take(char *const *argv,
                   const char *const *names,
                   const char **values,
                   size_t n,
                   struct err *err)
{
    size_t i = 0;
    for (; argv[i] && strncmp(argv[i], "--", 2) == 0 && argv[i][2]; i++) {
        size_t len = strcspn(argv[i], "="), k = word_find(argv[i], len, names, n);
        if (k == n)
            return err_set(err, -EINVAL, "unknown option %s", argv[i]);
        values[k] = argv[i][len] ? argv[i] + len + 1 : argv[i + 1] ? argv[++i] : NULL;
        if (!values[k])
            return err_set(err, -EINVAL, "a value is missing after %s", names[k]);
    }
    return (ssize_t)i;
}
