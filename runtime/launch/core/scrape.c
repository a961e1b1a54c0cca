/* SPDX-License-Identifier: Apache-2.0 */
/* See scrape.h. Called by metrics.c. */
#include "runtime/launch/core/scrape.h"

#include <stdbool.h>
#include <string.h>

static bool bytes_begin(const char *p, size_t n, const char *text)
{
    return n >= strlen(text) && memcmp(p, text, strlen(text)) == 0;
}

enum scrape_request scrape_read(const char *p, size_t n)
{
    if (!n || !memmem(p, n, "\r\n\r\n", 4))
        return SCRAPE_PARTIAL;
    if (!bytes_begin(p, n, "GET "))
        return SCRAPE_OTHER_METHOD;
    p += 4;
    n -= 4;
    return bytes_begin(p, n, "/metrics ") || bytes_begin(p, n, "/metrics?")
               ? SCRAPE_METRICS
               : SCRAPE_OTHER_PATH;
}
