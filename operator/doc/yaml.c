/* SPDX-License-Identifier: Apache-2.0 */
/* YAML reader on libyaml's event stream.
 *
 * A stack of open containers (bounded by NODE_MAX_DEPTH) receives each finished value;
 * in a mapping every other scalar is the key of the next value. yaml_read refuses aliases:
 * a kubeconfig needs none. yaml_read_all expands them and "<<", because people write them
 * in manifests; with them a short text can become a large tree, so the bytes are
 * limited. */
#include "operator/doc/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "runtime/base/mem.h"

#define MAX_ANCHORS  256
#define MAX_EXPANDED (16u << 20)

struct yaml_reader {
    struct build b;
    struct node *open[NODE_MAX_DEPTH];
    const char *key[NODE_MAX_DEPTH]; /* mapping waits for the value of this key */
    size_t depth;
    struct node *root;
    struct node *all; /* yaml_read_all: the documents; else NULL */
    unsigned documents;
    struct { /* of the present document */
        const char *name;
        struct node *node;
    } anchor[MAX_ANCHORS];
    size_t n_anchors, expanded_bytes;
    struct err *err;
};

static int yaml_fail(struct yaml_reader *r, const yaml_mark_t *at, const char *what)
{
    return err_set(r->err, -EINVAL, "yaml: line %zu: %s", at->line + 1, what);
}

static bool is_number(const char *s, int64_t *ret)
{
    const char *p = s + (*s == '-');
    char *end;

    if (*p < '0' || *p > '9' || (p[0] == '0' && p[1] != '\0'))
        return false;
    errno = 0;
    *ret = strtoll(s, &end, 10);
    return *end == '\0' && errno == 0;
}

static bool is_real(const char *s, double *ret)
{
    char *end;

    if (strspn(s, "-+0123456789.eE") != strlen(s) || !strpbrk(s, "0123456789")
        || !strpbrk(s, ".eE"))
        return false;
    *ret = strtod(s, &end);
    return *end == '\0';
}

static struct node *yaml_scalar(struct yaml_reader *r, const char *s, bool is_plain)
{
    int64_t i;
    double d;

    if (!is_plain)
        return node_string(&r->b, s);
    if (!*s || !strcmp(s, "null") || !strcmp(s, "~"))
        return node_null(&r->b);
    if (!strcmp(s, "true") || !strcmp(s, "false"))
        return node_boolean(&r->b, *s == 't');
    if (is_number(s, &i))
        return node_number(&r->b, i);
    if (is_real(s, &d))
        return node_real(&r->b, d);
    return node_string(&r->b, s);
}

static int yaml_put(struct yaml_reader *r, struct node *n, const yaml_mark_t *at)
{
    struct node *parent = r->depth ? r->open[r->depth - 1] : NULL;

    if (!n)
        return err_set(r->err, -ENOMEM, "yaml: does not fit in %zu bytes",
                       r->b.arena->max_bytes);
    n->line = (uint32_t)at->line + 1;
    if (!parent) {
        r->root = n;
        node_add(&r->b, r->all, n);
    } else if (parent->type == NODE_ARRAY) {
        node_add(&r->b, parent, n);
    } else {
        const char **key = &r->key[r->depth - 1];

        if (node_get(parent, *key))
            return yaml_fail(r, at, "the same key twice in one mapping");
        node_set(&r->b, parent, *key, n);
        *key = NULL;
    }
    return r->b.status;
}

/* Remembers a node that aliases name. */
static int yaml_anchor(struct yaml_reader *r,
                       const yaml_char_t *name,
                       struct node *n,
                       const yaml_mark_t *at)
{
    if (!name)
        return 0;
    if (!r->all)
        return yaml_fail(r, at, "anchors are not supported");
    if (r->n_anchors == MAX_ANCHORS)
        return yaml_fail(r, at, "too many anchors");
    r->anchor[r->n_anchors].name = arena_strdup(r->b.arena, (const char *)name);
    if (!r->anchor[r->n_anchors].name)
        return err_set(r->err, -ENOMEM, "yaml: out of memory");
    r->anchor[r->n_anchors++].node = n;
    return 0;
}

static int yaml_alias(struct yaml_reader *r, const char *name, const yaml_mark_t *at)
{
    const struct node *n = NULL;
    size_t before = r->b.arena->used_bytes;
    struct node *copy;

    if (!r->all)
        return yaml_fail(r, at, "aliases are not supported");
    for (size_t i = 0; i < r->n_anchors; i++) {
        if (strcmp(r->anchor[i].name, name) == 0)
            n = r->anchor[i].node; /* the last one of that name */
    }
    for (size_t i = 0; i < r->depth; i++) {
        if (n == r->open[i])
            return yaml_fail(r, at, "an alias within its own anchor");
    }
    if (!n)
        return yaml_fail(r, at, "an alias without anchor");
    copy = node_copy(&r->b, n);
    r->expanded_bytes += r->b.arena->used_bytes - before;
    if (r->expanded_bytes > MAX_EXPANDED)
        return yaml_fail(r, at, "aliases expand to more than 16 MiB");
    return yaml_put(r, copy, at);
}

