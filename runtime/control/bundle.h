/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent up the tree: items of many ranks in one frame, in order of arrival. One
 * order for all kinds, so that a rank's goodbye never overtakes its requests. Pure.
 *
 * Encoding, one item after the other: u8 kind | u32 origin | u32 length | bytes. */
#ifndef RUNTIME_CONTROL_BUNDLE_H
#define RUNTIME_CONTROL_BUNDLE_H

#include "runtime/wire/bytes.h"

enum up_kind {              /* wire values */
               UP_WORK = 1, /* core/message of requests */
               UP_SUSPECT,  /* text: the error that the origin's backend failed with */
               /* u8 enum leave_reason, text: the origin sends no more requests; a text:
                * how it failed (goodbye.h) */
               UP_LEAVE,
               /* text: how; the origin is the lost rank, reported by its parent */
               UP_LOST,
               UP_REPORT, /* core/report: totals of the origin, after ENDED; its last */
               UP_KIND_END
};

struct up_item {
    enum up_kind kind;
    uint32_t origin;
    const void *p;
    size_t n;
};

#define UP_HEADER_BYTES     9
#define UP_TEXT_MAX_BYTES   479
#define UP_REPORT_MAX_BYTES 4096

/* Failures are in the status of the buffer. */
void bundle_put(struct strbuf *out, const struct up_item *item);
/* Reads the next item; its bytes point into the reader's memory. 1; 0 at the end;
 * -EBADMSG: invalid kind, length or reason. */
int bundle_next(struct bytes_reader *in, struct up_item *ret);

#endif
