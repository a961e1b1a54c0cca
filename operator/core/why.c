/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshot -> findings -> one sentence.
 *
 *   each pod that is Pending     its first obstacle, in the kubelet's and scheduler's words
 *   equal ones                   one finding, with the first pod and their number
 *   the sync's outcome           a finding about the API server
 *   the findings in order        without consequences, at most MAX_NAMED of them
 *
 * What is a consequence: of a refused pod the wait of its gang; of any obstacle the
 * progress of other pods. A pod has one finding only, so its own consequences are not
 * found at all. Agents are asked only when all pods run.
 *
 * Called by hvd_verdict.c and mpi_status.c. */
#include "operator/core/why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/explain.h"
#include "operator/core/progress.h"
#include "operator/core/timestamp.h"
#include "operator/core/wording.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/live/live_report.h"

#define MAX_FINDINGS 8 /* that are kept apart; further ones are only counted */
#define MAX_NAMED    2 /* in the sentence */
#define MAX_SENTENCE 4096u

struct finding {
    enum obstacle kind;
    const char *detail;  /* why; "" if unknown */
    const struct pod *p; /* the first pod; NULL: of the API server's answer */
    char who[64];        /* "worker 3" */
    uint32_t n;          /* pods */
};

struct why_work {
    const struct why_query *q;
    struct arena *arena;
    struct finding v[MAX_FINDINGS + 1]; /* and the API server's */
    size_t n;
    uint32_t n_more; /* pods of other findings */
    bool is_out_of_memory;
};

static const char *why_keep(struct why_work *w, const char *text)
{
    if (!text)
        w->is_out_of_memory = true;
    return text ? text : "";
}

static bool wait_has_lasted(uint64_t since_us, uint64_t now_s)
{
    return since_us != 0 && now_s >= since_us / 1000000u + EXPLAIN_AFTER_S;
}

/* --- one pod ------------------------------------------------------------------------ */

static bool reason_is_of_image(const char *reason)
{
    static const char *const reasons[] = {
        "ErrImagePull",           "ImagePullBackOff",         "InvalidImageName",
        "ErrImageNeverPull",      "ImageInspectError",        "RegistryUnavailable",
        "ImageVolumeMountFailed", "SignatureValidationFailed"};

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (strcmp(reason, reasons[i]) == 0)
            return true;
    }
    return false;
}

/* The kubelet's Event, while the status of the containers says nothing. */
static enum obstacle hint_read(const char *hint, char detail[WORDING_SIZE])
{
    if (wording_volume(hint, detail))
        return OBSTACLE_VOLUME;
    if (wording_network(hint, detail))
        return OBSTACLE_NETWORK;
    wording_start(hint, detail);
    return OBSTACLE_START;
}

/* No scheduler has set a condition, or the kubelet no status. */
static enum obstacle
silence_read(const struct pod *p, uint64_t now_s, char detail[WORDING_SIZE])
{
    bool is_judged = p->bound_wall_us || *p->node || pod_is_unscheduled(p);

    if (!is_judged && wait_has_lasted(p->made_wall_us, now_s)) {
        (void)snprintf(
            detail, WORDING_SIZE,
            "none has considered it; see spec.schedulerName of the template");
        return OBSTACLE_SCHEDULER;
    }
    if (p->init_wall_us)
        return wait_has_lasted(p->init_wall_us, now_s) ? OBSTACLE_INIT : OBSTACLE_NONE;
    if (!wait_has_lasted(p->bound_wall_us, now_s))
        return OBSTACLE_NONE;
    if (!*p->waiting)
        (void)snprintf(detail, WORDING_SIZE, "its kubelet has reported nothing");
    else if (pod_has_condition(p, "PodReadyToStartContainers", "True"))
        (void)snprintf(detail, WORDING_SIZE, "its image is pulled");
    else
        (void)snprintf(detail, WORDING_SIZE, "its volumes and network are set up");
    return OBSTACLE_STARTING;
}

