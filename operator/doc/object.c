/* SPDX-License-Identifier: Apache-2.0 */
/* The second attempt to read an object that json_read refuses.
 *
 * A user can store a HorovodJob that our reader cannot take: nested too deep, with a
 * NUL, an integer beyond 64 bits, or so large that it would take the memory and the time
 * of other jobs. Such an object must not stop other objects, and its user needs an error
 * message. The object is therefore written again as text, repaired and without the faulty
 * parts, and then read; its metadata and status survive.
 *
 * Invariant: the bytes are bounded before anything is parsed, because they determine the
 * memory; "[0,0,..." is the worst case. Called by watch.c and
 * sync.c. */
#include "operator/doc/object.h"

#include <errno.h>

#include "operator/doc/json.h"

#define TEXT2(x)     #x
#define TEXT(x)      TEXT2(x)

/* members are one level down, and the object's own nesting counts, too */
#define MEMBER_DEPTH (NODE_MAX_DEPTH - 1)

static const char no_nul[] = "holds the character NUL (\\u0000), which no pod can have";
static const char too_deep[] = "is nested deeper than " TEXT(NODE_MAX_DEPTH) " levels";
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

        if ((is_spec && !has_spec) || v.n > OBJECT_MAX_MEMBER)
            continue;
        repairs = put_member(out, k, v, MEMBER_DEPTH);
        if (is_spec && (repairs & REPAIR_DEPTH))
            *ret_flaw = too_deep;
        else if (is_spec && (repairs & REPAIR_NUL))
            *ret_flaw = no_nul;
    }
    strbuf_putc(out, '}');
    return rc < 0 || more < 0 ? -EINVAL : strbuf_status(out);
}

/* flaw NULL: the spec is kept as far as json_repair allows. */
static int object_repair(struct arena *a,
                         struct json_span text,
                         const char *flaw,
                         struct node **ret,
                         struct err *err)
{
    struct build b = {.arena = a};
    struct node *o = NULL;
    struct strbuf out;
    int rc;

    strbuf_init(&out, 2 * text.n + 64);
    rc = put_object(&out, text, !flaw, &flaw);
    if (rc < 0)
        rc = err_set(err, rc, "%s",
                     rc == -EINVAL ? "not an object in JSON" : "out of memory");
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

/* Repairs the object if a member is too large. 1: none is. */
static int object_repair_size(struct arena *a,
                              struct json_span text,
                              struct node **ret,
                              struct err *err)
{
    struct json_span spec = json_find(text, "spec");
    const char *flaw;

    if (spec.n <= OBJECT_MAX_MEMBER)
        return text.n <= 2 * OBJECT_MAX_MEMBER ? 1
                                               : object_repair(a, text, NULL, ret, err);
    flaw = arena_printf(a,
                        "has %zu bytes as JSON, more than %u; put large files into the "
                        "image or into a ConfigMap that the pods mount",
                        spec.n, OBJECT_MAX_MEMBER);
    return flaw ? object_repair(a, text, flaw, ret, err)
                : err_set(err, -ENOMEM, "out of memory");
}

static int object_read_pruned(struct arena *a,
                              struct json_span text,
                              struct node **ret,
                              struct err *err)
{
    int rc = object_repair_size(a, text, ret, err);

    if (rc == 1)
        rc = json_read(a, text.p, text.n, ret, err);
    if (rc == -EINVAL) {
        arena_release(a);
        rc = object_repair(a, text, NULL, ret, err);
    }
    if (rc == -EINVAL) {
        arena_release(a);
        rc = object_repair(a, text, no_json, ret, err);
    }
    return rc;
}

int object_read(struct arena *a,
                struct json_span text,
                const struct prune_rule *rules,
                struct node **ret,
                struct err *err)
{
    struct strbuf kept;
    int rc;

    strbuf_init(&kept, text.n + 1);
    rc = json_prune(text, rules, &kept);
    if (rc == 0)
        rc = object_read_pruned(a, (struct json_span){kept.p, kept.n}, ret, err);
    else
        rc = rc == -EINVAL ? err_set(err, rc, "not an object in JSON")
                           : err_set(err, -ENOMEM, "out of memory");
    strbuf_release(&kept);
    return rc;
}

const struct prune_rule owner_rules[] = {PRUNE_KEEP("kind"), PRUNE_KEEP("uid"),
                                         PRUNE_KEEP("controller"), PRUNE_END};

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

const char *object_label(const struct node *object, const char *key)
{
    const struct node *n = node_get(node_at(object, "metadata.labels"), key);

    return n && n->type == NODE_STRING ? n->u.s : "";
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
