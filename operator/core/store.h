/* SPDX-License-Identifier: Apache-2.0 */
/* What we know of the cluster: jobs of both kinds (their JSON, without managedFields
 * and the annotations of others), their pods and launcher Jobs. Filled by the watches,
 * read by each sync as a snapshot. Pure, one thread. A job's key is "namespace/name"
 * for a HorovodJob and "mpijob:namespace/name" for an MPIJob. */
#ifndef OPERATOR_CORE_STORE_H
#define OPERATOR_CORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/meta.h"
#include "operator/core/observed.h"
#include "operator/core/state.h"
#include "runtime/base/arena.h"

#define STORE_KEY_SIZE 512 /* with NUL */

struct store;
struct store *store_new(void);
void store_free(struct store *s);

/* -EINVAL without name or namespace, or when they are too long. */
int store_key(enum kube_kind kind,
              const char *ns,
              const char *name,
              char ret[STORE_KEY_SIZE]);
enum kube_kind store_key_kind(const char *key);

/* Puts or replaces a job; an older resourceVersion of the same uid is ignored. The tree
 * is changed (what is not kept is dropped). ret_key names the job to look at. */
int store_put_job(struct store *s, /* -EINVAL, -E2BIG; -ENOMEM: tell it again */
                  enum kube_kind kind,
                  struct node *object,
                  char ret_key[STORE_KEY_SIZE],
                  struct err *err);
/* The API server's answer to a write of ours. It may come later than the watch's news,
 * even later than those of the job's end: it is taken only while the job of that uid is
 * there, in an older version. Returns 1 when it was taken, 0 when it tells nothing new,
 * or as store_put_job. */
int store_take_answer(struct store *s,
                      enum kube_kind kind,
                      struct node *object,
                      char ret_key[STORE_KEY_SIZE],
                      struct err *err);
void store_drop_job(struct store *s, const char *key);
/* As store_drop_job, of that uid only: the API server does not know it any more. */
void store_lose_job(struct store *s, const char *key, const char *uid);

/* Puts, or marks as gone, a pod or a launcher Job. ret_key names the job that it
 * belongs to, "" when nothing changed for anybody. -EINVAL; -ENOMEM, and what it tells
 * is to be told again. */
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

/* A relist: begin, put all, end. What was not put is dropped; changed is told each
 * job's key. -ENOMEM: some is still there, list again. */
typedef void (*store_key_fn)(void *arg, const char *key);
void store_begin_jobs(struct store *s, enum kube_kind kind);
void store_end_jobs(struct store *s, enum kube_kind kind);
void store_begin_pods(struct store *s, enum kube_kind job_kind);
int store_end_pods(struct store *s,
                   enum kube_kind job_kind,
                   store_key_fn changed,
                   void *arg);
void store_begin_batches(struct store *s);
void store_end_batches(struct store *s, store_key_fn changed, void *arg);

/* What a job owns besides, by the metadata that a watch shows. Only what is not there
 * any more matters: the job's fact of that kind becomes FACT_ABSENT. In a list that is
 * so of what was known to be there, or never asked for, and was neither put nor
 * confirmed by an answer since the list's begin; a PodGroup only where it was known,
 * since older ones have no label. ret_key names the job, "" when nothing changed. */
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

/* The stored JSON of a job; NULL if absent. Valid until the next put or drop. */
const char *store_job_text(const struct store *s, const char *key, size_t *ret_n);
/* The snapshot for one sync, in the arena. -ENOENT when the job or that uid is not
 * there. Pods that belong to another uid (an older job of the same name) are not seen.
 */
int store_observe(const struct store *s,
                  const char *key,
                  const struct job_meta *job,
                  const struct job_shape *shape,
                  uint64_t now_ns,
                  struct arena *a,
                  struct observed *ret);

/* What the API server's answers tell; no-ops when the job of that uid is not there any
 * more. memory.h says what each means. */
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
/* Others may have written meanwhile: nothing is known any more of what no watch shows.
 */
void store_doubt(struct store *s);
void store_know(struct store *s,
                const char *key,
                const char *job_uid,
                enum kube_kind kind,
                const struct fact *fact);

/* After a status was written: does the API server keep it as it was sent? hash is of
 * what was sent. Returns true when it does not for the first time of this job. */
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

/* For metrics, and to look at every job again. */
size_t store_n_jobs(const struct store *s, enum kube_kind kind, enum job_state state);
size_t store_n_pods(const struct store *s);
size_t store_pod_bytes(const struct store *s);
void store_each_job(const struct store *s, store_key_fn fn, void *arg);

#endif
