/* SPDX-License-Identifier: Apache-2.0 */
/* GET of a Secret -> owner checked -> base64 -> hex -> token. What was decoded is wiped;
 * the client wipes the answer. A cancelled request stays in the list until its answer
 * arrives. Called by ask.c. */
#include "operator/job_token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/inject.h"
#include "operator/core/observed.h"
#include "operator/doc/base64.h"
#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define SECRET_MAX_BYTES (1u << 20)

struct token_request {
    struct token_request *next;
    struct token_reader *reader;
    char job_uid[UID_SIZE];
    token_done_fn done; /* NULL: cancelled */
    void *arg;
};

struct token_reader {
    struct kube *kube;
    struct token_request *first;
    size_t n;
};

struct token_reader *token_reader_new(struct kube *kube)
{
    struct token_reader *r = mem_zalloc(sizeof(*r));

    if (r)
        r->kube = kube;
    return r;
}

static void token_request_free(struct token_request *q)
{
    struct token_request **p = &q->reader->first;

    while (*p != q)
        p = &(*p)->next;
    *p = q->next;
    q->reader->n--;
    mem_free(q);
}

void token_reader_free(struct token_reader *r)
{
    while (r && r->first)
        token_request_free(r->first);
    mem_free(r);
}

size_t token_reader_n(const struct token_reader *r)
{
    return r->n;
}

void token_reader_cancel(struct token_reader *r, const void *arg)
{
    for (struct token_request *q = r->first; q; q = q->next) {
        if (q->arg == arg)
            q->done = NULL;
    }
}

/* -EINVAL; -ENOMEM. */
static int secret_token(struct arena *a,
                        const struct kube_reply *r,
                        const char *uid,
                        struct token *ret)
{
    char text[2 * sizeof(ret->key) + 8]; /* digits, a newline, and what decoding adds */
    const char *encoded;
    struct node *object;
    size_t n = 0;
    int rc = json_read(a, r->body, r->n, &object, NULL);

    if (rc < 0)
        return rc;
    encoded = node_str(node_get(object, "data"), TOKEN_KEY);
    if (!encoded || strlen(encoded) >= BASE64_SIZE(2 * sizeof(ret->key) + 1)
        || strcmp(object_owner_uid(object), uid) != 0)
        return -EINVAL;
    rc = base64_decode(encoded, text, &n);
    if (rc == 0 && n < 2 * sizeof(ret->key))
        rc = -EINVAL;
    text[2 * sizeof(ret->key)] = '\0';
    if (rc == 0)
        rc = hex_decode(text, ret->key, sizeof(ret->key));
    explicit_bzero(text, sizeof(text));
    return rc;
}

static void on_secret(void *arg, const struct kube_reply *r)
{
    struct token_request q = *(struct token_request *)arg;
    struct token token = {{0}};
    const char *why = r->answer.message;
    struct arena a;
    int rc = -EIO;

    token_request_free(arg);
    if (!q.done)
        return;
    arena_init(&a, SECRET_MAX_BYTES);
    if (r->answer.cls == ANSWER_OK) {
        rc = secret_token(&a, r, q.job_uid, &token);
        why = rc == -ENOMEM ? "out of memory" : "the job's Secret has no token";
    }
    q.done(q.arg, rc == 0 ? &token : NULL, why);
    arena_wipe(&a);
    arena_release(&a);
    token_wipe(&token);
}

int token_reader_start(struct token_reader *r,
                       const char *ns,
                       const char *secret,
                       const char *job_uid,
                       token_done_fn done,
                       void *arg)
{
    struct token_request *q = mem_zalloc(sizeof(*q));
    struct kube_request rq = {.method = "GET",
                              .kind = KUBE_SECRET,
                              .ns = ns,
                              .name = secret,
                              .done = on_secret,
                              .arg = q};
    struct err err = ERR_INIT;
    int rc;

    if (!q)
        return -ENOMEM;
    *q =
        (struct token_request){.next = r->first, .reader = r, .done = done, .arg = arg};
    (void)snprintf(q->job_uid, sizeof(q->job_uid), "%s", job_uid);
    r->first = q;
    r->n++;
    rc = kube_submit(r->kube, &rq, &err);
    if (rc < 0)
        token_request_free(q);
    return rc;
}
