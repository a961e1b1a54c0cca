/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the webhook. What is signed is "id.timestamp.body": neither id nor timestamp
 * contains a full stop, so no body can pretend to be another message. The text of a job is
 * escaped by the JSON writer and cut to a bound. Called by webhook.c. */
#include "operator/core/webhook_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "operator/doc/base64.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define KEY_PREFIX "whsec_"

/* --- what an administrator writes ------------------------------------------------- */

/* Without the line break that editors put at the end. */
static size_t line_length(const char *text, size_t n)
{
    if (n == 0 || text[n - 1] != '\n')
        return n;
    n--;
    return n - (n > 0 && text[n - 1] == '\r');
}

int webhook_read_url(const char *text,
                     char **ret_server,
                     char **ret_path,
                     struct err *err)
{
    static const char host_letters[] = "abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    size_t n = line_length(text, strlen(text)), scheme = 0, host;
    AUTOFREE char *server = NULL;
    char *path;

    if (strncmp(text, "https://", 8) == 0)
        scheme = 8;
    else if (strncmp(text, "http://", 7) == 0)
        scheme = 7;
    else
        return err_set(err, -EINVAL, "must start with https:// or http://");
    host = strspn(text + scheme, host_letters);
    if (host == 0 || (scheme + host < n && !strchr("/?", text[scheme + host])))
        return err_set(
            err, -EINVAL,
            "must have a host, with or without a port, before the path; a name "
            "and a password are not supported");
    for (size_t i = scheme; i < n; i++) {
        if (text[i] <= ' ' || text[i] >= 127 || text[i] == '#')
            return err_set(
                err, -EINVAL,
                "byte %zu is a blank, a fragment or not ASCII: one line with "
                "one URL is expected",
                i + 1);
    }
    host += scheme;
    server = mem_strndup(text, host);
    path = mem_strndup(n > host ? text + host : "/", n > host ? n - host : 1);
    if (!server || !path) {
        mem_free(path);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret_server = TAKE(server);
    *ret_path = path;
    return 0;
}

int webhook_read_key(const char *text,
                     size_t n,
                     struct webhook_key *ret,
                     struct err *err)
{
    static const size_t prefix = sizeof(KEY_PREFIX) - 1;
    char decoded[WEBHOOK_MAX_SECRET];
    struct webhook_key key = {0};
    int rc = 0;

