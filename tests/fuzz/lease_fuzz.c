/* SPDX-License-Identifier: Apache-2.0 */
/* A Lease from any writer: parsing it never makes us leader by itself, and our update of
 * it names us as the holder. */
#include "operator/core/lease.h"
#include "operator/doc/json.h"
#include "runtime/base/strbuf.h"
#include "tests/fuzz/fuzz.h"

#define S 1000000000ull

static void take_over(struct arena *a, struct node *o, const struct lease_record *r)
{
    static const struct lease_config config = {.identity = "us\"\n",
                                               .duration_ns = 15 * S,
                                               .renew_ns = 10 * S,
                                               .retry_ns = 2 * S};
    struct build b = {.arena = a};
    struct lease_record again;
    struct lease l;

    lease_init(&l, &config);
    lease_sent(&l, S);
    lease_answered(&l, LEASE_OK, r, S, 7);
    MUST(!lease_leads(&l, S));
    MUST(l.next == LEASE_GET || l.next == LEASE_UPDATE);
    l.next = LEASE_UPDATE;
    lease_write(&l, 1, &b, o);
    MUST(b.status == 0);
    lease_read(o, &again);
    MUST(strcmp(again.holder, config.identity) == 0);
    MUST(again.duration_ns == 15 * S);
    lease_sent(&l, 2 * S);
    lease_answered(&l, LEASE_OK, &again, 3 * S, 7);
    MUST(lease_leads(&l, 3 * S) && !lease_leads(&l, 12 * S));
}

FUZZ_TARGET(lease)
{
    struct lease_record r;
    struct arena a;
    struct node *o;

    arena_init(&a, 1u << 20);
    if (json_read(&a, (const char *)data, n, &o, NULL) == 0 && o->type == NODE_OBJECT) {
        lease_read(o, &r);
        MUST(strlen(r.holder) < LEASE_IDENTITY_SIZE);
        MUST(r.duration_ns <= 3600 * S);
        take_over(&a, o, &r);
    }
    arena_release(&a);
    return 0;
}
