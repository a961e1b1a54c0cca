/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the table, for its own files: page_table.c (changes them),
 * page_changes.c and page_detail.c (read them). */
#ifndef OPERATOR_PAGE_CORE_PAGE_ENTRY_H
#define OPERATOR_PAGE_CORE_PAGE_ENTRY_H

#include "operator/core/keyed.h"
#include "operator/page/core/page_history.h"

#define PAGE_GONE_N         1024u /* deletions that are remembered */
#define PAGE_HISTORIES_N    1000u
/* A history that is older is replaced by that of another job when there are too many. */
#define PAGE_HISTORY_IDLE_S 600u

struct page_link { /* of a circular list; its head has no entry */
    struct page_link *older, *newer;
    struct page_entry *of;
};

struct page_entry {
    char *key; /* the first member: keyed.h */
    char *uid, *row;
    size_t row_n;
    uint64_t revision; /* of its last change */
    uint32_t slots;    /* 0: unknown */
    struct page_link changed, noted;
    struct page_history *history; /* NULL: no report yet, or too many others */
};

struct page_gone {
    uint64_t revision;
    char *key, *uid;
};

struct page_table {
    struct keyed rows;
    uint64_t revision;
    struct page_link changed; /* entries by revision */
    struct page_link noted;   /* entries with a history, by its last point */
    size_t n_histories;
    struct page_gone gone[PAGE_GONE_N]; /* a ring; the next is n_gone % PAGE_GONE_N */
    uint64_t n_gone;
    uint64_t forgotten; /* revision of the last deletion that is not in the ring; 0 */
};

#endif