static enum obstacle
pod_obstacle(const struct pod *p, uint64_t now_s, char detail[WORDING_SIZE])
{
    *detail = '\0';
    if (pod_is_unscheduled(p) && *p->waiting) {
        wording_scheduler(p->waiting, detail);
        return OBSTACLE_SCHEDULER;
    }
    if (!waiting_is_usual(p->waiting)) {
        if (!reason_is_of_image(p->wait_reason)) {
            wording_start(p->waiting, detail);
            return OBSTACLE_START;
        }
        wording_image(p->waiting, detail);
        return OBSTACLE_IMAGE;
    }
    if (*p->hint)
        return hint_read(p->hint, detail);
    return silence_read(p, now_s, detail);
}

/* --- findings ----------------------------------------------------------------------- */

static bool pods_wait_alike(const struct pod *a, const struct pod *b)
{
    return strcmp(a->waiting, b->waiting) == 0 && strcmp(a->hint, b->hint) == 0
           && strcmp(a->wait_reason, b->wait_reason) == 0
           && strcmp(a->wait_container, b->wait_container) == 0 && a->usual == b->usual;
}

/* True if what the pod waits for does not depend on how long it does. */
static bool pod_says_why(const struct pod *p)
{
    return !waiting_is_usual(p->waiting) || *p->hint;
}