/* "<<: *name": members of the other mapping that this one does not have. */
static void yaml_merge(struct yaml_reader *r, struct node *o)
{
    const struct node *from = r->all ? node_get(o, "<<") : NULL;

    if (!from || from->type != NODE_OBJECT)
        return;
    node_drop(o, "<<");
    for (struct node *c = from->first, *next; c; c = next) {
        next = c->next;
        if (!node_get(o, c->key))
            node_append(&r->b, o, c->key, c);
    }
}

static bool wants_key(const struct yaml_reader *r)
{
    return r->depth && r->open[r->depth - 1]->type == NODE_OBJECT
           && !r->key[r->depth - 1];
}

static int yaml_push(struct yaml_reader *r,
                     enum node_type type,
                     const yaml_char_t *anchor,
                     const yaml_mark_t *at)
{
    struct node *n;
    int rc;

    if (wants_key(r))
        return yaml_fail(r, at, "a key must be a scalar");
    if (r->depth == NODE_MAX_DEPTH)
        return yaml_fail(r, at, "nested too deep");
    n = type == NODE_ARRAY ? node_array(&r->b) : node_object(&r->b);
    rc = yaml_put(r, n, at);
    if (rc < 0)
        return rc;
    r->key[r->depth] = NULL;
    r->open[r->depth++] = n;
    return yaml_anchor(r, anchor, n, at);
}

static int on_scalar(struct yaml_reader *r, const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    struct node *n;
    int rc;

    if (strlen(s) != e->data.scalar.length)
        return yaml_fail(r, &e->start_mark, "a NUL byte in a scalar");
    if (e->data.scalar.tag || (e->data.scalar.anchor && wants_key(r)))
        return yaml_fail(r, &e->start_mark, "anchors and tags are not supported");
    if (wants_key(r)) {
        char *copy = arena_strdup(r->b.arena, s);

        r->key[r->depth - 1] = copy;
        return copy ? 0 : err_set(r->err, -ENOMEM, "yaml: out of memory");
    }
    n = yaml_scalar(r, s, e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
    rc = yaml_put(r, n, &e->start_mark);
    return rc < 0 ? rc : yaml_anchor(r, e->data.scalar.anchor, n, &e->start_mark);
}

static int yaml_on_event(struct yaml_reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->documents++ && !r->all)
            return yaml_fail(r, &e->start_mark, "only one document is allowed");
        r->n_anchors = 0;
        return 0;
    case YAML_ALIAS_EVENT:
        if (wants_key(r))
            return yaml_fail(r, &e->start_mark, "a key must be a scalar");
        return yaml_alias(r, (const char *)e->data.alias.anchor, &e->start_mark);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
        return yaml_push(r, NODE_ARRAY, e->data.sequence_start.anchor, &e->start_mark);
    case YAML_MAPPING_START_EVENT:
        return yaml_push(r, NODE_OBJECT, e->data.mapping_start.anchor, &e->start_mark);
    case YAML_MAPPING_END_EVENT:
        yaml_merge(r, r->open[r->depth - 1]);
        r->depth--;
        return r->b.status;
    case YAML_SEQUENCE_END_EVENT:
        r->depth--;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return 0;
}

static int read_events(yaml_parser_t *p, struct yaml_reader *r)
{
    bool is_end = false;
    int rc = 0;

    while (rc == 0 && !is_end) {
        yaml_event_t e;

        if (!yaml_parser_parse(p, &e)) {
            if (p->error == YAML_MEMORY_ERROR)
                return err_set(r->err, -ENOMEM, "yaml: out of memory");
            return yaml_fail(r, &p->problem_mark,
                             p->problem ? p->problem : "bad syntax");
        }
        is_end = e.type == YAML_STREAM_END_EVENT;
        rc = yaml_on_event(r, &e);
        yaml_event_delete(&e);
    }
    return rc;
}

static int yaml_read_into(struct yaml_reader *r, const char *text, size_t n)
{
    yaml_parser_t p;
    int rc;

    if (r->b.status || !yaml_parser_initialize(&p))
        return err_set(r->err, -ENOMEM, "yaml: out of memory");
    yaml_parser_set_input_string(&p, (const unsigned char *)text, n);
    rc = read_events(&p, r);
    yaml_parser_delete(&p);
    return rc;
}

static int yaml_read_from(struct arena *a,
                          const char *text,
                          size_t n,
                          bool has_many,
                          struct node **ret,
                          struct err *err)
{
    AUTOFREE struct yaml_reader *r = mem_zalloc(sizeof(*r));
    int rc;

    if (!r)
        return err_set(err, -ENOMEM, "yaml: out of memory");
    r->b.arena = a;
    r->err = err;
    r->all = has_many ? node_array(&r->b) : NULL;
    rc = yaml_read_into(r, text, n);
    if (rc == 0 && !has_many && !r->root)
        rc = (r->root = node_null(&r->b)) ? 0 : -ENOMEM;
    if (rc == 0)
        *ret = has_many ? r->all : r->root;
    return rc;
}

int yaml_read(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err)
{
    return yaml_read_from(a, text, n, false, ret, err);
}

int yaml_read_all(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err)
{
    return yaml_read_from(a, text, n, true, ret, err);
}
