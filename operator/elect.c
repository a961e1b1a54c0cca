/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the requests that core/lease.c chooses, reads the answers, and reports when
 * leadership starts and ends.
 *
 * Invariants
 *  1. One request at a time. Its time limit is half the renew deadline, counted from
 *     its submission. It bypasses the queue and the rate limit of the client: a
 *     thousand pods that wait to be created, or an API server that requests a pause,
 *     must not cost the Lease.
 *  2. The time of sending is taken before the request is handed over.
 *  3. Fields of the Lease other than ours are sent back as they were read.
 * Called by the loop; kube/client calls elect_leads before each write. */
#include "operator/elect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "operator/core/lease.h"
#include "operator/doc/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

struct elect {
    struct kube *kube;
    struct elect_config config;
    struct lease lease;
    char identity[LEASE_IDENTITY_SIZE];
    char *object; /* the Lease as it was last read; NULL: none */
    char trouble[256];
    bool is_leading, has_read;
};

static int elect_make_identity(char ret[LEASE_IDENTITY_SIZE])
{
    char host[64] = "";
    uint8_t r[16];

    (void)gethostname(host, sizeof(host) - 1); /* the uuid alone is enough */
    if (random_bytes(r, sizeof(r)) < 0)
        return -EIO;
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    (void)snprintf(ret, LEASE_IDENTITY_SIZE,
                   "%s_%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x"
                   "%02x%02x",
                   host, r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9],
                   r[10], r[11], r[12], r[13], r[14], r[15]);
    return 0;
}

int elect_new(struct kube *kube,
              const struct elect_config *config,
              struct elect **ret,
              struct err *err)
{
    struct elect *e = mem_zalloc(sizeof(*e));
    struct lease_config lease = {.duration_ns = config->duration_ms * NS_PER_MS,
                                 .renew_ns = config->renew_ms * NS_PER_MS,
                                 .retry_ns = config->retry_ms * NS_PER_MS};

    if (!e)
        return err_set(err, -ENOMEM, "out of memory");
    e->kube = kube;
    e->config = *config;
    lease.identity = e->identity;
    if (elect_make_identity(e->identity) < 0) {
        mem_free(e);
        return err_set(err, -EIO, "the system returns no random bytes");
    }
    lease_init(&e->lease, &lease);
    *ret = e;
    return 0;
}

void elect_free(struct elect *e)
{
    if (!e)
        return;
    mem_free(e->object);
    mem_free(e);
}

bool elect_leads(const struct elect *e)
{
    return lease_leads(&e->lease, clock_now_ns());
}

bool elect_was_leading(const struct elect *e)
{
    return e->is_leading;
}

const char *elect_identity(const struct elect *e)
{
    return e->identity;
}

const char *elect_trouble(const struct elect *e)
{
    return e->has_read ? "" : e->trouble;
}

/* --- requests --------------------------------------------------------------------- */

static uint32_t elect_random32(void)
{
    uint32_t v = 0;

    (void)random_bytes(&v, sizeof(v)); /* on failure the tries are not spread */
    return v;
}

static enum lease_answer
elect_read_lease(struct elect *e, const struct kube_reply *r, struct lease_record *ret)
{
    char *text = mem_strndup(r->body, r->n);
    enum lease_answer answer = LEASE_FAILED;

    if (text && lease_parse(text, r->n, ret) == 0) {
        mem_free(e->object);
        e->object = TAKE(text);
        e->has_read = true;
        answer = LEASE_OK;
    }
    mem_free(text);
    return answer;
}

static enum lease_answer
elect_classify(struct elect *e, const struct kube_reply *r, struct lease_record *ret)
{
    switch (r->answer.cls) {
    case ANSWER_OK:
        return elect_read_lease(e, r, ret);
    case ANSWER_NOT_FOUND:
        mem_free(e->object);
        e->object = NULL;
        return LEASE_ABSENT;
    case ANSWER_EXISTS:
    case ANSWER_CONFLICT:
        return LEASE_CONFLICT;
    case ANSWER_GONE:
    case ANSWER_INVALID:
    case ANSWER_FORBIDDEN:
    case ANSWER_THROTTLED:
    case ANSWER_UNAVAILABLE:
        return LEASE_FAILED;
    }
    return LEASE_FAILED;
}

