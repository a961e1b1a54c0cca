/* SPDX-License-Identifier: Apache-2.0 */
/* The cache.
 *
 * Two vectors of pointers sorted by key. A job entry has, per replica, a note: when we
 * created the pod (so that a sync that runs before the watch event does not create it
 * again), and the last view of a pod that is gone (so that the status can name its node
 * and reason).
 *
 * Invariants
 *  1. Notes belong to one uid: a job deleted and made again under its name starts
 * afresh.
 *  2. A pod is matched to a job by name and by the uid in its owner reference, never by
 * label alone.
 *  3. A job's version never goes back: the answer to a status patch may overtake the
 * watch. Only the watch brings a job in: an answer may also come after its end.
 *  4. A pod that we created is absent only when the API server has said so, never
 * because the watch was silent (observed.h).
 * Called by main.c (writes, from the watches), apply.c and sync.c. */
#include "operator/core/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/keyed.h"
#include "operator/core/objects.h"
#include "operator/core/plan.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define MAX_OBJECT_BYTES (4u << 20)
#define LOOK_NS          (EXPECT_LOOK_MS * 1000000ull)

struct note {
    uint64_t expected_ns; /* 0: not expected */
    struct pod *gone;     /* last view, if it is gone */
};

struct job_entry {
    char *key, *uid, *text;
    size_t text_n;
    uint64_t version;
    struct note *note;
    uint32_t n_notes;
    bool has_secret, has_service, is_marked;
    bool is_unkept, was_unkept; /* the status: now, ever */
    uint8_t unkept[SHA256_BYTES];
    enum job_state state;
};

struct pod_entry {
    char *key;
    struct pod pod;
    bool is_marked;
};

struct store {
    struct keyed jobs, pods;
};

static void notes_release(struct job_entry *j)
{
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (j->note[i].gone) {
            pod_release(j->note[i].gone);
            mem_free(j->note[i].gone);
        }
    }
    mem_free(j->note);
    j->note = NULL;
    j->n_notes = 0;
    j->has_secret = j->has_service = false;
    j->is_unkept = j->was_unkept = false;
}

static void job_entry_free(struct job_entry *j)
{
    if (!j)
        return;
    notes_release(j);
    mem_free(j->key);
    mem_free(j->uid);
    mem_free(j->text);
    mem_free(j);
}

static void pod_entry_free(struct pod_entry *p)
{
    if (!p)
        return;
    pod_release(&p->pod);
    mem_free(p->key);
    mem_free(p);
}

struct store *store_new(void)
{
    return mem_zalloc(sizeof(struct store));
}

void store_free(struct store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->jobs.n; i++)
        job_entry_free(s->jobs.v[i]);
    for (size_t i = 0; i < s->pods.n; i++)
        pod_entry_free(s->pods.v[i]);
    keyed_release(&s->jobs);
    keyed_release(&s->pods);
    mem_free(s);
}

int store_key(const char *ns, const char *name, char ret[STORE_KEY_SIZE])
{
    int n = snprintf(ret, STORE_KEY_SIZE, "%s/%s", ns ? ns : "", name ? name : "");

    return ns && name && n < STORE_KEY_SIZE ? 0 : -EINVAL;
}

/* --- jobs --------------------------------------------------------------------------
 */

static enum job_state state_of(const struct node *object)
{
    const char *s = node_str(object, "status.state");

    for (int i = 0; s && i < STATE_COUNT; i++) {
        if (strcmp(s, state_name((enum job_state)i)) == 0)
            return (enum job_state)i;
    }
    return STATE_PENDING;
}

static struct job_entry *entry_of(struct store *s, const char *key, const char *uid)
{
    struct job_entry *j = keyed_find(&s->jobs, key);

    return j && j->uid && strcmp(j->uid, uid) == 0 ? j : NULL;
}

static uint64_t version_of(const struct job *meta)
{
    return strtoull(meta->resource_version ? meta->resource_version : "0", NULL, 10);
}

static struct job_entry *job_entry_at(struct store *s, const char *key)
{
    struct job_entry *j = keyed_find(&s->jobs, key);

