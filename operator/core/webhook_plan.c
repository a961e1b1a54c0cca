/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in a list, in the order in which they were held.
 *
 *     hold --> HELD --confirm--> WAITING --take--> SENDING --answer--> ended
 *                                   ^                 |
 *                                   '-----retry-------'
 *
 * A write of a status whose answer is lost may have happened. So its message is held
 * before the write, and confirmed by the answer, or later by the job as the API server
 * shows it.
 *
 * Invariants
 *  1. is_first is true for exactly one message of each job: the earliest in the list.
 *     Others are not taken. So a look at the list costs one step for each message.
 *  2. At most one message of a job is held for each state.
 *  3. A message leaves by the answer to its attempt; without an answer only when the
 *     queue is full, or after WEBHOOK_LIFE_NS in HELD.
 *
 * The random part of a delay comes from the message's id, which is a hash. Called by
 * webhook.c. */
#include "operator/core/webhook_plan.h"

#include <string.h>

#include "runtime/base/mem.h"

const char *webhook_end_name(enum webhook_end e)
{
    static const char *const names[] = {
        [WEBHOOK_DELIVERED] = "delivered", [WEBHOOK_REFUSED] = "refused",
        [WEBHOOK_EXPIRED] = "expired",     [WEBHOOK_DROPPED] = "dropped",
        [WEBHOOK_RETRIED] = "retried",
    };

    return names[e];
}

void webhook_message_free(struct webhook_message *m)
{
    if (!m)
        return;
    mem_free(m->key);
    mem_free(m->body);
    mem_free(m);
}

void webhook_queue_release(struct webhook_queue *q)
{
    while (q->first) {
        struct webhook_message *m = q->first;

        q->first = m->next;
        webhook_message_free(m);
    }
    *q = (struct webhook_queue){0};
}

/* --- the list --------------------------------------------------------------------- */

/* The first message of that job from m on. */
static struct webhook_message *next_of_job(struct webhook_message *m, const char *uid)
{
    while (m && strcmp(m->uid, uid) != 0)
        m = m->next;
    return m;
}

static void
set_stage(struct webhook_queue *q, struct webhook_message *m, enum webhook_stage stage)
{
    q->n_held -= m->stage == WEBHOOK_HELD;
    q->n_sending -= m->stage == WEBHOOK_SENDING;
    m->stage = stage;
    q->n_held += m->stage == WEBHOOK_HELD;
    q->n_sending += m->stage == WEBHOOK_SENDING;
}

static void webhook_queue_remove(struct webhook_queue *q, struct webhook_message *m)
{
    struct webhook_message **p = &q->first, *before = NULL, *heir;

    while (*p != m) {
        before = *p;
        p = &before->next;
    }
    *p = m->next;
    if (q->last == m)
        q->last = before;
    set_stage(q, m, WEBHOOK_WAITING);
    q->n--;
    heir = m->is_first ? next_of_job(m->next, m->uid) : NULL;
    if (heir)
        heir->is_first = true;
    webhook_message_free(m);
}

static bool drop_oldest(struct webhook_queue *q)
{
    struct webhook_message *m = q->first;

    while (m && m->stage == WEBHOOK_SENDING)
        m = m->next;
    if (m)
        webhook_queue_remove(q, m);
    return m != NULL;
}

/* Held messages of the job: those about that state, or all. */
static void forget_held(struct webhook_queue *q,
                        const char *uid,
                        bool has_state,
                        enum job_state state)
{
    struct webhook_message *m = next_of_job(q->first, uid);

    while (m && q->n_held > 0) {
        struct webhook_message *next = next_of_job(m->next, uid);

        if (m->stage == WEBHOOK_HELD && (!has_state || m->to == state))
            webhook_queue_remove(q, m);
        m = next;
    }
}

bool webhook_queue_hold(struct webhook_queue *q,
                        struct webhook_message *m,
                        uint64_t now_ns)
{
    bool is_full;

    forget_held(q, m->uid, true, m->to);
    is_full = q->n >= WEBHOOK_MAX_QUEUE && drop_oldest(q);
    m->next = NULL;
    m->is_first = !next_of_job(q->first, m->uid);
    m->stage = WEBHOOK_HELD;
    m->born_ns = now_ns;
    m->due_ns = now_ns + WEBHOOK_LIFE_NS;
    m->n_failures = 0;
    if (q->last)
        q->last->next = m;
    else
        q->first = m;
    q->last = m;
    q->n++;
    q->n_held++;
    return is_full;
}

