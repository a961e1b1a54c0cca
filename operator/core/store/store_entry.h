/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the store, for its own files: store.c (jobs), store_children.c
 * (objects of jobs, answers) and store_observe.c (snapshots). */
#ifndef OPERATOR_CORE_STORE_STORE_ENTRY_H
#define OPERATOR_CORE_STORE_STORE_ENTRY_H

#include "operator/core/store/children.h"
#include "operator/core/store/memory.h"
#include "operator/core/store/store.h"

#define MPI_PREFIX "mpijob:" /* of the keys of MPIJobs */

struct job_entry {
    char *key, *uid, *text; /* text NULL: not kept */
    size_t text_n;
    bool is_at_rest; /* the text is without pod templates */
    uint64_t version;
    enum kube_kind kind;
    struct job_memory memory;
    bool is_marked;
    bool is_shown[KUBE_KIND_COUNT]; /* the list of that kind in progress contains it */
    bool is_unkept, was_unkept;     /* the status: now, ever */
    uint8_t unkept[SHA256_BYTES];
    enum job_state state;
};

struct store {
    uint64_t list_version[KUBE_KIND_COUNT]; /* of jobs, while a list is read; else 0 */
    bool is_listing[KUBE_KIND_COUNT];
    struct keyed jobs;
    size_t text_bytes, max_text; /* of the jobs that are not at rest; its limit */
    struct children children;
    store_job_fn listen; /* NULL: nobody listens */
    void *listen_arg;
};

/* The job of that key and uid; NULL if it is absent. */
struct job_entry *store_entry(const struct store *s, const char *key, const char *uid);

#endif
