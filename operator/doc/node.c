/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of every document in the operator: API objects, kubeconfig, status.
 *
 * Children are a singly linked list in order of insertion. Look-up is linear, because
 * the objects of Kubernetes have few keys per level. Memory comes from one arena per
 * unit of work, so nothing here frees. Called by doc/json, doc/yaml and everything in
 * core/. */
#include "operator/doc/node.h"

#include <errno.h>
#include <string.h>

const char *node_type_name(enum node_type t)
{
    switch (t) {
    case NODE_NULL:
        return "null";
    case NODE_BOOL:
        return "a boolean";
    case NODE_INT:
        return "an integer";
    case NODE_REAL:
        return "a fraction";
    case NODE_STRING:
        return "a string";
    case NODE_ARRAY:
        return "an array";
    case NODE_OBJECT:
        return "an object";
    }
    return "?";
}

/* As node_get, of the first len bytes of key; null members too. */
static const struct node *raw_n(const struct node *o, const char *key, size_t len)
{
    if (!o || o->type != NODE_OBJECT)
        return NULL;
    for (const struct node *c = o->first; c; c = c->next) {
        if (strncmp(c->key, key, len) == 0 && c->key[len] == '\0')
            return c;
    }
    return NULL;
}

static const struct node *get_n(const struct node *o, const char *key, size_t len)
{
    const struct node *n = raw_n(o, key, len);

    return n && n->type != NODE_NULL ? n : NULL;
}

const struct node *node_get(const struct node *o, const char *key)
{
    return get_n(o, key, strlen(key));
}

const struct node *node_at(const struct node *o, const char *path)
{
    while (o && *path) {
        size_t len = strcspn(path, ".");

        o = get_n(o, path, len);
        path += len + (path[len] == '.');
    }
    return o;
}

const struct node *node_item(const struct node *array, size_t i)
{
    const struct node *c;

    if (!array || array->type != NODE_ARRAY)
        return NULL;
    for (c = array->first; c && i > 0; i--)
        c = c->next;
    return c;
}

const struct node *
node_with(const struct node *array, const char *key, const char *value)
{
    for (const struct node *c = array ? array->first : NULL; c; c = c->next) {
        const char *s = node_str(c, key);

        if (s && strcmp(s, value) == 0)
            return c;
    }
    return NULL;
}

const char *node_str(const struct node *o, const char *path)
{
    const struct node *n = node_at(o, path);

    return n && n->type == NODE_STRING ? n->u.s : NULL;
}

int64_t node_int(const struct node *o, const char *path, int64_t dflt)
{
    const struct node *n = node_at(o, path);

    return n && n->type == NODE_INT ? n->u.i : dflt;
}

bool node_bool(const struct node *o, const char *path, bool dflt)
{
    const struct node *n = node_at(o, path);

    return n && n->type == NODE_BOOL ? n->u.b : dflt;
}

static bool object_equal(const struct node *a, const struct node *b)
{
    for (const struct node *c = a->first; c; c = c->next) {
        const struct node *d = raw_n(b, c->key, strlen(c->key));

        if (!d || !node_equal(c, d))
            return false;
    }
    return true;
}

static bool array_equal(const struct node *a, const struct node *b)
{
    for (const struct node *c = a->first, *d = b->first; c && d;
         c = c->next, d = d->next) {
        if (!node_equal(c, d))
            return false;
    }
    return true;
}

bool node_equal(const struct node *a, const struct node *b)
{
    if (!a || !b)
        return a == b;
    if (a->type != b->type || a->n != b->n)
        return false;
    switch (a->type) {
    case NODE_NULL:
        return true;
    case NODE_BOOL:
        return a->u.b == b->u.b;
    case NODE_INT:
        return a->u.i == b->u.i;
    case NODE_REAL:
        return a->u.d <= b->u.d && a->u.d >= b->u.d;
    case NODE_STRING:
        return strcmp(a->u.s, b->u.s) == 0;
    case NODE_ARRAY:
        return array_equal(a, b);
    case NODE_OBJECT:
        return object_equal(a, b);
    }
    return false;
}

static struct node *node_make(struct build *b, enum node_type type)
{
    struct node *n;

    if (b->status) /* keeps the first failure */
        return NULL;
    n = arena_alloc(b->arena, sizeof(*n));
    if (!n) {
        b->status = -ENOMEM;
        return NULL;
    }
    n->type = type;
    return n;
}

struct node *node_object(struct build *b)
{
    return node_make(b, NODE_OBJECT);
}