    if (j)
        return j;
    j = mem_zalloc(sizeof(*j));
    if (!j)
        return NULL;
    j->key = mem_strdup(key);
    if (!j->key || keyed_insert(&s->jobs, j) < 0) {
        job_entry_free(j);
        return NULL;
    }
    return j;
}

static void slim(struct node *object)
{
    for (struct node *c = object->first; c; c = c->next) {
        if (strcmp(c->key, "metadata") == 0) {
            node_drop(c, "managedFields");
            node_drop(c, "annotations");
        }
    }
}

static int
put_job(struct store *s, const char *key, const struct job *meta, struct node *object)
{
    struct job_entry *j = job_entry_at(s, key);
    AUTOFREE char *uid = mem_strdup(meta->uid);
    uint64_t version = version_of(meta);
    struct strbuf b;
    size_t n;
    char *text;

    if (!j || !uid)
        return -ENOMEM;
    j->is_marked = true;
    if (j->uid && strcmp(j->uid, uid) == 0 && version < j->version)
        return 0;
    strbuf_init(&b, MAX_OBJECT_BYTES);
    slim(object);
    json_write(object, &b);
    n = b.n;
    text = strbuf_take(&b);
    strbuf_release(&b);
    if (!text)
        return -ENOMEM;
    if (!j->uid || strcmp(j->uid, uid) != 0)
        notes_release(j);
    mem_free(j->uid);
    mem_free(j->text);
    j->uid = TAKE(uid);
    j->text = text;
    j->text_n = n;
    j->version = version;
    j->state = state_of(object);
    return 0;
}

static int read_meta(struct node *object,
                     struct job *ret_meta,
                     char ret_key[STORE_KEY_SIZE],
                     struct err *err)
{
    int rc = job_decode_meta(object, ret_meta, err);

    return rc < 0 ? rc : store_key(ret_meta->ns, ret_meta->name, ret_key);
}

int store_put_job(struct store *s,
                  struct node *object,
                  char ret_key[STORE_KEY_SIZE],
                  struct err *err)
{
    struct job meta;
    int rc = read_meta(object, &meta, ret_key, err);

    return rc < 0 ? rc : put_job(s, ret_key, &meta, object);
}

int store_take_answer(struct store *s,
                      struct node *object,
                      char ret_key[STORE_KEY_SIZE],
                      struct err *err)
{
    struct job_entry *j;
    struct job meta;
    int rc = read_meta(object, &meta, ret_key, err);

    if (rc < 0)
        return rc;
    j = entry_of(s, ret_key, meta.uid);
    if (!j || version_of(&meta) <= j->version)
        return 0;
    rc = put_job(s, ret_key, &meta, object);
    return rc < 0 ? rc : 1;
}

static void drop_entry(struct store *s, struct job_entry *j)
{
    keyed_remove(&s->jobs, j);
    job_entry_free(j);
}

void store_lose_job(struct store *s, const char *key, const char *uid)
{
    struct job_entry *j = entry_of(s, key, uid);

    if (j)
        drop_entry(s, j);
}

void store_drop_job(struct store *s, const char *ns, const char *name)
{
    char key[STORE_KEY_SIZE];
    struct job_entry *j;

    if (store_key(ns, name, key) < 0)
        return;
    j = keyed_find(&s->jobs, key);
    if (j)
        drop_entry(s, j);
}

void store_begin_jobs(struct store *s)
{
    for (size_t i = 0; i < s->jobs.n; i++)
        ((struct job_entry *)s->jobs.v[i])->is_marked = false;
}

void store_end_jobs(struct store *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job_entry *j = s->jobs.v[i];

        if (j->is_marked)
            s->jobs.v[kept++] = j;
        else
            job_entry_free(j);
    }
    s->jobs.n = kept;
}

const char *store_job_text(const struct store *s, const char *key, size_t *ret_n)
{
    const struct job_entry *j = keyed_find(&s->jobs, key);

    if (!j || !j->text)
        return NULL;
    *ret_n = j->text_n;
    return j->text;
}

/* --- pods --------------------------------------------------------------------------
 */

