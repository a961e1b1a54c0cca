/* SPDX-License-Identifier: Apache-2.0 */
/* Checks everything about an item that does not depend on the tree. tree_frames.c
 * checks whether its origin may use this child. */
#include "runtime/control/bundle.h"

#include <errno.h>

#include "runtime/control/control.h"

void bundle_put(struct strbuf *out, const struct up_item *item)
{
    bytes_put(out, (uint64_t)item->kind, 1);
    bytes_put(out, item->origin, 4);
    bytes_put(out, item->n, 4);
    strbuf_add(out, item->p, item->n);
}

static bool item_is_valid(const struct up_item *item)
{
    const uint8_t *p = item->p;

    switch (item->kind) {
    case UP_WORK:
        return true;
    case UP_REPORT:
        return item->n <= UP_REPORT_MAX_BYTES;
    case UP_SUSPECT:
    case UP_LOST:
        return item->n <= UP_TEXT_MAX_BYTES;
    case UP_LEAVE:
        return item->n >= 1 && item->n <= UP_TEXT_MAX_BYTES && p[0] <= LEAVE_EXIT;
    case UP_KIND_END:
        break;
    }
    return false;
}

int bundle_next(struct bytes_reader *in, struct up_item *ret)
{
    struct up_item item;
    uint64_t kind, origin, n;
    const uint8_t *p;

    if (in->left == 0)
        return 0;
    if (!bytes_get(in, 1, &kind) || kind == 0 || kind >= UP_KIND_END
        || !bytes_get(in, 4, &origin) || !bytes_get(in, 4, &n)
        || !bytes_get_raw(in, n, &p))
        return -EBADMSG;
    item = (struct up_item){(enum up_kind)kind, (uint32_t)origin, p, n};
    if (!item_is_valid(&item))
        return -EBADMSG;
    *ret = item;
    return 1;
}
