/* SPDX-License-Identifier: Apache-2.0 */
/* A row is made by the operator's own decoder (cli/core/job_view), so it shows what
 * `kubectl hvd list` shows.
 *
 * The watches and the store keep metadata, spec and status of a job. Its apiVersion and
 * kind follow from the key. A job at rest has no pod templates, and therefore no GPUs to
 * count: where slotsPerWorker is not set, its slots are those of its earlier objects.
 *
 * Every text of the object is bounded, and so is the row: without its progress it always
 * fits. Called by page_table.c and page_detail.c. */
#include "operator/page/core/page_row.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/mpi/mpi_job.h"
#include "operator/core/observed.h"
#include "operator/core/state.h"
#include "operator/core/store/store.h"
#include "operator/page/core/page_json.h"
#include "runtime/base/mem.h"

static const char *kind_name(enum kube_kind kind)
{
    return kind == KUBE_MPIJOB ? MPI_KIND : JOB_KIND;
}

/* The object with apiVersion and kind. Its members are shared with the original. */
static struct node *
object_with_kind(struct build *b, enum kube_kind kind, const struct node *object)
{
    struct node *o = node_object(b);

    node_set_str(b, o, "apiVersion",
                 kind == KUBE_MPIJOB ? MPI_API_VERSION : JOB_API_VERSION);
    node_set_str(b, o, "kind", kind_name(kind));
    for (const struct node *c = object->first; c; c = c->next) {
        struct node *shared;

        if (strcmp(c->key, "apiVersion") == 0 || strcmp(c->key, "kind") == 0)
            continue;
        shared = arena_alloc(b->arena, sizeof(*shared));
        if (!shared) {
            b->status = -ENOMEM;
            break;
        }
        *shared = *c;
        shared->next = NULL;
        node_append(b, o, c->key, shared);
    }
    return b->status ? NULL : o;
}

static bool view_has_slots(const struct job_view *v)
{
    return v->kind == KUBE_MPIJOB || v->is_tensorflow
           || node_get(v->spec, "slotsPerWorker")
           || node_at(v->spec, "replicaSpecs.Worker.template");
}

int page_view_make(struct build *b,
                   const char *key,
                   const struct node *object,
                   uint32_t known_slots,
                   struct page_view *ret)
{
    enum kube_kind kind = store_key_kind(key);
    const char *uid = node_str(object, "metadata.uid");
    const char *name = node_str(object, "kind");
    char its_key[STORE_KEY_SIZE];
    struct page_view v = {.uid = uid};
    struct node *o;
    int rc;

    if (!uid || !*uid || strlen(uid) >= UID_SIZE
        || (name && strcmp(name, kind_name(kind)) != 0)
        || store_key(kind, node_str(object, "metadata.namespace"),
                     node_str(object, "metadata.name"), its_key)
               < 0
        || strcmp(key, its_key) != 0)
        return -EINVAL;
    o = object_with_kind(b, kind, object);
    if (!o)
        return b->status;
    rc = job_view_make(b, o, &v.job);
    if (rc < 0)
        return rc;
    v.slots = view_has_slots(&v.job) ? v.job.slots : known_slots;
    *ret = v;
    return 0;
}

/* --- the row --------------------------------------------------------------------- */

static void row_copy_int(struct build *b,
                         struct node *o,
                         const char *key,
                         const struct node *status)
{
    const struct node *n = node_get(status, key);

    if (n && n->type == NODE_INT)
        node_set_int(b, o, key, n->u.i);
}

static void row_copy_time(struct build *b,
                          struct node *o,
                          const char *key,
                          const struct node *object,
                          const char *path)
{
    page_json_set(b, o, key, node_str(object, path), PAGE_TIME_MAX);
}

static void row_set_true(struct build *b, struct node *o, const char *key, bool is)
{
    if (is)
        node_set_bool(b, o, key, true);
}

/* "91%" -> 0.91 */
static void row_set_goodput(struct build *b, struct node *o, const struct job_view *v)
{
    const char *text = node_str(v->goodput, "ratio");
    char *end;
    unsigned long percent;

    if (!text || *text < '0' || *text > '9')
        return;
    percent = strtoul(text, &end, 10);
    if (percent <= 100 && strcmp(end, "%") == 0)
        node_set(b, o, "goodput", node_real(b, (double)percent / 100));
}

/* What the viewer asks first: who stalls the job, who delays it, else why it is in its
 * state. */
static const char *row_message(const struct job_view *v)
{
    static const char *const verdicts[] = {"Stalled", "Straggling"};

    for (size_t i = 0; i < ARRAY_LEN(verdicts); i++) {
        const char *text = node_str(condition_find(v->status, verdicts[i]), "message");

        if (text && condition_is_true(v->status, verdicts[i]))
            return text;
    }
    return v->message;
}

static struct node *
row_tree(struct build *b, const struct page_view *pv, bool has_progress)
{
    const struct job_view *v = &pv->job;
    struct node *o = node_object(b);
    bool is_mpi = v->kind == KUBE_MPIJOB;

    node_set_str(b, o, "uid", pv->uid);
    page_json_set(b, o, "version", node_str(v->object, "metadata.resourceVersion"),
                  PAGE_TIME_MAX);
    node_set_str(b, o, "kind", is_mpi ? "mpijobs" : "horovodjobs");
    page_json_set(b, o, "namespace", v->ns, PAGE_NAME_MAX);
    page_json_set(b, o, "name", v->name, PAGE_NAME_MAX);
    page_json_set(b, o, "state", v->state, PAGE_TIME_MAX);
    page_json_set(b, o, "reason", v->reason, PAGE_NAME_MAX);
    page_json_set(b, o, "message", row_message(v), PAGE_MESSAGE_MAX);
    page_json_set(b, o, "workers", v->workers, PAGE_TIME_MAX);
    if (v->is_agent && pv->slots > 0)
        node_set_int(b, o, "ranks", (int64_t)v->n_workers * pv->slots);
    row_copy_time(b, o, "created", v->object, "metadata.creationTimestamp");
    row_copy_time(b, o, "started", v->status, "startTime");
    row_copy_time(b, o, "finished", v->status, "completionTime");
    row_copy_int(b, o, "restarts", v->status);
    row_copy_int(b, o, "replacements", v->status);
    row_set_goodput(b, o, v);
    row_set_true(b, o, "stalled", condition_is_true(v->status, "Stalled"));
    row_set_true(b, o, "straggling", condition_is_true(v->status, "Straggling"));
    row_set_true(b, o, "terminating",
                 node_str(v->object, "metadata.deletionTimestamp") != NULL);
    if (has_progress)
        page_json_copy(b, o, "progress", v->progress, PAGE_PROGRESS_MAX);
    return o;
}

int page_row_write(struct build *b, const struct page_view *v, struct strbuf *out)
{
    struct node *o = row_tree(b, v, true);

    if (b->status)
        return b->status;
    page_json_write(o, out);
    if (strbuf_status(out) != -E2BIG)
        return strbuf_status(out);
    strbuf_clear(out);
    o = row_tree(b, v, false);
    if (b->status)
        return b->status;
    page_json_write(o, out);
    return strbuf_status(out);
}
