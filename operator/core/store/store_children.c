/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of jobs, as shown by the watches and by the API server's answers: into the
 * cache (children.c) and into the memory of their job. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/labels.h"
#include "operator/core/store/store_entry.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"

static struct job_entry *job_named(const struct store *s,
                                   enum kube_kind kind,
                                   const char *ns,
                                   const char *name,
                                   char ret_key[STORE_KEY_SIZE])
{
    if (store_key(kind, ns, name, ret_key) < 0) {
        *ret_key = '\0';
        return NULL;
    }
    return keyed_find(&s->jobs, ret_key);
}

static bool job_entry_owns(const struct job_entry *j, const char *owner_uid)
{
    return j && j->uid && strcmp(j->uid, owner_uid) == 0;
}

int store_put_pod(struct store *s, const struct pod *pod, char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j;
    uint32_t index;
    int rc = children_put_pod(&s->children, pod);

    *ret_key = '\0';
    if (rc <= 0)
        return rc;
    /* the key is set even if the job is not in the store yet */
    j = job_named(s, pod->job_kind, pod->ns, pod->job_name, ret_key);
    if (job_entry_owns(j, pod->owner_uid) && pod_replica_index(pod, &index) == 0)
        memory_show_pod(&j->memory, (enum role)pod->role, index, pod->uid);
    return 0;
}

void store_explain_pod(struct store *s,
                       const char *ns,
                       const char *name,
                       const char *uid,
                       const char *hint,
                       uint64_t now_wall_s)
{
    children_explain_pod(&s->children, ns, name, uid, hint, now_wall_s);
}

void store_take_inquiry(struct store *s,
                        const char *key,
                        const char *job_uid,
                        enum kube_kind kind,
                        enum inquiry_result result,
                        const struct node *object,
                        uint64_t now_wall_s)
{
    struct job_entry *j = store_entry(s, key, job_uid);
    struct inquiry *known = j ? memory_inquiry_at(&j->memory) : NULL;

    if (known)
        inquiry_take(known, kind, result, object, now_wall_s);
}

static struct job_entry *
owner_of(struct store *s, const struct pod *pod, char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j = job_named(s, pod->job_kind, pod->ns, pod->job_name, ret_key);

    return job_entry_owns(j, pod->owner_uid) ? j : NULL;
}

/* Stores the last state of the pod in the job's memory. -ENOMEM: nothing has
 * changed. */
static int job_entry_keep_gone(struct store *s,
                               const struct pod *seen,
                               bool is_unlisted,
                               char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j = owner_of(s, seen, ret_key);
    struct pod *pod;
    uint32_t index = 0;

    if (pod_replica_index(seen, &index) < 0)
        j = NULL;
    if (j && !memory_note_at(&j->memory, (enum role)seen->role, index))
        return -ENOMEM;
    pod = children_drop_pod(&s->children, seen->ns, seen->name);
    pod->is_unlisted = is_unlisted;
    if (j)
        memory_keep_gone_pod(&j->memory, (enum role)pod->role, index, pod);
    else
        pod_free(pod);
    return 0;
}

int store_drop_pod(struct store *s,
                   const char *ns,
                   const char *name,
                   char ret_key[STORE_KEY_SIZE])
{
    const struct pod *pod = children_pod(&s->children, ns, name);

    *ret_key = '\0';
    return pod ? job_entry_keep_gone(s, pod, false, ret_key) : 0;
}

int store_put_batch(struct store *s,
                    const struct batch_job *batch,
                    char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j;
    int rc = children_put_batch(&s->children, batch);

    *ret_key = '\0';
    if (rc <= 0)
        return rc;
    j = job_named(s, KUBE_MPIJOB, batch->ns, batch->job_name, ret_key);
    if (job_entry_owns(j, batch->owner_uid))
        memory_show_batch(&j->memory, batch->uid);
    return 0;
}

static void store_keep_gone_batch(struct store *s,
                                  struct batch_job *batch,
                                  char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j =
        job_named(s, KUBE_MPIJOB, batch->ns, batch->job_name, ret_key);

    if (job_entry_owns(j, batch->owner_uid))
        memory_keep_gone_batch(&j->memory, batch);
    else
        batch_free(batch);
}

void store_drop_batch(struct store *s,
                      const char *ns,
                      const char *name,
                      char ret_key[STORE_KEY_SIZE])
{
    struct batch_job *batch = children_drop_batch(&s->children, ns, name);

    *ret_key = '\0';
    if (batch)
        store_keep_gone_batch(s, batch, ret_key);
}

void store_begin_pods(struct store *s, enum kube_kind job_kind)
{
    children_begin_pods(&s->children, job_kind);
}

int store_end_pods(struct store *s,
                   enum kube_kind job_kind,
                   store_key_fn changed,
                   void *arg)
{
    char key[STORE_KEY_SIZE];
    const struct pod *pod;

    while ((pod = children_unmarked_pod(&s->children, job_kind))) {
        if (job_entry_keep_gone(s, pod, true, key) < 0)
            return -ENOMEM;
        if (*key)
            changed(arg, key);
    }
    return 0;
}

void store_begin_batches(struct store *s)
{
    children_begin_batches(&s->children);
}

