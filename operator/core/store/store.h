/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of the cluster: jobs of both kinds (as JSON), their pods and launcher Jobs.
 * Filled by the watches, read by each sync as a snapshot. Pure, one thread.
 *
 * Its memory is bounded by the number of objects, not by what users write into them. Of
 * jobs at rest (finished, or HorovodJobs that are suspended as requested) the pod templates
 * are not kept: no action needs them, and an event that ends the rest has the whole job.
 * The JSON of all others takes STORE_MAX_TEXT bytes at most; beyond that, jobs of the
 * namespace that takes most lose theirs, and each of their syncs requests the job.
 *
 * A job's key is "namespace/name" for a HorovodJob and "mpijob:namespace/name" for an
 * MPIJob. */
#ifndef OPERATOR_CORE_STORE_STORE_H
#define OPERATOR_CORE_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/keyed.h"
#include "operator/core/meta.h"
#include "operator/core/observed.h"
#include "operator/core/state.h"
#include "runtime/base/arena.h"

#define STORE_KEY_SIZE 512 /* with NUL */
#define STORE_MAX_TEXT (16u << 20)

struct store;
struct store *store_new(void);
void store_free(struct store *s);

/* fn is called with each job that is added, replaced (object) or removed (object NULL). The
 * object is valid during the call, and complete. fn must not change the store. */
typedef void (*store_job_fn)(void *arg, const char *key, const struct node *object);
void store_listen(struct store *s, store_job_fn fn, void *arg);

/* -EINVAL without name or namespace, or when they are too long. */
int store_key(enum kube_kind kind,
              const char *ns,
              const char *name,
              char ret[STORE_KEY_SIZE]);
enum kube_kind store_key_kind(const char *key);
/* The key's job when it is absent: kind, namespace and name, in the arena, and in deletion.
 * -ENOMEM. */
int store_key_meta(const char *key, struct arena *a, struct job_meta *ret);

/* Adds or replaces a job. Pod templates that the store does not keep are removed from
 * `object`. ret_key: the key of the job. Returns 1 if it is to be synced; 0 if the store
 * has this resourceVersion of the uid already (by store_take_answer), or a newer one.
 * While a list is read, that counts only for a newer one. -EINVAL, -E2BIG; -ENOMEM: call
 * again. */
int store_put_job(struct store *s,
                  enum kube_kind kind,
                  struct node *object,
                  char ret_key[STORE_KEY_SIZE],
                  struct err *err);
/* The API server's answer to a status write or to a request of the job. It may arrive after
 * the watch event, even after the job's deletion. It is stored only if the store has the
 * job of that uid in an older version, or in this one without its JSON. Returns 1 if it
 * was stored, 0 if not, or an error of store_put_job. */
int store_take_answer(struct store *s,
                      enum kube_kind kind,
                      struct node *object,
                      char ret_key[STORE_KEY_SIZE],
                      struct err *err);
void store_drop_job(struct store *s, const char *key);
/* The API server has answered that the job does not exist: as store_drop_job, for that
 * uid only. */
void store_lose_job(struct store *s, const char *key, const char *uid);

/* Stores a pod or a launcher Job, or marks it as deleted. ret_key: the key of its job,
 * "" if no job is affected. -EINVAL; -ENOMEM: call again. */
int store_put_pod(struct store *s, const struct pod *pod, char ret_key[STORE_KEY_SIZE]);
int store_drop_pod(struct store *s,
                   const char *ns,
                   const char *name,
                   char ret_key[STORE_KEY_SIZE]);
int store_put_batch(struct store *s,
                    const struct batch_job *batch,
                    char ret_key[STORE_KEY_SIZE]);
void store_drop_batch(struct store *s,
                      const char *ns,
                      const char *name,
                      char ret_key[STORE_KEY_SIZE]);

/* The API server's versions went back: older versions of jobs are accepted from now on, and
 * facts about objects that no watch shows are discarded. */
void store_rewind(struct store *s);

/* Stores what the Events of a pod say (explain.h). */
void store_explain_pod(struct store *s,
                       const char *ns,
                       const char *name,
                       const char *uid,
                       const char *hint,
                       uint64_t now_wall_s);

/* Stores the answer about an object of the job that no watch shows (inquiry.h). */
void store_take_inquiry(struct store *s,
                        const char *key,
                        const char *job_uid,
                        enum kube_kind kind,
                        enum inquiry_result result,
                        const struct node *object,
                        uint64_t now_wall_s);

/* A relist: begin, put all, end. Objects that were not put are dropped; changed is
 * called with the key of each job that is affected. -ENOMEM: not all are dropped, list
 * again. */
typedef void (*store_key_fn)(void *arg, const char *key);
/* version: of the list. An object in it that is older than the stored one, which is not
 * newer than the list, is from a restored backup and replaces it. */
