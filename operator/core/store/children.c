/* SPDX-License-Identifier: Apache-2.0 */
/* Two sorted vectors of entries. The first member of an entry is its key (keyed.h). A
 * relist marks the entries that it puts; the entries without a mark are then
 * removed. */
#include "operator/core/store/children.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define KEY_SIZE 512

struct entry {
    char *key;
    bool is_marked;
    struct pod *pod; /* one of the two */
    struct batch_job *batch;
};

void pod_free(struct pod *p)
{
    if (!p)
        return;
    pod_release(p);
    mem_free(p);
}

void batch_free(struct batch_job *b)
{
    if (!b)
        return;
    batch_release(b);
    mem_free(b);
}

static void child_free(struct entry *e)
{
    pod_free(e->pod);
    batch_free(e->batch);
    mem_free(e->key);
    mem_free(e);
}

static void children_release_list(struct keyed *k)
{
    for (size_t i = 0; i < k->n; i++)
        child_free(k->v[i]);
    keyed_release(k);
}

void children_release(struct children *c)
{
    children_release_list(&c->pods);
    children_release_list(&c->batches);
}

static int make_key(const char *ns, const char *name, char ret[KEY_SIZE])
{
    int n = snprintf(ret, KEY_SIZE, "%s/%s", ns, name);

    return n < KEY_SIZE ? 0 : -EINVAL;
}

/* The entry of that key; it is created when absent. */
static struct entry *entry_at(struct keyed *k, const char *key)
{
    struct entry *e = keyed_find(k, key);

    if (e)
        return e;
    e = mem_zalloc(sizeof(*e));
    if (!e)
        return NULL;
    e->key = mem_strdup(key);
    if (!e->key || keyed_insert(k, e) < 0) {
        child_free(e);
        return NULL;
    }
    return e;
}

int children_put_pod(struct children *c, const struct pod *pod)
{
    char key[KEY_SIZE];
    struct entry *e;
    struct pod now = *pod, *copy;

    if (make_key(pod->ns, pod->name, key) < 0)
        return -EINVAL;
    e = keyed_find(&c->pods, key);
    if (e)
        e->is_marked = true;
    if (e && pod->phase == POD_PENDING && strcmp(e->pod->uid, pod->uid) == 0) {
        now.hint = e->pod->hint;
        now.explained_s = e->pod->explained_s;
    }
    if (e && e->pod->job_kind == pod->job_kind && pod_equal(e->pod, &now)) {
        e->pod->usual = pod->usual;
        e->pod->bound_wall_us = pod->bound_wall_us;
        e->pod->begin_wall_us = pod->begin_wall_us;
        return 0;
    }
    copy = mem_alloc(sizeof(*copy));
    if (!copy || pod_copy(&now, copy) < 0) {
        mem_free(copy);
        return -ENOMEM;
    }
    if (!e)
        e = entry_at(&c->pods, key);
    if (!e) {
        pod_free(copy);
        return -ENOMEM;
    }
    pod_free(e->pod);
    e->pod = copy;
    e->is_marked = true;
    return 1;
}

int children_put_batch(struct children *c, const struct batch_job *batch)
{
    char key[KEY_SIZE];
    struct entry *e;
    struct batch_job *copy;

    if (make_key(batch->ns, batch->name, key) < 0)
        return -EINVAL;
    e = keyed_find(&c->batches, key);
    if (e)
        e->is_marked = true;
    if (e && batch_equal(e->batch, batch))
        return 0;
    copy = mem_alloc(sizeof(*copy));
    if (!copy || batch_copy(batch, copy) < 0) {
        mem_free(copy);
        return -ENOMEM;
    }
    if (!e)
        e = entry_at(&c->batches, key);
    if (!e) {
        batch_free(copy);
        return -ENOMEM;
    }
    batch_free(e->batch);
    e->batch = copy;
    e->is_marked = true;
    return 1;
}

static struct pod *take_pod(struct children *c, struct entry *e)
{
    struct pod *p = e->pod;

    e->pod = NULL;
    keyed_remove(&c->pods, e);
    child_free(e);
    return p;
}

