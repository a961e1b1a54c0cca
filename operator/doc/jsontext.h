/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text: searched, counted and repaired without a tree, so that an object that
 * the reader refuses, or a page of many objects, need not be parsed whole. Only the
 * structure is checked; json_read may still refuse the result. Pure. */
#ifndef OPERATOR_DOC_JSONTEXT_H
#define OPERATOR_DOC_JSONTEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/strbuf.h"

struct json_span { /* a part of the text that was searched */
    const char *p;
    size_t n;
};

/* Iterates over the members of an object or the items of an array. */
struct json_walk {
    const char *p, *end;
    char close; /* the closing bracket */
    bool is_started;
};
int json_walk(struct json_walk *w,
              struct json_span text); /* -EINVAL: neither of them */
/* 1: *ret_key and *ret_value are the next member; 0: there is none; -EINVAL: bad syntax.
 * The key has no quotes, its escapes are unchanged; the key of an item is empty. */
int json_walk_next(struct json_walk *w,
                   struct json_span *ret_key,
                   struct json_span *ret_value);
/* The same in two steps. Between them w->p is at the value, and after a result of 0 it is
 * at the closing bracket. A caller that parses the value itself sets w->p behind the
 * value instead of calling json_walk_value. */
int json_walk_key(struct json_walk *w, struct json_span *ret_key);
int json_walk_value(struct json_walk *w, struct json_span *ret_value);

/* The value of a member of an object; an empty span if there is none. */
struct json_span json_find(struct json_span object, const char *key);
/* The same, of a string: without quotes, escapes as they are. */
struct json_span json_find_text(struct json_span object, const char *key);
bool span_is(struct json_span s, const char *text);
/* What json_repair changed. */
enum {
    REPAIR_NUL = 1,    /* \u0000 in a string or key: now U+FFFD */
    REPAIR_DEPTH = 2,  /* containers within max_depth others: now null */
    REPAIR_NUMBER = 4, /* integers beyond 64 bits: now fractions */
};
/* Appends the text, repaired so that json_read accepts it if its syntax is right. */
unsigned json_repair(struct json_span text, unsigned max_depth, struct strbuf *out);

#endif
