/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: a parsed text is rendered and parsed to the same tree; and the walk over the text
 * without a tree finds the tree's members. */
#include "operator/doc/json.h"
#include "operator/doc/jsontext.h"
#include "tests/fuzz/fuzz.h"

static void compare_walk(struct json_span text, const struct node *tree)
{
    struct json_walk w;
    struct json_span key, value;
    size_t n = 0;
    int more;

    MUST(json_walk(&w, text) == 0);
    while ((more = json_walk_next(&w, &key, &value)) > 0)
        n++;
    MUST(more == 0);
    MUST(n >= tree->n); /* a duplicate key is one member of the tree */
}

FUZZ_TARGET(json)
{
    struct json_span text = {(const char *)data, n};
    struct strbuf out, again;
    struct arena a;
    struct node *one, *two;
    struct err err = ERR_INIT;

    arena_init(&a, 16u << 20);
    strbuf_init(&out, 1u << 20);
    strbuf_init(&again, 1u << 20);
    if (json_read(&a, text.p, text.n, &one, &err) == 0) {
        compare_walk(text, one);
        json_write(one, &out);
        MUST(strbuf_status(&out) == 0);
        MUST(json_read(&a, out.p, out.n, &two, NULL) == 0);
        json_write(two, &again);
        MUST(out.n == again.n && memcmp(out.p, again.p, out.n) == 0);
        strbuf_clear(&out);
        (void)json_repair(text, NODE_MAX_DEPTH, &out);
        MUST(json_read(&a, out.p, out.n, &two, NULL) == 0);
        MUST(node_equal(one, two)); /* a valid text is not changed */
    } else {
        MUST(*err.text);
        (void)json_find(text, "metadata");
        (void)json_repair(text, NODE_MAX_DEPTH, &out);
    }
    strbuf_release(&out);
    strbuf_release(&again);
    arena_release(&a);
    return 0;
}
