/* SPDX-License-Identifier: Apache-2.0 */
/* The static files of the status page, as they were when the program was built. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_ASSETS_H
#define OPERATOR_PAGE_CORE_PAGE_ASSETS_H

#include <stdbool.h>
#include <stddef.h>

#define PAGE_ETAG_SIZE 20 /* with NUL */

struct page_asset {
    const void *bytes; /* static */
    size_t n;
    const char *content_type;  /* "text/css; charset=utf-8" */
    char etag[PAGE_ETAG_SIZE]; /* of the bytes, with its quotes */
};

/* path: of the request, without query: "/", "/page.css", "/page.js". False: no such file;
 * *ret is left alone. */
bool page_asset_find(const char *path, struct page_asset *ret);

#endif
