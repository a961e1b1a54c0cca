/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election.
 *
 *              GET                      free, expired or ours
 *   .--> look -----> held by another    ---------------------> CREATE or UPDATE
 *   |                      |                                          |
 *   '---- retry / 4 -------'        conflict, no answer: look again --+
 *                                                                     | OK
 *   lead until sent + renew  <----------------------------------------'
 *        UPDATE again each retry; no answer: look, then UPDATE
 *
 * Invariants
 *  1. This process leads from the answer to one of its writes until renew_ns after that
 *     write was SENT. No other process can have seen the write before it was sent, and
 *     all of them wait duration_ns (more than renew_ns) after they have seen it. So two
 *     processes never lead at the same time, however late answers are and however long
 *     a process was stopped.
 *  2. A record of another process expires by the local time at which it was seen to
 *     change; the times in the record are for people. A record that is seen for the
 *     first time counts as changed.
 *  3. Each write has the resourceVersion that it was derived from: of two writers one
 *     succeeds.
 *  4. A write without an answer does not count as done: the record is read, then
 *     written again.
 * Called by elect.c; rival.c and check.c read records with it. */
#include "operator/core/lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "operator/doc/json.h"

#define NS_PER_S            1000000000ull
#define MAX_DURATION_S      3600 /* of a record; larger values are ignored */
#define LOOKS_PER_RETRY     4u
#define RELEASED_DURATION_S 1

void lease_init(struct lease *l, const struct lease_config *config)
{
    *l = (struct lease){.config = *config, .next = LEASE_GET};
}

enum lease_verb lease_next(const struct lease *l, uint64_t now_ns)
{
    return l->is_done || l->is_open || now_ns < l->due_ns ? LEASE_WAIT : l->next;
}

uint64_t lease_next_ns(const struct lease *l)
{
    return l->is_done || l->is_open ? UINT64_MAX : l->due_ns;
}

bool lease_leads(const struct lease *l, uint64_t now_ns)
{
    return !l->is_giving_up && now_ns < l->lead_until_ns;
}

static bool lease_is_ours(const struct lease *l)
{
    return strcmp(l->seen.holder, l->config.identity) == 0;
}

static bool lease_is_free(const struct lease *l, uint64_t now_ns)
{
    uint64_t wait_ns = l->config.duration_ns;

    if (l->seen.duration_ns > wait_ns)
        wait_ns = l->seen.duration_ns;
    return !*l->seen.holder || now_ns - l->changed_ns >= wait_ns;
}

static void lease_schedule(struct lease *l, enum lease_verb verb, uint64_t due_ns)
{
    l->next = verb;
    l->due_ns = due_ns;
}

static void take_note(struct lease *l, const struct lease_record *r, uint64_t now_ns)
{
    if (!l->changed_ns || strcmp(l->seen.version, r->version) != 0)
        l->changed_ns = now_ns;
    l->seen = *r;
}

void lease_sent(struct lease *l, uint64_t now_ns)
{
    l->is_open = true;
    l->sent_ns = now_ns;
}

static uint64_t
lease_spread_time(uint64_t period_ns, uint64_t now_ns, uint32_t random32)
{
    return now_ns + period_ns + period_ns / 5 * random32 / UINT32_MAX;
}

static void lease_checked(struct lease *l, uint64_t now_ns, uint32_t random32)
{
    if (!lease_is_ours(l))
        l->lead_until_ns = 0;
    if (l->is_giving_up && !lease_is_ours(l))
        l->is_done = true;
    else if (lease_is_ours(l) || lease_is_free(l, now_ns))
        lease_schedule(l, LEASE_UPDATE, now_ns);
    else
        lease_schedule(
            l, LEASE_GET,
            lease_spread_time(l->config.retry_ns / LOOKS_PER_RETRY, now_ns, random32));
}

static void lease_written(struct lease *l, uint64_t now_ns, uint32_t random32)
{
    if (l->is_giving_up) {
        l->lead_until_ns = 0;
        if (*l->seen.holder)
            lease_schedule(l, LEASE_UPDATE, now_ns); /* a renewal was in progress */
        else
            l->is_done = true;
        return;
    }
    if (!lease_is_ours(l)) { /* the answer does not have this process as the holder */
        lease_checked(l, now_ns, random32);
        return;
    }
    l->lead_until_ns = l->sent_ns + l->config.renew_ns;
    lease_schedule(l, LEASE_UPDATE,
                   lease_spread_time(l->config.retry_ns, l->sent_ns, 0));
}

/* There is no Lease. After a deletion the wait is as long as if it existed, because its
 * holder may not have noticed yet. */
