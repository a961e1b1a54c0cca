/* SPDX-License-Identifier: Apache-2.0 */
/* A live report as an agent sends it, and a rank's record behind the first byte: what is
 * accepted is packed and read back unchanged, and has a JSON form. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/live/live_worker.h"
#include "tests/fuzz/fuzz.h"

static void report_check(const uint8_t *data, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf a = {0}, b = {0};
    AUTOFREE struct live_report *r = malloc(sizeof(*r));
    struct err err = ERR_INIT;

    MUST(r);
    fuzz_fill(r, sizeof(*r));
    int rc = live_report_unpack(data, n, r, &err);
    if (rc) {
        MUST(rc == -EPROTO && err.text[0] && fuzz_is_filled(r, sizeof(*r)));
        return;
    }
    strbuf_init(&a, LIVE_REPORT_MAX_BYTES);
    strbuf_init(&b, LIVE_REPORT_MAX_BYTES);
    live_report_pack(r, &a);
    MUST(strbuf_status(&a) == 0);
    MUST(live_report_unpack(a.p, a.n, r, &err) == 0);
    live_report_pack(r, &b);
    MUST(a.n == b.n && memcmp(a.p, b.p, a.n) == 0);
    strbuf_clear(&b);
    live_report_json(r, &b);
    MUST(strbuf_status(&b) == 0 && b.p[0] == '{' && b.p[b.n - 1] == '}');
}

static void rank_check(const uint8_t *data, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf a = {0};
    AUTOFREE struct live_rank *r = malloc(sizeof(*r));
    struct err err = ERR_INIT;

    MUST(r);
    fuzz_fill(r, sizeof(*r));
    if (live_rank_unpack(data, n, r, &err)) {
        MUST(fuzz_is_filled(r, sizeof(*r)));
        return;
    }
    strbuf_init(&a, LIVE_REPORT_MAX_BYTES);
    live_rank_json(r, &a);
    MUST(strbuf_status(&a) == 0 && a.p[0] == '{' && a.p[a.n - 1] == '}');
}

FUZZ_TARGET(live_report)
{
    report_check(data, n);
    if (n > 0)
        rank_check(data + 1, n - 1);
    return 0;
}
