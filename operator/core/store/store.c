/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: jobs are here, their pods and launcher Jobs in children.c, and each job
 * has a memory of what no watch shows (memory.c).
 *
 * Invariants
 *  1. A memory belongs to one uid: a job that is deleted and recreated under the same
 *     name starts with an empty one.
 *  2. A pod belongs to a job by name and by the uid in its owner reference, never by
 *     label alone; a pod of a launcher Job by the uid of that Job.
 *  3. The version of a job never decreases, unless a list or store_rewind shows that the
 *     API server was restored from a backup: the answer to a status patch may arrive
 *     before the watch event. Only the watch adds a job: an answer may also arrive
 *     after the job was deleted.
 *  4. A created pod is absent only when the API server has answered so, never because
 *     the watch was silent (observed.h).
 *  5. Text that is lost to the limit is only that of jobs that are not at rest, so the
 *     many finished jobs of a cluster are never requested.
 * Called by sinks.c (writes, from the watches), apply.c and sync.c. */
#include "operator/core/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/labels.h"
#include "operator/core/store/store_entry.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define MAX_OBJECT_BYTES (4u << 20)

struct job_entry *store_entry(const struct store *s, const char *key, const char *uid)
{
    struct job_entry *j = keyed_find(&s->jobs, key);

    return j && j->uid && strcmp(j->uid, uid) == 0 ? j : NULL;
}

void store_listen(struct store *s, store_job_fn fn, void *arg)
{
    s->listen = fn;
    s->listen_arg = arg;
}

static void
store_report(const struct store *s, const char *key, const struct node *object)
{
    if (s->listen)
        s->listen(s->listen_arg, key, object);
}

void store_rewind(struct store *s)
{
    for (size_t i = 0; i < s->jobs.n; i++)
        ((struct job_entry *)s->jobs.v[i])->version = 0;
    store_doubt(s);
}

/* The store's share of its limit: text of jobs that are not at rest. */
static size_t job_entry_bytes(const struct job_entry *j)
{
    return j->text && !j->is_at_rest ? j->text_n : 0;
}

static void job_entry_set_text(
    struct store *s, struct job_entry *j, char *text, size_t n, bool is_at_rest)
{
    s->text_bytes -= job_entry_bytes(j);
    mem_free(j->text);
    j->text = text;
    j->text_n = n;
    j->is_at_rest = is_at_rest;
    s->text_bytes += job_entry_bytes(j);
}

static void job_entry_reset(struct job_entry *j)
{
    memory_clear(&j->memory);
    j->is_unkept = j->was_unkept = false;
}

static void job_entry_free(struct store *s, struct job_entry *j)
{
    job_entry_set_text(s, j, NULL, 0, false);
    job_entry_reset(j);
    mem_free(j->key);
    mem_free(j->uid);
    mem_free(j);
}

struct store *store_new(void)
{
    struct store *s = mem_zalloc(sizeof(*s));

    if (s)
        s->max_text = STORE_MAX_TEXT;
    return s;
}

void store_free(struct store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->jobs.n; i++)
        job_entry_free(s, s->jobs.v[i]);
    keyed_release(&s->jobs);
    children_release(&s->children);
    mem_free(s);
}

int store_key(enum kube_kind kind,
              const char *ns,
              const char *name,
              char ret[STORE_KEY_SIZE])
{
    int n =
        snprintf(ret, STORE_KEY_SIZE, "%s%s/%s", kind == KUBE_MPIJOB ? MPI_PREFIX : "",
                 ns ? ns : "", name ? name : "");

    return ns && *ns && name && *name && n < STORE_KEY_SIZE ? 0 : -EINVAL;
}

enum kube_kind store_key_kind(const char *key)
{
    return strncmp(key, MPI_PREFIX, strlen(MPI_PREFIX)) == 0 ? KUBE_MPIJOB : KUBE_JOB;
}

int store_key_meta(const char *key, struct arena *a, struct job_meta *ret)
{
    enum kube_kind kind = store_key_kind(key);
    char *copy = arena_strdup(a, key + (kind == KUBE_MPIJOB ? strlen(MPI_PREFIX) : 0));
    char *slash = copy ? strchr(copy, '/') : NULL;

    if (!slash)
        return -ENOMEM;
    *slash = '\0';
    *ret = (struct job_meta){
        .kind = kind, .ns = copy, .name = slash + 1, .uid = "", .is_deleting = true};
    return 0;
}

/* --- jobs ------------------------------------------------------------------------ */

