/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the status page: one JSON object for each job (README.md, ROW), the jobs that
 * changed since a revision, and the history of each job's rates. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_TABLE_H
#define OPERATOR_PAGE_CORE_PAGE_TABLE_H

#include "operator/core/pod.h"
#include "operator/doc/node.h"
#include "runtime/live/live_report.h"

struct page_table;
struct page_table *page_table_new(void); /* NULL: out of memory */
void page_table_free(struct page_table *t);

/* The job of that key (store.h) has this object now; NULL: it does not exist. object: as
 * the API server or the watch sends it, also without apiVersion and kind, and without pod
 * templates. Without these, the number of ranks is that of an earlier object of the job, or
 * unknown. A row that stays equal is no change. -ENOMEM: the old row stays; -EINVAL: not a
 * job that can be shown, or not that of the key (no row). */
int page_table_put(struct page_table *t, const char *key, const struct node *object);

/* Grows with each change; 0 before the first. */
uint64_t page_table_revision(const struct page_table *t);

struct page_scope { /* which rows a viewer sees */
    const char *ns; /* NULL: all */
    bool has_hvd, has_mpi;
};
/* {"jobs": [ROW...], "kinds": [...]} */
void page_table_all(const struct page_table *t,
                    const struct page_scope *s,
                    struct strbuf *out);
/* {"jobs": [ROW...], "gone": [UID...]}: changes after that revision, the oldest first.
 * False: none in this scope, nothing is written. If deletions of that time are no longer
 * known, or the revision is not one of this table, *ret_is_lost is true, nothing is
 * written, and the viewer needs all rows. */
bool page_table_since(const struct page_table *t,
                      const struct page_scope *s,
                      uint64_t revision,
                      bool *ret_is_lost,
                      struct strbuf *out);
size_t page_table_n(const struct page_table *t);
size_t page_table_bytes(const struct page_table *t);

/* A point of the job's history, at most one every PAGE_HISTORY_S: the first counts. No
 * effect for unknown jobs, without memory, or if 1000 other jobs have a point of the last
 * ten minutes; the history of a job that has none is replaced then. */
#define PAGE_HISTORY_S 15u
#define PAGE_HISTORY_N 240u
void page_table_note(struct page_table *t,
                     const char *key,
                     const struct live_report *r,
                     uint64_t now_wall_s);

/* DETAIL of README.md. pods: the pods of the job, in any order; report: NULL if unknown.
 * -ENOENT: no such row, or the object is not that of the key; strbuf_status() of out;
 * -ENOMEM. If out has room, nothing is written on failure. */
struct page_detail {
    const char *key;
    const struct node *object; /* as for page_table_put */
    const struct pod *const *pods;
    size_t n_pods;
    const struct live_report *report;
    uint64_t report_wall_s, now_wall_s;
    bool may_events, may_log; /* "access" */
};
int page_table_detail(const struct page_table *t,
                      const struct page_detail *d,
                      struct strbuf *out);

#endif
