/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded files are those of the tree, whole, and their tags follow their content. */
#include "tests/unit/unit.h"

#include <stdio.h>

#include "operator/page/core/page_assets.h"
#include "runtime/base/mem.h"

static struct page_asset asset_found(const char *path)
{
    struct page_asset a = {0};

    if (!page_asset_find(path, &a))
        fail_msg("%s is not found", path);
    return a;
}

UNIT_TEST(each_file_is_that_of_the_tree)
{
    static const struct {
        const char *path, *type, *files[6];
    } row[] = {
        {"/", "text/html; charset=utf-8", {"index.html"}},
        {"/page.css", "text/css; charset=utf-8", {"page.css"}},
        {"/page.js",
         "text/javascript; charset=utf-8",
         {"text.js", "server.js", "list.js", "job.js", "main.js"}},
    };
    static char want[1 << 20];

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct page_asset a = asset_found(row[i].path);
        size_t n = 0;

        for (const char *const *name = row[i].files; *name; name++) {
            char path[100];
            FILE *f;

            (void)snprintf(path, sizeof(path), "operator/page/assets/%s", *name);
            f = fopen(path, "re");
            if (!f)
                fail_msg("%s cannot be read from here", path);
            n += fread(want + n, 1, sizeof(want) - n, f);
            fclose(f);
        }
        assert_in_range(n, 1000, sizeof(want) - 1);
        assert_int_equal(a.n, n);
        assert_memory_equal(a.bytes, want, n);
        assert_string_equal(a.content_type, row[i].type);
    }
}

UNIT_TEST(tags_are_quoted_and_differ)
{
    static const char *const path[] = {"/", "/page.css", "/page.js"};

    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        struct page_asset a = asset_found(path[i]);
        struct page_asset b = asset_found(path[(i + 1) % ARRAY_LEN(path)]);
        struct page_asset again = asset_found(path[i]);

        assert_int_equal(strlen(a.etag), PAGE_ETAG_SIZE - 2);
        assert_true(a.etag[0] == '"' && a.etag[PAGE_ETAG_SIZE - 3] == '"');
        assert_string_equal(a.etag, again.etag);
        assert_string_not_equal(a.etag, b.etag);
    }
}

UNIT_TEST(other_paths_are_not_found)
{
    static const char *const path[] = {
        "",           "page.css",     "/index.html", "/page.cs",     "/page.css/",
        "//page.css", "/../page.css", "/page.js?x",  "/api/v1/jobs",
    };
    struct page_asset a = {.n = 7};

    for (size_t i = 0; i < ARRAY_LEN(path); i++)
        if (page_asset_find(path[i], &a))
            fail_msg("\"%s\" is found", path[i]);
    assert_int_equal(a.n, 7);
}

UNIT_MAIN(NULL, NULL)