static struct batch_job *take_batch(struct children *c, struct entry *e)
{
    struct batch_job *b = e->batch;

    e->batch = NULL;
    keyed_remove(&c->batches, e);
    child_free(e);
    return b;
}

static struct entry *
children_find_entry(const struct keyed *k, const char *ns, const char *name)
{
    char key[KEY_SIZE];

    return make_key(ns, name, key) < 0 ? NULL : keyed_find(k, key);
}

void children_explain_pod(struct children *c,
                          const char *ns,
                          const char *name,
                          const char *uid,
                          const char *hint,
                          uint64_t now_s)
{
    struct entry *e = children_find_entry(&c->pods, ns, name);
    char *copy;

    if (!e || strcmp(e->pod->uid, uid) != 0)
        return;
    e->pod->explained_s = now_s;
    copy = hint ? mem_strdup(hint) : NULL;
    if (!copy)
        return;
    mem_free(e->pod->hint);
    e->pod->hint = copy;
}

struct pod *children_drop_pod(struct children *c, const char *ns, const char *name)
{
    struct entry *e = children_find_entry(&c->pods, ns, name);

    return e ? take_pod(c, e) : NULL;
}

struct batch_job *
children_drop_batch(struct children *c, const char *ns, const char *name)
{
    struct entry *e = children_find_entry(&c->batches, ns, name);

    return e ? take_batch(c, e) : NULL;
}

void children_begin_pods(struct children *c, enum kube_kind job_kind)
{
    for (size_t i = 0; i < c->pods.n; i++) {
        struct entry *e = c->pods.v[i];

        if (e->pod->job_kind == job_kind)
            e->is_marked = false;
    }
}

void children_begin_batches(struct children *c)
{
    for (size_t i = 0; i < c->batches.n; i++)
        ((struct entry *)c->batches.v[i])->is_marked = false;
}

const struct pod *children_unmarked_pod(const struct children *c,
                                        enum kube_kind job_kind)
{
    for (size_t i = 0; i < c->pods.n; i++) {
        const struct entry *e = c->pods.v[i];

        if (!e->is_marked && e->pod->job_kind == job_kind)
            return e->pod;
    }
    return NULL;
}

struct batch_job *children_sweep_batches(struct children *c)
{
    for (size_t i = 0; i < c->batches.n; i++) {
        struct entry *e = c->batches.v[i];

        if (!e->is_marked)
            return take_batch(c, e);
    }
    return NULL;
}

const struct pod *
children_pod(const struct children *c, const char *ns, const char *name)
{
    const struct entry *e = children_find_entry(&c->pods, ns, name);

    return e ? e->pod : NULL;
}

const struct batch_job *
children_batch(const struct children *c, const char *ns, const char *name)
{
    const struct entry *e = children_find_entry(&c->batches, ns, name);

    return e ? e->batch : NULL;
}

const struct pod *children_next_pod(const struct children *c,
                                    const char *ns,
                                    const char *job_name,
                                    struct keyed_range *at)
{
    char bound[KEY_SIZE];
    int n;

    if (at->end == 0) { /* keys with "NS/JOB-" are between this and "NS/JOB." */
        n = snprintf(bound, sizeof(bound), "%s/%s-", ns, job_name);
        if (n >= KEY_SIZE)
            return NULL;
        at->next = keyed_from(&c->pods, bound);
        bound[n - 1] = '-' + 1;
        at->end = keyed_from(&c->pods, bound);
    }
    if (at->next >= at->end)
        return NULL;
    return ((const struct entry *)c->pods.v[at->next++])->pod;
}

const struct pod *children_each_pod(const struct children *c, size_t *next)
{
    const struct entry *e = *next < c->pods.n ? c->pods.v[*next] : NULL;

    *next += 1;
    return e ? e->pod : NULL;
}

size_t children_pod_bytes(const struct children *c)
{
    size_t n = c->pods.n * (sizeof(struct entry) + sizeof(void *));

    for (size_t i = 0; i < c->pods.n; i++) {
        const struct entry *e = c->pods.v[i];

        n += strlen(e->key) + 1 + pod_bytes(e->pod);
    }
    return n;
}