void store_end_batches(struct store *s, store_key_fn changed, void *arg)
{
    char key[STORE_KEY_SIZE];
    struct batch_job *batch;

    while ((batch = children_sweep_batches(&s->children))) {
        store_keep_gone_batch(s, batch, key);
        if (*key)
            changed(arg, key);
    }
}

void store_each_leaving(const struct store *s, store_key_fn fn, void *arg)
{
    char key[STORE_KEY_SIZE];
    const struct pod *p;
    size_t next = 0;

    while ((p = children_each_pod(&s->children, &next))) {
        if (p->is_tracked && p->is_deleting
            && store_key(p->job_kind, p->ns, p->job_name, key) == 0)
            fn(arg, key);
    }
}

/* --- what is known by its metadata ----------------------------------------------- */

const struct prune_rule owned_rules[] = {
    {.key = "metadata", .inner = owned_metadata_rules}, PRUNE_END};

static struct job_entry *
owner_by(const struct store *s, const struct node *object, char ret_key[STORE_KEY_SIZE])
{
    static const enum kube_kind kinds[] = {KUBE_JOB, KUBE_MPIJOB};
    const char *ns = node_str(object, "metadata.namespace");

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct job_entry *j =
            job_named(s, kinds[i], ns, object_label(object, LABEL_JOB_NAME), ret_key);

        if (job_entry_owns(j, object_owner_uid(object)))
            return j;
    }
    *ret_key = '\0';
    return NULL;
}

void store_begin_owned(struct store *s, enum kube_kind kind)
{
    for (size_t i = 0; i < s->jobs.n; i++)
        ((struct job_entry *)s->jobs.v[i])->is_shown[kind] = false;
}

void store_put_owned(struct store *s, enum kube_kind kind, const struct node *object)
{
    char key[STORE_KEY_SIZE];
    struct job_entry *j = owner_by(s, object, key);

    if (j)
        j->is_shown[kind] = true;
}

static bool kind_is_group(enum kube_kind kind)
{
    return kind == KUBE_VOLCANO_GROUP || kind == KUBE_SCHEDULER_GROUP;
}

void store_end_owned(struct store *s,
                     enum kube_kind kind,
                     store_key_fn changed,
                     void *arg)
{
    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job_entry *j = s->jobs.v[i];
        enum fact_state was = memory_fact(&j->memory, kind)->state;
        bool is_needed = !kind_is_group(kind) && !state_is_final(j->state);

        if (j->is_shown[kind] || was == FACT_ABSENT
            || (was == FACT_UNKNOWN && !is_needed))
            continue;
        memory_set_fact(&j->memory, kind, &(struct fact){.state = FACT_ABSENT});
        changed(arg, j->key);
    }
}

void store_lose_owned(struct store *s,
                      enum kube_kind kind,
                      const struct node *object,
                      char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j = owner_by(s, object, ret_key);
    const struct fact *was = j ? memory_fact(&j->memory, kind) : NULL;
    const char *uid = node_str(object, "metadata.uid");
    struct fact fact = {.state = FACT_ABSENT};

    if (!was || !uid || was->state == FACT_ABSENT
        || (was->state == FACT_THERE && strcmp(was->uid, uid) != 0)) {
        *ret_key = '\0'; /* an older object of that name */
        return;
    }
    (void)snprintf(fact.uid, sizeof(fact.uid), "%s", uid);
    memory_set_fact(&j->memory, kind, &fact);
}

/* --- answers --------------------------------------------------------------------- */

void store_expect_pod(struct store *s,
                      const char *key,
                      const char *job_uid,
                      enum role role,
                      uint32_t index,
                      const char *pod_uid,
                      uint64_t now_ns)
{
    struct job_entry *j = store_entry(s, key, job_uid);

    if (j)
        memory_expect_pod(&j->memory, role, index, pod_uid, now_ns);
}

void store_miss_pod(struct store *s,
                    const char *key,
                    const char *job_uid,
                    enum role role,
                    uint32_t index)
{
    struct job_entry *j = store_entry(s, key, job_uid);

    if (j)
        memory_miss_pod(&j->memory, role, index);
}

void store_expect_batch(struct store *s,
                        const char *key,
                        const char *job_uid,
                        const char *batch_uid,
                        uint64_t now_ns)
{
    struct job_entry *j = store_entry(s, key, job_uid);

    if (j)
        memory_expect_batch(&j->memory, batch_uid, now_ns);
}

void store_miss_batch(struct store *s, const char *key, const char *job_uid)
{
    struct job_entry *j = store_entry(s, key, job_uid);

    if (j)
        memory_miss_batch(&j->memory);
}

void store_know(struct store *s,
                const char *key,
                const char *job_uid,
                enum kube_kind kind,
                const struct fact *fact)
{
    struct job_entry *j = store_entry(s, key, job_uid);
    const struct fact *was = j ? memory_fact(&j->memory, kind) : NULL;

    if (!was)
        return;
    if (fact->state == FACT_THERE && was->state == FACT_ABSENT
        && strcmp(fact->uid, was->uid) == 0)
        return; /* the watch reported its end before this answer */
    memory_set_fact(&j->memory, kind, fact);
    j->is_shown[kind] = fact->state == FACT_THERE;
}

void store_doubt(struct store *s)
{
    for (size_t i = 0; i < s->jobs.n; i++)
        memory_forget_facts(&((struct job_entry *)s->jobs.v[i])->memory);
}
