/* SPDX-License-Identifier: Apache-2.0 */
/* What we know of the cluster: HorovodJobs (their JSON, without managedFields and
 * annotations) and worker pods (struct pod). Filled by the watches, read by each sync
 * as a snapshot. Pure, one thread. Keys are "namespace/name". */
#ifndef OPERATOR_CORE_STORE_H
#define OPERATOR_CORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/job.h"
#include "operator/core/observed.h"
#include "operator/core/verdict.h"
#include "runtime/base/sha256.h"

#define STORE_KEY_SIZE 512 /* namespace, '/', name, NUL */

struct store;
struct store *store_new(void);
void store_free(struct store *s);

/* key of a job, from an object's metadata. -EINVAL without name or namespace. */
int store_key(const char *ns, const char *name, char ret[STORE_KEY_SIZE]);

/* Puts or replaces a job; an older resourceVersion of the same uid is ignored. The tree
 * is changed (managedFields and annotations are dropped). ret_key names the job to look
 * at. */
int store_put_job(struct store *s,
                  struct node *object,
                  char ret_key[STORE_KEY_SIZE],
                  struct err *err);
/* The API server's answer to a write of ours. It may come later than the watch's news,
 * even later than those of the job's end: it is taken only while the job of that uid is
 * there, in an older version. Returns 1 when it was taken, 0 when it tells nothing new,
 * or as store_put_job. */
int store_take_answer(struct store *s,
                      struct node *object,
                      char ret_key[STORE_KEY_SIZE],
                      struct err *err);
/* Puts, or marks as gone, a worker pod. ret_key names the job that it belongs to, ""
 * when nothing changed for anybody. */
int store_put_pod(struct store *s, const struct pod *pod, char ret_key[STORE_KEY_SIZE]);
void store_drop_pod(struct store *s,
                    const char *ns,
                    const char *name,
                    char ret_key[STORE_KEY_SIZE]);
void store_drop_job(struct store *s, const char *ns, const char *name);
/* As store_drop_job, of that uid only: the API server does not know it any more. */
void store_lose_job(struct store *s, const char *key, const char *uid);

/* A relist: begin, put all, end. What was not put is dropped; changed is told each
 * job's key. */
typedef void (*store_key_fn)(void *arg, const char *key);
void store_begin_jobs(struct store *s);
void store_end_jobs(struct store *s);
void store_begin_pods(struct store *s);
void store_end_pods(struct store *s, store_key_fn changed, void *arg);

/* The stored JSON of a job; NULL if absent. Valid until the next put or drop. */
const char *store_job_text(const struct store *s, const char *key, size_t *ret_n);
/* The snapshot for one sync, in the arena. -ENOENT when the job or that uid is not
 * there. Pods that belong to another uid (an older job of the same name) are not seen.
 */
int store_observe(struct store *s,
                  const char *key,
                  const struct job *job,
                  uint64_t now_ns,
                  struct arena *a,
                  struct observed *ret);
/* The API server has told us that it exists; no-op when the job is not there any more.
 * A worker stays expected until the watch shows it, or until store_miss_worker: the API
 * server has told us that it does not exist. */
void store_expect_worker(
    struct store *s, const char *key, const char *uid, uint32_t index, uint64_t now_ns);
void store_miss_worker(struct store *s,
                       const char *key,
                       const char *uid,
                       uint32_t index);
void store_have_secret(struct store *s, const char *key, const char *uid);
void store_have_service(struct store *s, const char *key, const char *uid);

/* After a status was written: does the API server keep it as it was sent? hash is of
 * what was sent. Returns true when it does not for the first time of this job. */
bool store_status_kept(struct store *s,
                       const char *key,
                       const char *uid,
                       const uint8_t hash[SHA256_BYTES],
                       bool is_kept);
/* The status of that hash was the last one written, and was not kept. */
bool store_is_unkept(struct store *s,
                     const char *key,
                     const char *uid,
                     const uint8_t hash[SHA256_BYTES]);

size_t store_n_jobs(const struct store *s, enum job_state state);
size_t store_n_pods(const struct store *s);
void store_each_job(const struct store *s, store_key_fn fn, void *arg);

#endif
