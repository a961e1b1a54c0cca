/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions and texts of a status. Pure; called by hvd_status.c and hvd_live.c. */
#include "operator/core/hvd/hvd_condition.h"

#include <errno.h>
#include <string.h>

#include "operator/core/state.h"
#include "runtime/base/mem.h"

/* At most max bytes of s, cut at a character's start. */
void status_set_text(
    struct build *b, struct node *o, const char *key, const char *s, size_t max)
{
    size_t n = strlen(s);
    AUTOFREE char *copy = NULL;

    if (n <= max) {
        node_set_str(b, o, key, s);
        return;
    }
    n = max - 3;
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    copy = mem_alloc(n + 4);
    if (!copy) {
        b->status = -ENOMEM;
        return;
    }
    memcpy(copy, s, n);
    memcpy(copy + n, "...", 4);
    node_set_str(b, o, key, copy);
}

struct node *status_condition(struct build *b,
                              const struct node *old_status,
                              const char *type,
                              bool is_true,
                              const char *reason,
                              const char *message,
                              const char *now)
{
    const struct node *old = condition_find(old_status, type);
    const char *status = is_true ? "True" : "False";
    const char *was = node_str(old, "status");
    const char *since = node_str(old, "lastTransitionTime");
    struct node *c = node_object(b);

    if (!was || !since || strcmp(was, status) != 0)
        since = now;
    node_set_str(b, c, "type", type);
    node_set_str(b, c, "status", status);
    node_set_str(b, c, "reason", reason);
    status_set_text(b, c, "message", message, CONDITION_TEXT_MAX);
    node_set_str(b, c, "lastTransitionTime", since);
    return c;
}
