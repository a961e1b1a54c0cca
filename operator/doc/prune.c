/* SPDX-License-Identifier: Apache-2.0 */
/* What a watch sends of one object is mostly for others: managedFields alone is half of
 * a pod. Parsing it all was more than half of the operator's processor time
 * (tests/bench, 200 jobs of 8 workers), while skipping a value as text is one pass over
 * its bytes. So rules, one table a kind, say what is kept.
 *
 * Invariant: what comes out is JSON if what went in is, with the kept members as they
 * were written and in their order. The recursion is as deep as the rules are. Called by
 * watch.c; the rules lie beside what reads the result (core/pod.c, core/store.c). */
#include "operator/doc/prune.h"

#include <errno.h>

const struct prune_rule prune_metadata[] = {
    {.key = "managedFields", .is_dropped = true}, {.key = ""}, {.key = NULL}};
const struct prune_rule prune_object[] = {
    {.key = "metadata", .inner = prune_metadata}, {.key = ""}, {.key = NULL}};

static int
prune_value(struct span value, const struct prune_rule *rules, struct strbuf *out);

static const struct prune_rule *find(const struct prune_rule *rules, struct span key)
{
    for (; rules->key; rules++) {
        if (!*rules->key || span_is(key, rules->key))
            return rules;
    }
    return NULL;
}

/* One member of an object, or item of an array (rules: of each item). */
static int put(struct span key,
               struct span value,
               const struct prune_rule *rules,
               bool is_member,
               struct strbuf *out)
{
    const struct prune_rule *rule = is_member ? find(rules, key) : NULL;
    char before = strbuf_str(out)[out->n - 1];

    if (is_member && (!rule || rule->is_dropped))
        return 0;
    if (before != '{' && before != '[')
        strbuf_putc(out, ',');
    if (is_member) {
        strbuf_add(out, key.p - 1, key.n + 2); /* with its quotes */
        strbuf_putc(out, ':');
        rules = rule->inner;
    }
    if (rules)
        return prune_value(value, rules, out);
    strbuf_add(out, value.p, value.n);
    return 0;
}

static int
prune_value(struct span value, const struct prune_rule *rules, struct strbuf *out)
{
    struct json_walk w;
    struct span k, v;
    bool is_object;
    int rc = 0, more = 0;

    if (json_walk(&w, value) < 0) {
        strbuf_add(out, value.p, value.n);
        return 0;
    }
    is_object = w.close == '}';
    strbuf_putc(out, is_object ? '{' : '[');
    while (rc == 0 && strbuf_status(out) == 0
           && (more = json_walk_next(&w, &k, &v)) > 0)
        rc = put(k, v, rules, is_object, out);
    strbuf_putc(out, w.close);
    return rc < 0 ? rc : more;
}

int json_prune(struct span text, const struct prune_rule *rules, struct strbuf *out)
{
    struct json_walk w;
    int rc = json_walk(&w, text);

    if (rc == 0 && w.close != '}')
        rc = -EINVAL;
    if (rc == 0)
        rc = prune_value(text, rules, out);
    return rc < 0 ? rc : strbuf_status(out);
}
