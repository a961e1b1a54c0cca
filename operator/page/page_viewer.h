/* SPDX-License-Identifier: Apache-2.0 */
/* What page.c and page_stream.c share: one request of a viewer. */
#ifndef OPERATOR_PAGE_PAGE_VIEWER_H
#define OPERATOR_PAGE_PAGE_VIEWER_H

#include "operator/page/core/page_route.h"
#include "operator/page/core/page_table.h"
#include "operator/page/page_access.h"
#include "operator/page/page_fetch.h"
#include "operator/page/page_http.h"
#include "operator/page/page.h"

#define VIEWER_RIGHTS 3

struct page_viewer {
    struct page *page;
    struct page_call *call;
    struct page_route route;
    size_t n_checked; /* rights that were checked in this round */
    bool is_checking, is_allowed[VIEWER_RIGHTS];
    int refusal; /* of the first right that was refused; 0: none */
    char why[256];
    struct page_viewer *prev, *next; /* of all viewers */
    uint64_t checking_ns;            /* when the checks began */
    /* Of a stream: */
    bool is_stream, is_slow;
    struct page_scope scope;
    uint64_t number;              /* of its token */
    uint64_t revision;            /* what was sent */
    uint64_t checked_ns, sent_ns; /* when its rights were checked; of the last event */
    uint64_t allowed_ns;          /* when the API server answered last */
};

struct page_streams { /* what all streams share */
    size_t n;
    struct page_text *all; /* the rows of all_scope at all_revision */
    struct page_scope all_scope;
    char all_ns[64];
    uint64_t all_revision;
    struct page_text *ping, *jobs_begin, *change_begin, *event_end;
};

struct page {
    struct controller *op;
    struct page_http *http;
    struct page_access *access;
    struct page_fetch *fetch;
    struct page_table *table;
    struct page_streams streams;
    struct page_viewer *viewers;
    uint64_t tick_ns;    /* when viewers are looked at; UINT64_MAX: there is none */
    uint64_t check_ns;   /* how long the rights of a stream count */
    uint64_t history_ns; /* when the next points are noted */
};

/* The rights that the viewer's request needs, in order. False: i is past the last one. */
bool viewer_right(const struct page_viewer *v, size_t i, struct page_right *ret);
/* Checks all of them again, then calls stream_checked. */
void viewer_check(struct page_viewer *v);

/* Answers with a copy of body. */
void viewer_answer_text(struct page_viewer *v, int http, const char *body, size_t n);

/* -ENOMEM. */
int streams_init(struct page_streams *s);
void streams_release(struct page_streams *s);
/* The rows that a viewer of lists may see, by the rights that were checked last. */
struct page_scope viewer_scope(const struct page_viewer *v);
/* {"jobs": ...} of a scope; the caller's reference. NULL: out of memory. */
struct page_text *streams_rows(struct page *p, const struct page_scope *scope);
/* Its rights are known: begins the stream. */
void stream_begin(struct page_viewer *v);
/* They were checked again. */
void stream_checked(struct page_viewer *v);
/* They were to be checked again, but there was no answer. */
void stream_not_checked(struct page_viewer *v);
void stream_end(struct page_viewer *v, const char *why);
/* Sends changes to all streams; pings and checks those that are due. */
void streams_tick(struct page *p, uint64_t now_ns);

#endif
