/* SPDX-License-Identifier: Apache-2.0 */
/* The second attempt to read an object that json_read refuses.
 *
 * A user can store a HorovodJob that our reader cannot take: nested too deep, with a
 * NUL, an integer beyond 64 bits, or so many values that their tree would fill the
 * operator's memory. Such an object must not stop other objects, and its user needs an
 * error message. The object is therefore written again as text, repaired and without
 * the faulty parts, and then read; its metadata and status survive.
 *
 * Invariant: the number of values is bounded before anything is parsed, because it
 * determines the memory; "[[],[],..." is the worst case. Called by watch.c. */
#include "operator/doc/object.h"

#include <errno.h>

#include "operator/doc/json.h"

#define TEXT2(x)     #x
#define TEXT(x)      TEXT2(x)

/* members are one level down, and the object's own nesting counts, too */
#define MEMBER_DEPTH (NODE_MAX_DEPTH - 1)

static const char no_nul[] = "holds the character NUL (\\u0000), which no pod can have";
static const char too_deep[] = "is nested deeper than " TEXT(NODE_MAX_DEPTH) " levels";
static const char too_many[] = "holds more than " TEXT(OBJECT_MAX_VALUES) " values";
static const char no_json[] = "cannot be read";

static unsigned put_member(struct strbuf *out,
                           struct json_span key,
                           struct json_span value,
                           unsigned depth)
{
    struct json_span quoted = {key.p - 1, key.n + 2};
    unsigned repairs;

    if (strbuf_str(out)[out->n - 1] != '{')
        strbuf_putc(out, ',');
    repairs = json_repair(quoted, 0, out);
    strbuf_putc(out, ':');
    return repairs | json_repair(value, depth, out);
}

static int
put_metadata(struct strbuf *out, struct json_span key, struct json_span metadata)
{
    struct json_span k, v;
    struct json_walk w;
    int rc = json_walk(&w, metadata);

    (void)put_member(out, key, (struct json_span){"{", 1}, 1);
    while (rc == 0 && json_walk_next(&w, &k, &v) > 0) {
        if (!span_is(
                k,
                "managedFields")) /* as deep and as large as the rest of the object */
            (void)put_member(out, k, v, MEMBER_DEPTH - 1);
    }
    strbuf_putc(out, '}');
    return rc;
}

/* The object as text that json_read accepts. */
static int put_object(struct strbuf *out,
                      struct json_span text,
                      bool has_spec,
                      const char **ret_flaw)
{
    struct json_span k, v;
    struct json_walk w;
    unsigned repairs;
    int more = 0, rc = json_walk(&w, text);

    strbuf_putc(out, '{');
    while (rc == 0 && (more = json_walk_next(&w, &k, &v)) > 0) {
        bool is_spec = span_is(k, "spec");

        if (span_is(k, "metadata")) {
            rc = put_metadata(out, k, v);
            continue;
        }
        if (is_spec && !has_spec)
            continue;
        if (json_count(v) > OBJECT_MAX_VALUES) {
            *ret_flaw = is_spec ? too_many : *ret_flaw;
            continue;
        }
        repairs = put_member(out, k, v, MEMBER_DEPTH);
        if (is_spec && (repairs & REPAIR_DEPTH))
            *ret_flaw = too_deep;
        else if (is_spec && (repairs & REPAIR_NUL))
            *ret_flaw = no_nul;
    }
    strbuf_putc(out, '}');
    return rc < 0 || more < 0 ? -EINVAL : strbuf_status(out);
}

static int object_repair(struct arena *a,
                         struct json_span text,
                         bool has_spec,
                         struct node **ret,
                         struct err *err)
{
    struct build b = {.arena = a};
    const char *flaw = has_spec ? NULL : no_json;
    struct node *o = NULL;
    struct strbuf out;
    int rc;

    strbuf_init(&out, 2 * text.n + 64);
    rc = put_object(&out, text, has_spec, &flaw);
    if (rc < 0)
        rc = err_set(err, rc, "%s",
                     rc == -EINVAL ? "not an object in JSON" : "out of memory");
    else if (json_count((struct json_span){out.p, out.n}) > 2 * OBJECT_MAX_VALUES)
        rc = err_set(err, -EINVAL, "holds more than %d values", 2 * OBJECT_MAX_VALUES);
    else
        rc = json_read(a, out.p, out.n, &o, err);
    strbuf_release(&out);
    if (rc < 0)
        return rc;
    if (flaw)
        node_set_str(&b, o, OBJECT_UNREADABLE, flaw);
    if (b.status)
        return err_set(err, b.status, "out of memory");
    *ret = o;
    return 0;
}

int object_read(struct arena *a,
                struct json_span text,
                struct node **ret,
                struct err *err)
{
    int rc = -EINVAL;

    if (json_count(text) <= OBJECT_MAX_VALUES)
        rc = json_read(a, text.p, text.n, ret, err);
    for (int has_spec = 1; rc == -EINVAL && has_spec >= 0; has_spec--) {
        arena_release(a);
        rc = object_repair(a, text, has_spec, ret, err);
    }
    return rc;
}

static const char *owner_text(const struct node *object, const char *key)
{
    const struct node *owners = node_at(object, "metadata.ownerReferences");
    const char *s = NULL;

    for (const struct node *c = owners ? owners->first : NULL; c; c = c->next) {
        if (node_bool(c, "controller", false))
            s = node_str(c, key);
    }
    return s ? s : "";
}

const char *object_owner_uid(const struct node *object)
{
    return owner_text(object, "uid");
}

const char *object_owner_kind(const struct node *object)
{
    return owner_text(object, "kind");
}

bool object_holds(const struct node *whole, const struct node *part)
{
    if (part->type != NODE_OBJECT)
        return node_equal(whole, part);
    if (!whole || whole->type != NODE_OBJECT)
        return false;
    for (const struct node *c = part->first; c; c = c->next) {
        if (!object_holds(node_get(whole, c->key), c))
            return false;
    }
    return true;
}
