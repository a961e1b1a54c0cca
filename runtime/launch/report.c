/* SPDX-License-Identifier: Apache-2.0 */
/* The job, its token and where worker 0's agent is come from the same variables as for
 * `hvd-agent run`, or those of horovodrun for an elastic job: in a pod of the operator they
 * are those of the container. Called by agent_main.c. */
#include "runtime/launch/report.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/contract/agent_env.h"
#include "runtime/contract/elastic_env.h"
#include "runtime/contract/env_reader.h"
#include "runtime/launch/environment.h"
#include "runtime/live/live_ask.h"
#include "runtime/live/live_text.h"

#define ANSWER_NS  (10 * NS_PER_S)
#define EXAMINE_NS (20 * NS_PER_S)
#define RANKS_MAX  1000u /* of one query */

static int report_refuse_usage(const char *what, const char *word)
{
    fprintf(stderr, "hvd-agent: report: %s%s (see hvd-agent --help)\n", what, word);
    return 2;
}

/* 0, or 2 after a message. */
static int report_read_words(char *const *argv, struct report_options *ret)
{
    static const struct {
        const char *word;
        enum live_query_kind kind;
    } kinds[] = {{"--ranks", QUERY_RANKS},
                 {"--stacks", QUERY_STACKS},
                 {"--examine", QUERY_EXAMINE}};

    *ret = (struct report_options){.kind = QUERY_REPORT};
    for (; *argv; argv++) {
        bool is_known = strcmp(*argv, "--json") == 0;

        ret->is_json = ret->is_json || is_known;
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
            if (strcmp(*argv, kinds[i].word) != 0)
                continue;
            if (ret->kind != QUERY_REPORT)
                return report_refuse_usage("only one kind of report at once: ", *argv);
            ret->kind = kinds[i].kind;
            is_known = true;
        }
        if (!is_known)
            return report_refuse_usage("unknown option: ", *argv);
    }
    if (ret->is_json && (ret->kind == QUERY_STACKS || ret->kind == QUERY_EXAMINE))
        return report_refuse_usage("stacks are text, without --json", "");
    return 0;
}

/* Worker 0's own agent is asked here. */
static int report_find_address(const struct agent_env *env,
                               char *ret,
                               size_t size,
                               struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc;

    (void)snprintf(ret, size, "127.0.0.1");
    if (env->worker_index == 0)
        return 0;
    rc = getaddrinfo(env->checkin_addr, NULL, &hints, &list);
    if (rc == 0)
        rc = getnameinfo(list->ai_addr, list->ai_addrlen, ret, (socklen_t)size, NULL, 0,
                         NI_NUMERICHOST);
    if (list)
        freeaddrinfo(list);
    return rc == 0 ? 0
                   : err_set(err, -EHOSTUNREACH, "cannot resolve \"%s\": %s",
                             env->checkin_addr, gai_strerror(rc));
}

static int report_print_job(const struct report_options *o,
                            const void *p,
                            size_t n,
                            struct strbuf *out,
                            struct err *err)
{
    AUTOFREE struct live_report *r = mem_alloc(sizeof(*r));
    int rc = r ? live_report_unpack(p, n, r, err) : -ENOMEM;

    if (rc < 0)
        return rc;
    if (o->is_json) {
        live_report_json(r, out);
        strbuf_putc(out, '\n');
    } else {
        live_report_text(r, out);
    }
    return 0;
}

struct report_ranks {
    const struct report_options *o;
    struct strbuf *out;
    bool has_some;
};

static int report_print_rank(void *arg, const struct live_rank *r)
{
    struct report_ranks *w = arg;

    if (w->o->is_json) {
        strbuf_puts(w->out, w->has_some ? "," : "");
        live_rank_json(r, w->out);
    } else {
        live_rank_text(r, w->out);
    }
    w->has_some = true;
    return 0;
}

static int report_ask(const struct report_source *a,
                      const struct live_query *q,
                      void **ret,
                      size_t *ret_n,
                      struct err *err)
{
    struct auth_id id = {&a->token, a->job_id, 0};
    uint64_t limit_ns = q->kind == QUERY_EXAMINE ? EXAMINE_NS : ANSWER_NS;

