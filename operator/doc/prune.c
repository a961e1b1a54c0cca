/* SPDX-License-Identifier: Apache-2.0 */
/* Most of what a watch sends of an object is not used here: managedFields alone is half
 * of a pod. Parsing all of it took more than half of the operator's processor time
 * (tests/bench, 200 jobs of 8 workers), while skipping a value as text is one pass over
 * its bytes. Rules, one table per kind, list what is kept.
 *
 * Invariant: if the input is JSON, so is the output, with the kept members unchanged
 * and in their order. No character is scanned twice. The recursion is as deep as the
 * rules. Called by object_read; the rules are next to the readers of the result
 * (core/pod.c, core/batch.c, core/meta.c). */
#include "operator/doc/prune.h"

#include <errno.h>

static int
prune_all(struct json_walk *w, const struct prune_rule *rules, struct strbuf *out);

static const struct prune_rule *prune_find_rule(const struct prune_rule *rules,
                                                struct json_span key)
{
    for (; rules->key; rules++) {
        if (span_is(key, rules->key))
            return rules;
    }
    return NULL;
}

/* The value at w: a member of an object, or an item of an array (rules: of each
 * item). */
static int prune_put_value(struct json_walk *w,
                           struct json_span key,
                           const struct prune_rule *rules,
                           struct strbuf *out)
{
    bool is_member = w->close == '}';
    const struct prune_rule *rule = is_member ? prune_find_rule(rules, key) : NULL;
    char before = strbuf_str(out)[out->n - 1];
    struct json_walk inner;
    struct json_span value;
    int rc;

    if (is_member && !rule)
        return json_walk_value(w, &value);
    if (before != '{' && before != '[')
        strbuf_putc(out, ',');
    if (is_member) {
        strbuf_add(out, key.p - 1, key.n + 2); /* with its quotes */
        strbuf_putc(out, ':');
        rules = rule->inner;
    }
    if (rules
        && json_walk(&inner, (struct json_span){w->p, (size_t)(w->end - w->p)}) == 0) {
        rc = prune_all(&inner, rules, out);
        w->p = inner.p + 1;
        return rc;
    }
    rc = json_walk_value(w, &value);
    if (rc == 0)
        strbuf_add(out, value.p, value.n);
    return rc;
}

static int
prune_all(struct json_walk *w, const struct prune_rule *rules, struct strbuf *out)
{
    struct json_span key;
    int rc = 0, more = 0;

    strbuf_putc(out, w->close == '}' ? '{' : '[');
    while (rc == 0 && strbuf_status(out) == 0 && (more = json_walk_key(w, &key)) > 0)
        rc = prune_put_value(w, key, rules, out);
    strbuf_putc(out, w->close);
    return rc < 0 ? rc : more;
}

int json_prune(struct json_span text,
               const struct prune_rule *rules,
               struct strbuf *out)
{
    struct json_walk w;
    int rc = json_walk(&w, text);

    if (rc == 0 && w.close != '}')
        rc = -EINVAL;
    if (rc == 0)
        rc = prune_all(&w, rules, out);
    return rc < 0 ? rc : strbuf_status(out);
}