/* "demo-worker-12" of job "demo" -> 12. */
static int worker_index(const char *job_name, const char *pod_name, uint32_t *ret)
{
    size_t n = strlen(job_name);
    unsigned long v;
    char *end;

    if (strncmp(pod_name, job_name, n) != 0
        || strncmp(pod_name + n, "-worker-", 8) != 0)
        return -EINVAL;
    pod_name += n + 8;
    if (*pod_name < '0' || *pod_name > '9' || (*pod_name == '0' && pod_name[1]))
        return -EINVAL;
    v = strtoul(pod_name, &end, 10);
    if (*end || v >= JOB_MAX_REPLICAS)
        return -EINVAL;
    *ret = (uint32_t)v;
    return 0;
}

static struct note *note_at(struct job_entry *j, uint32_t index)
{
    if (index >= j->n_notes) {
        uint32_t n = index + 1;
        struct note *v = mem_realloc_array(j->note, n, sizeof(*v));

        if (!v)
            return NULL;
        memset(v + j->n_notes, 0, (n - j->n_notes) * sizeof(*v));
        j->note = v;
        j->n_notes = n;
    }
    return &j->note[index];
}

static struct job_entry *
job_of_pod(struct store *s, const struct pod *p, char ret_key[STORE_KEY_SIZE])
{
    if (!*p->job_name || store_key(p->ns, p->job_name, ret_key) < 0) {
        *ret_key = '\0';
        return NULL;
    }
    return keyed_find(&s->jobs, ret_key);
}

int store_put_pod(struct store *s, const struct pod *pod, char ret_key[STORE_KEY_SIZE])
{
    char key[STORE_KEY_SIZE];
    struct pod_entry *e;
    struct pod copy;
    int rc = store_key(pod->ns, pod->name, key);

    *ret_key = '\0';
    if (rc < 0)
        return rc;
    e = keyed_find(&s->pods, key);
    if (e)
        e->is_marked = true;
    if (e && pod_equal(&e->pod, pod))
        return 0;
    rc = pod_copy(pod, &copy);
    if (rc < 0)
        return rc;
    if (e) {
        pod_release(&e->pod);
        e->pod = copy;
    } else {
        e = mem_zalloc(sizeof(*e));
        if (e) {
            e->pod = copy;
            e->is_marked = true;
            e->key = mem_strdup(key);
        }
        if (!e || !e->key || keyed_insert(&s->pods, e) < 0) {
            if (!e)
                pod_release(&copy);
            pod_entry_free(e);
            return -ENOMEM;
        }
    }
    (void)job_of_pod(s, pod,
                     ret_key); /* the key is wanted even before the job is known */
    return 0;
}

/* Keeps the last view with the job, then forgets the entry. */
static void bury(struct store *s, struct pod_entry *e, char ret_key[STORE_KEY_SIZE])
{
    struct job_entry *j = job_of_pod(s, &e->pod, ret_key);
    uint32_t index;

    if (j && j->uid && strcmp(j->uid, e->pod.owner_uid) == 0
        && worker_index(e->pod.job_name, e->pod.name, &index) == 0) {
        struct note *note = note_at(j, index);
        struct pod *last = note ? mem_alloc(sizeof(*last)) : NULL;

        if (last) { /* without memory the worker is merely "absent" */
            *last = e->pod;
            memset(&e->pod, 0, sizeof(e->pod));
            if (note->gone) {
                pod_release(note->gone);
                mem_free(note->gone);
            }
            note->gone = last;
            note->expected_ns = 0;
        }
    }
    pod_entry_free(e);
}

void store_drop_pod(struct store *s,
                    const char *ns,
                    const char *name,
                    char ret_key[STORE_KEY_SIZE])
{
    char key[STORE_KEY_SIZE];
    struct pod_entry *e;

    *ret_key = '\0';
    if (store_key(ns, name, key) < 0)
        return;
    e = keyed_find(&s->pods, key);
    if (!e)
        return;
    keyed_remove(&s->pods, e);
    bury(s, e, ret_key);
}

void store_begin_pods(struct store *s)
{
    for (size_t i = 0; i < s->pods.n; i++)
        ((struct pod_entry *)s->pods.v[i])->is_marked = false;
}