static void
lease_missed(struct lease *l, enum lease_verb verb, uint64_t now_ns, uint32_t random32)
{
    bool was_anothers = !lease_is_ours(l) && !lease_is_free(l, now_ns);

    if (verb == LEASE_GET)
        l->lead_until_ns = 0;
    if (l->is_giving_up)
        l->is_done = true;
    else if (verb == LEASE_CREATE) /* no such namespace */
        lease_schedule(l, LEASE_GET,
                       lease_spread_time(l->config.retry_ns, now_ns, random32));
    else if (verb == LEASE_UPDATE)
        lease_schedule(l, LEASE_GET, now_ns);
    else if (was_anothers)
        lease_schedule(
            l, LEASE_GET,
            lease_spread_time(l->config.retry_ns / LOOKS_PER_RETRY, now_ns, random32));
    else
        lease_schedule(l, LEASE_CREATE, now_ns);
}

void lease_answered(struct lease *l,
                    enum lease_answer answer,
                    const struct lease_record *record,
                    uint64_t now_ns,
                    uint32_t random32)
{
    enum lease_verb verb = l->next;

    l->is_open = false;
    switch (answer) {
    case LEASE_OK:
        take_note(l, record, now_ns);
        if (verb == LEASE_GET)
            lease_checked(l, now_ns, random32);
        else
            lease_written(l, now_ns, random32);
        return;
    case LEASE_ABSENT:
        lease_missed(l, verb, now_ns, random32);
        return;
    case LEASE_CONFLICT: /* a faster process, or an unanswered request of this one */
        lease_schedule(l, LEASE_GET, now_ns);
        return;
    case LEASE_FAILED:
        lease_schedule(l, LEASE_GET,
                       lease_spread_time(l->config.retry_ns, now_ns, random32));
        return;
    }
}

void lease_give_up(struct lease *l, uint64_t now_ns)
{
    bool may_be_ours = lease_is_ours(l) || (l->is_open && l->next != LEASE_GET);

    if (l->is_giving_up)
        return;
    l->is_giving_up = true;
    if (!may_be_ours)
        l->is_done = true;
    else if (!l->is_open && l->due_ns > now_ns)
        l->due_ns = now_ns;
}

/* --- the object ------------------------------------------------------------------ */

static void
lease_copy_text(char *to, size_t size, const struct node *object, const char *path)
{
    const char *s = node_str(object, path);

    if (s && strlen(s) < size)
        (void)snprintf(to, size, "%s", s);
    else if (s) /* longer than ours: cut, which still differs from our own */
        (void)snprintf(to, size, "%.*s", (int)size - 1, s);
}

void lease_read(const struct node *object, struct lease_record *ret)
{
    struct lease_record r = {0};
    int64_t s = node_int(object, "spec.leaseDurationSeconds", 0);
    int64_t n = node_int(object, "spec.leaseTransitions", 0);

    lease_copy_text(r.holder, sizeof(r.holder), object, "spec.holderIdentity");
    lease_copy_text(r.version, sizeof(r.version), object, "metadata.resourceVersion");
    lease_copy_text(r.acquired, sizeof(r.acquired), object, "spec.acquireTime");
    if (s > 0 && s <= MAX_DURATION_S)
        r.duration_ns = (uint64_t)s * NS_PER_S;
    if (n > 0 && n < INT32_MAX)
        r.n_transitions = (uint32_t)n;
    *ret = r;
}

int lease_parse(const char *text, size_t n, struct lease_record *ret)
{
    struct node *object;
    struct arena a;
    int rc;

    *ret = (struct lease_record){0};
    if (n > LEASE_MAX_BYTES)
        return -E2BIG;
    arena_init(&a, LEASE_ARENA_BYTES);
    rc = json_read(&a, text, n, &object, NULL);
    if (rc == 0 && object->type != NODE_OBJECT)
        rc = -EINVAL;
    if (rc == 0)
        lease_read(object, ret);
    arena_release(&a);
    return rc;
}

void lease_write(const struct lease *l,
                 uint64_t wall_us,
                 struct build *b,
                 struct node *object)
{
    struct node *spec = node_child(b, object, "spec", NODE_OBJECT);
    char now[TIMESTAMP_SIZE];
    uint64_t duration_s = (l->config.duration_ns + NS_PER_S - 1) / NS_PER_S;
    uint32_t n = l->seen.n_transitions;

    (void)timestamp_format_us(wall_us, now);
    if (l->is_giving_up) {
        node_set_str(b, spec, "holderIdentity", "");
        duration_s = RELEASED_DURATION_S;
    } else {
        if (!lease_is_ours(l)) {
            node_set_str(b, spec, "acquireTime", now);
            n += l->next == LEASE_UPDATE;
        }
        node_set_str(b, spec, "holderIdentity", l->config.identity);
    }
    node_set_int(b, spec, "leaseDurationSeconds", (int64_t)duration_s);
    node_set_int(b, spec, "leaseTransitions", n);
    node_set_str(b, spec, "renewTime", now);
}