void webhook_queue_confirm(struct webhook_queue *q,
                           const char *uid,
                           enum job_state state,
                           uint64_t now_ns)
{
    struct webhook_message *m = q->n_held > 0 ? next_of_job(q->first, uid) : NULL;

    while (m && (m->stage != WEBHOOK_HELD || m->to != state))
        m = next_of_job(m->next, uid);
    if (!m)
        return;
    set_stage(q, m, WEBHOOK_WAITING);
    m->born_ns = m->due_ns = now_ns;
    forget_held(q, uid, false, state);
}

/* --- sending ---------------------------------------------------------------------- */

struct webhook_message *webhook_queue_take(struct webhook_queue *q, uint64_t now_ns)
{
    struct webhook_message *best = NULL, *next;

    for (struct webhook_message *m = q->first; m; m = next) {
        next = m->next;
        if (m->due_ns > now_ns || !m->is_first)
            continue;
        if (m->stage == WEBHOOK_HELD)
            webhook_queue_remove(q, m);
        else if (m->stage == WEBHOOK_WAITING && (!best || m->due_ns < best->due_ns))
            best = m;
    }
    if (!best || q->n_sending == WEBHOOK_AT_ONCE)
        return NULL;
    set_stage(q, best, WEBHOOK_SENDING);
    return best;
}

uint64_t webhook_queue_next_ns(const struct webhook_queue *q)
{
    uint64_t next_ns = UINT64_MAX;

    if (q->n_sending == WEBHOOK_AT_ONCE)
        return next_ns;
    for (const struct webhook_message *m = q->first; m; m = m->next) {
        if (m->is_first && m->stage != WEBHOOK_SENDING && m->due_ns < next_ns)
            next_ns = m->due_ns;
    }
    return next_ns;
}

/* 2xx, and what another attempt may change. */
static enum webhook_end webhook_end_of_status(int status)
{
    if (status >= 200 && status < 300)
        return WEBHOOK_DELIVERED;
    if (status == 0 || status == 408 || status == 425 || status == 429 || status >= 500)
        return WEBHOOK_RETRIED;
    return WEBHOOK_REFUSED;
}

/* Half of the back-off is random. */
static uint64_t backoff_ns(const struct webhook_message *m)
{
    uint64_t ns = WEBHOOK_FIRST_NS;
    uint32_t h = 2166136261u; /* FNV-1a */

    for (unsigned i = 1; i < m->n_failures && ns < WEBHOOK_LONGEST_NS; i++)
        ns *= 2;
    if (ns > WEBHOOK_LONGEST_NS)
        ns = WEBHOOK_LONGEST_NS;
    for (const char *p = m->id; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    h = (h ^ m->n_failures) * 16777619u;
    return ns / 2 + ns / 2 * (h >> 8) / (UINT32_MAX >> 8);
}

enum webhook_end webhook_queue_answer(struct webhook_queue *q,
                                      struct webhook_message *m,
                                      int status,
                                      uint32_t retry_after_s,
                                      uint64_t now_ns,
                                      uint64_t *ret_delay_ns)
{
    enum webhook_end end = webhook_end_of_status(status);
    uint64_t delay_ns = 0, asked_ns = retry_after_s * 1000000000ull;

    m->n_failures++;
    if (end == WEBHOOK_RETRIED) {
        delay_ns = backoff_ns(m);
        if (asked_ns > WEBHOOK_LONGEST_NS)
            asked_ns = WEBHOOK_LONGEST_NS;
        if (asked_ns > delay_ns)
            delay_ns = asked_ns;
        if (now_ns + delay_ns > m->born_ns + WEBHOOK_LIFE_NS)
            end = WEBHOOK_EXPIRED;
    }
    if (end == WEBHOOK_RETRIED) {
        set_stage(q, m, WEBHOOK_WAITING);
        m->due_ns = now_ns + delay_ns;
    } else
        webhook_queue_remove(q, m);
    *ret_delay_ns = delay_ns;
    return end;
}
