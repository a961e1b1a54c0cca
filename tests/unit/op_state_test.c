/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses as wholes: what is sent so that one becomes another. */
#include "tests/unit/unit.h"

#include "operator/core/state.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

static struct node *state_read_json(struct arena *a, const char *text)
{
    struct node *o = NULL;

    if (text)
        assert_int_equal(json_read(a, text, strlen(text), &o, NULL), 0);
    return o;
}

UNIT_TEST(a_patch_removes_absent_fields)
{
    static const struct {
        const char *old, *now, *patch;
    } row[] = {
        {NULL, "{\"a\":1}", "{\"a\":1}"},
        {"{}", "{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1}}"},
        {"{\"a\":1}", "{}", "{\"a\":null}"},
        {"{\"a\":{\"b\":1,\"c\":2}}", "{\"a\":{\"c\":2}}",
         "{\"a\":{\"c\":2,\"b\":null}}"},
        {"{\"a\":{\"b\":{\"c\":1}}}", "{\"a\":{\"b\":{}}}",
         "{\"a\":{\"b\":{\"c\":null}}}"},
        {"{\"a\":{\"b\":1}}", "{\"a\":3}", "{\"a\":3}"},
        {"{\"a\":3}", "{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1}}"},
        /* lists are replaced whole */
        {"{\"a\":[{\"b\":1,\"c\":2}]}", "{\"a\":[{\"c\":2}]}", "{\"a\":[{\"c\":2}]}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(arena_release) struct arena a;
        struct build b = {.arena = &a};
        CLEANUP(strbuf_release) struct strbuf out;

        arena_init(&a, 1u << 20);
        strbuf_init(&out, 4096);
        json_write(status_patch(&b, state_read_json(&a, row[i].old),
                                state_read_json(&a, row[i].now)),
                   &out);
        assert_string_equal(strbuf_str(&out), row[i].patch);
    }
}

UNIT_MAIN(NULL, NULL)