void store_end_pods(struct store *s, store_key_fn changed, void *arg)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->pods.n; i++) {
        struct pod_entry *e = s->pods.v[i];
        char key[STORE_KEY_SIZE];

        if (e->is_marked) {
            s->pods.v[kept++] = e;
            continue;
        }
        bury(s, e, key);
        if (*key)
            changed(arg, key);
    }
    s->pods.n = kept;
}

/* --- snapshots ---------------------------------------------------------------------
 */

static struct worker look(const struct store *s,
                          struct job_entry *j,
                          const struct job *job,
                          uint32_t index,
                          uint64_t now_ns)
{
    char name[OBJECT_NAME_SIZE], key[STORE_KEY_SIZE];
    struct note *note = index < j->n_notes ? &j->note[index] : NULL;
    const struct pod_entry *e = NULL;

    object_worker_name(job, index, name);
    if (store_key(job->ns, name, key) == 0)
        e = keyed_find(&s->pods, key);
    if (e && strcmp(e->pod.owner_uid, job->uid) == 0)
        return (struct worker){.state = WORKER_SEEN, .pod = &e->pod};
    if (note && note->gone)
        return (struct worker){.state = WORKER_GONE, .pod = note->gone};
    if (note && note->expected_ns)
        return (struct worker){.state = WORKER_EXPECTED,
                               .is_overdue = now_ns - note->expected_ns >= LOOK_NS};
    return (struct worker){.state = WORKER_ABSENT};
}

int store_observe(struct store *s,
                  const char *key,
                  const struct job *job,
                  uint64_t now_ns,
                  struct arena *a,
                  struct observed *ret)
{
    struct job_entry *j = entry_of(s, key, job->uid);
    struct worker *w;

    if (!j)
        return -ENOENT;
    w = arena_calloc(a, job->replicas, sizeof(*w));
    if (!w)
        return -ENOMEM;
    for (uint32_t i = 0; i < job->replicas; i++)
        w[i] = look(s, j, job, i, now_ns);
    *ret = (struct observed){.w = w,
                             .n = job->replicas,
                             .has_secret = j->has_secret,
                             .has_service = j->has_service};
    return 0;
}

void store_expect_worker(
    struct store *s, const char *key, const char *uid, uint32_t index, uint64_t now_ns)
{
    struct job_entry *j = entry_of(s, key, uid);
    struct note *note = j ? note_at(j, index) : NULL;

    if (note && !note->gone)
        note->expected_ns = now_ns ? now_ns : 1;
}

void store_miss_worker(struct store *s,
                       const char *key,
                       const char *uid,
                       uint32_t index)
{
    struct job_entry *j = entry_of(s, key, uid);

    if (j && index < j->n_notes)
        j->note[index].expected_ns = 0;
}

void store_have_secret(struct store *s, const char *key, const char *uid)
{
    struct job_entry *j = entry_of(s, key, uid);

    if (j)
        j->has_secret = true;
}

void store_have_service(struct store *s, const char *key, const char *uid)
{
    struct job_entry *j = entry_of(s, key, uid);

    if (j)
        j->has_service = true;
}

bool store_status_kept(struct store *s,
                       const char *key,
                       const char *uid,
                       const uint8_t hash[SHA256_BYTES],
                       bool is_kept)
{
    struct job_entry *j = entry_of(s, key, uid);
    bool is_first = j && !is_kept && !j->was_unkept;

    if (!j)
        return false;
    j->is_unkept = !is_kept;
    j->was_unkept |= !is_kept;
    memcpy(j->unkept, hash, SHA256_BYTES);
    return is_first;
}

bool store_is_unkept(struct store *s,
                     const char *key,
                     const char *uid,
                     const uint8_t hash[SHA256_BYTES])
{
    const struct job_entry *j = entry_of(s, key, uid);

    return j && j->is_unkept && memcmp(j->unkept, hash, SHA256_BYTES) == 0;
}

size_t store_n_jobs(const struct store *s, enum job_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < s->jobs.n; i++)
        n += ((const struct job_entry *)s->jobs.v[i])->state == state;
    return n;
}

size_t store_n_pods(const struct store *s)
{
    return s->pods.n;
}

void store_each_job(const struct store *s, store_key_fn fn, void *arg)
{
    for (size_t i = 0; i < s->jobs.n; i++)
        fn(arg, keyed_key(s->jobs.v[i]));
}