    n = line_length(text, n);
    if (n >= WEBHOOK_MAX_SECRET) /* the decoder's bound on text, which is longer */
        return err_set(err, -EINVAL, "more than %u bytes", WEBHOOK_MAX_SECRET - 1);
    if (n > prefix && memcmp(text, KEY_PREFIX, prefix) == 0) {
        rc = base64_decode(text + prefix, decoded, &n);
        text = decoded;
    }
    if (rc < 0)
        rc = err_set(err, -EINVAL, "no base64 after " KEY_PREFIX);
    else if (n < WEBHOOK_MIN_KEY || n > WEBHOOK_MAX_KEY)
        rc = err_set(err, -EINVAL, "the key has %zu bytes; %u to %u are allowed", n,
                     WEBHOOK_MIN_KEY, WEBHOOK_MAX_KEY);
    if (rc == 0) {
        memcpy(key.p, text, n);
        key.n = n;
        *ret = key;
    }
    mem_wipe(decoded, sizeof(decoded));
    mem_wipe(&key, sizeof(key));
    return rc;
}

/* --- messages --------------------------------------------------------------------- */

static bool change_is_first(const struct webhook_change *c)
{
    return !node_get(c->job->status, "conditions");
}

bool webhook_is_change(const struct webhook_change *c)
{
    return change_is_first(c)
           || state_of_status(c->job->status) != state_of_status(c->status);
}

void webhook_make_id(const struct webhook_change *c, char ret[WEBHOOK_ID_SIZE])
{
    const char *version = c->job->resource_version;
    const char *to = state_name(state_of_status(c->status));
    uint8_t digest[SHA256_BYTES];
    struct sha256 sum;

    sha256_init(&sum);
    sha256_add(&sum, c->job->uid, strlen(c->job->uid) + 1);
    if (version)
        sha256_add(&sum, version, strlen(version));
    sha256_add(&sum, to, strlen(to) + 1);
    sha256_end(&sum, digest);
    memcpy(ret, "msg_", 4);
    hex_encode(digest, (WEBHOOK_ID_SIZE - 5) / 2, ret + 4);
}

/* Cut between two characters. */
static void
put_message(struct build *b, struct node *data, const struct webhook_change *c)
{
    const char *text = c->message ? c->message : "";
    size_t n = strlen(text);
    char *cut;

    if (n > WEBHOOK_MAX_MESSAGE) {
        n = WEBHOOK_MAX_MESSAGE;
        while (n > 0 && ((unsigned char)text[n] & 0xC0u) == 0x80u)
            n--;
    }
    cut = arena_printf(b->arena, "%.*s", (int)n, text);
    if (!cut)
        b->status = -ENOMEM;
    else
        node_set_str(b, data, "message", cut);
}

static void put_data(struct build *b, struct node *data, const struct webhook_change *c)
{
    const struct node *progress = node_get(c->status, "progress");
    const char *workers = node_str(c->status, "workers");
    const struct job_meta *job = c->job;

    node_set_str(b, data, "kind", job->kind == KUBE_MPIJOB ? "MPIJob" : "HorovodJob");
    node_set_str(b, data, "namespace", job->ns);
    node_set_str(b, data, "name", job->name);
    node_set_str(b, data, "uid", job->uid);
    if (!change_is_first(c))
        node_set_str(b, data, "from", state_name(state_of_status(job->status)));
    node_set_str(b, data, "to", state_name(state_of_status(c->status)));
    node_set_str(b, data, "reason", c->reason ? c->reason : "");
    put_message(b, data, c);
    if (workers)
        node_set_str(b, data, "workers", workers);
    node_set_int(b, data, "restarts", node_int(c->status, "restarts", 0));
    if (progress)
        node_set(b, data, "progress", node_copy(b, progress));
}

int webhook_make_body(const struct webhook_change *c,
                      struct arena *a,
                      struct strbuf *out)
{
    struct build b = {.arena = a};
    struct node *o = node_object(&b);
    char type[32], when[TIMESTAMP_SIZE];

    (void)snprintf(type, sizeof(type), "job.%s",
                   state_name(state_of_status(c->status)));
    type[4] = (char)(type[4] - 'A' + 'a'); /* names of states begin with a capital */
    node_set_str(&b, o, "type", type);
    node_set_str(&b, o, "timestamp", timestamp_format_s(c->wall_s, when));
    put_data(&b, node_child(&b, o, "data", NODE_OBJECT), c);
    if (b.status)
        return b.status;
    json_write(o, out);
    return strbuf_status(out);
}

void webhook_make_headers(const char *id,
                          uint64_t wall_s,
                          const char *body,
                          size_t body_n,
                          const struct webhook_key *key,
                          struct strbuf *out)
{
    char signature[BASE64_SIZE(SHA256_BYTES)];
    uint8_t digest[SHA256_BYTES];
    struct strbuf head;
    struct hmac mac;

    strbuf_init(&head, 128);
    strbuf_printf(&head, "%s.%" PRIu64 ".", id, wall_s);
    hmac_init(&mac, key->p, key->n);
    hmac_add(&mac, strbuf_str(&head), head.n);
    hmac_add(&mac, body, body_n);
    hmac_end(&mac, digest);
    base64_encode(digest, sizeof(digest), signature);
    if (strbuf_status(&head))
        out->status = strbuf_status(&head);
    strbuf_printf(out,
                  "webhook-id: %s\nwebhook-timestamp: %" PRIu64
                  "\nwebhook-signature: v1,%s\n",
                  id, wall_s, signature);
    strbuf_release(&head);
}
