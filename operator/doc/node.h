/* SPDX-License-Identifier: Apache-2.0 */
/* One tree type for JSON and YAML. Every node and string is in the builder's arena and
 * is freed with it. Readers accept NULL and a wrong type and then return "absent", so a
 * path is read in one line; an explicit null is absent, too, as in Kubernetes.
 *
 *     struct build b = {.arena = &a};
 *     struct node *o = node_object(&b);
 *     node_set_str(&b, o, "kind", "Pod");
 *     if (b.status) return b.status;          // checked once, at the end
 *
 * Strings have no NUL. Objects keep the order of insertion. Not thread safe. */
#ifndef OPERATOR_DOC_NODE_H
#define OPERATOR_DOC_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/arena.h"

#define NODE_MAX_DEPTH 100 /* of documents from outside */

enum node_type {
    NODE_NULL,
    NODE_BOOL,
    NODE_INT,
    NODE_REAL,
    NODE_STRING,
    NODE_ARRAY,
    NODE_OBJECT,
};
const char *node_type_name(enum node_type t); /* "a string", "an array", ... */

struct node {
    enum node_type type;
    uint32_t line;   /* of the YAML text that it was read from; 0: unknown */
    const char *key; /* name within an object, else NULL */
    struct node *next;
    struct node *first, *last; /* children of arrays and objects */
    size_t n;
    union {
        bool b;
        int64_t i;
        double d;
        const char *s;
    } u;
};

/* Reading. The path is names joined by dots; names that hold a dot need node_get. */
const struct node *node_get(const struct node *o, const char *key);
const struct node *node_at(const struct node *o, const char *path);
const struct node *node_item(const struct node *array, size_t i);
/* The first item whose member key is that string; NULL if there is none. */
const struct node *
node_with(const struct node *array, const char *key, const char *value);
const char *node_str(const struct node *o, const char *path); /* NULL if absent */
int64_t node_int(const struct node *o, const char *path, int64_t dflt);
bool node_bool(const struct node *o, const char *path, bool dflt);
/* Same value; the order of keys in objects does not matter, 1 and 1.0 differ. */
bool node_equal(const struct node *a, const struct node *b);

/* Building. A failure sets b->status to -ENOMEM and makes the call return NULL; every
 * call accepts a NULL node and then does nothing. Strings are copied. A node belongs to
 * one parent only. */
struct build {
    struct arena *arena;
    int status;
};
struct node *node_object(struct build *b);
struct node *node_array(struct build *b);
struct node *node_string(struct build *b, const char *s);
struct node *node_number(struct build *b, int64_t i);
struct node *node_real(struct build *b, double d);
struct node *node_boolean(struct build *b, bool v);
struct node *node_null(struct build *b);
struct node *node_copy(struct build *b,
                       const struct node *n); /* deep; key not copied */
void node_set(struct build *b, struct node *o, const char *key, struct node *value);
/* The same if the caller knows that the key is new. node_set searches all keys, which
 * would be slow for a large object from outside. */
void node_append(struct build *b, struct node *o, const char *key, struct node *value);
void node_set_str(struct build *b, struct node *o, const char *key, const char *value);
void node_set_int(struct build *b, struct node *o, const char *key, int64_t value);
void node_set_bool(struct build *b, struct node *o, const char *key, bool value);
void node_add(struct build *b, struct node *array, struct node *value);
void node_add_first(struct build *b, struct node *array, struct node *value);
void node_add_str(struct build *b, struct node *array, const char *value);
void node_drop(struct node *o,
               const char *key); /* removes the child, if there is one */
/* The child of that name and type, created if absent or of another type. */
struct node *
node_child(struct build *b, struct node *o, const char *key, enum node_type type);

#endif
