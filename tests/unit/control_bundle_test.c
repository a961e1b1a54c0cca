/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles of items: whole, cut at every byte, bent. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/control/bundle.h"
#include "runtime/control/control.h"

static const uint8_t exits = LEAVE_EXIT;
static const uint8_t fails[] = {LEAVE_EXIT, 'e', 'n', 'd', 'e', 'd'};
static const struct up_item items[] = {
    {UP_WORK, 7, "requests", 8},  {UP_WORK, 16383, "", 0},
    {UP_SUSPECT, 1, "broken", 6}, {UP_LOST, 70000, "connection closed", 17},
    {UP_LEAVE, 2, &exits, 1},     {UP_LEAVE, 3, fails, sizeof(fails)},
    {UP_REPORT, 4, "totals", 6},
};

static void put_all(struct strbuf *b)
{
    strbuf_init(b, 4096);
    for (size_t i = 0; i < ARRAY_LEN(items); i++)
        bundle_put(b, &items[i]);
    assert_int_equal(strbuf_status(b), 0);
}

static struct bytes_reader bundle_reader(const struct strbuf *b, size_t n)
{
    return (struct bytes_reader){.p = (const uint8_t *)b->p, .left = n};
}

UNIT_TEST(what_goes_in_comes_out_in_order)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct bytes_reader in;
    struct up_item item;

    put_all(&b);
    in = bundle_reader(&b, b.n);
    for (size_t i = 0; i < ARRAY_LEN(items); i++) {
        assert_int_equal(bundle_next(&in, &item), 1);
        assert_int_equal(item.kind, items[i].kind);
        assert_int_equal(item.origin, items[i].origin);
        assert_int_equal(item.n, items[i].n);
        assert_memory_equal(item.p, items[i].p, item.n);
    }
    assert_int_equal(bundle_next(&in, &item), 0);
    assert_int_equal(bundle_next(&in, &item), 0);
}

/* Only between two items is an end. */
UNIT_TEST(a_cut_bundle_is_refused)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    put_all(&b);
    for (size_t n = 0; n <= b.n; n++) {
        AUTOFREE uint8_t *copy = mem_alloc(n); /* so that a look beyond is seen */
        struct bytes_reader in = {.p = copy, .left = n};
        struct up_item item;
        size_t end = 0, k = 0;
        int r;

        assert_non_null(copy);
        memcpy(copy, b.p, n);
        while ((r = bundle_next(&in, &item)) > 0)
            end += UP_HEADER_BYTES + items[k++].n;
        assert_int_equal(r, end == n ? 0 : -EBADMSG);
    }
}

static void assert_refused(const uint8_t *p, size_t n)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct up_item item = {.origin = 99};

    assert_int_equal(bundle_next(&in, &item), -EBADMSG);
    assert_int_equal(item.origin, 99); /* untouched */
}

UNIT_TEST(what_does_not_exist_is_refused)
{
    const uint8_t no_kind[] = {0, 1, 0, 0, 0, 0, 0, 0, 0};
    const uint8_t other_kind[] = {UP_KIND_END, 1, 0, 0, 0, 0, 0, 0, 0};
    const uint8_t huge[] = {UP_WORK, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1};
    const uint8_t reason[] = {UP_LEAVE, 1, 0, 0, 0, 1, 0, 0, 0, LEAVE_EXIT + 1};
    const uint8_t no_reason[] = {UP_LEAVE, 1, 0, 0, 0, 0, 0, 0, 0};
    uint8_t report[UP_HEADER_BYTES + UP_REPORT_MAX_BYTES + 1] = {UP_REPORT, 1};
    uint8_t text[UP_HEADER_BYTES + UP_TEXT_MAX_BYTES + 1] = {UP_SUSPECT, 1};

    assert_refused(no_kind, sizeof(no_kind));
    assert_refused(other_kind, sizeof(other_kind));
    assert_refused(huge, sizeof(huge));
    assert_refused(reason, sizeof(reason));
    assert_refused(no_reason, sizeof(no_reason));
    text[5] = (uint8_t)(UP_TEXT_MAX_BYTES + 1);
    text[6] = (UP_TEXT_MAX_BYTES + 1) >> 8;
    assert_refused(text, sizeof(text));
    text[0] = UP_LOST;
    assert_refused(text, sizeof(text));
    text[0] = UP_LEAVE;
    assert_refused(text, sizeof(text));
    bytes_store(report + 5, UP_REPORT_MAX_BYTES + 1, 4);
    assert_refused(report, sizeof(report));
}

UNIT_MAIN(NULL, NULL)