static uint64_t version_of(const struct job_meta *meta)
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
        job_entry_free(s, j);
        return NULL;
    }
    return j;
}

/* No action on the job needs its pod templates. A suspended MPIJob is not at rest: its
 * launcher's Job is created, suspended. */
static bool job_is_at_rest(const struct job_meta *meta, const struct node *object)
{
    enum job_state state = state_of_status(meta->status);

    if (state == STATE_SUSPENDED)
        return meta->kind == KUBE_JOB
               && node_bool(object, "spec.runPolicy.suspend", false)
               && node_int(meta->status, "observedGeneration", 0) == meta->generation;
    return state_is_final(state);
}

static void spec_drop_templates(struct node *object)
{
    for (struct node *c = object->first; c; c = c->next) {
        bool is_spec = strcmp(c->key, "spec") == 0;

        for (struct node *sets = is_spec ? c->first : NULL; sets; sets = sets->next) {
            if (strcmp(sets->key, "replicaSpecs") != 0
                && strcmp(sets->key, "mpiReplicaSpecs") != 0)
                continue;
            for (struct node *role = sets->first; role; role = role->next)
                node_drop(role, "template");
        }
    }
}

/* The first job of the namespace whose text takes most, without that of `latest`; its
 * number of jobs, 0 if there is none. */
static size_t
store_find_largest(const struct store *s, const struct job_entry *latest, size_t *ret_n)
{
    size_t best = 0, best_bytes = 0;

    *ret_n = 0;
    for (size_t i = 0, end; i < s->jobs.n; i = end) {
        size_t bytes = 0;

        end = keyed_namespace_end(&s->jobs, i);
        for (size_t k = i; k < end; k++)
            bytes += s->jobs.v[k] != latest ? job_entry_bytes(s->jobs.v[k]) : 0;
        if (bytes > best_bytes) {
            best = i;
            best_bytes = bytes;
            *ret_n = end - i;
        }
    }
    return best;
}

/* Below the limit with some room, so that not every put searches. The text of `latest` is
 * kept. */
static void store_make_room(struct store *s, const struct job_entry *latest)
{
    size_t target = s->max_text - s->max_text / 8, n = 1;

    if (s->text_bytes <= s->max_text)
        return;
    while (s->text_bytes > target && n > 0) {
        size_t first = store_find_largest(s, latest, &n);

        for (size_t i = first; i < first + n && s->text_bytes > target; i++) {
            if (s->jobs.v[i] != latest && job_entry_bytes(s->jobs.v[i]) > 0)
                job_entry_set_text(s, s->jobs.v[i], NULL, 0, false);
        }
    }
}

static int put_job(struct store *s,
                   const char *key,
                   const struct job_meta *meta,
                   struct node *object)
{
    struct job_entry *j = job_entry_at(s, key);
    AUTOFREE char *uid = mem_strdup(meta->uid);
    uint64_t version = version_of(meta);
    bool is_at_rest = job_is_at_rest(meta, object), is_same;
    struct strbuf b;
    size_t n;
    char *text;
    int rc;

    if (!j || !uid)
        return -ENOMEM;
    j->is_marked = true;
    j->kind = meta->kind;
    is_same = j->uid && strcmp(j->uid, uid) == 0;
    if (is_same && version == j->version && version > 0 && j->text
        && !s->is_listing[meta->kind])
        return 0;
    if (is_same && version < j->version) {
        if (j->version > s->list_version[meta->kind])
            return 0;
        memory_forget_facts(&j->memory); /* a restored backup */
    }
    store_report(s, j->key, object);
    if (is_at_rest)
        spec_drop_templates(object);
    strbuf_init(&b, MAX_OBJECT_BYTES);
    json_write(object, &b);
    n = b.n;
    rc = strbuf_status(&b);
    text = strbuf_take(&b);
    strbuf_release(&b);
    if (!text)
        return rc ? rc : -ENOMEM;
    if (!is_same)
        job_entry_reset(j);
    mem_free(j->uid);
    j->uid = TAKE(uid);
    j->version = version;
    j->state = state_of_status(meta->status);
    job_entry_set_text(s, j, text, n, is_at_rest);
    store_make_room(s, j);
    return 1;
}

static int read_meta(enum kube_kind kind,
                     struct node *object,
                     struct job_meta *ret_meta,
                     char ret_key[STORE_KEY_SIZE],
                     struct err *err)
{
    int rc = meta_decode(kind, object, ret_meta, err);

    return rc < 0 ? rc : store_key(kind, ret_meta->ns, ret_meta->name, ret_key);
}

