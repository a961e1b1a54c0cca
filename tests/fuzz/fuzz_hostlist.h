/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of every parser of host lists. */
#ifndef TESTS_FUZZ_FUZZ_HOSTLIST_H
#define TESTS_FUZZ_FUZZ_HOSTLIST_H

#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/contract/hostlist.h"
#include "tests/fuzz/fuzz.h"

typedef int (*hostlist_parse_fn)(const char *s, struct hostlist *ret, struct err *err);
typedef void (*hostlist_render_fn)(const struct hostlist *hl, struct strbuf *out);

static inline void fuzz_same_hosts(const struct hostlist *a, const struct hostlist *b)
{
    MUST(a->n == b->n);
    for (size_t i = 0; i < a->n; i++)
        MUST(strcmp(a->v[i].name, b->v[i].name) == 0 && a->v[i].slots == b->v[i].slots);
}

/* Refused: the list is empty and the error has its message. Accepted: rendered (where
 * there is a form) and parsed again it is the same list. */
static inline void fuzz_hostlist(const uint8_t *data,
                                 size_t n,
                                 hostlist_parse_fn parse,
                                 hostlist_render_fn render)
{
    char *text = fuzz_text(data, n);
    CLEANUP(hostlist_release) struct hostlist hl = {0};
    CLEANUP(hostlist_release) struct hostlist again = {0};
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct err err = ERR_INIT;
    int rc = parse(text, &hl, &err);

    free(text);
    if (rc) {
        MUST(rc == -EINVAL || rc == -E2BIG);
        MUST(hl.n == 0 && err.code == rc && err.text[0]);
        return;
    }
    MUST(hl.n <= HOSTLIST_MAX_HOSTS);
    if (!render)
        return;
    strbuf_init(&b, 64u << 20);
    render(&hl, &b);
    MUST(strbuf_status(&b) == 0);
    if (hl.n || parse == hostlist_parse_hostfile)
        MUST(parse(strbuf_str(&b), &again, &err) == 0);
    fuzz_same_hosts(&hl, &again);
}

#endif
