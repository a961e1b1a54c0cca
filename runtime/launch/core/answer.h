/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that several scrapes send at the same time, so that clients that read slowly
 * keep few of them in memory. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ANSWER_H
#define RUNTIME_LAUNCH_CORE_ANSWER_H

#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/base/strbuf.h"

#define ANSWER_SHARE_NS (2 * NS_PER_S)

struct answer {
    unsigned n_users; /* scrapes that send it */
    uint64_t made_ns;
    struct strbuf text;
};
struct answers {           /* zeroed: none */
    struct answer *newest; /* that may be shared, while a scrape sends it; or NULL */
};

/* The answer that a new scrape must share; NULL: it makes one. */
struct answer *answers_find(const struct answers *s, uint64_t now_ns);
/* Adds an answer without users, made now. */
void answers_add(struct answers *s, struct answer *a, uint64_t now_ns);
void answer_join(struct answer *a);
/* The last user frees it. a may be of another origin than answers_add. */
void answers_leave(struct answers *s, struct answer *a);

#endif
