/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials over time.
 *
 *   file of a token   bearer.c: read again each minute and after a 401
 *   certificate       pair.c: read again when its files have changed, and after a 401
 *   plug-in           run at the start, before its answer expires, and after a 401.
 *                     While it runs the former answer is used, unless it was refused.
 *                     A run that fails is repeated after 1 to 30 s
 *
 * The text of the header is rendered for each request and wiped before the next.
 * Called by http.c. */
#include "operator/kube/creds.h"

#include <errno.h>
#include <string.h>

#include "operator/doc/base64.h"
#include "operator/kube/bearer.h"
#include "operator/kube/exec.h"
#include "operator/kube/exec_answer.h"
#include "operator/kube/pair.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define MAX_HEADER_BYTES (128u << 10)
#define EARLY_NS         (60 * NS_PER_S) /* before the expiry, or a fifth of the time */
#define MIN_BETWEEN_NS   (5 * NS_PER_S)  /* between two runs, however many 401 */
#define FIRST_PAUSE_NS   (1 * NS_PER_S)
#define MAX_PAUSE_NS     (30 * NS_PER_S)

struct creds {
    const struct kube_config *config;
    struct bearer bearer;
    struct key_pair pair;
    struct exec_run run;
    struct exec_answer answer;
    struct strbuf header;
    struct err trouble; /* of the last run; code 0: none */
    bool has_answer, was_refused;
    uint64_t number;   /* answers so far */
    uint64_t due_ns;   /* time of the next run; UINT64_MAX: none is needed */
    uint64_t begun_ns; /* time of the last run */
    uint64_t pause_ns;
};

static int creds_start_run(struct creds *c, uint64_t now_ns)
{
    int rc;

    c->begun_ns = now_ns;
    rc = exec_start(&c->run, now_ns, &c->trouble);
    c->due_ns = UINT64_MAX;
    return rc;
}

int creds_new(const struct kube_config *config, struct creds **ret, struct err *err)
{
    struct creds *c = mem_zalloc(sizeof(*c));
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->config = config;
    c->due_ns = UINT64_MAX;
    c->pause_ns = FIRST_PAUSE_NS;
    strbuf_init_secret(&c->header, MAX_HEADER_BYTES);
    exec_init(&c->run, config->exec);
    rc = bearer_init(&c->bearer, config->token, config->token_file);
    if (rc < 0)
        (void)err_set(err, rc, "out of memory");
    if (rc == 0)
        rc = pair_init(&c->pair, config, err);
    if (rc == 0 && config->exec) {
        rc = creds_start_run(c, clock_now_ns());
        if (rc < 0)
            (void)err_set(err, rc, "%s", c->trouble.text);
    }
    if (rc < 0)
        creds_free(c);
    else
        *ret = c;
    return rc;
}

void creds_free(struct creds *c)
{
    if (!c)
        return;
    strbuf_release(&c->header);
    exec_release(&c->run);
    exec_answer_release(&c->answer);
    bearer_release(&c->bearer);
    pair_release(&c->pair);
    mem_free(c);
}

/* --- the header ------------------------------------------------------------------- */

static void make_basic(struct creds *c)
{
    const char *user = c->config->username, *password = c->config->password;
    struct strbuf pair;
    char *text;

    strbuf_init_secret(&pair, MAX_HEADER_BYTES / 2);
    strbuf_printf(&pair, "%s:%s", user, password);
    text = strbuf_status(&pair) ? NULL : mem_alloc(BASE64_SIZE(pair.n));
    if (text) {
        base64_encode(pair.p, pair.n, text);
        strbuf_printf(&c->header, "Basic %s", text);
    }
    mem_free_secret(&text);
    strbuf_release(&pair);
}

