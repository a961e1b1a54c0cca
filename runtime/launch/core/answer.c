/* SPDX-License-Identifier: Apache-2.0 */
/* An answer that is being sent also serves the requests of the next ANSWER_SHARE_NS. If
 * the caller ends each scrape after time t, there are at most t / ANSWER_SHARE_NS + 2
 * answers: any two were made ANSWER_SHARE_NS apart, and the oldest lives for
 * t + ANSWER_SHARE_NS. A scrape without others always gets a new one. Called by
 * metrics.c. */
#include "runtime/launch/core/answer.h"

#include "runtime/base/mem.h"

struct answer *answers_find(const struct answers *s, uint64_t now_ns)
{
    if (s->newest && now_ns - s->newest->made_ns < ANSWER_SHARE_NS)
        return s->newest;
    return NULL;
}

void answers_add(struct answers *s, struct answer *a, uint64_t now_ns)
{
    a->made_ns = now_ns;
    s->newest = a;
}

void answer_join(struct answer *a)
{
    a->n_users++;
}

void answers_leave(struct answers *s, struct answer *a)
{
    if (--a->n_users > 0)
        return;
    if (s->newest == a)
        s->newest = NULL;
    strbuf_release(&a->text);
    mem_free(a);
}
