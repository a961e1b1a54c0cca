/* SPDX-License-Identifier: Apache-2.0 */
/* A request to the metrics of an agent, in the pieces in which it may arrive: a request
 * is complete from its blank line on, and what follows does not change it. */
#include "runtime/launch/core/scrape.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(scrape)
{
    const char *p = (const char *)data;
    enum scrape_request whole = scrape_read(p, n);
    const char *end = n ? memmem(p, n, "\r\n\r\n", 4) : NULL;
    size_t n_head = end ? (size_t)(end - p) + 4 : n;

    MUST((whole == SCRAPE_PARTIAL) == !end);
    if (whole == SCRAPE_METRICS)
        MUST(n >= 17 && memcmp(p, "GET /metrics", 12) == 0);
    for (size_t k = 0; k <= n; k++)
        MUST(scrape_read(p, k) == (k < n_head ? SCRAPE_PARTIAL : whole));
    return 0;
}
