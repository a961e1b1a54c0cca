/* SPDX-License-Identifier: Apache-2.0 */
/* When one rank dies other ranks fail a moment later, because a collective lost its
 * peer. On a loaded host the report of a consequence may arrive before the report of
 * its cause. Therefore the reports of a short window are compared before the job is
 * stopped:
 *
 *   0  a rank that another report names as lost                           (certain)
 *      a rank whose GPU failed: an XID of hardware (gpu_cause.h)
 *   1  SIGKILL, SIGSEGV, ..., exit codes other than 1, a lost worker      (a cause)
 *      a rank whose own kernel failed: an illegal address (the memory may also have
 *      belonged to another rank that died)
 *   2  exit code 1, SIGABRT, SIGTERM: possible for causes and consequences
 *   3  a rank whose own last lines name another rank as lost or failed, or another
 *      rank's GPU, or report that NCCL lost a peer; exit code FAILURE_OTHER_RANK
 *                                                                         (consequence)
 *      If nothing better arrives, the rank that they name is the cause: it hangs, or its
 *      host is cut off.
 *
 * The lowest class wins; within a class the earliest, by the host's own clock on one
 * host and by arrival between hosts (their clocks differ by more than the window).
 * While the best report blames a rank that has not been reported, or an unnamed
 * peer, the decision waits longer: that rank may still be exiting. Called by
 * local_job.c for one host and by meet.c for several. */
#include "runtime/launch/core/verdict.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/gpu_cause.h"

#define MS 1000000ull

/* How the runtime and launchers report the end of a rank, after its name. */
static const char *const failures[] = {" was lost: ", " exited with code ",
                                       " ended: ", " ended by "};
static const char *const orderly[] = {" was lost", " exited", " was killed by signal ",
                                      " was stopped by ", " called shutdown()"};

static bool text_is_end(const char *p, const char *const ends[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(p, ends[i], strlen(ends[i])))
            return true;
    return false;
}

void verdict_init(struct launch_verdict *v)
{
    memset(v, 0, sizeof(*v));
}

void verdict_release(struct launch_verdict *v)
{
    mem_free(v->v);
    memset(v, 0, sizeof(*v));
}

static bool report_covers_rank(const struct report *r, int32_t rank)
{
    return rank >= 0 && (uint32_t)rank >= r->first_rank
           && (uint32_t)rank - r->first_rank < r->n_ranks;
}

/* The GPU failure in a report; *ret_rank: the rank of the GPU. */
static enum gpu_cause report_gpu_cause(const struct report *r, int32_t *ret_rank)
{
    char why[sizeof(r->f.why)];

    *ret_rank = -1;
    return r->f.rank < 0 ? GPU_CAUSE_NONE
                         : gpu_cause_scan(r->f.why, why, sizeof(why), ret_rank);
}

static void report_share_why(const struct report *from, struct report *to)
{
    int32_t rank;

    if (to->f.rank >= 0 && !*to->f.why
        && report_gpu_cause(from, &rank) != GPU_CAUSE_NONE
        && report_covers_rank(to, rank))
        memcpy(to->f.why, from->f.why, sizeof(to->f.why));
}

/* What follows "rank N (host HOST, pid P)" in the last of these lines that reports its
 * end, and the host; NULL: there is none. */
static const char *
text_find_end(const char *tail, int32_t rank, char ret_host[HOST_NAME_MAX_BYTES])
{
    char mark[32];
    const char *found = NULL;

    (void)snprintf(mark, sizeof(mark), "rank %d (host ", rank);
    for (const char *p = tail; (p = strstr(p, mark)); p++) {
        const char *host = p + strlen(mark);
        size_t n = strcspn(host, ",)\n"), end = strcspn(host, ")\n");

        if (host[end] != ')' || n >= HOST_NAME_MAX_BYTES
            || !text_is_end(host + end + 1, failures, ARRAY_LEN(failures)))
            continue;
        (void)snprintf(ret_host, HOST_NAME_MAX_BYTES, "%.*s", (int)n, host);
        found = host + end + 1;
    }
    return found;
}