int creds_get(struct creds *c, uint64_t now_ns, struct identity *ret, struct err *err)
{
    const char *token = NULL;
    int rc = bearer_get(&c->bearer, now_ns, &token, err);

    if (rc < 0)
        return rc;
    if (c->config->exec && !c->has_answer)
        return err_set(err, -EACCES, "%s",
                       c->trouble.code ? c->trouble.text
                                       : "the exec plug-in has not answered yet");
    strbuf_clear(&c->header);
    if (c->has_answer)
        token = c->answer.token;
    if (token)
        strbuf_printf(&c->header, "Bearer %s", token);
    else if (c->config->username)
        make_basic(c);
    pair_refresh(&c->pair, now_ns);
    *ret = (struct identity){
        .cert_pem = c->pair.cert_pem, .key_pem = c->pair.key_pem, .number = c->number};
    if (c->answer.cert_pem) {
        ret->cert_pem = c->answer.cert_pem;
        ret->key_pem = c->answer.key_pem;
    }
    if (c->header.n || token || c->config->username)
        ret->authorization = strbuf_str(&c->header);
    return strbuf_status(&c->header) || (ret->authorization && !c->header.n)
               ? err_set(err, -ENOMEM, "out of memory")
               : 0;
}

/* --- the plug-in ------------------------------------------------------------------ */

bool creds_is_waiting(const struct creds *c)
{
    return exec_is_running(&c->run) && (!c->has_answer || c->was_refused);
}

size_t creds_fds(const struct creds *c, struct pollfd ret[CREDS_FDS])
{
    return exec_fds(&c->run, ret);
}

uint64_t creds_next_ns(const struct creds *c)
{
    return exec_is_running(&c->run) ? c->run.deadline_ns : c->due_ns;
}

static void creds_retry_later(struct creds *c, uint64_t now_ns)
{
    c->was_refused = false;
    c->due_ns = now_ns + c->pause_ns;
    log_warn("no new credentials, retrying", "retry_ms=%llu cause=\"%s\"",
             (unsigned long long)(c->pause_ns / NS_PER_MS), c->trouble.text);
    c->pause_ns = c->pause_ns * 2 > MAX_PAUSE_NS ? MAX_PAUSE_NS : c->pause_ns * 2;
}

/* When to run the plug-in again: shortly before its answer expires. */
static uint64_t renewal_ns(const struct exec_answer *a, uint64_t now_ns)
{
    uint64_t wall_s = clock_wall_s(), left_ns, early_ns;

    if (!a->expires_wall_s)
        return UINT64_MAX;
    if (a->expires_wall_s <= wall_s)
        return now_ns + MIN_BETWEEN_NS;
    left_ns = (a->expires_wall_s - wall_s) * NS_PER_S;
    early_ns = left_ns / 5 < EARLY_NS ? left_ns / 5 : EARLY_NS;
    return now_ns + left_ns - early_ns;
}

static void creds_take_answer(struct creds *c, uint64_t now_ns)
{
    struct exec_answer answer;
    int rc = exec_answer_read(strbuf_str(&c->run.out), c->run.out.n,
                              c->config->exec->api_version, &answer, &c->trouble);

    strbuf_clear(&c->run.out);
    if (rc < 0) {
        (void)err_prefix(&c->trouble, "exec plug-in \"%.100s\": its answer",
                         c->config->exec->argv[0]);
        creds_retry_later(c, now_ns);
        return;
    }
    exec_answer_release(&c->answer);
    c->answer = answer;
    c->has_answer = true;
    c->number++;
    c->was_refused = false;
    c->trouble = (struct err)ERR_INIT;
    c->pause_ns = FIRST_PAUSE_NS;
    c->due_ns = renewal_ns(&answer, now_ns);
}

void creds_run(struct creds *c, uint64_t now_ns)
{
    int rc = 0;

    if (exec_is_running(&c->run)) {
        rc = exec_step(&c->run, now_ns, &c->trouble);
        if (rc > 0)
            creds_take_answer(c, now_ns);
    } else if (now_ns >= c->due_ns) {
        rc = creds_start_run(c, now_ns);
    }
    if (rc < 0)
        creds_retry_later(c, now_ns);
}

bool creds_refused(struct creds *c, uint64_t number, uint64_t now_ns)
{
    bearer_stale(&c->bearer);
    pair_stale(&c->pair);
    if (!c->config->exec)
        return c->config->token_file || c->config->cert_file || c->config->key_file;
    if (number != c->number)
        return true;
    if (!exec_is_running(&c->run) && now_ns - c->begun_ns < MIN_BETWEEN_NS)
        return false;
    c->was_refused = true;
    if (!exec_is_running(&c->run)) {
        c->due_ns = now_ns;
        creds_run(c, now_ns);
    }
    return creds_is_waiting(c);
}
