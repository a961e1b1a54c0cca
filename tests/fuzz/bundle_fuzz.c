/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles of the control channel: a parsed bundle is rendered to the same bytes. */
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/control/bundle.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(bundle)
{
    CLEANUP(strbuf_release) struct strbuf again = {0};
    struct bytes_reader in = {.p = data, .left = n};
    struct up_item item;
    size_t end = 0;

    strbuf_init(&again, n + 1);
    while (bundle_next(&in, &item) > 0) {
        const uint8_t *p = item.p;

        MUST(item.kind > 0 && item.kind < UP_KIND_END);
        MUST(item.n == 0 || (p >= data && p + item.n <= data + n));
        MUST(item.kind == UP_WORK || item.n <= UP_TEXT_MAX_BYTES);
        bundle_put(&again, &item);
        end = (size_t)(in.p - data);
    }
    MUST(strbuf_status(&again) == 0 && again.n == end);
    MUST(end == 0 || memcmp(again.p, data, end) == 0);
    return 0;
}