/* From the words of a loss or a goodbye: the code or signal, and the rest of the line. */
static void failure_read_end(struct failure *f, const char *how, int32_t witness)
{
    static const char exited[] = " exited with code ", by[] = " ended by ";
    size_t n = strcspn(how, ":;\n");

    f->exit_code = f->signal = 0;
    if (strncmp(how, exited, sizeof(exited) - 1) == 0)
        f->exit_code = (int)strtol(how + sizeof(exited) - 1, NULL, 10) & 255;
    else if (strncmp(how, by, sizeof(by) - 1) == 0)
        f->signal =
            signal_number(how + sizeof(by) - 1,
                          strspn(how + sizeof(by) - 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
    else if (strncmp(how, " ended:", 7) == 0)
        f->exit_code = 1; /* of an uncaught exception */
    how += n;
    how += *how == ':';
    how += *how == ' ';
    n = strcspn(how, ";\n");
    (void)snprintf(f->why, sizeof(f->why), "%.*s%sas rank %d reported",
                   n < 160 ? (int)n : 160, how, n > 0 ? ", " : "", witness);
}

/* What a rank that lost a peer reports, as a report about that peer. */
static void verdict_note_lost(struct launch_verdict *v, const struct report *r)
{
    char host[HOST_NAME_MAX_BYTES];
    const char *how;

    if (v->lost.n_ranks || r->f.rank < 0 || r->blames < 0
        || !(how = text_find_end(r->tail, r->blames, host)))
        return;
    v->lost = *r;
    v->lost.f.rank = r->blames;
    v->lost.first_rank = (uint32_t)r->blames;
    v->lost.n_ranks = 1;
    v->lost.blames = -1;
    (void)snprintf(v->lost.f.host, sizeof(v->lost.f.host), "%s", host);
    failure_read_end(&v->lost.f, how, r->f.rank);
}

int verdict_add(struct launch_verdict *v, const struct report *r, uint64_t now_ns)
{
    void *p = v->v;
    int rc = mem_grow(&p, v->n, &v->cap, sizeof(*v->v), VERDICT_MAX_REPORTS);
    v->v = p;
    if (rc == -E2BIG)
        return 0;
    if (rc < 0)
        return rc;
    if (!v->n)
        v->first_ns = now_ns;
    struct report *mine = &v->v[v->n];
    *mine = *r;
    for (size_t i = 0; i < v->n; i++) {
        report_share_why(&v->v[i], mine);
        report_share_why(mine, &v->v[i]);
    }
    v->n++;
    verdict_note_lost(v, r);
    return 0;
}

static bool report_is_blamed(const struct launch_verdict *v, const struct report *r)
{
    for (size_t i = 0; i < v->n; i++)
        if (&v->v[i] != r && report_covers_rank(r, v->v[i].blames))
            return true;
    return false;
}

static bool verdict_has_rank(const struct launch_verdict *v, int32_t rank)
{
    for (size_t i = 0; i < v->n; i++)
        if (report_covers_rank(&v->v[i], rank))
            return true;
    return false;
}

static int report_class(const struct launch_verdict *v, const struct report *r)
{
    int32_t rank;
    enum gpu_cause cause = report_gpu_cause(r, &rank);

    if (report_is_blamed(v, r))
        return 0;
    if (r->blames >= 0 || cause == GPU_CAUSE_REMOTE)
        return 3;
    if (cause == GPU_CAUSE_HARDWARE)
        return 0;
    if (cause == GPU_CAUSE_PROGRAM)
        return 1;
    if (r->f.exit_code == FAILURE_OTHER_RANK)
        return 3;
    if (r->f.signal)
        return r->f.signal == SIGABRT || r->f.signal == SIGTERM ? 2 : 1;
    return r->f.exit_code == 1 || r->f.exit_code == 128 + SIGABRT
                   || r->f.exit_code == 128 + SIGTERM
               ? 2
               : 1;
}

static const struct report *verdict_pick_report(const struct launch_verdict *v)
{
    const struct report *best = NULL;
    int best_class = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct report *r = &v->v[i];
        int class = report_class(v, r);
        bool is_earlier = best && !strcmp(best->f.host, r->f.host)
                          && r->f.at_wall_us < best->f.at_wall_us;
        if (!best || class < best_class || (class == best_class && is_earlier)) {
            best = r;
            best_class = class;
        }
    }
    return best;
}

const struct report *verdict_pick(const struct launch_verdict *v)
{
    const struct report *best = verdict_pick_report(v);
    bool is_of_lost = best && v->lost.n_ranks && best->blames == v->lost.f.rank
                      && !verdict_has_rank(v, best->blames);

    return is_of_lost ? &v->lost : best;
}

uint64_t verdict_deadline_ns(const struct launch_verdict *v)
{
    const struct report *best = verdict_pick_report(v);
    if (!best)
        return UINT64_MAX;
    int32_t rank;
    bool waits = best->blames >= 0
                     ? !verdict_has_rank(v, best->blames)
                     : best->f.exit_code == FAILURE_OTHER_RANK
                           || report_gpu_cause(best, &rank) == GPU_CAUSE_REMOTE;
    return v->first_ns + (waits ? VERDICT_BLAME_MS : VERDICT_WINDOW_MS) * MS;
}

/* p is the text after "rank N". True if " on HOST" or " (host ...)" and then the way it
 * exited follow. */
static bool text_is_rank_end(const char *p)
{
    if (!strncmp(p, " on ", 4))
        p += 4 + strcspn(p + 4, " \n");
    else if (!strncmp(p, " (host ", 7))
        p += 7 + strcspn(p + 7, ")\n");
    else
        return false;
    p += *p == ')';
    return text_is_end(p, failures, ARRAY_LEN(failures))
           || text_is_end(p, orderly, ARRAY_LEN(orderly));
}

int32_t blame_scan(const char *tail, int32_t self)
{
    static const char mark[] = "rank ", before[] = "lost ";
    int32_t found = -1;
    for (const char *p = tail; (p = strstr(p, mark)); p++) {
        const char *digits = p + sizeof(mark) - 1;
        char *end;
        long rank = *digits >= '0' && *digits <= '9' ? strtol(digits, &end, 10) : -1;
        if (rank < 0 || rank >= INT32_MAX || rank == self)
            continue;
        bool is_lost = p - tail >= 5 && !strncmp(p - 5, before, 5);
        if (is_lost || text_is_rank_end(end))
            found = (int32_t)rank;
    }
    return found;
}

void report_sentence(const struct report *r, char *ret, size_t size_bytes)
{
    if (r->f.rank < 0 && *r->f.why)
        (void)snprintf(ret, size_bytes, "%s", r->f.why);
    else
        failure_sentence(&r->f, ret, size_bytes);
    size_t n = strlen(ret);
    if (r->f.rank >= 0 && *r->f.why && n < size_bytes)
        (void)snprintf(ret + n, size_bytes - n, ": %s", r->f.why);
}

void report_init(struct report *ret, const char *host, int exit_code, uint64_t wall_us)
{
    memset(ret, 0, sizeof(*ret));
    ret->f.rank = ret->blames = -1;
    ret->f.exit_code = exit_code;
    ret->f.at_wall_us = wall_us;
    (void)snprintf(ret->f.host, sizeof(ret->f.host), "%s", host);
}

void report_explain(struct report *r)
{
    int32_t rank;
    enum gpu_cause cause = gpu_cause_scan(r->tail, r->f.why, sizeof(r->f.why), &rank);

    r->blames = blame_scan(r->tail, r->f.rank);
    if (rank >= 0 && rank != r->f.rank)
        r->blames = rank;
    else if (cause == GPU_CAUSE_HARDWARE) /* the peers were lost because of it */
        r->blames = -1;
}

int failure_exit_code(const struct failure *f)
{
    if (f->signal > 0 && f->signal < 128)
        return 128 + f->signal;
    int code = f->exit_code & 255;
    return code ? code : 125;
}

void report_message(const struct report *r, struct strbuf *out)
{
    failure_render(&r->f, out);
    const char *tail = r->tail;
    size_t room = out->n < MESSAGE_MAX_BYTES ? MESSAGE_MAX_BYTES - out->n : 0;
    while (strlen(tail) > room) {
        const char *next = strchr(tail, '\n');
        tail = next ? next + 1 : tail + strlen(tail);
    }
    strbuf_puts(out, tail);
}
