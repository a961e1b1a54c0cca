/* SPDX-License-Identifier: Apache-2.0 */
/* When an object is requested, and what its status says. PodGroups are those of Volcano
 * (phase, conditions) and scheduler-plugins (phase); the Workload is Kueue's. Their texts
 * go through wording.c. Called by hvd_plan.c, mpi_plan.c and store_children.c. */
#include "operator/core/inquiry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/explain.h"
#include "operator/core/plan.h"
#include "operator/core/timestamp.h"
#include "operator/core/wording.h"

/* --- when ------------------------------------------------------------------------- */

static void need_see_pod(struct inquiry_need *need, const struct pod *p)
{
    uint64_t made_s = p->made_wall_us / 1000000u;

    if (p->phase != POD_PENDING || p->is_deleting || !pod_is_unscheduled(p))
        return;
    if (!need->since_s || made_s < need->since_s)
        need->since_s = made_s ? made_s : 1;
}

struct inquiry_need
inquiry_for_group(const struct observed *seen, enum kube_kind kind, const char *name)
{
    struct inquiry_need need = {.kind = kind, .name = name};

    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            if (seen->crew[r].w[i].state == WORKER_SEEN)
                need_see_pod(&need, seen->crew[r].w[i].pod);
        }
    }
    for (uint32_t i = 0; i < seen->n_batch_pods; i++)
        need_see_pod(&need, seen->batch_pods[i]);
    return need;
}

static uint64_t inquiry_pause_s(const struct inquiry *known)
{
    uint64_t s = INQUIRY_AGAIN_S;

    if (known->result == INQUIRY_DENIED)
        return INQUIRY_LONGEST_S;
    for (uint32_t n = 1; n < known->n_asked && s < INQUIRY_LONGEST_S; n++)
        s *= 2;
    return s < INQUIRY_LONGEST_S ? s : INQUIRY_LONGEST_S;
}

uint64_t inquiry_next_s(const struct inquiry *known, const struct inquiry_need *need)
{
    uint64_t first_s = need->since_s + INQUIRY_AFTER_S;

    if (!need->since_s)
        return 0;
    if (!known || !known->asked_s || known->kind != need->kind)
        return first_s;
    /* of an earlier wait: its pause is not over, either */
    return known->asked_s + inquiry_pause_s(known) > first_s
               ? known->asked_s + inquiry_pause_s(known)
               : first_s;
}

int inquiry_add(struct job_plan *plan,
                const struct inquiry *known,
                const struct inquiry_need *need,
                uint64_t now_s,
                uint32_t stage,
                struct arena *a)
{
    uint64_t due_s = inquiry_next_s(known, need);
    const char *name;

    if (!due_s || !wall_wait_is_over(now_s, due_s, INQUIRY_LONGEST_S))
        return 0;
    name = arena_strdup(a, need->name);
    if (!name)
        return -ENOMEM;
    (void)plan_add(plan, VERB_EXPLAIN, need->kind, stage, name);
    return 0;
}

/* --- what ------------------------------------------------------------------------- */

static const char *inquiry_str(const struct node *o, const char *path)
{
    const char *s = node_str(o, path);

    return s ? s : "";
}

static const struct node *
inquiry_condition(const struct node *object, const char *type, const char *status)
{
    const struct node *c =
        node_with(node_at(object, "status.conditions"), "type", type);

    return c && strcmp(inquiry_str(c, "status"), status) == 0 ? c : NULL;
}

static void read_volcano(const struct node *o, char ret[INQUIRY_TEXT_SIZE])
{
    const struct node *c = inquiry_condition(o, "Unschedulable", "True");
    const char *queue = inquiry_str(o, "spec.queue");
    char text[WORDING_SIZE];

    if (c) {
        wording_volcano(inquiry_str(c, "message"), text);
        (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s", text);
    } else if (strcmp(inquiry_str(o, "status.phase"), "Pending") == 0) {
        (void)snprintf(ret, INQUIRY_TEXT_SIZE,
                       "Volcano has not admitted it to queue %s",
                       *queue ? queue : "default");
    }
}

static void read_plugins(const struct node *o, char ret[INQUIRY_TEXT_SIZE])
{
    (void)snprintf(ret, INQUIRY_TEXT_SIZE, "its %lld pods must fit at once",
                   (long long)node_int(o, "spec.minMember", 0));
}

/* The first admission check that is not Ready. */
static void read_checks(const struct node *w, const char *head, char *ret)
{
    const struct node *list = node_at(w, "status.admissionChecks");
    char text[WORDING_SIZE];

    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        if (strcmp(inquiry_str(c, "state"), "Ready") == 0)
            continue;
        wording_kueue(inquiry_str(c, "message"), text);
        (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s waits for admission check %s%s%s",
                       head, inquiry_str(c, "name"), *text ? ": " : "", text);
        return;
    }
    (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s waits for its admission checks", head);
}

static void read_workload(const struct node *w, char ret[INQUIRY_TEXT_SIZE])
{
    const struct node *c;
    char head[128], text[WORDING_SIZE];

    (void)snprintf(head, sizeof(head), "the Workload in queue %.64s",
                   inquiry_str(w, "spec.queueName"));
    if (!node_bool(w, "spec.active", true)) {
        (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s is deactivated (spec.active)", head);
    } else if (inquiry_condition(w, "Admitted", "True")) {
        (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s is admitted", head);
    } else if (inquiry_condition(w, "QuotaReserved", "True")) {
        read_checks(w, head, ret);
    } else if ((c = inquiry_condition(w, "QuotaReserved", "False"))) {
        wording_kueue(inquiry_str(c, "message"), text);
        (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s is not admitted: %s", head, text);
    } else {
        (void)snprintf(ret, INQUIRY_TEXT_SIZE, "%s is not considered yet", head);
    }
}

/* The Workload that was created last, if there are several. */
static const struct node *last_workload(const struct node *list)
{
    const struct node *items = node_get(list, "items"), *last = NULL;

    for (const struct node *c = items ? items->first : NULL; c; c = c->next) {
        if (!last
            || strcmp(inquiry_str(c, "metadata.creationTimestamp"),
                      inquiry_str(last, "metadata.creationTimestamp"))
                   >= 0)
            last = c;
    }
    return last;
}

void inquiry_take(struct inquiry *known,
                  enum kube_kind kind,
                  enum inquiry_result result,
                  const struct node *object,
                  uint64_t now_s)
{
    bool is_new =
        known->kind != kind || known->asked_s + 2u * INQUIRY_LONGEST_S < now_s;

    known->n_asked = is_new ? 1 : known->n_asked + 1;
    known->asked_s = now_s;
    if (result == INQUIRY_UNKNOWN && known->kind == kind)
        return; /* what was known holds */
    known->kind = kind;
    *known->text = '\0';
    if (kind == KUBE_WORKLOAD && result == INQUIRY_FOUND) {
        object = last_workload(object);
        if (!object)
            result = INQUIRY_ABSENT;
    }
    known->result = result;
    if (result != INQUIRY_FOUND)
        return;
    if (kind == KUBE_WORKLOAD)
        read_workload(object, known->text);
    else if (kind == KUBE_VOLCANO_GROUP)
        read_volcano(object, known->text);
    else
        read_plugins(object, known->text);
}
