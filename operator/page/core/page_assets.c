/* SPDX-License-Identifier: Apache-2.0 */
/* Embeds the files of operator/page/assets and finds them by path. /page.js is its parts, one
 * behind the other: they share one scope. The assembler reads the files from the source tree;
 * module.mk rebuilds this object when one of them changes. An ETag is a hash of the content,
 * so a browser keeps a file until the operator is upgraded. The server calls this for each
 * request of a static file. */
#include "operator/page/core/page_assets.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define PAGE_FILE(file) ".incbin \"operator/page/assets/" file "\"\n"
#define EMBED(name, files)                                                             \
    __asm__(".section .rodata\n"                                                       \
            ".balign 8\n"                                                              \
            ".hidden " name ", " name "_n\n"                                           \
            ".global " name ", " name "_n\n"                                           \
            "" name "_n: .8byte 2f - 1f\n"                                             \
            "" name ":\n"                                                              \
            "1:\n" files "2: .byte 0\n"                                                \
            ".previous\n")

EMBED("page_file_html", PAGE_FILE("index.html"));
EMBED("page_file_css", PAGE_FILE("page.css"));
EMBED("page_file_js",
      PAGE_FILE("text.js") PAGE_FILE("server.js") PAGE_FILE("list.js")
          PAGE_FILE("job.js") PAGE_FILE("main.js"));
extern const char page_file_html[], page_file_css[], page_file_js[];
extern const uint64_t page_file_html_n, page_file_css_n, page_file_js_n;

static const struct {
    const char *path, *content_type, *bytes;
    const uint64_t *n;
} files[] = {
    {"/", "text/html; charset=utf-8", page_file_html, &page_file_html_n},
    {"/page.css", "text/css; charset=utf-8", page_file_css, &page_file_css_n},
    {"/page.js", "text/javascript; charset=utf-8", page_file_js, &page_file_js_n},
};

bool page_asset_find(const char *path, struct page_asset *ret)
{
    uint8_t hash[SHA256_BYTES];
    char hex[2 * 8 + 1];

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (strcmp(path, files[i].path) != 0)
            continue;
        *ret = (struct page_asset){.bytes = files[i].bytes,
                                   .n = (size_t)*files[i].n,
                                   .content_type = files[i].content_type};
        sha256_digest(ret->bytes, ret->n, hash);
        hex_encode(hash, 8, hex);
        (void)snprintf(ret->etag, sizeof(ret->etag), "\"%s\"", hex);
        return true;
    }
    return false;
}