/* Logs each new failure once. */
static void
elect_log_trouble(struct elect *e, enum lease_answer answer, const char *why)
{
    if (answer != LEASE_FAILED) {
        e->trouble[0] = '\0';
        return;
    }
    if (strncmp(e->trouble, why, sizeof(e->trouble) - 1) == 0)
        return;
    (void)snprintf(e->trouble, sizeof(e->trouble), "%.255s", why);
    log_warn("the Lease cannot be read or renewed, retrying",
             "lease=%s/%s retry_ms=%llu cause=\"%s\"", e->config.ns, e->config.name,
             (unsigned long long)e->config.retry_ms, e->trouble);
}

static void on_lease_answer(void *arg, const struct kube_reply *r)
{
    struct lease_record record = {0};
    struct elect *e = arg;
    enum lease_answer answer = elect_classify(e, r, &record);

    elect_log_trouble(e, answer,
                      *r->answer.message ? r->answer.message
                                         : "the answer is not a Lease");
    lease_answered(&e->lease, answer, &record, clock_now_ns(), elect_random32());
}

static int elect_make_body(const struct elect *e, struct strbuf *out)
{
    struct build b = {0};
    struct node *object, *meta;
    struct arena a;
    int rc = 0;

    arena_init(&a, LEASE_ARENA_BYTES);
    b.arena = &a;
    if (e->lease.next == LEASE_UPDATE && e->object)
        rc = json_read(&a, e->object, strlen(e->object), &object, NULL);
    else
        object = node_object(&b);
    if (rc == 0) {
        node_set_str(&b, object, "apiVersion", "coordination.k8s.io/v1");
        node_set_str(&b, object, "kind", "Lease");
        meta = node_child(&b, object, "metadata", NODE_OBJECT);
        node_set_str(&b, meta, "name", e->config.name);
        node_set_str(&b, meta, "namespace", e->config.ns);
        lease_write(&e->lease, clock_wall_us(), &b, object);
        if (b.status == 0)
            json_write(object, out);
        rc = b.status ? b.status : strbuf_status(out);
    }
    arena_release(&a);
    return rc;
}

static int elect_send_verb(struct elect *e, enum lease_verb verb, struct err *err)
{
    struct kube_request rq = {.method = "GET",
                              .kind = KUBE_LEASE,
                              .ns = e->config.ns,
                              .name = e->config.name,
                              .timeout_ms = e->config.renew_ms / 2,
                              .is_urgent = true,
                              .done = on_lease_answer,
                              .arg = e};
    struct strbuf body;
    int rc = 0;

    strbuf_init(&body, LEASE_MAX_BYTES);
    if (verb != LEASE_GET) {
        rq.method = verb == LEASE_CREATE ? "POST" : "PUT";
        if (verb == LEASE_CREATE)
            rq.name = NULL;
        rc = elect_make_body(e, &body);
        rq.body = strbuf_str(&body);
        rq.body_n = body.n;
    }
    rc = rc < 0 ? err_set(err, rc, "out of memory") : kube_submit(e->kube, &rq, err);
    strbuf_release(&body);
    return rc;
}

static void elect_send_due(struct elect *e, uint64_t now_ns)
{
    enum lease_verb verb = lease_next(&e->lease, now_ns);
    struct err err = ERR_INIT;

    if (verb == LEASE_WAIT)
        return;
    lease_sent(&e->lease, now_ns);
    if (elect_send_verb(e, verb, &err) < 0) {
        elect_log_trouble(e, LEASE_FAILED, err.text);
        lease_answered(&e->lease, LEASE_FAILED, NULL, now_ns, elect_random32());
    }
}

void elect_tick(struct elect *e, uint64_t now_ns)
{
    bool leads;

    elect_send_due(e, now_ns);
    leads = lease_leads(&e->lease, now_ns);
    if (leads == e->is_leading)
        return;
    e->is_leading = leads;
    if (leads)
        log_info("leading", "lease=%s/%s identity=%s", e->config.ns, e->config.name,
                 e->identity);
    else if (e->lease.is_giving_up)
        log_info("no longer leading: stopping", "lease=%s/%s", e->config.ns,
                 e->config.name);
    else
        log_warn("no longer leading, standing by", "lease=%s/%s holder=%s cause=\"%s\"",
                 e->config.ns, e->config.name, e->lease.seen.holder,
                 *e->trouble ? e->trouble : "the Lease was not renewed in time");
    e->config.changed(e->config.arg, leads);
}

uint64_t elect_next_ns(const struct elect *e)
{
    uint64_t next = lease_next_ns(&e->lease);

    if (e->is_leading && e->lease.lead_until_ns < next)
        next = e->lease.lead_until_ns;
    return next;
}

void elect_release(struct elect *e)
{
    lease_give_up(&e->lease, clock_now_ns());
}

bool elect_is_released(const struct elect *e)
{
    return e->lease.is_done;
}