/* Equal but for the pods' own names, as in those of their claims. */
static bool
details_match(const char *a, const char *name_a, const char *b, const char *name_b)
{
    size_t n_a = strlen(name_a), n_b = strlen(name_b);

    while (*a && *b) {
        if (strncmp(a, name_a, n_a) == 0 && strncmp(b, name_b, n_b) == 0) {
            a += n_a;
            b += n_b;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

static bool finding_takes(const struct finding *f,
                          const struct pod *p,
                          enum obstacle kind,
                          const char *detail)
{
    return f->p && f->kind == kind
           && strcmp(f->p->wait_container, p->wait_container) == 0
           && details_match(f->detail, f->p->name, detail, p->name);
}

static void why_add_pod(struct why_work *w, const struct pod *p, const char *who)
{
    char detail[WORDING_SIZE];
    enum obstacle kind;

    for (size_t i = 0; i < w->n; i++) { /* most pods wait for the same */
        if (w->v[i].p && pod_says_why(p) && pods_wait_alike(w->v[i].p, p)) {
            w->v[i].n++;
            return;
        }
    }
    kind = pod_obstacle(p, w->q->now_wall_s, detail);
    if (kind == OBSTACLE_NONE)
        return;
    for (size_t i = 0; i < w->n; i++) {
        if (finding_takes(&w->v[i], p, kind, detail)) {
            w->v[i].n++;
            return;
        }
    }
    if (w->n == MAX_FINDINGS) {
        w->n_more++;
        return;
    }
    w->v[w->n] =
        (struct finding){.kind = kind,
                         .p = p,
                         .n = 1,
                         .detail = why_keep(w, arena_strdup(w->arena, detail))};
    (void)snprintf(w->v[w->n].who, sizeof(w->v[w->n].who), "%s", who);
    w->n++;
}

static bool pod_waits(const struct pod *p)
{
    return p->phase == POD_PENDING && !p->is_deleting;
}

static void why_add_pods(struct why_work *w)
{
    const struct observed *seen = w->q->seen;
    char who[64];

    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &seen->crew[r];
        bool is_one = r != ROLE_WORKER && w->q->shape->n[r] == 1;

        for (uint32_t i = 0; i < crew->n && i < w->q->shape->n[r]; i++) {
            if (crew->w[i].state != WORKER_SEEN || !pod_waits(crew->w[i].pod))
                continue;
            if (is_one)
                (void)snprintf(who, sizeof(who), "the %s", role_name((enum role)r));
            else
                (void)snprintf(who, sizeof(who), "%s %u", role_name((enum role)r), i);
            why_add_pod(w, crew->w[i].pod, who);
        }
    }
    for (uint32_t i = 0; i < seen->n_batch_pods; i++) {
        if (pod_waits(seen->batch_pods[i]))
            why_add_pod(w, seen->batch_pods[i], "the launcher");
    }
}

/* "demo-worker-3" of job demo -> "worker 3", "demo-launcher" -> "the launcher". */
static void
object_who(const struct job_meta *job, const char *name, size_t n, char who[64])
{
    size_t n_job = strlen(job->name);
    char *dash;

    (void)snprintf(who, 64, "%.*s", (int)n, name);
    if (n <= n_job + 1 || strncmp(name, job->name, n_job) != 0 || name[n_job] != '-')
        return;
    name += n_job + 1;
    n -= n_job + 1;
    (void)snprintf(who, 64, "%.*s", (int)n, name);
    dash = strrchr(who, '-');
    if (strcmp(who, "launcher-0") == 0 || strcmp(who, "chief-0") == 0)
        (void)snprintf(who, 64, "the %.*s", (int)n - 2, name);
    else if (dash && dash[1] >= '0' && dash[1] <= '9')
        *dash = ' ';
    else
        (void)snprintf(who, 64, "the %.*s", (int)n, name);
}

/* outcome->message is "<Kind> <name>: <text>". */
static const char *refusal_text(struct why_work *w, const struct sync_outcome *o)
{
    const char *name = strchr(o->message, ' ');
    const char *text = name ? strstr(name, ": ") : NULL;
    bool is_create = strcmp(o->reason, "CreateFailed") == 0, is_refusal;
    bool is_pod =
        strncmp(o->message, "Pod ", 4) == 0 || strncmp(o->message, "Job ", 4) == 0;
    char why[WORDING_SIZE], who[64];

    is_refusal = text && is_create && wording_refusal(text + 2, why);
    if (!text || !is_create || (!is_refusal && !is_pod))
        return why_keep(w, arena_strdup(w->arena, o->message));
    if (!is_pod)
        return why_keep(w, arena_printf(w->arena, "the API server refuses %.*s: %s",
                                        (int)(text - o->message), o->message, why));
    name++;
    object_who(w->q->job, name, (size_t)(text - name), who);
    return why_keep(w, arena_printf(w->arena,
                                    is_refusal ? "the API server refuses %s's %s: %s"
                                               : "%s's %s cannot be created: %s",
                                    who, *o->message == 'P' ? "pod" : "Job", why));
}

static void why_add_outcome(struct why_work *w)
{
    const struct sync_outcome *o = w->q->outcome;

    if (o->trouble != TROUBLE_RETRY || o->is_conflict)
        return;
    memmove(&w->v[1], &w->v[0], w->n * sizeof(w->v[0]));
    w->n++;
    w->v[0] = (struct finding){.kind = OBSTACLE_REFUSED, .detail = refusal_text(w, o)};
}

/* What the PodGroup says takes the place of what its pods say. */
static void why_see_group(struct why_work *w)
{
    const struct inquiry *g = w->q->seen->inquiry;
    bool is_group =
        g && g->result == INQUIRY_FOUND && *g->text && w->q->is_gang
        && (g->kind == KUBE_VOLCANO_GROUP || g->kind == KUBE_SCHEDULER_GROUP);

    for (size_t i = 0; i < w->n && is_group; i++) {
        struct finding *f = &w->v[i];

        if (f->kind != OBSTACLE_SCHEDULER || g->asked_s < f->p->made_wall_us / 1000000u)
            continue;
        f->kind = OBSTACLE_GROUP;
        f->detail = g->kind == KUBE_VOLCANO_GROUP
                        ? g->text
                        : why_keep(w, arena_printf(w->arena, "%s (scheduler: %s)",
                                                   g->text, f->detail));
        for (size_t k = i + 1; k < w->n; k++) { /* other words for the same wait */
            if (w->v[k].kind == OBSTACLE_SCHEDULER)
                w->v[k].kind = OBSTACLE_NONE;
        }
        return;
    }
}

/* Removes what another finding causes, and sorts the rest. */
static void why_order(struct why_work *w)
{
    enum obstacle first = OBSTACLE_STARTING;
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++) {
        if (w->v[i].kind != OBSTACLE_NONE && w->v[i].kind < first)
            first = w->v[i].kind;
    }
    for (size_t i = 0; i < w->n; i++) {
        enum obstacle k = w->v[i].kind;
        bool is_effect = k == OBSTACLE_NONE
                         || (k >= OBSTACLE_INIT && first < OBSTACLE_INIT)
                         || (first == OBSTACLE_REFUSED && w->q->is_gang
                             && (k == OBSTACLE_GROUP || k == OBSTACLE_SCHEDULER));

        if (!is_effect)
            w->v[n++] = w->v[i];
    }
    w->n = n;
    for (size_t i = 1; i < n; i++) { /* insertion sort: it keeps the order of pods */
        struct finding x = w->v[i];
        size_t k = i;

        for (; k > 0 && w->v[k - 1].kind > x.kind; k--)
            w->v[k] = w->v[k - 1];
        w->v[k] = x;
    }
}

/* --- the sentence ------------------------------------------------------------------- */

static const char *why_noun(const struct why_query *q)
{
    return q->shape->n[ROLE_WORKER] == q->n_pods ? "worker" : "pod";
}

/* "worker 3", "4 workers", "all 8 workers". */
static void
put_many(struct strbuf *s, const struct why_query *q, const struct finding *f)
{
    if (f->n == 1)
        strbuf_puts(s, f->who);
    else
        strbuf_printf(s, "%s%u %ss", f->n == q->n_pods ? "all " : "", f->n,
                      why_noun(q));
}

/* The same with a node: "worker 3 (node n7) and 2 more". */
static void put_there(struct strbuf *s, const struct finding *f)
{
    strbuf_puts(s, f->who);
    if (*f->p->node)
        strbuf_printf(s, " (node %s)", f->p->node);
    if (f->n > 1)
        strbuf_printf(s, " and %u more", f->n - 1);
}

static void put_since(struct strbuf *s, uint64_t wall_us)
{
    char text[TIMESTAMP_SIZE];

    if (wall_us)
        strbuf_printf(s, " (since %s)", timestamp_format_s(wall_us / 1000000u, text));
}

/* "container main", "init container fetch" */
static void put_container(struct strbuf *s, const struct pod *p)
{
    strbuf_printf(s, "%scontainer%s%s", p->is_init_wait ? "init " : "",
                  *p->wait_container ? " " : "", p->wait_container);
}

static void put_image(struct strbuf *s, const struct finding *f)
{
    put_there(s, f);
    strbuf_printf(s, " cannot pull %s image",
                  f->n > 1 || f->p->is_init_wait ? "the" : "its");
    if (f->p->is_init_wait) {
        strbuf_puts(s, " of ");
        put_container(s, f->p);
        strbuf_putc(s, ',');
    }
    strbuf_printf(s, " %s", f->detail);
}

static void put_start(struct strbuf *s, const struct finding *f)
{
    put_there(s, f);
    strbuf_puts(s, " cannot start");
    if (*f->p->wait_container) {
        strbuf_putc(s, ' ');
        put_container(s, f->p);
    }
    strbuf_printf(s, ": %s", f->detail);
}

static void
put_finding(struct strbuf *s, const struct why_query *q, const struct finding *f)
{
    const char *verb_end = f->n == 1 ? "s" : "";

    switch (f->kind) {
    case OBSTACLE_NONE:
        break;
    case OBSTACLE_REFUSED:
        strbuf_puts(s, f->detail);
        break;
    case OBSTACLE_GROUP:
        strbuf_printf(s, "PodGroup %s waits: %s", q->job->name, f->detail);
        break;
    case OBSTACLE_SCHEDULER:
        put_many(s, q, f);
        strbuf_printf(s, " wait%s for the scheduler: %s", verb_end, f->detail);
        break;
    case OBSTACLE_VOLUME:
        put_there(s, f);
        strbuf_printf(s, " wait%s for %s", verb_end, f->detail);
        put_since(s, f->p->bound_wall_us);
        break;
    case OBSTACLE_NETWORK:
        put_there(s, f);
        strbuf_printf(s, " get%s no sandbox and network: %s", verb_end, f->detail);
        break;
    case OBSTACLE_IMAGE:
        put_image(s, f);
        break;
    case OBSTACLE_START:
        put_start(s, f);
        break;
    case OBSTACLE_INIT:
        put_there(s, f);
        strbuf_printf(s, " run%s ", verb_end);
        put_container(s, f->p);
        put_since(s, f->p->init_wall_us);
        break;
    case OBSTACLE_STARTING:
        put_there(s, f);
        strbuf_printf(s, " %s being started", f->n == 1 ? "is" : "are");
        put_since(s, f->p->bound_wall_us);
        strbuf_printf(s, ": %s", f->detail);
        break;
    }
}

static void put_sentence(const struct why_work *w, struct strbuf *s)
{
    const struct why_query *q = w->q;
    uint32_t n_more = w->n_more;

    if (q->n_running > 0 || w->n == 0)
        strbuf_printf(s, "%u of %u %ss run", q->n_running, q->n_pods, why_noun(q));
    for (size_t i = 0; i < w->n; i++) {
        if (i >= MAX_NAMED) {
            n_more += w->v[i].n;
            continue;
        }
        if (s->n > 0)
            strbuf_puts(s, "; ");
        put_finding(s, q, &w->v[i]);
    }
    if (n_more > 0)
        strbuf_printf(s, "; %u more wait%s for other reasons", n_more,
                      n_more == 1 ? "s" : "");
}

int why_not_running(const struct why_query *q, struct arena *a, struct why *ret)
{
    struct why_work w = {.q = q, .arena = a};
    struct why why = {.detail = ""};
    CLEANUP(strbuf_release) struct strbuf s = {0};

    strbuf_init(&s, MAX_SENTENCE);
    why_add_pods(&w);
    why_see_group(&w);
    why_add_outcome(&w);
    why_order(&w);
    if (w.n > 0) {
        why.first = w.v[0].kind;
        why.detail = w.v[0].detail;
    }
    put_sentence(&w, &s);
    why.text = why_keep(&w, arena_strdup(a, strbuf_str(&s)));
    if (w.is_out_of_memory || strbuf_status(&s) == -ENOMEM)
        return -ENOMEM;
    *ret = why;
    return 0;
}

static void next_see(uint64_t *next_s, uint64_t since_us, uint64_t now_s)
{
    uint64_t at_s = since_us / 1000000u + EXPLAIN_AFTER_S;

    if (since_us && at_s > now_s && (!*next_s || at_s < *next_s))
        *next_s = at_s;
}

static void next_see_pod(uint64_t *next_s, const struct pod *p, uint64_t now_s)
{
    if (!pod_waits(p))
        return;
    if (!p->bound_wall_us && !*p->node && !*p->waiting)
        next_see(next_s, p->made_wall_us, now_s);
    next_see(next_s, p->init_wall_us, now_s);
}

uint64_t why_next_s(const struct observed *seen, uint64_t now_s)
{
    uint64_t next_s = 0;

    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            if (seen->crew[r].w[i].state == WORKER_SEEN)
                next_see_pod(&next_s, seen->crew[r].w[i].pod, now_s);
        }
    }
    for (uint32_t i = 0; i < seen->n_batch_pods; i++)
        next_see_pod(&next_s, seen->batch_pods[i], now_s);
    return next_s;
}

