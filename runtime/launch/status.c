/* SPDX-License-Identifier: Apache-2.0 */
/* Each horovodrun has a private folder (scratch.h) with the job's token and, in STATUS_FILE,
 * where it listens (live_door.h). Only folders of this user can be read. A folder whose
 * horovodrun has gone is skipped. Called by horovodrun.c. */
#include "runtime/launch/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/live_door.h"
#include "runtime/launch/report.h"
#include "runtime/launch/scratch.h"

struct status {
    bool is_json, with_ranks;
    unsigned n_jobs;
    struct strbuf out;
};

/* 0, or -errno: it is no folder of a running horovodrun that may be asked. */
static int status_find_source(const char *dir, struct report_source *ret, int *ret_pid)
{
    char path[CONTRACT_PATH_MAX + 300];
    AUTOFREE char *text = NULL;
    unsigned port;
    size_t n;
    int rc;

    (void)snprintf(path, sizeof(path), "%s/" STATUS_FILE, dir);
    rc = fd_read_file(path, 4096, &text, &n, NULL);
    if (rc < 0)
        return rc;
    *ret = (struct report_source){.address = "127.0.0.1"};
    _Static_assert(sizeof(ret->job_id) == 192, "the width below");
    if (sscanf(text, "%u %d %191s", &port, ret_pid, ret->job_id) != 3
        || port > UINT16_MAX)
        return -EPROTO;
    ret->port = (uint16_t)port;
    (void)snprintf(path, sizeof(path), "%s/token", dir);
    return token_read_file(path, &ret->token, NULL);
}

static int status_put_part(struct status *s,
                           const struct report_source *source,
                           enum live_query_kind kind)
{
    struct report_options o = {kind, s->is_json};
    struct err err = ERR_INIT;

    return report_make(source, &o, &s->out, &err);
}

static void status_put_job(void *arg, const char *dir)
{
    struct status *s = arg;
    struct report_source source;
    size_t before = s->out.n;
    int pid, rc;

    if (status_find_source(dir, &source, &pid) < 0)
        return;
    if (!s->is_json)
        strbuf_printf(&s->out, "%shorovodrun, process %d\n", s->n_jobs ? "\n" : "",
                      pid);
    rc = status_put_part(s, &source, QUERY_REPORT);
    if (rc == 0 && s->with_ranks)
        rc = status_put_part(s, &source, QUERY_RANKS);
    if (rc == 0 && s->with_ranks && !s->is_json)
        rc = status_put_part(s, &source, QUERY_STACKS);
    token_wipe(&source.token);
    if (rc == 0)
        s->n_jobs++;
    else
        s->out.n = before; /* it has ended meanwhile */
}

int status_print(bool is_json, bool with_ranks, struct err *err)
{
    struct status s = {.is_json = is_json, .with_ranks = with_ranks};
    int rc;

    strbuf_init(&s.out, REPORT_TEXT_MAX);
    scratch_visit(status_put_job, &s);
    rc = strbuf_status(&s.out);
    if (rc < 0)
        (void)err_set(err, rc, "out of memory");
    else if (s.n_jobs == 0)
        rc = err_set(
            err, -ENOENT,
            "--status: no horovodrun of this user and TMPDIR runs a job on this "
            "host");
    else
        (void)fwrite(strbuf_str(&s.out), 1, s.out.n, stdout);
    strbuf_release(&s.out);
    return rc;
}