struct node *node_array(struct build *b)
{
    return node_make(b, NODE_ARRAY);
}

struct node *node_null(struct build *b)
{
    return node_make(b, NODE_NULL);
}

struct node *node_string(struct build *b, const char *s)
{
    struct node *n = node_make(b, NODE_STRING);

    if (!n)
        return NULL;
    n->u.s = arena_strdup(b->arena, s);
    if (!n->u.s) {
        b->status = -ENOMEM;
        return NULL;
    }
    return n;
}

struct node *node_number(struct build *b, int64_t i)
{
    struct node *n = node_make(b, NODE_INT);

    if (n)
        n->u.i = i;
    return n;
}

struct node *node_real(struct build *b, double d)
{
    struct node *n = node_make(b, NODE_REAL);

    if (n)
        n->u.d = d;
    return n;
}

struct node *node_boolean(struct build *b, bool v)
{
    struct node *n = node_make(b, NODE_BOOL);

    if (n)
        n->u.b = v;
    return n;
}

static void node_link(struct node *parent, struct node *child)
{
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->n++;
}

struct node *node_copy(struct build *b, const struct node *n)
{
    struct node *m;

    if (!n)
        return NULL;
    m = n->type == NODE_STRING ? node_string(b, n->u.s) : node_make(b, n->type);
    if (!m)
        return NULL;
    m->line = n->line;
    if (n->type == NODE_STRING)
        return m;
    m->u = n->u;
    for (const struct node *c = n->first; c; c = c->next) {
        struct node *d = node_copy(b, c);

        if (d && c->key)
            d->key = arena_strdup(b->arena, c->key);
        if (!d || (c->key && !d->key)) {
            b->status = -ENOMEM;
            return NULL;
        }
        node_link(m, d);
    }
    return m;
}

static void node_replace(struct node *o, struct node *old, struct node *value)
{
    struct node *prev = NULL;

    for (struct node *c = o->first; c != old; c = c->next)
        prev = c;
    value->next = old->next;
    if (prev)
        prev->next = value;
    else
        o->first = value;
    if (o->last == old)
        o->last = value;
}

static struct node *node_find(struct node *o, const char *key)
{
    for (struct node *c = o->first; c; c = c->next) {
        if (strcmp(c->key, key) == 0)
            return c;
    }
    return NULL;
}

void node_set(struct build *b, struct node *o, const char *key, struct node *value)
{
    struct node *old;

    if (!o || !value || b->status)
        return;
    value->key = arena_strdup(b->arena, key);
    if (!value->key) {
        b->status = -ENOMEM;
        return;
    }
    old = node_find(o, key);
    if (old)
        node_replace(o, old, value);
    else
        node_link(o, value);
}

void node_append(struct build *b, struct node *o, const char *key, struct node *value)
{
    if (!o || !value || b->status)
        return;
    value->key = arena_strdup(b->arena, key);
    if (value->key)
        node_link(o, value);
    else
        b->status = -ENOMEM;
}

void node_drop(struct node *o, const char *key)
{
    struct node *prev = NULL;

    for (struct node *c = o ? o->first : NULL; c; prev = c, c = c->next) {
        if (strcmp(c->key, key) != 0)
            continue;
        if (prev)
            prev->next = c->next;
        else
            o->first = c->next;
        if (o->last == c)
            o->last = prev;
        o->n--;
        return;
    }
}

void node_set_str(struct build *b, struct node *o, const char *key, const char *value)
{
    node_set(b, o, key, node_string(b, value));
}

void node_set_int(struct build *b, struct node *o, const char *key, int64_t value)
{
    node_set(b, o, key, node_number(b, value));
}

void node_set_bool(struct build *b, struct node *o, const char *key, bool value)
{
    node_set(b, o, key, node_boolean(b, value));
}

void node_add(struct build *b, struct node *array, struct node *value)
{
    if (array && value && !b->status)
        node_link(array, value);
}

void node_add_first(struct build *b, struct node *array, struct node *value)
{
    if (!array || !value || b->status)
        return;
    value->next = array->first;
    array->first = value;
    if (!array->last)
        array->last = value;
    array->n++;
}

void node_add_str(struct build *b, struct node *array, const char *value)
{
    node_add(b, array, node_string(b, value));
}

struct node *
node_child(struct build *b, struct node *o, const char *key, enum node_type type)
{
    struct node *c = o ? node_find(o, key) : NULL;

    if (c && c->type == type)
        return c;
    c = node_make(b, type);
    node_set(b, o, key, c);
    return c;
}
