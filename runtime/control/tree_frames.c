/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of frames. Frames of the parent are the common order; they are sent on to
 * the children before they are handled here. A child sends bundles of items (bundle.h).
 * A bundle is checked as a whole; then rank 0 handles each item, and every other rank
 * appends it to its own bundle, which the pump sends after it has read all connections.
 * A child may only send items of itself and of ranks below it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/control/tree.h"

enum { KEEP_BYTES = 65536 };

/* --- up --- */

int tree_flush_up(struct control *c)
{
    int rc;

    if (c->up.n == 0 || c->is_broken)
        return 0;
    rc = tree_send(c, 0, TREE_UP, c->up.p, c->up.n);
    strbuf_clear(&c->up);
    if (c->up.cap > KEEP_BYTES) {
        size_t max = c->up.max;

        strbuf_release(&c->up);
        strbuf_init(&c->up, max);
    }
    return rc;
}

static int bundle_make_room(struct control *c, size_t n)
{
    if (n > c->up.max)
        return -EMSGSIZE;
    return c->up.n + n > c->up.max ? tree_flush_up(c) : 0;
}

static int bundle_check_room(struct control *c)
{
    char text[96];

    if (strbuf_status(&c->up) == 0)
        return 0;
    (void)snprintf(text, sizeof(text), "rank %u is out of memory for requests",
                   c->cfg.rank);
    tree_settle(c, text);
    return -ENOMEM;
}

int tree_put_up(struct control *c, const struct up_item *item)
{
    int rc = bundle_make_room(c, UP_HEADER_BYTES + item->n);

    if (rc < 0)
        return rc;
    bundle_put(&c->up, item);
    return bundle_check_room(c);
}

int control_up(struct control *c, const void *p, size_t n)
{
    const struct up_item item = {UP_WORK, c->cfg.rank, p, n};
    int rc = c->is_broken ? 0 : tree_put_up(c, &item);

    return rc < 0 ? rc : tree_flush_up(c);
}

void control_report(struct control *c, const void *p, size_t n)
{
    const struct up_item item = {UP_REPORT, c->cfg.rank, p, n};

    /* Without it rank 0 reports that it is missing. */
    if (!c->is_broken && tree_put_up(c, &item) == 0)
        (void)tree_flush_up(c);
}

bool control_awaits_reports(const struct control *c)
{
    return c->n_reports < c->n_under;
}

static bool
child_may_send(const struct control *c, uint32_t child, const struct up_item *item)
{
    if (item->kind == UP_LOST && item->origin == child)
        return false; /* a lost rank sends nothing */
    return shape_is_under(&c->shape, item->origin, child);
}

static int
bundle_check(const struct control *c, uint32_t child, const uint8_t *p, size_t n)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct up_item item;
    int r;

    while ((r = bundle_next(&in, &item)) > 0)
        if (!child_may_send(c, child, &item))
            return -EBADMSG;
    return n == 0 ? -EBADMSG : r;
}

static int tree_on_bundle(struct control *c, uint32_t index, const uint8_t *p, size_t n)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct tree_edge *e = &c->edges[index];
    struct up_item item;

    if (bundle_check(c, e->rank, p, n) < 0)
        return -EBADMSG;
    while (!c->is_broken && bundle_next(&in, &item) > 0) {
        if (item.kind == UP_LEAVE && item.origin == e->rank)
            e->has_left = true;
        if (item.kind == UP_REPORT)
            c->n_reports++;
        if (tree_is_root(c))
            tree_on_item(c, &item);
    }
    if (tree_is_root(c) || c->is_broken || bundle_make_room(c, n) < 0)
        return 0; /* failures are handled already */
    strbuf_add(&c->up, p, n);
    (void)bundle_check_room(c); /* handles failures itself */
    return 0;
}

/* --- down --- */

static void tree_on_down(struct control *c, const uint8_t *p, size_t n)
{
    const struct control_handlers *h = &c->cfg.handlers;
    struct err err = ERR_INIT;

    (void)tree_send_children(c, TREE_DOWN, p, n); /* handles failures itself */
    /* Sent before that rank received the end: it fails there. */
    if (!c->is_ended && !c->is_broken && h->down(h->arg, p, n, &err) < 0)
        control_abort(c, err.text);
}

static void tree_on_text(struct control *c, const struct frame *f)
{
    char text[CAUSE_BYTES];

    (void)snprintf(text, sizeof(text), "%.*s",
                   (int)(f->n < sizeof(text) ? f->n : sizeof(text) - 1),
                   (const char *)f->p);
    if (f->type == TREE_ABORT)
        tree_settle(c, text);
    else
        tree_end(c, text, f->type == TREE_FAILED);
}

int tree_on_frame(struct control *c, uint32_t index, const struct frame *f)
{
    bool is_parent = index == 0;

    if (f->type == TREE_HEARTBEAT)
        return 0;
    if (f->type == TREE_UP)
        return is_parent ? -EBADMSG : tree_on_bundle(c, index, f->p, f->n);
    if (!is_parent)
        return -EBADMSG;
    if (f->type == TREE_DOWN)
        tree_on_down(c, f->p, f->n);
    else if (f->type == TREE_ABORT || f->type == TREE_ENDED || f->type == TREE_FAILED)
        tree_on_text(c, f);
    else
        return -EBADMSG;
    return 0;
}