void store_begin_jobs(struct store *s, enum kube_kind kind, uint64_t version);
void store_end_jobs(struct store *s, enum kube_kind kind);
void store_begin_pods(struct store *s, enum kube_kind job_kind);
int store_end_pods(struct store *s,
                   enum kube_kind job_kind,
                   store_key_fn changed,
                   void *arg);
void store_begin_batches(struct store *s);
void store_end_batches(struct store *s, store_key_fn changed, void *arg);

/* The fields of the objects below that the store reads. */
extern const struct prune_rule owned_rules[];
/* Other objects of a job, of which the watch shows only metadata. Only deletions
 * matter: the job's fact of that kind becomes FACT_ABSENT. At the end of a list this
 * is done for objects that were known to exist or never queried, and were neither put
 * nor confirmed by an answer since the begin. A PodGroup must have been known to exist,
 * because older ones have no label. ret_key: the key of the job, "" if nothing
 * changed. */
void store_begin_owned(struct store *s, enum kube_kind kind);
void store_put_owned(struct store *s, enum kube_kind kind, const struct node *object);
void store_end_owned(struct store *s,
                     enum kube_kind kind,
                     store_key_fn changed,
                     void *arg);
void store_lose_owned(struct store *s,
                      enum kube_kind kind,
                      const struct node *object,
                      char ret_key[STORE_KEY_SIZE]);

struct job_text {
    const char *p; /* JSON; valid until the next put or drop */
    size_t n;
    const char *uid;
    bool is_at_rest; /* without the pod templates; see job_meta */
};
/* -ENOENT: the job is absent; -ENODATA: its JSON is not kept (p is NULL), request it. */
int store_job_text(const struct store *s, const char *key, struct job_text *ret);
/* Sets the limit for the JSON of all jobs; STORE_MAX_TEXT at first. */
void store_limit_text(struct store *s, size_t bytes);
/* The snapshot for one sync, in the arena. -ENOENT when the job of that uid is not
 * present. Pods of another uid (an older job of the same name) are left out. */
int store_observe(const struct store *s,
                  const char *key,
                  const struct job_meta *job,
                  const struct job_shape *shape,
                  uint64_t now_ns,
                  struct arena *a,
                  struct observed *ret);

/* Returns the pods of this job and of others that had its name, one per call; NULL after
 * the last. */
const struct pod *store_next_pod(const struct store *s,
                                 const struct job_meta *job,
                                 struct keyed_range *at);
/* Such a pod belongs to this job, or to the Job of its launcher, even a deleted one. */
bool store_owns_pod(const struct store *s,
                    const struct job_meta *job,
                    const struct pod *p);

/* Records the API server's answers (memory.h). No effect if the store does not have the
 * job of that uid. */
void store_expect_pod(struct store *s,
                      const char *key,
                      const char *job_uid,
                      enum role role,
                      uint32_t index,
                      const char *pod_uid,
                      uint64_t now_ns);
void store_miss_pod(struct store *s,
                    const char *key,
                    const char *job_uid,
                    enum role role,
                    uint32_t index);
void store_expect_batch(struct store *s,
                        const char *key,
                        const char *job_uid,
                        const char *batch_uid,
                        uint64_t now_ns);
void store_miss_batch(struct store *s, const char *key, const char *job_uid);
/* Discards all facts about objects that no watch shows, because another leader may have
 * changed them. */
void store_doubt(struct store *s);
void store_know(struct store *s,
                const char *key,
                const char *job_uid,
                enum kube_kind kind,
                const struct fact *fact);

/* After a status write: is_kept: the API server has stored it as sent. hash is of the
 * status that was sent. Returns true the first time that this job's was not kept. */
bool store_status_kept(struct store *s,
                       const char *key,
                       const char *uid,
                       const uint8_t hash[SHA256_BYTES],
                       bool is_kept);
/* The status of that hash was the last one written, and was not kept. */
bool store_is_unkept(const struct store *s,
                     const char *key,
                     const char *uid,
                     const uint8_t hash[SHA256_BYTES]);

/* For metrics, and to sync every job. */
size_t store_n_jobs(const struct store *s, enum kube_kind kind, enum job_state state);
bool store_is_finished(const struct store *s, const char *key);    /* or absent */
bool store_is_listing(const struct store *s, enum kube_kind kind); /* of jobs */
size_t store_text_bytes(const struct store *s); /* of jobs that are not at rest */
size_t store_n_pods(const struct store *s);
size_t store_pod_bytes(const struct store *s);
void store_each_job(const struct store *s, store_key_fn fn, void *arg);
/* The key of each pod that is in deletion and has our finalizer. */
void store_each_leaving(const struct store *s, store_key_fn fn, void *arg);

#endif