    return live_ask_wait(a->address, a->port, &id, q, clock_now_ns() + limit_ns, ret,
                         ret_n, err);
}

static int report_make_ranks(const struct report_source *a,
                             const struct report_options *o,
                             struct strbuf *out,
                             struct err *err)
{
    struct live_query q = {.kind = QUERY_RANKS, .max = RANKS_MAX};
    struct report_ranks w = {.o = o, .out = out};
    uint32_t n = RANKS_MAX;
    int rc = 0;

    if (o->is_json)
        strbuf_putc(out, '[');
    else
        live_rank_text(NULL, out);
    while (rc == 0 && n == RANKS_MAX) {
        AUTOFREE void *p = NULL;
        size_t n_bytes;

        rc = report_ask(a, &q, &p, &n_bytes, err);
        if (rc == 0)
            rc = live_ranks_read(p, n_bytes, report_print_rank, &w, &n, err);
        q.first += n;
    }
    if (o->is_json)
        strbuf_puts(out, "]\n");
    return rc < 0 ? rc : strbuf_status(out);
}

int report_make(const struct report_source *a,
                const struct report_options *o,
                struct strbuf *out,
                struct err *err)
{
    struct live_query q = {.kind = o->kind};
    AUTOFREE void *p = NULL;
    size_t n;
    int rc;

    if (o->kind == QUERY_RANKS)
        return report_make_ranks(a, o, out, err);
    rc = report_ask(a, &q, &p, &n, err);
    if (rc < 0)
        return rc;
    if (o->kind != QUERY_REPORT)
        strbuf_add(out, p, n);
    else
        rc = report_print_job(o, p, n, out, err);
    return rc < 0 ? rc : strbuf_status(out);
}

/* In the launcher of an elastic job: its horovodrun is asked. */
static int report_find_launcher(struct report_source *ret, struct err *err)
{
    const struct env_reader r = {environment_own, NULL, err};
    char path[CONTRACT_PATH_MAX];
    int rc = env_port(&r, ENV_STATUS_PORT, &ret->port);

    rc = rc < 0 ? rc
                : env_text(&r, "HVD_TOKEN_FILE", AGENT_TOKEN_PATH, path, sizeof(path));
    rc = rc < 0 ? rc : token_read_file(path, &ret->token, err);
    (void)snprintf(ret->address, sizeof(ret->address), "127.0.0.1");
    (void)snprintf(ret->job_id, sizeof(ret->job_id), HOROVODRUN_JOB_ID,
                   getenv(ENV_ELASTIC_JOB));
    return rc;
}

static int report_find_source(struct report_source *ret, struct err *err)
{
    struct agent_env env;
    int rc;

    if (getenv(ENV_ELASTIC_JOB) && getenv(ENV_STATUS_PORT))
        return report_find_launcher(ret, err);
    rc = agent_env_parse(environment_own, NULL, &env, err);
    rc = rc < 0 ? rc : token_read_file(env.token_file, &ret->token, err);
    if (rc < 0)
        return rc;
    ret->port = env.checkin_port;
    (void)snprintf(ret->job_id, sizeof(ret->job_id), "%s", env.job_id);
    return report_find_address(&env, ret->address, sizeof(ret->address), err);
}

int agent_report(char *const *argv)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct report_options o;
    struct report_source source = {.port = 0};
    struct err err = ERR_INIT;
    int rc = report_read_words(argv, &o);

    if (rc)
        return rc;
    strbuf_init(&out, REPORT_TEXT_MAX);
    rc = report_find_source(&source, &err);
    rc = rc < 0 ? rc : report_make(&source, &o, &out, &err);
    token_wipe(&source.token);
    if (rc < 0) {
        fprintf(stderr, "hvd-agent: report: %s\n",
                *err.text ? err.text : "out of memory");
        return 1;
    }
    (void)fwrite(strbuf_str(&out), 1, out.n, stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}
