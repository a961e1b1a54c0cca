/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP request of Prometheus. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_SCRAPE_H
#define RUNTIME_LAUNCH_CORE_SCRAPE_H

#include <stddef.h>

enum scrape_request {
    SCRAPE_PARTIAL, /* more bytes follow */
    SCRAPE_METRICS,
    SCRAPE_OTHER_PATH,
    SCRAPE_OTHER_METHOD
};
/* Reads what has arrived of a request. Only its first line counts; the request ends with
 * a blank line. */
enum scrape_request scrape_read(const char *p, size_t n);

#endif