int store_put_job(struct store *s,
                  enum kube_kind kind,
                  struct node *object,
                  char ret_key[STORE_KEY_SIZE],
                  struct err *err)
{
    struct job_meta meta;
    int rc = read_meta(kind, object, &meta, ret_key, err);

    return rc < 0 ? rc : put_job(s, ret_key, &meta, object);
}

int store_take_answer(struct store *s,
                      enum kube_kind kind,
                      struct node *object,
                      char ret_key[STORE_KEY_SIZE],
                      struct err *err)
{
    struct job_entry *j;
    struct job_meta meta;
    int rc = read_meta(kind, object, &meta, ret_key, err);

    if (rc < 0)
        return rc;
    j = store_entry(s, ret_key, meta.uid);
    if (!j || version_of(&meta) < j->version
        || (version_of(&meta) == j->version && j->text))
        return 0;
    return put_job(s, ret_key, &meta, object);
}

static void drop_entry(struct store *s, struct job_entry *j)
{
    keyed_remove(&s->jobs, j);
    store_report(s, j->key, NULL);
    job_entry_free(s, j);
}

void store_lose_job(struct store *s, const char *key, const char *uid)
{
    struct job_entry *j = store_entry(s, key, uid);

    if (j)
        drop_entry(s, j);
}

void store_drop_job(struct store *s, const char *key)
{
    struct job_entry *j = keyed_find(&s->jobs, key);

    if (j)
        drop_entry(s, j);
}

void store_begin_jobs(struct store *s, enum kube_kind kind, uint64_t version)
{
    s->list_version[kind] = version;
    s->is_listing[kind] = true;
    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job_entry *j = s->jobs.v[i];

        if (j->kind == kind)
            j->is_marked = false;
    }
}

void store_end_jobs(struct store *s, enum kube_kind kind)
{
    size_t kept = 0;

    s->list_version[kind] = 0;
    s->is_listing[kind] = false;
    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job_entry *j = s->jobs.v[i];

        if (j->is_marked || j->kind != kind) {
            s->jobs.v[kept++] = j;
            continue;
        }
        store_report(s, j->key, NULL);
        job_entry_free(s, j);
    }
    s->jobs.n = kept;
}

int store_job_text(const struct store *s, const char *key, struct job_text *ret)
{
    const struct job_entry *j = keyed_find(&s->jobs, key);

    if (!j || !j->uid)
        return -ENOENT;
    *ret = (struct job_text){
        .p = j->text, .n = j->text_n, .uid = j->uid, .is_at_rest = j->is_at_rest};
    return j->text ? 0 : -ENODATA;
}

void store_limit_text(struct store *s, size_t bytes)
{
    s->max_text = bytes;
    store_make_room(s, NULL);
}

size_t store_text_bytes(const struct store *s)
{
    return s->text_bytes;
}

bool store_is_listing(const struct store *s, enum kube_kind kind)
{
    return s->is_listing[kind];
}

bool store_is_finished(const struct store *s, const char *key)
{
    const struct job_entry *j = keyed_find(&s->jobs, key);

    return !j || state_is_final(j->state);
}

bool store_status_kept(struct store *s,
                       const char *key,
                       const char *uid,
                       const uint8_t hash[SHA256_BYTES],
                       bool is_status_kept)
{
    struct job_entry *j = store_entry(s, key, uid);
    bool is_first = j && !is_status_kept && !j->was_unkept;

    if (!j)
        return false;
    j->is_unkept = !is_status_kept;
    j->was_unkept |= !is_status_kept;
    memcpy(j->unkept, hash, SHA256_BYTES);
    return is_first;
}

bool store_is_unkept(const struct store *s,
                     const char *key,
                     const char *uid,
                     const uint8_t hash[SHA256_BYTES])
{
    const struct job_entry *j = store_entry(s, key, uid);

    return j && j->is_unkept && memcmp(j->unkept, hash, SHA256_BYTES) == 0;
}

size_t store_n_jobs(const struct store *s, enum kube_kind kind, enum job_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job_entry *j = s->jobs.v[i];

        n += j->kind == kind && j->state == state;
    }
    return n;
}

size_t store_n_pods(const struct store *s)
{
    return s->children.pods.n;
}

size_t store_pod_bytes(const struct store *s)
{
    return children_pod_bytes(&s->children);
}

void store_each_job(const struct store *s, store_key_fn fn, void *arg)
{
    for (size_t i = 0; i < s->jobs.n; i++)
        fn(arg, keyed_key(s->jobs.v[i]));
}
