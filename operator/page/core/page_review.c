/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the reviews. What a TokenReview says of its user is passed on to
 * SubjectAccessReviews as it is, "extra" too: authorizers of the cluster may use it.
 * Called by page_access.c. */
#include "operator/page/core/page_review.h"

#include <errno.h>
#include <string.h>

#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define OWNER_ARENA (1u << 20)

/* --- rights ----------------------------------------------------------------------- */

void page_right_strings(const struct page_right *r,
                        const char *ret[static PAGE_RIGHT_STRINGS])
{
    const char *const s[PAGE_RIGHT_STRINGS] = {r->verb,        r->group, r->resource,
                                               r->subresource, r->ns,    r->name};

    memcpy(ret, s, sizeof(s));
}

void page_right_hash(const struct page_right *r, struct page_hash *ret)
{
    const char *s[PAGE_RIGHT_STRINGS];
    struct sha256 h;

    page_right_strings(r, s);
    sha256_init(&h);
    for (size_t i = 0; i < PAGE_RIGHT_STRINGS; i++)
        sha256_add(&h, s[i], strlen(s[i]) + 1); /* the NUL keeps them apart */
    sha256_end(&h, ret->b);
}

void page_right_denial(const struct page_right *r, const char *user, struct strbuf *out)
{
    strbuf_printf(out, "user %s may not %s %s%s%s%s%s", user, r->verb, r->resource,
                  *r->subresource ? "/" : "", r->subresource, *r->name ? " " : "",
                  r->name);
    if (*r->ns)
        strbuf_printf(out, " in namespace %s", r->ns);
    else
        strbuf_puts(out, " in all namespaces");
}

/* --- tokens ----------------------------------------------------------------------- */

bool page_token_is_possible(const char *token)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                              "0123456789-._~+/";
    size_t n = strspn(token, set), end = n + strspn(token + n, "=");

    return n > 0 && !token[end] && end <= PAGE_TOKEN_MAX_BYTES;
}

void page_review_write_token(const char *token, bool is_ordinary, struct strbuf *out)
{
    strbuf_printf(out,
                  "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                  "\"TokenReview\",\"spec\":{\"token\":\"%s\"%s}}",
                  token, /* needs no escape */
                  is_ordinary ? "" : ",\"audiences\":[\"" PAGE_AUDIENCE "\"]");
}

/* An authenticator that does not know audiences accepts a token for any. */
static bool is_for_page(const struct node *status)
{
    const struct node *all = node_get(status, "audiences");

    for (const struct node *n = all ? all->first : NULL; n; n = n->next) {
        if (n->type == NODE_STRING && strcmp(n->u.s, PAGE_AUDIENCE) == 0)
            return true;
    }
    return false;
}

int page_review_read_token(const struct node *answer,
                           bool is_ordinary,
                           struct page_owner *ret_owner,
                           struct strbuf *out)
{
    static const char *const same[] = {"uid", "groups", "extra"};
    const struct node *status = node_get(answer, "status");
    const struct node *user = node_get(status, "user");
    const char *name = node_str(user, "username");
    CLEANUP(arena_release) struct arena arena;
    struct build b = {.arena = &arena};
    struct node *spec;

    arena_init(&arena, OWNER_ARENA);
    if (!node_bool(status, "authenticated", false) || !name || !*name
        || (!is_ordinary && !is_for_page(status)))
        return 0;
    spec = node_object(&b);
    node_set_str(&b, spec, "user", name);
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        if (node_get(user, same[i]))
            node_set(&b, spec, same[i], node_copy(&b, node_get(user, same[i])));
    }
    if (b.status)
        return b.status;
    json_write(spec, out);
    if (strbuf_status(out))
        return strbuf_status(out);
    *ret_owner = (struct page_owner){
        .name = name, .spec = strbuf_str(out), .is_ordinary = is_ordinary};
    return 1;
}

/* --- access ----------------------------------------------------------------------- */

void page_review_write_right(const struct page_owner *owner,
                             const struct page_right *right,
                             struct strbuf *out)
{
    static const char *const names[PAGE_RIGHT_STRINGS] = {
        "verb", "group", "resource", "subresource", "namespace", "name"};
    const char *s[PAGE_RIGHT_STRINGS];

    page_right_strings(right, s);
    strbuf_puts(out, "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":"
                     "\"SubjectAccessReview\",\"spec\":");
    strbuf_add(out, owner->spec, strlen(owner->spec) - 1); /* without its brace */
    strbuf_puts(out, ",\"resourceAttributes\":{");
    for (size_t i = 0; i < PAGE_RIGHT_STRINGS; i++) {
        const struct node value = {.type = NODE_STRING, .u.s = s[i]};

        strbuf_printf(out, "%s\"%s\":", i ? "," : "", names[i]);
        json_write(&value, out);
    }
    strbuf_puts(out, "}}}");
}

bool page_review_is_allowed(const struct node *answer)
{
    return node_bool(answer, "status.allowed", false);
}
