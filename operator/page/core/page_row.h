/* SPDX-License-Identifier: Apache-2.0 */
/* A job's object -> the facts that the page shows, and its ROW (README.md). Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_ROW_H
#define OPERATOR_PAGE_CORE_PAGE_ROW_H

#include "operator/cli/core/job_view.h"
#include "operator/doc/object.h"
#include "runtime/base/strbuf.h"

/* Of the arena for one object: job_view_make copies it. */
#define PAGE_ARENA_MAX    (2 * (size_t)OBJECT_MAX_BYTES)

#define PAGE_ROW_MAX      8192 /* bytes of a ROW */
#define PAGE_PROGRESS_MAX 4096 /* of its progress; a larger one is left out */
#define PAGE_MESSAGE_MAX  512  /* a longer message is cut */
#define PAGE_NAME_MAX     256  /* names, reasons */
#define PAGE_TIME_MAX     40   /* timestamps, which Kubernetes has checked */

struct page_view { /* strings belong to the object and the arena */
    struct job_view job;
    const char *uid; /* shorter than UID_SIZE */
    uint32_t slots;  /* 0: unknown */
};

/* key: of the store. known_slots: what an earlier object of the same job had, 0 if there
 * was none: a job at rest has lost the template from which its slots were derived.
 * -EINVAL: not the job of that key, or not one that can be shown; -ENOMEM. */
int page_view_make(struct build *b,
                   const char *key,
                   const struct node *object,
                   uint32_t known_slots,
                   struct page_view *ret);
/* ROW. strbuf_status() of out, whose limit is PAGE_ROW_MAX, or -ENOMEM. */
int page_row_write(struct build *b, const struct page_view *v, struct strbuf *out);

#endif