/* --- other states ------------------------------------------------------------------- */

const char *why_suspended(const struct job_meta *job,
                          const struct inquiry *known,
                          uint64_t since_s,
                          struct arena *a)
{
    static const char plain[] = "the job is suspended by spec.runPolicy.suspend";
    bool is_known = known && known->kind == KUBE_WORKLOAD && known->asked_s >= since_s;

    if (!*job->kueue_queue)
        return plain;
    if (is_known && known->result == INQUIRY_FOUND)
        return arena_printf(a, "suspended by Kueue: %s", known->text);
    if (is_known && known->result == INQUIRY_ABSENT)
        return arena_printf(a,
                            "%s; Kueue has no Workload for it, though its label names "
                            "queue %s: does Kueue manage this kind of job?",
                            plain, job->kueue_queue);
    return arena_printf(a, "%s; its label names Kueue's queue %s", plain,
                        job->kueue_queue);
}

const char *
why_not_met(const struct job_meta *job, const struct live_report *live, struct arena *a)
{
    if (!live || !progress_is_unmet(live))
        return "";
    return arena_printf(a,
                        "; only %u of %u agents have reached worker 0: see the logs of "
                        "%s-worker-*; DNS or a NetworkPolicy may stop them",
                        live->n_present, live->n_workers, job->name);
}
